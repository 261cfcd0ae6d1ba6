//! Outgoing requests: action callouts now, webhooks later. One connection for each call; redirects
//! are never followed, because the address was checked and the next one was not. Runs on the
//! runtime of whichever thread calls it and starts no task.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;

/// The most a response head may hold; the parser's buffer.
const HEAD_BYTES: usize = 64 * 1024;

/// Sends requests to other servers. Cheap to clone.
#[derive(Clone, Default)]
pub struct Client {
    tls: Arc<OnceLock<Arc<ClientConfig>>>,
}

/// What a call was doing; says where a timeout struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Resolve,
    Connect,
    Tls,
    Head,
    Body,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum OutgoingFault {
    /// The URL is not one we can call. A retry does not help.
    Url(&'static str),
    /// The host name has no address.
    Resolve(io::Error),
    /// No address of the host accepted a connection.
    Connect(io::Error),
    /// The TLS handshake failed: certificate, name or protocol.
    Tls(io::Error),
    /// The deadline passed during this stage.
    Timeout(Stage),
    /// The response body is larger than the caller takes.
    TooLarge,
    /// The other side broke off or does not speak HTTP/1.1.
    Protocol(Box<dyn Error + Send + Sync>),
}

/// The stage a call has reached. Atomic only so that the call can move between threads.
#[derive(Default)]
struct Progress(AtomicU8);

impl Progress {
    fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    fn get(&self) -> Stage {
        use Stage::{Body, Connect, Head, Resolve, Tls};
        let reached = self.0.load(Ordering::Relaxed);
        let mut stages = [Connect, Tls, Head, Body].into_iter();
        stages.find(|stage| *stage as u8 == reached).unwrap_or(Resolve)
    }
}

impl Client {
    /// Trusts the system's certificate authorities, which are read at the first `https` call.
    pub fn new() -> Client {
        Client::default()
    }

    /// Trusts these certificate authorities (DER) and no others.
    pub fn trusting(authorities: Vec<Vec<u8>>) -> Result<Client, OutgoingFault> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(CertificateDer::from(authority)).map_err(refused_tls)?;
        }
        let client = Client::new();
        client.tls.get_or_init(|| Arc::new(config(roots)));
        Ok(client)
    }

    /// Sends a POST and takes the whole answer. The deadline covers all of it: name, connection,
    /// TLS, head and body.
    pub async fn post(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
        deadline: Instant,
        max_response_bytes: usize,
    ) -> Result<(StatusCode, HeaderMap, Bytes), OutgoingFault> {
        let target = Target::parse(url)?;
        let request = target.post(headers, body)?;
        let stage = Progress::default();
        let work = self.exchange(&target, request, max_response_bytes, &stage);
        match timeout_at(deadline.into(), work).await {
            Ok(result) => result,
            Err(_) => Err(OutgoingFault::Timeout(stage.get())),
        }
    }

    async fn exchange(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        max_response_bytes: usize,
        stage: &Progress,
    ) -> Result<(StatusCode, HeaderMap, Bytes), OutgoingFault> {
        let addresses = lookup_host((target.host(), target.port));
        let addresses: Vec<_> = addresses.await.map_err(OutgoingFault::Resolve)?.collect();
        if addresses.is_empty() {
            return Err(OutgoingFault::Resolve(io::ErrorKind::NotFound.into()));
        }
        stage.set(Stage::Connect);
        let stream = TcpStream::connect(&addresses[..]).await.map_err(OutgoingFault::Connect)?;
        // The request is written whole.
        let _ = stream.set_nodelay(true);
        if !target.secure {
            return send(stream, request, max_response_bytes, stage).await;
        }
        stage.set(Stage::Tls);
        let name = ServerName::try_from(target.host().to_owned()).map_err(refused_tls)?;
        let connector = TlsConnector::from(self.tls()?);
        let stream = connector.connect(name, stream).await.map_err(OutgoingFault::Tls)?;
        send(stream, request, max_response_bytes, stage).await
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, OutgoingFault> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            // Not kept: the next call looks again, the operator may install them meanwhile.
            return Err(refused_tls("the system has no certificate authorities"));
        }
        Ok(self.tls.get_or_init(|| Arc::new(config(roots))).clone())
    }
}

/// Where a URL leads.
struct Target {
    secure: bool,
    uri: Uri,
    port: u16,
}

