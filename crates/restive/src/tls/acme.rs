//! Certificates from an authority (ACME, RFC 8555): obtained after the start, stored in the data
//! folder, renewed after two thirds of their lifetime. The authority verifies the names through the
//! TLS port itself (TLS-ALPN-01), or through plain HTTP if that is served (HTTP-01).

use super::{Pair, write};
use crate::redirect::Tokens;
use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType,
    HttpClient, Identifier, KeyAuthorization, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use sha2::{Digest as _, Sha256};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};
use wire::Tls;
use wire::outgoing::{Call, CallTimeouts, Client, Retry, Target};
use wire::tls::Certificate;

/// Subfolder of the data folder.
const FOLDER: &str = "acme";
/// Timeout of one exchange with the authority, and the largest response: chains have some
/// kilobytes.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_BYTES: usize = 1 << 20;
/// Time limit for the authority to verify the names and to issue the certificate.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));
/// Delays after failing to reach the authority: the first and the longest.
const UNREACHABLE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(600)];
/// Delays after a refusal: longer, because authorities limit the number of refusals.
const REFUSED: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(12 * 3600)];
/// The longest sleep before the clock is read again: a clock may jump.
const LOOK: Duration = Duration::from_secs(600);

pub struct Acme {
    pub domains: Vec<String>,
    pub email: Option<String>,
    pub directory: String,
    /// Responses to HTTP-01, if plain HTTP is served; otherwise TLS-ALPN-01 is used.
    pub tokens: Option<Tokens>,
}

/// Obtains certificates and stores them in a data folder.
pub struct AcmeClient {
    acme: Acme,
    folder: PathBuf,
    client: Client,
}

/// Why there is no certificate.
enum Failure {
    Unreachable(anyhow::Error),
    Refused(anyhow::Error),
}

impl Failure {
    /// An error in an authority's response is a refusal, and authorities limit their number.
    fn of(error: instant_acme::Error, what: &str) -> Failure {
        let refused = matches!(error, instant_acme::Error::Api(_));
        let error = anyhow::Error::from(error).context(what.to_owned());
        if refused { Failure::Refused(error) } else { Failure::Unreachable(error) }
    }
}

impl AcmeClient {
    pub fn new(acme: Acme, data: &Path) -> anyhow::Result<AcmeClient> {
        let folder = data.join(FOLDER);
        crate::data::make(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(AcmeClient { acme, folder, client: Client::new() })
    }

    fn pair(&self) -> Pair {
        let name = self.acme.domains.first().map_or("certificate", String::as_str);
        let file = |kind: &str| self.folder.join(format!("{name}.{kind}"));
        Pair { cert: file("crt"), key: file("pem") }
    }

    /// The stored certificate, if it is for these names.
    fn stored(&self) -> Option<Certificate> {
        let both = self.pair().key;
        let kept = super::read(&Pair { cert: both.clone(), key: both }).ok()?;
        let covers = |name: &String| kept.names().contains(&name.to_ascii_lowercase());
        self.acme.domains.iter().all(covers).then_some(kept)
    }

    /// The certificate to serve at first: the stored one, or a self-signed one until the authority
    /// has issued one.
    pub fn first(&self) -> anyhow::Result<Certificate> {
        if let Some(stored) = self.stored() {
            return Ok(stored);
        }
        let key = KeyPair::generate()?;
        let made = CertificateParams::new(self.acme.domains.clone())?.self_signed(&key)?;
        Ok(Certificate::from_pem(made.pem().as_bytes(), key.serialize_pem().as_bytes())?)
    }

    /// Obtains and renews certificates forever.
    pub async fn run(self, tls: Tls) {
        let (mut failures, mut kind) = (0, UNREACHABLE);
        loop {
            let wait = self.due();
            if wait > Duration::ZERO {
                tokio::time::sleep(wait.min(LOOK)).await;
                continue;
            }
            let names = self.acme.domains.join(", ");
            let (error, steps) = match self.obtain(&tls).await {
                Ok(()) => {
                    tracing::info!(names, "a certificate was obtained");
                    failures = 0;
                    // Whatever the clock says, do not request the next one at once.
                    tokio::time::sleep(REFUSED[0]).await;
                    continue;
                }
                Err(Failure::Unreachable(error)) => (error, UNREACHABLE),
                Err(Failure::Refused(error)) => (error, REFUSED),
            };
            failures = if steps == kind { failures + 1 } else { 1 };
            kind = steps;
            let [first, longest] = steps;
            let pause = first.saturating_mul(1 << (failures - 1).min(20)).min(longest);
            tracing::error!(
                names,
                error = format!("{error:#}"),
                "no certificate was obtained; next try in {} s",
                pause.as_secs()
            );
            tokio::time::sleep(pause).await;
        }
    }

    /// Time until the stored certificate must be renewed: at two thirds of its lifetime.
    fn due(&self) -> Duration {
        let Some(end) = self.stored().and_then(|kept| kept.expires_at()) else {
            return Duration::ZERO;
        };
        let made = std::fs::metadata(self.pair().key).and_then(|data| data.modified());
        let made = made.unwrap_or(SystemTime::UNIX_EPOCH);
        let life = end.duration_since(made).unwrap_or_default();
        (made + life / 3 * 2).duration_since(SystemTime::now()).unwrap_or_default()
    }

    async fn obtain(&self, tls: &Tls) -> Result<(), Failure> {
        let account = self.account().await?;
        let names = self.acme.domains.iter().cloned().map(Identifier::Dns);
        let names: Vec<Identifier> = names.collect();
        let order = account.new_order(&NewOrder::new(&names)).await;
        let mut order = order.map_err(|error| Failure::of(error, "no order was created"))?;
        let fulfilled = self.fulfil(&mut order, tls).await;
        for name in &self.acme.domains {
            tls.challenge(name, None);
        }
        if let Some(tokens) = &self.acme.tokens {
            tokens.clear();
        }
        fulfilled.map_err(Failure::Refused)
    }

    /// The account at this authority, created at first use.
    async fn account(&self) -> Result<Account, Failure> {
        let directory = &self.acme.directory;
        let digest = Sha256::digest(directory.as_bytes());
        let place: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let file = self.folder.join(format!("account-{place}.json"));
        let builder = Account::builder_with_http(Box::new(Http(self.client.clone())));
        if let Ok(text) = std::fs::read_to_string(&file) {
            let credentials: AccountCredentials = serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged; delete it", file.display()))
                .map_err(Failure::Refused)?;
            let account = builder.from_credentials(credentials).await;
            return account.map_err(|error| Failure::of(error, "the account was not found"));
        }
        let contact = self.acme.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let made = builder.create(&new, directory.clone(), None).await;
        let (account, credentials) = made
            .map_err(|error| Failure::of(error, &format!("no account created at {directory}")))?;
        // If it cannot be stored, every attempt would create another account, so treat it as slowly
        // as a refusal.
        let kept = serde_json::to_string(&credentials).map_err(anyhow::Error::from);
        let kept = kept.and_then(|text| write(&file, &text, 0o600));
        kept.map(|()| account).map_err(Failure::Refused)
    }

    async fn fulfil(&self, order: &mut Order, tls: &Tls) -> anyhow::Result<()> {
        self.prove(order, tls).await?;
        if order.poll_ready(&PATIENCE).await? != OrderStatus::Ready {
            bail!(why(order).await);
        }
        let key = KeyPair::generate()?;
        let request = CertificateParams::new(self.acme.domains.clone())?.serialize_request(&key)?;
        order.finalize_csr(request.der()).await?;
        let chain = order.poll_certificate(&PATIENCE).await?;
        let key = key.serialize_pem();
        let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes())
            .context("the authority's certificate cannot be served")?;
        tls.replace(vec![certificate])?;
        // Both are in one file, which is written completely or not at all; the other file is for
        // people.
        let pair = self.pair();
        write(&pair.key, &format!("{key}{chain}"), 0o600)?;
        write(&pair.cert, &chain, 0o600)
    }

