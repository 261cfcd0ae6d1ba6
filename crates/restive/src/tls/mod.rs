//! The certificates of `restive serve`: finds their files, reports errors in them, and reloads them
//! when they change. The crate `wire` uses them.

mod acme;

use crate::args::{self, ClientAuth, TlsMode};
use crate::output::say;
use crate::redirect::Tokens;
use acme::{Acme, AcmeClient};
use anyhow::{Context as _, bail};
use instant_acme::LetsEncrypt;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use sha2::{Digest as _, Sha256};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{Signal, SignalKind, signal};
use wire::Tls;
use wire::tls::{Certificate, ClientAuthorities};

/// Maximum length of a host name (RFC 1035).
const NAME_CHARS: usize = 253;
/// Files in the data folder.
const SELF_SIGNED_CERT: &str = "self-signed.crt";
const SELF_SIGNED_KEY: &str = "self-signed.key";
/// Validity of a self-signed certificate. A year: less than the limit of browsers (398 days).
const SELF_SIGNED_LIFE: Duration = Duration::from_secs(365 * 86_400);
/// A self-signed certificate with less time left is replaced at the start.
const SELF_SIGNED_REST: Duration = Duration::from_secs(7 * 86_400);
/// Time by which the start of the validity is backdated: the clocks of clients may be slow.
const SELF_SIGNED_BACKDATED: Duration = Duration::from_secs(86_400);
/// Interval of checks for changed files. A change is loaded at the second check that sees it, so
/// that a key written a moment after its certificate is not an error.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The source of the certificates.
pub enum Source {
    Files(Vec<Pair>),
    SelfSigned,
    Acme(Acme),
}

/// The files of one certificate and its key.
#[derive(Clone)]
pub struct Pair {
    cert: PathBuf,
    key: PathBuf,
}

/// The authorities of clients that the arguments name.
pub fn clients(given: &args::ClientCertificates) -> anyhow::Result<Option<ClientAuthorities>> {
    let Some(file) = &given.client_ca else { return Ok(None) };
    let shown = file.display();
    let text = fs::read(file).with_context(|| format!("--client-ca {shown} cannot be read"))?;
    let is_required = given.client_auth == ClientAuth::Require;
    let authorities = ClientAuthorities::from_pem(&text, is_required);
    authorities.map(Some).with_context(|| format!("--client-ca {shown} cannot be used"))
}

/// The source that the arguments name; `None` without TLS.
pub fn source(given: &args::Tls, tokens: Option<Tokens>) -> anyhow::Result<Option<Source>> {
    let (certs, keys) = (given.tls_cert.len(), given.tls_key.len());
    let wants_acme = !given.acme_domain.is_empty() || given.acme_directory.is_some();
    match given.tls {
        Some(_) if certs + keys > 0 => bail!(
            "--tls and --tls-cert exclude each other; leave out --tls to serve your own certificate"
        ),
        Some(TlsMode::Acme) => return acme_source(given, tokens).map(Some),
        _ if wants_acme => bail!("--acme-domain and --acme-directory need --tls acme"),
        Some(TlsMode::SelfSigned) => return Ok(Some(Source::SelfSigned)),
        None => {}
    }
    if certs != keys {
        bail!(
            "{certs} --tls-cert and {keys} --tls-key were given; give one key for each \
             certificate, in the same order"
        );
    }
    let pairs = given.tls_cert.iter().cloned().zip(given.tls_key.iter().cloned());
    let pairs: Vec<Pair> = pairs.map(|(cert, key)| Pair { cert, key }).collect();
    Ok(if pairs.is_empty() { None } else { Some(Source::Files(pairs)) })
}

