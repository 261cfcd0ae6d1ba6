//! Which certificate a client is shown: by the name it asks for, and replaced without a restart.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::Error;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::CHALLENGE;
use super::certificate::Certificate;

/// Looked into once for each full handshake, which costs a thousand times as much as the lock.
#[derive(Debug)]
pub(super) struct Resolver {
    shown: RwLock<Arc<Shown>>,
    /// Certificates that prove to an authority who we are (RFC 8737), by name.
    challenges: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

#[derive(Debug)]
struct Shown {
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// For clients that name no host, or one that nobody here has.
    default: Arc<CertifiedKey>,
}

impl Resolver {
    pub(super) fn new(certificates: Vec<Certificate>) -> Result<Resolver, Error> {
        let shown = RwLock::new(Arc::new(Shown::new(certificates)?));
        Ok(Resolver { shown, challenges: RwLock::default() })
    }

    pub(super) fn replace(&self, certificates: Vec<Certificate>) -> Result<(), Error> {
        let shown = Arc::new(Shown::new(certificates)?);
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = shown;
        Ok(())
    }

    /// Shows this to an authority that asks for the name, or nothing from now on.
    pub(super) fn challenge(&self, name: &str, certificate: Option<&Certificate>) {
        let name = name.to_ascii_lowercase();
        let mut challenges = self.challenges.write().unwrap_or_else(PoisonError::into_inner);
        match certificate {
            Some(certificate) => challenges.insert(name, certificate.key().clone()),
            None => challenges.remove(&name),
        };
    }

    /// Whether clients are shown different certificates for different names.
    pub(super) fn has_several(&self) -> bool {
        let shown = self.shown();
        shown.by_name.values().any(|key| !Arc::ptr_eq(key, &shown.default))
    }

    /// Whether clients are shown different certificates for these names.
    pub(super) fn differ(&self, one: &str, other: &str) -> bool {
        let shown = self.shown();
        !Arc::ptr_eq(shown.find(Some(one)), shown.find(Some(other)))
    }

    fn challenged(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let challenges = self.challenges.read().unwrap_or_else(PoisonError::into_inner);
        challenges.get(&name?.to_ascii_lowercase()).cloned()
    }

    fn shown(&self) -> Arc<Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut offered = hello.alpn().into_iter().flatten();
        if offered.next() == Some(CHALLENGE) && offered.next().is_none() {
            return self.challenged(hello.server_name());
        }
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
