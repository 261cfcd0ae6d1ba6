//! The commands that consist of steps: `test`, `judge` and `ci`, and `bench`, which starts the
//! bench crate. `judge` defines the external test suites (judges) and installs them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::clients::Clients;
use crate::contracts::Contracts;
use crate::judge::autobahn::{self, Extent};
use crate::judge::{self, Server, Tools};
use crate::process::{cargo, run, run_within, target_dir};
use crate::summary::{Background, Summary};
use crate::versions::{self, WAYS};
use crate::{deny, dist, postgres, tidy};

/// The test command of the README: all tests, then the judges against the real server. A tool that
/// cannot be installed or run fails the command.
pub fn test() -> Result<()> {
    let mut summary = Summary::default();
    // Installing waits for the network and the disk, compiling for the CPU, so both run together.
    let installing = Background::start("install what the tests call, and the judges", || {
        judge::install_programs()?;
        Tools::install(tools_dir()?)
    });
    let installing_autobahn = Background::start("install Autobahn's fuzzing client", || {
        Tools::new(tools_dir()?).autobahn().map(drop)
    });
    let installing_contracts = Background::start("install what reads the contract", || {
        Tools::new(tools_dir()?).install_contracts()
    });
    summary.step("build", build);
    // Before the tests, because some of them use the installed verifiers.
    let tools = summary.join(installing);
    summary.join(installing_autobahn);
    summary.join(installing_contracts);
    summary.step("cargo test --workspace", cargo_test);
    // The judges of the HTTP contract use one core and tolerate others on it.
    let judging = std::thread::spawn({
        let tools = tools.clone();
        move || {
            let mut summary = Summary::default();
            judges(&mut summary, tools.as_ref());
            dist::steps(&mut summary, true);
            summary
        }
    });
    for (name, way, skipped) in WAYS {
        let run = || versions::run_in(way, skipped, &threads());
        summary.step(&format!("the API over {name}"), run);
    }
    let sample = || postgres::test(&threads(), postgres::Extent::Sample);
    summary.step("the store and the API on PostgreSQL", sample);
    websocket_judge(&mut summary, tools.as_ref(), Extent::Sample);
    summary.join_all(judging, "the judges of the contract");
    client_tests(&mut summary, tools.as_ref(), false);
    summary.finish()
}

/// The tests on PostgreSQL alone.
pub fn postgres() -> Result<()> {
    let mut summary = Summary::default();
    let full = || postgres::test(&threads(), postgres::Extent::Full);
    summary.step("the store and the API on PostgreSQL", full);
    summary.finish()
}

/// The client packages alone, `is_long` with as many kills as the receiver's guarantee is claimed
/// for.
pub fn clients(is_long: bool) -> Result<()> {
    let mut summary = Summary::default();
    let tools = summary.step("install what tests the clients", || {
        let tools = Tools::new(tools_dir()?);
        judge::install_programs()?;
        tools.install_clients()?;
        Ok(tools)
    });
    summary.step("build", build_judged);
    client_tests(&mut summary, tools.as_ref(), is_long);
    summary.finish()
}

/// What others do with the OpenAPI document: linters, and clients from three generators.
pub fn contracts() -> Result<()> {
    let mut summary = Summary::default();
    let tools = summary.step("install what reads the contract", || {
        let tools = Tools::new(tools_dir()?);
        tools.install_contracts()?;
        Ok(tools)
    });
    let server = summary.step("start the server", || {
        build_judged()?;
        start_server(&target_dir()?)
    });
    if let (Some(tools), Some(mut server)) = (tools, server) {
        contract_readers(&mut summary, &tools, &server);
        summary.step("SIGTERM ends the server with 0", || server.terminate());
    }
    summary.finish()
}

/// Linters of the OpenAPI document, and generators of clients that then use the server.
fn contract_readers(summary: &mut Summary, tools: &Tools, server: &Server) {
    let contracts = summary.step("fetch /openapi.json", || Contracts::new(tools, server));
    if let Some(contracts) = contracts {
        summary.step("redocly", || contracts.redocly());
        summary.step("vacuum", || contracts.vacuum());
        summary.step("openapi-typescript and @hey-api/openapi-ts", || contracts.typescript());
        summary.step("openapi-python-client", || contracts.python());
    }
}

/// The judges alone, each in full.
pub fn judge_only() -> Result<()> {
    let mut summary = Summary::default();
    let tools = install_tools(&mut summary);
    judges(&mut summary, tools.as_ref());
    websocket_judge(&mut summary, tools.as_ref(), Extent::Full);
    summary.finish()
}

/// The judge of WebSockets alone, for work on the codec.
pub fn judge_websockets(extent: Extent) -> Result<()> {
    let mut summary = Summary::default();
    let tools = install_tools(&mut summary);
    websocket_judge(&mut summary, tools.as_ref(), extent);
    summary.finish()
}

/// The checks before a commit. Installs nothing: its tests need the tools that `test` installed
/// once.
pub fn ci() -> Result<()> {
    let mut summary = Summary::default();
    summary.step("fmt", || run(&mut cargo(["fmt", "--all", "--check"])));
    summary.step("clippy", || {
        let scope = ["clippy", "--workspace", "--all-targets", "--locked"];
        run(cargo(scope).args(["--", "-D", "warnings"]))
    });
    summary.step("rustdoc", rustdoc);
    summary.step("tidy", tidy::command);
    summary.step("deny", deny::command);
    summary.step("cargo test --workspace", cargo_test);
    let tools = tools_dir().map(Tools::new).ok();
    client_tests(&mut summary, tools.as_ref(), false);
    summary.finish()
}