    /// Sets up the response to a challenge for each name, and tells the authority.
    async fn prove(&self, order: &mut Order, tls: &Tls) -> anyhow::Result<()> {
        let kind = match self.acme.tokens {
            Some(_) => ChallengeType::Http01,
            None => ChallengeType::TlsAlpn01,
        };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                status => bail!("an authorization is {status:?}"),
            }
            let mut challenge = authorization
                .challenge(kind.clone())
                .ok_or_else(|| anyhow!("the authority offers no {kind:?}"))?;
            let answer = challenge.key_authorization();
            match &self.acme.tokens {
                Some(tokens) => tokens.put(&challenge.token, answer.as_str()),
                None => {
                    let name = challenge.identifier().to_string();
                    tls.challenge(&name, Some(&proof(&name, &answer)?));
                }
            }
            challenge.set_ready().await?;
        }
        Ok(())
    }
}

/// The certificate that responds to a challenge (RFC 8737 3).
fn proof(name: &str, answer: &KeyAuthorization) -> anyhow::Result<Certificate> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(answer.digest().as_ref())];
    let made = params.self_signed(&key)?;
    Ok(Certificate::proof(made.pem().as_bytes(), key.serialize_pem().as_bytes())?)
}

/// The authority's reason for names that it could not verify.
async fn why(order: &mut Order) -> String {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let Ok(authorization) = authorization else { continue };
        let name = authorization.identifier().to_string();
        let faults = authorization.challenges.iter().filter_map(|each| each.error.as_ref());
        reasons.extend(faults.map(|problem| format!("{name}: {problem}")));
    }
    match reasons.is_empty() {
        true => "the authority did not say why".to_owned(),
        false => reasons.join("; "),
    }
}

/// Adapts our own HTTP client to instant-acme.
struct Http(Client);

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let other = |fault| instant_acme::Error::Other(Box::new(fault));
            let target = Target::parse(&head.uri.to_string()).map_err(other)?;
            let mut call = Call {
                headers: head.headers,
                body: body.to_bytes().into(),
                timeouts: CallTimeouts::until(Instant::now() + EXCHANGE_TIMEOUT),
                retry: Retry::Replayable,
                max_response_bytes: ANSWER_BYTES,
                ..Call::new(head.method, &target)
            };
            let reply = client.send(&mut call).await.result.map_err(other)?;
            let mut response = Response::new(Full::new(reply.body));
            *response.status_mut() = reply.status;
            *response.headers_mut() = reply.headers;
            Ok(BytesResponse::from(response))
        })
    }
}