impl Target {
    fn parse(url: &str) -> Result<Target, OutgoingFault> {
        let uri: Uri = url.parse().map_err(|_| OutgoingFault::Url("not a valid URL"))?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(OutgoingFault::Url("must begin with http:// or https://")),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(OutgoingFault::Url("must not carry a user name or password"));
        }
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok(Target { secure, uri, port })
    }

    /// The host without the brackets of an IPv6 literal.
    fn host(&self) -> &str {
        let host = self.uri.host().unwrap_or("");
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    fn post(&self, headers: HeaderMap, body: Bytes) -> Result<Request<Full<Bytes>>, OutgoingFault> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(authority)
            .map_err(|_| OutgoingFault::Url("the host is not valid"))?;
        let mut request = Request::post(path)
            .body(Full::new(body))
            .map_err(|_| OutgoingFault::Url("the path is not valid"))?;
        *request.headers_mut() = headers;
        request.headers_mut().remove(CONTENT_LENGTH);
        request.headers_mut().insert(HOST, host);
        Ok(request)
    }
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    request: Request<Full<Bytes>>,
    max_response_bytes: usize,
    stage: &Progress,
) -> Result<(StatusCode, HeaderMap, Bytes), OutgoingFault> {
    stage.set(Stage::Head);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(protocol)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(protocol)?;
        stage.set(Stage::Body);
        let (head, body) = response.into_parts();
        let body = collect(body, max_response_bytes).await?;
        Ok((head.status, head.headers, body))
    };
    beside(connection, exchange).await
}

/// Drives the connection and the exchange over it in one task.
async fn beside<C: Future, T>(connection: C, exchange: impl Future<Output = T>) -> T {
    let mut connection = pin!(connection);
    let mut exchange = pin!(exchange);
    let mut open = true;
    poll_fn(|cx| {
        // Its error, if any, reaches the exchange as well.
        if open && connection.as_mut().poll(cx).is_ready() {
            open = false;
        }
        match exchange.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => {
                // What the exchange just asked for (a request, more body) is for the connection.
                if open && connection.as_mut().poll(cx).is_ready() {
                    open = false;
                    return exchange.as_mut().poll(cx);
                }
                Poll::Pending
            }
        }
    })
    .await
}

async fn collect(mut body: Incoming, max_bytes: usize) -> Result<Bytes, OutgoingFault> {
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(OutgoingFault::TooLarge);
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.map_err(protocol)?.into_data() {
            if bytes.len() + piece.len() > max_bytes {
                return Err(OutgoingFault::TooLarge);
            }
            bytes.extend_from_slice(&piece);
        }
    }
    Ok(bytes.freeze())
}

fn config(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn protocol(error: hyper::Error) -> OutgoingFault {
    OutgoingFault::Protocol(error.into())
}

fn refused_tls(error: impl Into<Box<dyn Error + Send + Sync>>) -> OutgoingFault {
    OutgoingFault::Tls(io::Error::other(error))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl fmt::Display for OutgoingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutgoingFault::Url(what) => write!(f, "the URL {what}"),
            OutgoingFault::Resolve(error) => write!(f, "the host name has no address: {error}"),
            OutgoingFault::Connect(error) => write!(f, "no connection: {error}"),
            OutgoingFault::Tls(error) => write!(f, "no secure connection: {error}"),
            OutgoingFault::Timeout(stage) => {
                let during = match stage {
                    Stage::Resolve => "looking up the host name",
                    Stage::Connect => "connecting",
                    Stage::Tls => "the TLS handshake",
                    Stage::Head => "waiting for the response",
                    Stage::Body => "reading the response body",
                };
                write!(f, "the deadline passed while {during}")
            }
            OutgoingFault::TooLarge => write!(f, "the response is too large"),
            OutgoingFault::Protocol(error) => write!(f, "no valid HTTP response: {error}"),
        }
    }
}

impl Error for OutgoingFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OutgoingFault::Resolve(error)
            | OutgoingFault::Connect(error)
            | OutgoingFault::Tls(error) => Some(error),
            OutgoingFault::Protocol(error) => Some(&**error),
            OutgoingFault::Url(_) | OutgoingFault::Timeout(_) | OutgoingFault::TooLarge => None,
        }
    }
}
