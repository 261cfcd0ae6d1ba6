//! Judges: external test suites of the HTTP contract, of the contract of the live channels and of
//! WebSockets (`autobahn`), their installation (`tools`) and the server under judgement (`server`).
//! A judge passes only without findings, warnings included.

pub mod autobahn;
mod program;
mod server;
mod tools;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

pub use self::server::Server;
pub use self::tools::{
    Tools, install_broadcaster, install_counter, install_postgres, install_programs,
    install_proxies, install_rivals,
};

use crate::process::{run, run_apart};

/// Cases per operation: some 9,500 in total, in four to five minutes.
const MAX_EXAMPLES: &str = "40";
/// A fixed seed: the CI must fail because of a change, never by chance.
const SEED: &str = "20260101";
/// Timeout of one response in seconds. A debug build on two busy cores is slow, but a hang is still
/// found.
const REQUEST_TIMEOUT: &str = "10";

/// Checks that the document is valid OpenAPI.
pub fn spec_validator(tools: &Tools, document: &Path) -> Result<()> {
    run(Command::new(tools.python("openapi-spec-validator")).arg(document))
}

/// Checks the quality of the document. Every severity counts, including hints.
pub fn spectral(tools: &Tools, document: &Path) -> Result<()> {
    lint(tools, "spectral.yaml", document)
}

/// Checks that the document is valid AsyncAPI: with the parser of its authors, then with the rules
/// of Spectral.
pub fn asyncapi(tools: &Tools, document: &Path) -> Result<()> {
    let mut command = Command::new("node");
    command.arg(tools.manifest("asyncapi.mjs")).arg(tools.node_home()).arg(document);
    run(&mut command)?;
    lint(tools, "asyncapi.yaml", document)
}

fn lint(tools: &Tools, rules: &str, document: &Path) -> Result<()> {
    let mut command = Command::new(tools.node("spectral"));
    command.args(["lint", "--fail-severity", "hint", "--ruleset"]);
    run(command.arg(tools.manifest(rules)).arg(document))
}

/// Checks that the server behaves as its document says, for valid and invalid input.
pub fn schemathesis(tools: &Tools, server: &Server) -> Result<()> {
    let mut command = Command::new(tools.python("schemathesis"));
    command
        .env("PYTHONPATH", tools.manifest(""))
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        // Keeps Python from writing compiled files next to the manifests.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg("--config-file")
        .arg(tools.manifest("schemathesis.toml"))
        .args(["run", &format!("{}/openapi.json", server.url())])
        .args(["--checks", "all", "--continue-on-failure"])
        .args(["--max-examples", MAX_EXAMPLES, "--seed", SEED])
        .args(["--request-timeout", REQUEST_TIMEOUT, "--generation-database", "none"])
        // One worker: with more, the state that one case leaves to the next would depend on timing.
        .args(["--workers", "1", "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {}", server.key())])
        // Findings and caches stay under target/.
        .current_dir(server.scratch());
    run_apart(&server.scratch().join("schemathesis.log"), &mut command)
}

/// The body of a 200 response, from a raw HTTP/1.1 exchange with a closed connection.
fn body_of(answer: &[u8]) -> Result<&[u8]> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no header end")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.lines().next().unwrap_or_default().to_owned();
    if !status.starts_with("http/1.1 200") {
        bail!("expected 200, got {status:?}");
    }
    if head.contains("transfer-encoding") {
        bail!("expected a Content-Length body, got a chunked one");
    }
    Ok(&answer[end + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_answer_yields_its_body() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(body_of(answer).unwrap(), b"{}");
    }

    #[test]
    fn an_invalid_response_is_reported() {
        for (answer, told) in [
            (&b"HTTP/1.1 404 Not Found\r\n\r\n"[..], "expected 200"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "chunked"),
            (b"HTTP/1.1 200 OK\r\n", "no header end"),
        ] {
            let error = body_of(answer).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
