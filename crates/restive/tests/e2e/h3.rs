//! The API over HTTP/3, to a client of another family (aioquic, xtask/tools/http3), and what the
//! flags say about it.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{KEY, Start};

fn client() -> Command {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = crates.and_then(Path::parent).expect("a crate stands two folders below the root");
    let mut command = Command::new(installed("python").join("bin/python"));
    command.arg(root.join("xtask/tools/http3/client.py"));
    command
}

/// A folder of target/tools. A test is an executable somewhere below target, so its own path tells
/// where that is, whatever CARGO_TARGET_DIR or a configuration file says.
fn installed(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    let folders = own.ancestors().map(|above| above.join("tools").join(name));
    // The file `installed` is written last: without it the installation was broken off.
    folders.into_iter().find(|folder| folder.join("installed").is_file()).unwrap_or_else(|| {
        panic!("target/tools/{name} is missing: `cargo xtask test` installs it");
    })
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
