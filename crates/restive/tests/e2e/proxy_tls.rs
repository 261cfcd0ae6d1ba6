//! The proxy over HTTPS: hosts with certificates of their own, and certificates of clients.

use crate::deadline::Deadline as _;
use crate::harness::{Server, run};
use crate::proxy::proxy;
use crate::proxy_edge::{backend, ok};
use crate::sink::Sink;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A certificate for a host that signs itself, and its key.
fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let made = params.self_signed(&key).unwrap();
    let files = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    std::fs::write(&files.0, made.pem()).unwrap();
    std::fs::write(&files.1, key.serialize_pem()).unwrap();
    files
}

/// The status, headers and body that curl gets from this host, or its error.
fn curl(proxy: &Server, name: &str, arguments: &[&str]) -> Result<String, String> {
    let port = proxy.address.port();
    let output = Command::new("curl")
        .args(["-sSik", "--max-time", "20"])
        .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
        .args(arguments)
        .arg(format!("https://{name}:{port}/"))
        .output_in_time()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn a_connection_for_one_certificate_serves_no_host_of_another() {
    let (folder, sink) = (TempDir::new().unwrap(), Sink::start());
    let mut arguments = vec!["--http3".to_owned(), "off".to_owned()];
    for name in ["a.example", "*.b.example"] {
        let (cert, key) = certificate(folder.path(), name);
        arguments.extend(["--tls-cert".to_owned(), cert.display().to_string()]);
        arguments.extend(["--tls-key".to_owned(), key.display().to_string()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let proxy = proxy(&[sink.address], &arguments);
    for version in ["--http1.1", "--http2"] {
        for (name, host, status) in [
            ("a.example", "a.example", "200"),
            ("a.example", "A.example:1234", "200"),
            ("a.example", "x.b.example", "421"),
            ("x.b.example", "a.example", "421"),
            ("x.b.example", "y.b.example", "200"),
            // Both are shown the first certificate.
            ("a.example", "unknown.example", "200"),
        ] {
            let host_header = format!("host: {host}");
            let text = curl(&proxy, name, &[version, "-H", &host_header]).unwrap();
            let first = text.lines().next().unwrap();
            assert!(first.contains(&format!(" {status}")), "{version} {name} {host}: {text}");
            assert_eq!(text.contains("misdirected_request"), status == "421", "{text}");
        }
    }
}

/// An authority, and the certificates of two clients that it has signed, each with its key.
fn clients(folder: &Path) -> (String, [(String, String); 2]) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "authority");
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let write = |name: String, text: String| {
        std::fs::write(folder.join(&name), text).unwrap();
        folder.join(name).display().to_string()
    };
    let signed = ["billing", "stock"].map(|name| {
        let key = KeyPair::generate().unwrap();
        let mut client = CertificateParams::default();
        client.distinguished_name = rcgen::DistinguishedName::new();
        client.distinguished_name.push(DnType::OrganizationName, "Shop, Inc.");
        client.distinguished_name.push(DnType::CommonName, name);
        let made = client.signed_by(&key, &issuer).unwrap();
        let certificate = write(format!("{name}.pem"), made.pem());
        (certificate, write(format!("{name}.key"), key.serialize_pem()))
    });
    (write("ca.pem".to_owned(), root.pem()), signed)
}

#[test]
fn the_cache_gives_no_client_what_another_has_proved_to_be() {
    let folder = TempDir::new().unwrap();
    let (authority, signed) = clients(folder.path());
    for rule in ["max-age=60", "public, max-age=60\r\nvary: x-client-subject"] {
        let address = backend(move |request| {
            let subject = request.split("x-client-subject: ").nth(1).unwrap_or("nobody\r\n");
            let subject = subject.split("\r\n").next().unwrap();
            ok(&format!("cache-control: {rule}\r\n"), subject)
        });
        let tls = ["--tls", "self-signed", "--http3", "off", "--client-ca", &authority];
        let proxy = proxy(&[address], &tls);
        for _ in 0..2 {
            for ((certificate, key), name) in signed.iter().zip(["billing", "stock"]) {
                let text = curl(&proxy, "localhost", &["--cert", certificate, "--key", key]);
                let text = text.unwrap();
                assert!(text.ends_with(&format!("CN={name},O=Shop\\, Inc.")), "{rule}: {text}");
            }
        }
    }
}

#[test]
fn a_backend_learns_who_a_client_has_proved_to_be() {
    let folder = TempDir::new().unwrap();
    let (authority, [(certificate, key), _]) = clients(folder.path());
    let (other, _) = crate::proxy_tls::certificate(folder.path(), "other.example");
    let forged = ["-H", "x-client-subject: CN=admin", "-H", "client-cert: :MA==:"];
    for (mode, is_required) in [("require", true), ("request", false)] {
        let sink = Sink::start();
        let tls = ["--tls", "self-signed", "--http3", "off", "--client-ca", &authority];
        let proxy = proxy(&[sink.address], &[&tls[..], &["--client-auth", mode]].concat());
        let seen = |name: &str| {
            let last = sink.received().into_iter().rfind(|request| request.path == "/").unwrap();
            last.header(name).map(str::to_owned)
        };
        for version in ["--http1.1", "--http2"] {
            let shows = ["--cert", &certificate, "--key", &key, version];
            curl(&proxy, "localhost", &[&shows[..], &forged].concat()).unwrap();
            let subject = seen("x-client-subject");
            assert_eq!(subject.as_deref(), Some("CN=billing,O=Shop\\, Inc."), "{version}");
            let shown = seen("client-cert").unwrap();
            assert!(shown.starts_with(":MI") && shown.ends_with(':') && shown.len() > 200);
            let anonymous = curl(&proxy, "localhost", &[&[version][..], &forged].concat());
            assert_eq!(anonymous.is_err(), is_required, "{anonymous:?}");
            if !is_required {
                assert_eq!((seen("x-client-subject"), seen("client-cert")), (None, None));
            }
        }
        // Signed by another authority: it is refused in both modes.
        let stranger = folder.path().join("other.example.key").display().to_string();
        let other = other.display().to_string();
        let outcome = curl(&proxy, "localhost", &["--cert", &other, "--key", &stranger]);
        assert!(outcome.is_err(), "{outcome:?}");
    }
}

#[test]
fn authorities_of_clients_need_https_and_certificates() {
    let folder = TempDir::new().unwrap();
    let none = folder.path().join("none.pem").display().to_string();
    let text = folder.path().join("text.pem").display().to_string();
    std::fs::write(&text, "not a certificate").unwrap();
    let base = ["proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--client-ca"];
    let tls = ["--tls", "self-signed"];
    for (arguments, part) in [
        (vec![text.as_str()], "--client-ca needs HTTPS"),
        (vec![none.as_str(), tls[0], tls[1]], "cannot be read"),
        (vec![text.as_str(), tls[0], tls[1]], "there is no PEM certificate"),
    ] {
        let (_, error, code) = run(folder.path(), &[&base[..], &arguments].concat());
        assert!(code == 1 && error.contains(part), "{part}: {error}");
    }
}
