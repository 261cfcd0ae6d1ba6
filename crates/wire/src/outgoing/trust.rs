//! TLS towards other servers: whom to trust, and who we are. Does not open connections.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};

use super::fault::{OutgoingFault, refused_tls};
use super::target::Protocol;
use crate::tls::Certificate;

/// Whom to trust, and the certificate to show to servers that ask for one. Cheap to clone; the
/// clones share their sessions, and the connections of targets that use them.
#[derive(Clone, Default)]
pub struct ClientTls(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// None: the system's authorities, read when first needed.
    roots: Option<Arc<RootCertStore>>,
    identity: Option<Arc<CertifiedKey>>,
    /// By protocol. One for all calls: it also remembers sessions, which makes the next handshake
    /// with the same server shorter.
    configs: [OnceLock<Arc<ClientConfig>>; 3],
}

impl ClientTls {
    /// Trusts these certificate authorities (DER) and no others, or else those of the system.
    /// `identity` is for servers that ask for a certificate.
    pub fn new(
        authorities: Option<Vec<Vec<u8>>>,
        identity: Option<&Certificate>,
    ) -> Result<ClientTls, OutgoingFault> {
        let roots = match authorities {
            None => None,
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots.add(CertificateDer::from(authority)).map_err(refused_tls)?;
                }
                Some(Arc::new(roots))
            }
        };
        let identity = identity.map(|certificate| certificate.key().clone());
        Ok(ClientTls(Arc::new(Inner { roots, identity, configs: Default::default() })))
    }

    pub(super) fn config(&self, protocol: Protocol) -> Result<Arc<ClientConfig>, OutgoingFault> {
        let (place, names): (usize, &[&[u8]]) = match protocol {
            Protocol::Http1 => (0, &[]),
            Protocol::Http2 => (1, &[b"h2"]),
            Protocol::Negotiated => (2, &[b"h2", b"http/1.1"]),
        };
        let configs = &self.0.configs[place];
        if let Some(config) = configs.get() {
            return Ok(config.clone());
        }
        let roots = match &self.0.roots {
            Some(roots) => roots.clone(),
            None => system_roots()?,
        };
        let mut config = config(roots, self.0.identity.as_ref());
        config.alpn_protocols = names.iter().map(|name| name.to_vec()).collect();
        Ok(configs.get_or_init(|| Arc::new(config)).clone())
    }

    /// The same one, not only an equal one.
    pub(super) fn is(&self, other: &ClientTls) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It holds a key.
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

/// Not kept if there are none: the next call looks again, the operator may install them meanwhile.
fn system_roots() -> Result<Arc<RootCertStore>, OutgoingFault> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    match added {
        0 => Err(refused_tls("the system has no certificate authorities")),
        _ => Ok(Arc::new(roots)),
    }
}

fn config(roots: Arc<RootCertStore>, identity: Option<&Arc<CertifiedKey>>) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default protocol versions")
        .with_root_certificates(roots);
    match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let identity = SingleCertAndKey::from(identity.clone());
            builder.with_client_cert_resolver(Arc::new(identity))
        }
    }
}
