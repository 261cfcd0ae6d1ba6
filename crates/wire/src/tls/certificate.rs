//! One certificate with its chain and key, checked before anything is served with it.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use webpki::EndEntityCert;

use super::der;

/// A certificate that can be served: its key fits.
#[derive(Clone, Debug)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Vec<String>,
    expires_at: Option<SystemTime>,
}

/// Why a certificate cannot be served.
#[derive(Debug)]
pub enum CertificateFault {
    /// The chain is empty.
    NoCertificate,
    /// There is no key that is one of PKCS#8, PKCS#1 or SEC1.
    NoKey,
    /// The chain is not PEM.
    ChainNotPem(pem::Error),
    /// The key is not PEM.
    KeyNotPem(pem::Error),
    /// The key belongs to another certificate.
    KeyDoesNotFit,
    /// The certificate or key is of a kind that we do not know.
    Unusable(Error),
    /// The certificate is no X.509 certificate.
    Malformed(webpki::Error),
}

impl Certificate {
    /// The chain with the server's own certificate first, and the key of that one, in PEM.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certificate, CertificateFault> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(CertificateFault::ChainNotPem)?;
        let first = chain.first().ok_or(CertificateFault::NoCertificate)?;
        let parsed = EndEntityCert::try_from(first).map_err(CertificateFault::Malformed)?;
        let names = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
        let expires_at = der::expiry(first);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => CertificateFault::NoKey,
            error => CertificateFault::KeyNotPem(error),
        })?;
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(
            |error| match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    CertificateFault::KeyDoesNotFit
                }
                error => CertificateFault::Unusable(error),
            },
        )?;
        Ok(Certificate { key: Arc::new(key), names, expires_at })
    }

    /// One that answers an authority's challenge (RFC 8737): nobody else reads it, and nobody else
    /// could, because it holds an extension that readers must know.
    pub fn proof(chain: &[u8], key: &[u8]) -> Result<Certificate, CertificateFault> {
        let chain = CertificateDer::from_pem_slice(chain).map_err(CertificateFault::ChainNotPem)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(CertificateFault::KeyNotPem)?;
        let key = aws_lc_rs::default_provider().key_provider.load_private_key(key);
        let key = CertifiedKey::new(vec![chain], key.map_err(CertificateFault::Unusable)?);
        Ok(Certificate { key: Arc::new(key), names: Vec::new(), expires_at: None })
    }

    /// The names of hosts it is for, in lower case; `*.` stands for one label.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// When it ends; none if that cannot be read.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at
    }

    /// The certificate itself in DER, of which fingerprints are made.
    pub fn der(&self) -> &[u8] {
        self.key.cert.first().map_or(&[], |first| first)
    }

    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            CertificateFault::NoCertificate => "there is no PEM certificate where it should be",
            CertificateFault::NoKey => {
                "there is no PEM private key where it should be: PKCS#8, RSA or SEC1, without a \
                 passphrase"
            }
            CertificateFault::ChainNotPem(_) => "the certificate is not PEM",
            CertificateFault::KeyNotPem(_) => "the private key is not PEM",
            CertificateFault::KeyDoesNotFit => "the private key is not the certificate's",
            CertificateFault::Unusable(_) => "the certificate or its key cannot be used",
            CertificateFault::Malformed(_) => "the certificate is malformed",
        };
        formatter.write_str(text)
    }
}

impl std::error::Error for CertificateFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CertificateFault::ChainNotPem(error) | CertificateFault::KeyNotPem(error) => {
                Some(error)
            }
            CertificateFault::Unusable(error) => Some(error),
            CertificateFault::Malformed(error) => Some(error),
            _ => None,
        }
    }
}
