//! The API over HTTP/3, with an independent client (aioquic, xtask/tools/http3), and its flags.

use crate::deadline::Deadline as _;
use std::net::UdpSocket;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{KEY, Start};
use crate::tools;

fn client() -> Command {
    let mut command = Command::new(tools::installed("python").join("bin/python"));
    command.arg(tools::root().join("xtask/tools/http3/client.py"));
    command
}

#[test]
fn an_independent_http_3_client_creates_and_reads_records() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    let output = client()
        .arg(server.address.ip().to_string())
        .arg(server.address.port().to_string())
        .arg(server.data().join("self-signed.crt"))
        .arg(KEY)
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let saw: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "made": "201",
        "same": true,
        "reads": ["200"],
        "refused": "404",
        "error": "invalid_request_error",
        "large": true,
    });
    assert_eq!(saw, expected);
}

#[test]
fn with_http3_off_the_udp_port_stays_free() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").arg("--http3").arg("off").go();
    UdpSocket::bind(server.address).expect("nobody listens there");
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    UdpSocket::bind(server.address).expect_err("the server listens there");
}

#[test]
fn early_hints_precede_the_response_on_http_2_and_http_3() {
    let link = "</style.css>; rel=preload; as=style";
    let schema = format!(
        "[collections.books]\nearly_hints = [\"{link}\"]\n\
         [collections.books.fields]\ntitle = {{ type = \"string\" }}\n"
    );
    for version in ["http2", "http3"] {
        let start = Start::schema(&schema);
        let start = match version {
            "http3" => start.arg("--tls").arg("self-signed"),
            _ => start,
        };
        let server = start.go().over(version);
        let answer = server.get("/v1/books");
        assert_eq!(answer.interim, [[("link".to_owned(), link.to_owned())]], "{version}");
        answer.expect(200);
        let made = server.post("/v1/books", json!({"title": "Dune"}));
        assert!(made.interim.is_empty(), "{version}: a write is not hinted at");
        assert_eq!(made.status, 201, "{version}: {}", made.text);
    }
}
