//! Which certificate a client is shown: by the name it asks for, and replaced without a restart.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::Error;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// Looked into once for each full handshake, which costs a thousand times as much as the lock.
#[derive(Debug)]
pub(super) struct Resolver(RwLock<Arc<Shown>>);

#[derive(Debug)]
struct Shown {
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// For clients that name no host, or one that nobody here has.
    default: Arc<CertifiedKey>,
}

impl Resolver {
    pub(super) fn new(certificates: Vec<Certificate>) -> Result<Resolver, Error> {
        Ok(Resolver(RwLock::new(Arc::new(Shown::new(certificates)?))))
    }

    pub(super) fn replace(&self, certificates: Vec<Certificate>) -> Result<(), Error> {
        let shown = Arc::new(Shown::new(certificates)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = shown;
        Ok(())
    }

    fn shown(&self) -> Arc<Shown> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown().find(hello.server_name()).clone())
    }
}

impl Shown {
    fn new(certificates: Vec<Certificate>) -> Result<Shown, Error> {
        let first = certificates.first();
        let default = first.ok_or(Error::NoCertificatesPresented)?.key().clone();
        let mut by_name = HashMap::new();
        for certificate in &certificates {
            for name in certificate.names() {
                // Of two for one name the first counts, as it does for the default.
                by_name.entry(name.clone()).or_insert_with(|| certificate.key().clone());
            }
        }
        Ok(Shown { by_name, default })
    }

    fn find(&self, asked: Option<&str>) -> &Arc<CertifiedKey> {
        asked.and_then(|name| self.find_name(name)).unwrap_or(&self.default)
    }

    /// The exact name before a wildcard, which stands for one label (RFC 6125 6.4.3).
    fn find_name(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.by_name.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        })
    }
}
