//! TLS with a real client: which certificate it is shown, what is agreed on, resumption, reload,
//! large answers, and the end in good order.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, NamedGroup, ProtocolVersion};
use rustls::{RootCertStore, StreamOwned, SupportedProtocolVersion, version};
use wire::tls::{Certificate, CertificateFault};
use wire::{Limits, Tls};

use crate::server::{PATIENCE, Server};

const GET: &str = "GET /one HTTP/1.1\r\nHost: a\r\n\r\n";

/// A certificate for these names, as a server has it and as a client trusts it.
pub fn identity(names: &[&str]) -> (Certificate, CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    (certificate, made.cert.der().clone())
}

/// A server for `localhost`, and a client that trusts it.
pub fn pair(limits: Limits) -> (Server, Client) {
    let (certificate, trusted) = identity(&["localhost"]);
    let server = Server::secured(limits, Tls::new(vec![certificate]).unwrap());
    (server, Client::trusting([trusted]))
}

pub struct Client {
    pub config: ClientConfig,
}

pub type Secured = StreamOwned<ClientConnection, TcpStream>;

impl Client {
    pub fn trusting(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Client {
        Client::with(certificates, aws_lc_rs::default_provider(), &[&version::TLS13])
    }

    fn with(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Client {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Client { config }
    }

    /// The same client, offering to speak these.
    pub fn offering(&self, protocols: &[&str]) -> Client {
        let mut config = self.config.clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Client { config }
    }

    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::new(self.config.clone())
    }

    /// Shakes hands, asking for this name.
    pub fn try_connect(&self, server: &Server, name: &str) -> std::io::Result<Secured> {
        let socket = TcpStream::connect(server.address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        self.try_over(socket, name)
    }

    fn try_over(&self, socket: TcpStream, name: &str) -> std::io::Result<Secured> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let session = ClientConnection::new(self.config(), name).unwrap();
        let mut stream = StreamOwned::new(session, socket);
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(stream)
    }

    /// On a connection that is there already.
    pub fn over(&self, socket: TcpStream) -> Secured {
        self.try_over(socket, "localhost").expect("the handshake succeeds")
    }

    pub fn connect(&self, server: &Server) -> Secured {
        self.try_connect(server, "localhost").expect("the handshake succeeds")
    }
}

/// Sends a request and reads its answer, which says how long it is.
pub fn ask(stream: &mut Secured, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("the server answers");
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).unwrap();
    let length = head.to_lowercase();
    let length = length.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

#[track_caller]
fn shown(stream: &Secured) -> CertificateDer<'static> {
    stream.conn.peer_certificates().unwrap()[0].clone()
}

#[test]
fn requests_are_answered_over_1_3_and_1_2_one_after_the_other() {
    let (certificate, trusted) = identity(&["localhost"]);
    let server = Server::secured(Limits::default(), Tls::new(vec![certificate]).unwrap());
    for (version, expected) in
        [(&version::TLS13, ProtocolVersion::TLSv1_3), (&version::TLS12, ProtocolVersion::TLSv1_2)]
    {
        let provider = aws_lc_rs::default_provider();
        let client = Client::with([trusted.clone()], provider, &[version]);
        let mut stream = client.connect(&server);
        assert_eq!(stream.conn.protocol_version(), Some(expected));
        for _ in 0..3 {
            let answer = ask(&mut stream, GET);
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("GET /one"), "{answer}");
        }
        let post = "POST /two HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
        stream.write_all(post.as_bytes()).unwrap();
        assert!(ask(&mut stream, "hello").contains("\"body\":\"hello\""));
        let both = ask(&mut stream, &format!("{GET}{GET}"));
        assert!(both.contains("GET /one") && ask(&mut stream, "").contains("GET /one"), "{both}");
    }
}

#[test]
fn a_large_response_is_complete_and_ends_with_close_notify() {
    let (server, client) = pair(Limits::default());
    let mut stream = client.connect(&server);
    let answer = ask(&mut stream, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.len() > 8 << 20 && answer.ends_with("xxxx"));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut rest = String::new();
    // An end without a word of TLS would be an error here.
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("connection: close"), "{rest}");
}

#[test]
fn idle_and_drained_connections_end_with_close_notify() {
    let short = std::time::Duration::from_millis(100);
    let (server, client) = pair(Limits { idle_timeout: short, ..Limits::default() });
    let mut rest = Vec::new();
    let mut stream = client.connect(&server);
    ask(&mut stream, GET);
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
    let (server, client) = pair(Limits::default());
    let mut stream = client.connect(&server);
    ask(&mut stream, GET);
    server.trigger.fire();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
    server.join();
}