fn acme_source(given: &args::Tls, tokens: Option<Tokens>) -> anyhow::Result<Source> {
    if given.acme_domain.is_empty() {
        bail!("--tls acme needs --acme-domain: the host name of this server");
    }
    for name in &given.acme_domain {
        let fits = !name.is_empty() && name.len() <= NAME_CHARS && name.split('.').all(is_label);
        if !fits {
            bail!("--acme-domain `{name}` is not a host name such as shop.example.com");
        }
    }
    let directory = given.acme_directory.clone();
    Ok(Source::Acme(Acme {
        domains: given.acme_domain.clone(),
        email: given.acme_email.clone(),
        directory: directory.unwrap_or_else(|| LetsEncrypt::Production.url().to_owned()),
        tokens,
    }))
}

fn is_label(label: &str) -> bool {
    let letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    !label.is_empty() && letters && !label.starts_with('-') && !label.ends_with('-')
}

/// When the certificates in files expire, by file. Others are made by the server itself.
pub fn expiries(given: &args::Tls) -> anyhow::Result<Vec<(String, Option<SystemTime>)>> {
    let Some(Source::Files(pairs)) = source(given, None)? else { return Ok(Vec::new()) };
    let one = |pair: &Pair| Ok((pair.cert.display().to_string(), read(pair)?.expires_at()));
    pairs.iter().map(one).collect()
}

/// The certificates in use, and their files.
pub struct Secured {
    tls: Tls,
    pairs: Vec<Pair>,
    is_self_signed: bool,
    /// The state of the files when they were read.
    stamp: Vec<Option<Stamp>>,
    /// Obtains certificates, if they come from an authority.
    keeper: Option<AcmeClient>,
}

/// The properties of a file that change with its content: time, size and identity.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(i64, i64, u64, u64);

impl Secured {
    /// Reads the files, or creates them in the data folder.
    pub fn load(
        source: Source,
        data: &Path,
        listen: IpAddr,
        clients: Option<ClientAuthorities>,
    ) -> anyhow::Result<Secured> {
        let (pairs, is_self_signed) = match source {
            Source::Files(pairs) => (pairs, false),
            Source::SelfSigned => (vec![self_signed(data, listen)?], true),
            Source::Acme(acme) => {
                let keeper = Some(AcmeClient::new(acme, data)?);
                let first = keeper.iter().map(AcmeClient::first).collect::<Result<_, _>>()?;
                let tls = Tls::with_clients(first, clients).context("TLS cannot be set up")?;
                let (pairs, stamp) = (Vec::new(), Vec::new());
                return Ok(Secured { tls, pairs, is_self_signed: false, stamp, keeper });
            }
        };
        let stamp = stamp(&pairs);
        let certificates = read_all(&pairs)?;
        if let (true, Some(certificate)) = (is_self_signed, certificates.first()) {
            say!("self-signed certificate {}", pairs[0].cert.display());
            say!("  SHA-256 {}", fingerprint(certificate));
        }
        let tls = Tls::with_clients(certificates, clients).context("TLS cannot be set up")?;
        Ok(Secured { tls, pairs, is_self_signed, stamp, keeper: None })
    }

    pub fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// The certificate that clients must be configured to trust.
    pub fn self_signed(&self) -> Option<&Path> {
        self.is_self_signed.then(|| self.pairs[0].cert.as_path())
    }

    /// Reloads the files when they change and on SIGHUP, or renews certificates. SIGHUP is handled
    /// from the call on.
    pub fn follow(mut self) -> anyhow::Result<impl Future<Output = ()> + Send> {
        let mut hangup = signal(SignalKind::hangup())?;
        Ok(async move {
            if let Some(keeper) = self.keeper.take() {
                return keeper.run(self.tls).await;
            }
            loop {
                self.change(&mut hangup).await;
                // Not tried again before the next change, so that an error is logged once.
                self.stamp = stamp(&self.pairs);
                match self.reload() {
                    Ok(()) => tracing::info!("the TLS certificates were reloaded"),
                    Err(error) => tracing::error!(
                        error = format!("{error:#}"),
                        "the new TLS certificates cannot be used; the server keeps the old ones"
                    ),
                }
            }
        })
    }

