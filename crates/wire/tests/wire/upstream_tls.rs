//! TLS to backends: whom each one trusts, the name it is asked for, the certificate we show, and an
//! end that is not announced.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};

use http::Method;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use wire::outgoing::{Call, ClientTls, OutgoingFault, Target};

use crate::sink::{Caller, OK, Sink};
use crate::tls::identity;

type Secured = StreamOwned<ServerConnection, TcpStream>;

/// A backend for `localhost`. With an authority it asks clients for a certificate of that.
fn backend(
    clients: Option<CertificateDer<'static>>,
    serve: impl Fn(Secured) + Send + Sync + 'static,
) -> Sink {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority).unwrap();
            let roots = Arc::new(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = vec![CertificateDer::from(include_bytes!("data/localhost.der").to_vec())];
    let key = PrivateKeyDer::try_from(include_bytes!("data/localhost-key.der").to_vec()).unwrap();
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    Sink::new(move |_, mut stream| {
        let mut session = ServerConnection::new(config.clone()).unwrap();
        if session.complete_io(&mut stream).is_ok() {
            serve(StreamOwned::new(session, stream));
        }
    })
}

/// Reads a head and answers it, for as long as the other side stays.
fn answering(mut stream: Secured) {
    let mut bytes = [0; 4096];
    while matches!(stream.read(&mut bytes), Ok(1..)) && stream.write_all(OK).is_ok() {}
}

fn authority() -> Option<Vec<Vec<u8>>> {
    Some(vec![include_bytes!("data/authority.der").to_vec()])
}

fn fetch(caller: &Caller, target: &Target) -> Result<String, OutgoingFault> {
    caller.runtime.block_on(async {
        let opened = caller.client.open(&mut Call::new(Method::GET, target)).await?;
        let body = opened.flow.collect(1 << 20).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    })
}

#[test]
fn each_target_has_its_own_trust_and_its_own_connections() {
    let sink = backend(None, answering);
    let url = format!("https://localhost:{}/", sink.address.port());
    let target = Target::parse(&url).unwrap();
    let caller = Caller::new();
    assert_eq!(fetch(&caller, &target).unwrap_err().class(), "tls");
    let trusting = target.clone().with_tls(ClientTls::new(authority(), None).unwrap());
    assert_eq!(fetch(&caller, &trusting).unwrap(), "ok");
    assert_eq!(fetch(&caller, &trusting.clone()).unwrap(), "ok");
    assert_eq!(caller.client.idle(), 1);
    // A connection that others have opened says nothing about what this target trusts.
    assert_eq!(fetch(&caller, &target).unwrap_err().class(), "tls");
    let (_, other) = identity(&["localhost"]);
    let other = ClientTls::new(Some(vec![other.to_vec()]), None).unwrap();
    assert_eq!(fetch(&caller, &target.with_tls(other)).unwrap_err().class(), "tls");
}

#[test]
fn the_server_name_may_differ_from_the_host() {
    let (seen, sees) = mpsc::channel();
    let seen = Mutex::new(seen);
    let sink = backend(None, move |stream| {
        seen.lock().unwrap().send(stream.conn.server_name().map(str::to_owned)).unwrap();
        answering(stream);
    });
    let tls = ClientTls::new(authority(), None).unwrap();
    let target = Target::parse(&format!("https://{}/", sink.address)).unwrap().with_tls(tls);
    let caller = Caller::new();
    assert_eq!(fetch(&caller, &target).unwrap_err().class(), "tls");
    let named = target.clone().with_server_name("localhost").unwrap();
    assert_eq!(fetch(&caller, &named).unwrap(), "ok");
    let asked: Vec<_> = sees.try_iter().flatten().collect();
    assert_eq!(asked, ["localhost"]);
    assert_eq!(target.with_server_name("not a name").unwrap_err().class(), "url");
}

#[test]
fn a_backend_that_asks_for_a_client_certificate_gets_ours() {
    let (ours, trusted) = identity(&["client.example"]);
    let (stranger, _) = identity(&["client.example"]);
    let sink = backend(Some(trusted), answering);
    let url = format!("https://localhost:{}/", sink.address.port());
    let target = |identity| {
        let tls = ClientTls::new(authority(), identity).unwrap();
        Target::parse(&url).unwrap().with_tls(tls)
    };
    let caller = Caller::new();
    assert_eq!(fetch(&caller, &target(Some(&ours))).unwrap(), "ok");
    for refused in [None, Some(&stranger)] {
        // Under TLS 1.3 the server says no after the handshake.
        let fault = fetch(&caller, &target(refused)).unwrap_err();
        assert!(["tls", "reset", "invalid_response"].contains(&fault.class()), "{fault}");
    }
}

#[test]
fn a_tls_connection_that_ends_without_close_notify_is_truncated() {
    for announced in [true, false] {
        let sink = backend(None, move |mut stream| {
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it").unwrap();
            if announced {
                stream.conn.send_close_notify();
            }
            let _ = stream.flush();
        });
        let tls = ClientTls::new(authority(), None).unwrap();
        let url = format!("https://localhost:{}/", sink.address.port());
        let target = Target::parse(&url).unwrap().with_tls(tls);
        let outcome = fetch(&Caller::new(), &target);
        match announced {
            true => assert_eq!(outcome.unwrap(), "all of it"),
            false => assert_eq!(outcome.unwrap_err().class(), "invalid_response"),
        }
    }
}
