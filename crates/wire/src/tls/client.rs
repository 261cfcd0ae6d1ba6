//! Certificates of clients: which authorities may issue them, and what the service learns of one.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::{der, provider};

/// Who may issue the certificates of clients, and whether a client needs one.
#[derive(Clone)]
pub struct ClientAuthorities(pub(super) Arc<dyn ClientCertVerifier>);

/// Why certificates of clients cannot be checked.
#[derive(Debug)]
pub enum ClientAuthoritiesFault {
    NotPem(pem::Error),
    Empty,
    /// One of them is no certificate of an authority.
    Unusable(Box<dyn std::error::Error + Send + Sync>),
}

impl ClientAuthorities {
    /// The certificates of the authorities in PEM. `is_required`: a client without a certificate is
    /// refused in its handshake.
    pub fn from_pem(
        text: &[u8],
        is_required: bool,
    ) -> Result<ClientAuthorities, ClientAuthoritiesFault> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(text) {
            let certificate = certificate.map_err(ClientAuthoritiesFault::NotPem)?;
            let added = roots.add(certificate);
            added.map_err(|error| ClientAuthoritiesFault::Unusable(error.into()))?;
        }
        if roots.is_empty() {
            return Err(ClientAuthoritiesFault::Empty);
        }
        let provider = Arc::new(provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if is_required { builder } else { builder.allow_unauthenticated() };
        let verifier = builder.build();
        let verifier = verifier.map_err(|error| ClientAuthoritiesFault::Unusable(error.into()))?;
        Ok(ClientAuthorities(verifier))
    }
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthorities").finish_non_exhaustive()
    }
}

impl fmt::Display for ClientAuthoritiesFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientAuthoritiesFault::NotPem(_) => "the authorities of clients are not PEM",
            ClientAuthoritiesFault::Empty => "there is no PEM certificate of an authority",
            ClientAuthoritiesFault::Unusable(_) => "a certificate is none of an authority",
        })
    }
}

impl std::error::Error for ClientAuthoritiesFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientAuthoritiesFault::NotPem(error) => Some(error),
            ClientAuthoritiesFault::Empty => None,
            ClientAuthoritiesFault::Unusable(error) => Some(&**error),
        }
    }
}

/// The certificate of a client, which an authority has issued.
#[derive(Debug)]
pub struct ClientCertificate {
    der: Vec<u8>,
    subject: String,
}

impl ClientCertificate {
    /// None if its subject cannot be read.
    pub(super) fn new(certificate: &CertificateDer<'_>) -> Option<ClientCertificate> {
        let subject = der::subject(certificate)?;
        Some(ClientCertificate { der: certificate.to_vec(), subject })
    }

    /// Its subject as RFC 4514 writes it: visible ASCII, everything else escaped.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }
}