#[test]
fn each_server_name_gets_its_certificate() {
    let (first, first_der) = identity(&["one.example"]);
    let (second, second_der) = identity(&["two.example", "*.wild.example"]);
    let (third, third_der) = identity(&["exact.wild.example"]);
    let tls = Tls::new(vec![first, second, third]).unwrap();
    let server = Server::secured(Limits::default(), tls);
    let all = [first_der.clone(), second_der.clone(), third_der.clone()];
    let client = Client::trusting(all);
    for (name, expected) in [
        ("one.example", &first_der),
        ("TWO.example", &second_der),
        ("a.wild.example", &second_der),
        ("exact.wild.example", &third_der),
    ] {
        let stream = client.try_connect(&server, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(&shown(&stream), expected, "{name}");
    }
    for name in ["other.example", "a.b.wild.example", "wild.example", "127.0.0.1"] {
        let error = client.try_connect(&server, name).expect_err(name).to_string();
        assert!(error.contains("not valid for"), "{name} is shown the first: {error}");
    }
}

#[test]
fn a_new_certificate_is_used_while_open_connections_continue() {
    let (old, old_der) = identity(&["localhost"]);
    let (new, new_der) = identity(&["localhost"]);
    let tls = Tls::new(vec![old]).unwrap();
    let server = Server::secured(Limits::default(), tls.clone());
    let client = Client::trusting([old_der.clone(), new_der.clone()]);
    let mut kept = client.connect(&server);
    assert_eq!(shown(&kept), old_der);
    tls.replace(vec![new]).unwrap();
    assert!(tls.replace(Vec::new()).is_err(), "without any the last ones stay");
    let fresh = Client::trusting([old_der, new_der.clone()]).connect(&server);
    assert_eq!(shown(&fresh), new_der);
    assert!(ask(&mut kept, GET).contains("GET /one"));
}

#[test]
fn a_session_is_resumed_in_both_versions() {
    let (certificate, trusted) = identity(&["localhost"]);
    let server = Server::secured(Limits::default(), Tls::new(vec![certificate]).unwrap());
    for version in [&version::TLS13, &version::TLS12] {
        let provider = aws_lc_rs::default_provider();
        let mut client = Client::with([trusted.clone()], provider, &[version]);
        client.config.resumption = Resumption::in_memory_sessions(8);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut stream = client.connect(&server);
            // The tickets come with the first answer at the latest.
            assert!(ask(&mut stream, GET).contains("GET /one"));
            assert_eq!(stream.conn.handshake_kind(), Some(expected), "{version:?}");
        }
    }
}

#[test]
fn the_post_quantum_group_is_selected_if_the_client_offers_it() {
    let (certificate, trusted) = identity(&["localhost"]);
    let server = Server::secured(Limits::default(), Tls::new(vec![certificate]).unwrap());
    let hybrid = aws_lc_rs::kx_group::X25519MLKEM768;
    let classic = aws_lc_rs::kx_group::X25519;
    for (offered, expected) in [
        (vec![hybrid, classic], NamedGroup::X25519MLKEM768),
        (vec![classic], NamedGroup::X25519),
        (vec![aws_lc_rs::kx_group::SECP256R1], NamedGroup::secp256r1),
    ] {
        let provider = CryptoProvider { kx_groups: offered, ..aws_lc_rs::default_provider() };
        let client = Client::with([trusted.clone()], provider, &[&version::TLS13]);
        let stream = client.connect(&server);
        let group = stream.conn.negotiated_key_exchange_group().unwrap();
        assert_eq!(group.name(), expected);
    }
}

#[test]
fn the_protocol_is_agreed_on_and_an_unknown_one_is_refused() {
    let (server, mut client) = pair(Limits::default());
    assert_eq!(client.connect(&server).conn.alpn_protocol(), None);
    client.config.alpn_protocols = vec![b"spdy/1".to_vec(), b"http/1.1".to_vec()];
    let mut stream = client.connect(&server);
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(ask(&mut stream, GET).contains("GET /one"));
    client.config.alpn_protocols = vec![b"spdy/1".to_vec()];
    assert!(client.try_connect(&server, "localhost").is_err());
}

#[test]
fn errors_distinguish_unusable_certificates() {
    let names = || vec!["localhost".to_owned()];
    let one = rcgen::generate_simple_self_signed(names()).unwrap();
    let other = rcgen::generate_simple_self_signed(names()).unwrap();
    let (chain, key) = (one.cert.pem(), one.signing_key.serialize_pem());
    let check = |chain: &str, key: &str| {
        Certificate::from_pem(chain.as_bytes(), key.as_bytes()).expect_err("it is refused")
    };
    use CertificateFault as Fault;
    let other_key = other.signing_key.serialize_pem();
    assert!(matches!(check(&chain, &other_key), Fault::KeyDoesNotFit));
    assert!(matches!(check("", &key), Fault::NoCertificate));
    assert!(matches!(check(&key, &key), Fault::NoCertificate));
    assert!(matches!(check(&chain, ""), Fault::NoKey));
    assert!(matches!(check(&chain, &chain), Fault::NoKey));
    let torn = &chain[..chain.len() / 2];
    assert!(matches!(check(torn, &key), Fault::ChainNotPem(_)));
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(check(nonsense, &key), Fault::Malformed(_)));
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    assert_eq!(certificate.names(), ["localhost"]);
    assert!(certificate.expires_at().unwrap() > std::time::SystemTime::now());
}
