//! The commands made of steps: `test`, `judge`, `ci`, and the two that only pass on, `bench` and
//! `deny`. What a judge is and how it is installed is in `judge`.

use std::path::Path;

use anyhow::{Result, bail};

use crate::judge::autobahn::{self, Extent};
use crate::judge::{self, Server, Tools};
use crate::process::{cargo, exists, run, target_dir};
use crate::summary::Summary;
use crate::tidy;

/// The README's test command: all tests, then the judges against the real server.
pub fn test() -> Result<()> {
    let mut summary = Summary::default();
    summary.step("install what the tests call", judge::install_programs);
    // Before the tests: some of them ask the verifiers of others.
    let tools = install_tools(&mut summary);
    summary.step("cargo test --workspace", cargo_test);
    for (version, over) in VERSIONS {
        summary.step(&format!("the API over {version}"), || api_over(over));
    }
    judges(&mut summary, tools.as_ref());
    websocket_judge(&mut summary, tools.as_ref(), Extent::Usual, Need::Usual);
    summary.finish()
}

/// The judges alone, for whoever works on the OpenAPI document.
pub fn judge_only() -> Result<()> {
    let mut summary = Summary::default();
    let tools = install_tools(&mut summary);
    judges(&mut summary, tools.as_ref());
    websocket_judge(&mut summary, tools.as_ref(), Extent::Usual, Need::Usual);
    summary.finish()
}

/// The judge of WebSockets alone, for whoever works on the codec.
pub fn judge_websockets(extent: Extent) -> Result<()> {
    let mut summary = Summary::default();
    let tools = install_tools(&mut summary);
    websocket_judge(&mut summary, tools.as_ref(), extent, Need::Certain);
    summary.finish()
}

/// What must hold before a commit. Installs nothing: its tests need what `test` installed once.
pub fn ci() -> Result<()> {
    let mut summary = Summary::default();
    summary.step("fmt", || run(&mut cargo(["fmt", "--all", "--check"])));
    summary.step("clippy", || {
        let scope = ["clippy", "--workspace", "--all-targets", "--locked"];
        run(cargo(scope).args(["--", "-D", "warnings"]))
    });
    summary.step("rustdoc", || {
        let mut command = cargo(["doc", "--workspace", "--no-deps", "--locked"]);
        // Items are documented for whoever works on the crate, so private ones are checked too.
        run(command.arg("--document-private-items").env("RUSTDOCFLAGS", "-D warnings"))
    });
    summary.step("tidy", tidy::command);
    summary.step("cargo test --workspace", cargo_test);
    summary.finish()
}

/// Builds server and bench for release and hands over; the bench crate does the rest.
pub fn bench(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some("wire") => judge::install_rivals()?,
        Some("live") => judge::install_broadcaster()?,
        // One scenario of many counts instructions, and says so when it cannot.
        Some("api") if wants(arguments, "versions") => {
            if let Err(error) = judge::install_counter() {
                eprintln!("xtask: instructions will not be counted: {error:#}");
            }
        }
        _ => {}
    }
    run(&mut cargo(["build", "--release", "--locked", "-p", "restive", "-p", "bench"]))?;
    let release = target_dir()?.join("release");
    let mut command = std::process::Command::new(release.join("bench"));
    command.args(arguments);
    if arguments.first().is_some_and(|name| matches!(name.as_str(), "api" | "webhooks" | "live")) {
        command.arg("--server").arg(release.join("restive"));
    }
    run(&mut command)
}

/// Whether a bench that was called like this runs that scenario.
fn wants(arguments: &[String], scenario: &str) -> bool {
    let only = arguments.iter().skip_while(|argument| *argument != "--only").nth(1);
    only.is_none_or(|only| only == scenario)
}

/// Licences, bans and sources as deny.toml has them. Building cargo-deny takes minutes, so it is
/// not installed behind the developer's back.
pub fn deny() -> Result<()> {
    if !exists("cargo-deny", "--version") {
        bail!("cargo-deny is not installed: run `cargo install --locked cargo-deny` once");
    }
    run(&mut cargo(["deny", "--workspace", "--all-features", "check"]))
}

