//! HTTP/3: what a handshake has shown reaches the service. For HTTP/1.1 and HTTP/2, the tests of
//! the proxy check the same.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use quinn::ClientConfig;
use quinn::crypto::rustls::QuicClientConfig;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use wire::tls::ClientAuthorities;
use wire::{Answer, Exchange, Fault, Limits, Response, Service, Tls};

use crate::h2_client::run;
use crate::h3_client::{Client, endpoint};
use crate::server::Server;
use crate::tls::identity;

/// Answers with what it knows of the connection.
struct Who;

impl Service for Who {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        let subject = exchange.client_certificate.as_ref().map(|found| found.subject().to_owned());
        let text = format!("{} {}", exchange.is_misdirected, subject.unwrap_or_default());
        Box::pin(async move { Response::new(StatusCode::OK, text) })
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

/// An authority in PEM, and a client's certificate of it with its key.
fn client() -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "billing");
    let made = params.signed_by(&key, &issuer).unwrap();
    (root, made.der().clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
}

#[test]
fn the_service_learns_the_certificate_of_a_client_and_of_another_host() {
    let (first, trusted) = identity(&["localhost"]);
    let (second, _) = identity(&["other.example"]);
    let (authority, certificate, key) = client();
    let authorities = ClientAuthorities::from_pem(authority.as_bytes(), true).unwrap();
    let tls = Tls::with_clients(vec![first, second], Some(authorities)).unwrap();
    let server = Server::quic_serving(Limits::default(), tls, |_, _| Arc::new(Who));
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    run(async {
        let endpoint = endpoint();
        let connecting = endpoint.connect_with(config, server.address, "localhost").unwrap();
        let quic = connecting.await.expect("the handshake succeeds");
        let (mut connection, requests) = h3::client::builder()
            .build::<_, _, Bytes>(h3_quinn::Connection::new(quic))
            .await
            .unwrap();
        let connection = tokio::spawn(async move { connection.wait_idle().await });
        let mut client = Client { endpoint, requests, connection };
        for (host, expected) in [
            ("localhost", "false CN=billing"),
            ("localhost:8443", "false CN=billing"),
            ("other.example", "true CN=billing"),
        ] {
            let uri = format!("https://{host}/");
            let answer = client.ask(Request::get(uri).body(()).unwrap()).await.unwrap();
            assert_eq!(answer.body, expected, "{host}");
        }
    });
}
