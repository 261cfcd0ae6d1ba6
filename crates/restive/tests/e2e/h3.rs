//! The API over HTTP/3, to a client of another family (aioquic, xtask/tools/http3), and what the
//! flags say about it.

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
fn a_client_of_another_family_makes_and_reads_records() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    let output = client()
        .arg(server.address.ip().to_string())
        .arg(server.address.port().to_string())
        .arg(server.data().join("self-signed.crt"))
        .arg(KEY)
        .output()
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
fn without_it_the_udp_port_stays_free() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").arg("--http3").arg("off").go();
    UdpSocket::bind(server.address).expect("nobody listens there");
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    UdpSocket::bind(server.address).expect_err("the server listens there");
}