fn cargo_test() -> Result<()> {
    run(&mut cargo(["test", "--workspace", "--locked", "--no-fail-fast"]))
}

/// What of the end-to-end suite speaks HTTP and nothing else.
const API_TESTS: [&str; 16] = [
    "actions::",
    "auth::",
    "concurrency::",
    "conditions::",
    "cursors::",
    "endpoints::",
    "errors::",
    "events::",
    "expansion::",
    "idempotency::",
    "limits::",
    "lists::",
    "live_browser::",
    "odd::",
    "resources::",
    "service::",
];
/// Those among them that send bytes of HTTP/1.1 themselves, to a port without TLS.
const FIRST_VERSION_TESTS: [&str; 3] = [
    "limits::a_body_announced_with_expect_is_asked_for",
    "service::a_request_on_its_way_is_finished_before_the_end",
    "service::early_hints_come_before_the_answer_to_those_who_understand_them",
];
/// Versions of HTTP besides the first, by the name that the suite knows.
const VERSIONS: [(&str, &str); 2] = [("HTTP/2", "http2"), ("HTTP/3", "http3")];

/// The same tests once more, in another version of HTTP.
fn api_over(version: &str) -> Result<()> {
    let mut command = cargo(["test", "--workspace", "--locked", "--test", "e2e", "--"]);
    let skipped = FIRST_VERSION_TESTS.iter().flat_map(|test| ["--skip", test]);
    run(command.args(API_TESTS).args(skipped).env("RESTIVE_E2E_OVER", version))
}

fn install_tools(summary: &mut Summary) -> Option<Tools> {
    summary
        .step("install the judges and verifiers", || Tools::install(&target_dir()?.join("tools")))
}

fn judges(summary: &mut Summary, tools: Option<&Tools>) {
    const JUDGES: [&str; 4] =
        ["openapi-spec-validator", "spectral", "schemathesis", "SIGTERM ends the server with 0"];
    let server = summary.step("start the server", || {
        build_judged()?;
        start_server(&target_dir()?)
    });
    let (Some(tools), Some(mut server)) = (tools, server) else {
        for judge in JUDGES {
            summary.not_run(judge, "the judges or the server are missing");
        }
        return;
    };
    let document = summary.step("fetch /openapi.json", || server.save_openapi());
    match document {
        Some(document) => {
            summary.step(JUDGES[0], || judge::spec_validator(tools, &document));
            summary.step(JUDGES[1], || judge::spectral(tools, &document));
            summary.step(JUDGES[2], || judge::schemathesis(tools, &server));
        }
        None => {
            for judge in &JUDGES[..3] {
                summary.not_run(judge, "the server gave no OpenAPI document");
            }
        }
    }
    summary.step(JUDGES[3], || server.terminate());
}

/// Whether a judge must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Usual,
    Certain,
}

fn websocket_judge(summary: &mut Summary, tools: Option<&Tools>, extent: Extent, need: Need) {
    const JUDGE: &str = "Autobahn's fuzzing client";
    let Some(tools) = tools else {
        return summary.not_run(JUDGE, "the judges are missing");
    };
    // Asked for by name it must run; otherwise a machine may be without its old interpreter, which
    // no distribution has any more.
    if let (Need::Usual, Err(error)) = (need, autobahn::Python::find(Path::new("."))) {
        return summary.left_out(JUDGE, &format!("{error:#}"));
    }
    summary.step(JUDGE, || {
        build_judged()?;
        let target = target_dir()?;
        let echo = target.join("debug/examples/echo");
        autobahn::run(tools, &echo, &target.join("judge-websockets"), extent)
    });
}

/// The programs that are judged. Of the whole workspace, as the tests are: chosen alone, a package
/// needs fewer features of what it is made of, and all of that would be built once more.
fn build_judged() -> Result<()> {
    let programs = ["--bin", "restive", "--example", "echo"];
    run(cargo(["build", "--workspace", "--locked"]).args(programs))
}

fn start_server(target: &Path) -> Result<Server> {
    let server = Server::start(&target.join("debug").join("restive"), &target.join("judge"))?;
    println!("    listening on {}", server.url());
    Ok(server)
}