/// The documentation must build without a warning.
pub fn rustdoc() -> Result<()> {
    let mut command = cargo(["doc", "--workspace", "--no-deps", "--locked"]);
    // The items are documented for developers of the crate, so private ones are checked too.
    run(command.arg("--document-private-items").env("RUSTDOCFLAGS", "-D warnings"))
}

/// Builds server and bench for release and runs the bench crate.
pub fn bench(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some("wire") => judge::install_rivals()?,
        Some("live") => judge::install_broadcaster()?,
        Some("proxy") => judge::install_proxies()?,
        Some("cluster") => return postgres::bench(arguments),
        // One of many scenarios counts instructions, and reports if it cannot.
        Some("api") if wants(arguments, "versions") => {
            if let Err(error) = judge::install_counter() {
                eprintln!("xtask: instructions will not be counted: {error:#}");
            }
        }
        _ => {}
    }
    let release = release_build()?;
    let mut command = std::process::Command::new(release.join("bench"));
    command.args(arguments);
    const OF_THE_SERVER: [&str; 7] =
        ["api", "webhooks", "live", "proxy", "receive", "storm", "soak"];
    if arguments.first().is_some_and(|name| OF_THE_SERVER.contains(&name.as_str())) {
        command.arg("--server").arg(release.join("restive"));
    }
    run(&mut command)
}

/// Builds server and bench for release, and returns the folder with both.
pub fn release_build() -> Result<PathBuf> {
    run(&mut cargo(["build", "--release", "--locked", "-p", "restive", "-p", "bench"]))?;
    Ok(target_dir()?.join("release"))
}

/// Whether a bench with these arguments runs that scenario.
fn wants(arguments: &[String], scenario: &str) -> bool {
    let only = arguments.iter().skip_while(|argument| *argument != "--only").nth(1);
    only.is_none_or(|only| only == scenario)
}

/// Concurrent tests per core: most of them wait for a server to start or for a timer.
const THREADS_PER_CORE: usize = 2;

/// Time limit of all tests including their compilation: several times what they take.
pub const TEST_LIMIT: Duration = Duration::from_secs(30 * 60);

fn threads() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores * THREADS_PER_CORE).to_string()
}

/// Builds everything that the tests and the judges run.
fn build() -> Result<()> {
    run(&mut cargo(["test", "--workspace", "--locked", "--no-run", "--quiet"]))?;
    build_judged()
}

fn cargo_test() -> Result<()> {
    let mut command = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
    run_within(TEST_LIMIT, command.env("RUST_TEST_THREADS", threads()))?;
    // Without features it signs in pure Rust, which the workspace does not use.
    let mut command = cargo(["test", "-p", "restive-kit", "--lib", "--test", "vectors"]);
    run_within(TEST_LIMIT, command.args(["--locked", "--quiet"]))
}

fn tools_dir() -> Result<PathBuf> {
    Ok(target_dir()?.join("tools"))
}

fn install_tools(summary: &mut Summary) -> Option<Tools> {
    let install = || {
        let tools = Tools::install(tools_dir()?)?;
        tools.install_contracts()?;
        Ok(tools)
    };
    summary.step("install the judges and verifiers", install)
}

fn judges(summary: &mut Summary, tools: Option<&Tools>) {
    const JUDGES: [&str; 5] = [
        "openapi-spec-validator",
        "spectral",
        "schemathesis",
        "AsyncAPI parser and spectral",
        "SIGTERM ends the server with 0",
    ];
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
    contract_readers(summary, tools, &server);
    let document = summary.step("save /openapi.json", || server.save("openapi.json"));
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
    summary.step(JUDGES[3], || judge::asyncapi(tools, &server.save("asyncapi.json")?));
    summary.step(JUDGES[4], || server.terminate());
}

fn websocket_judge(summary: &mut Summary, tools: Option<&Tools>, extent: Extent) {
    const JUDGE: &str = "Autobahn's fuzzing client";
    let Some(tools) = tools else {
        return summary.not_run(JUDGE, "the judges are missing");
    };
    summary.step(JUDGE, || {
        build_judged()?;
        let target = target_dir()?;
        let echo = target.join("debug/examples/echo");
        autobahn::run(tools, &echo, &target.join("judge-websockets"), extent)
    });
}

/// Packs the clients and tests the packages against the server in target/debug.
fn client_tests(summary: &mut Summary, tools: Option<&Tools>, is_long: bool) {
    const PACKAGES: [&str; 2] = ["clients/typescript, packed", "clients/python, packed"];
    let Some(tools) = tools else {
        for package in PACKAGES {
            summary.not_run(package, "the tools are missing");
        }
        return;
    };
    // The suites mostly wait for servers and delays, so both run together.
    let python = Background::start(PACKAGES[1], {
        let tools = tools.clone();
        move || Clients::new(&tools, is_long)?.python()
    });
    summary.step(PACKAGES[0], || Clients::new(tools, is_long)?.typescript());
    summary.join(python);
}

/// Builds the programs under judgement. Builds the whole workspace, as the tests do: a single
/// package would need fewer features of its dependencies, and all of them would be built again.
fn build_judged() -> Result<()> {
    let programs = ["--bin", "restive", "--example", "echo"];
    run(cargo(["build", "--workspace", "--locked"]).args(programs))
}

fn start_server(target: &Path) -> Result<Server> {
    let server = Server::start(&target.join("debug").join("restive"), &target.join("judge"))?;
    println!("    listening on {}", server.url());
    Ok(server)
}