    /// Completes when the files differ from those that were read and no longer change.
    async fn change(&self, hangup: &mut Signal) {
        let mut last = self.stamp.clone();
        loop {
            tokio::select! {
                _ = hangup.recv() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
            let now = stamp(&self.pairs);
            if now != self.stamp && now == last {
                return;
            }
            last = now;
        }
    }

    fn reload(&self) -> anyhow::Result<()> {
        Ok(self.tls.replace(read_all(&self.pairs)?)?)
    }
}

fn stamp(pairs: &[Pair]) -> Vec<Option<Stamp>> {
    let files = pairs.iter().flat_map(|pair| [&pair.cert, &pair.key]);
    files
        .map(|file| {
            let data = fs::metadata(file).ok()?;
            Some(Stamp(data.mtime(), data.mtime_nsec(), data.size(), data.ino()))
        })
        .collect()
}

fn read_all(pairs: &[Pair]) -> anyhow::Result<Vec<Certificate>> {
    pairs.iter().map(read).collect()
}

fn read(pair: &Pair) -> anyhow::Result<Certificate> {
    let (cert, key) = (pair.cert.display(), pair.key.display());
    let chain = fs::read(&pair.cert)
        .with_context(|| format!("the certificate file {cert} cannot be read"))?;
    let secret =
        fs::read(&pair.key).with_context(|| format!("the key file {key} cannot be read"))?;
    let certificate = Certificate::from_pem(&chain, &secret).with_context(|| {
        format!("the certificate in {cert} cannot be served with the key in {key}")
    })?;
    if certificate.expires_at().is_some_and(|end| end < SystemTime::now()) {
        tracing::warn!(file = %cert, "the certificate has expired; clients will refuse it");
    }
    Ok(certificate)
}

/// The fingerprint as `openssl x509 -fingerprint -sha256` and browsers show it.
fn fingerprint(certificate: &Certificate) -> String {
    let digest = Sha256::digest(certificate.der());
    let pairs: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

/// The stored self-signed certificate while it is valid, otherwise a new one.
fn self_signed(data: &Path, listen: IpAddr) -> anyhow::Result<Pair> {
    let pair = Pair { cert: data.join(SELF_SIGNED_CERT), key: data.join(SELF_SIGNED_KEY) };
    if pair.cert.exists() && pair.key.exists() {
        let kept = read(&pair).context("delete the two files to create new ones")?;
        if kept.expires_at().is_some_and(|end| end > SystemTime::now() + SELF_SIGNED_REST) {
            return Ok(pair);
        }
    }
    let key = KeyPair::generate()?;
    let certificate = self_signed_params(listen).self_signed(&key)?;
    write(&pair.key, &key.serialize_pem(), 0o600)?;
    write(&pair.cert, &certificate.pem(), 0o600)?;
    Ok(pair)
}

fn self_signed_params(listen: IpAddr) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "restive, self-signed");
    let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let listen = (!listen.is_unspecified() && !local.contains(&listen)).then_some(listen);
    params.subject_alt_names = local.into_iter().chain(listen).map(SanType::IpAddress).collect();
    if let Ok(name) = "localhost".try_into() {
        params.subject_alt_names.push(SanType::DnsName(name));
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let begin = now.saturating_sub(SELF_SIGNED_BACKDATED);
    params.not_before = epoch + begin;
    params.not_after = epoch + begin + SELF_SIGNED_LIFE;
    // Strict clients (Python since 3.13) require the key identifier of the issuer. The key's own
    // identifier belongs to a certificate that states that it cannot sign others.
    params.use_authority_key_identifier_extension = true;
    params.is_ca = IsCa::ExplicitNoCa;
    params
}

/// Writes the file completely or not at all, and never readable for others in between.
fn write(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let written = || -> std::io::Result<()> {
        let draft = file.with_extension("new");
        let _ = fs::remove_file(&draft);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode).open(&draft)?.write_all(text.as_bytes())?;
        fs::rename(&draft, file)
    };
    written().with_context(|| format!("{} cannot be written", file.display()))
}
