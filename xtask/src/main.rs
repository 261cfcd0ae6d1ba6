//! `cargo xtask …`: everything a developer or the CI runs, in Rust instead of shell scripts. This
//! file parses the command line; each command has its own file.

mod ci;
mod clients;
mod contracts;
mod deny;
mod dist;
mod judge;
mod postgres;
mod process;
mod summary;
mod tidy;
mod versions;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::judge::autobahn::Extent;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test                      everything: cargo test, then the contract judges (spectral,
                            openapi-spec-validator, schemathesis, the AsyncAPI parser) against
                            the real server, and
                            Autobahn's fuzzing client against our WebSockets; installs the
                            judges, and the webhook libraries that tests ask, into target/tools
                            on first use
  judge                     the judges alone, each with every case
  judge websockets [--quick]
                            Autobahn's alone: every case, or those of `test`
  judge storm [--quick] [--only NAME] [--json FILE]
                            one account misbehaves in many ways, another is measured; 10,000
                            endpoints on one server
  judge soak [--minutes N]  a mixed load for 10 minutes; memory, descriptors and gauges come back
  clients [--long]          packs clients/typescript and clients/python and tests the packages
                            against the real server; --long kills provider and receiver 50 times
  contracts                 lints the OpenAPI document with Redocly and vacuum, generates
                            clients of it with openapi-typescript, @hey-api/openapi-ts and
                            openapi-python-client, and uses them against the real server
  dist [--debug]            archives, Debian packages and the context of a container image in
                            target/dist, each tried as far as this machine allows; --debug
                            packages the debug build
  postgres                  the tests of the store, and of the service, on a PostgreSQL server that
                            it starts for them; installs it on first use
  ci                        fmt, clippy, rustdoc, tidy, deny and cargo test, warnings denied
  doc                       the documentation of all items, warnings denied
  tidy                      the rules of STYLE.md that a program can check
  bench api|webhooks|live [--quick] [--only NAME] [--json FILE] [--no-pin]
                            the release server against the bare limits, live channels also
                            against nginx with nchan, in one run
  bench wire [--quick] [--only NAME] [--json FILE]
                            our HTTP server alone against bare hyper and nginx, in one run
  bench proxy [--quick] [--only NAME] [--json FILE]
                            `restive proxy` against nginx and HAProxy, in one run
  bench receive [--quick] [--only NAME] [--json FILE]
                            `restive receive` against bare hyper; `--only kills` kills provider
                            and receiver 50 times
  bench cluster [--quick] [--only NAME] [--json FILE]
                            two nodes on one PostgreSQL against pgbench, in one run
  deny                      licences, bans and sources of the dependencies
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", arguments),
    };
    match command {
        "test" => no_more(rest).and_then(|()| ci::test()),
        "postgres" => no_more(rest).and_then(|()| ci::postgres()),
        "judge" => match rest {
            [only] if only == "websockets" => ci::judge_websockets(Extent::Full),
            [only, quick] if only == "websockets" && quick == "--quick" => {
                ci::judge_websockets(Extent::Sample)
            }
            [only, ..] if only == "storm" || only == "soak" => ci::bench(rest),
            _ => no_more(rest).and_then(|()| ci::judge_only()),
        },
        "clients" => match rest {
            [long] if long == "--long" => ci::clients(true),
            _ => no_more(rest).and_then(|()| ci::clients(false)),
        },
        "contracts" => no_more(rest).and_then(|()| ci::contracts()),
        "dist" => match rest {
            [debug] if debug == "--debug" => dist::dist(true),
            _ => no_more(rest).and_then(|()| dist::dist(false)),
        },
        "ci" => no_more(rest).and_then(|()| ci::ci()),
        "tidy" => no_more(rest).and_then(|()| tidy::command()),
        "bench" => ci::bench(rest),
        "doc" => no_more(rest).and_then(|()| ci::rustdoc()),
        "deny" => no_more(rest).and_then(|()| deny::command()),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => bail!("unknown command {other:?}\n\n{USAGE}"),
    }
}

fn no_more(rest: &[String]) -> Result<()> {
    match rest.first() {
        None => Ok(()),
        Some(extra) => bail!("unexpected argument {extra:?}\n\n{USAGE}"),
    }
}
