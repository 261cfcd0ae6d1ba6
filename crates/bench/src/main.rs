//! `bench api` and `bench webhooks`: the release server and the bare limits, measured in one run on
//! one machine. The `bench bare-…` are those limits: programs that do nothing but what the server
//! cannot avoid. Knows the server only from outside: its command line, HTTP and /proc.
//! `bench live` holds the open connections against nchan and a bare loop of writes.
//! `bench storm` lets one account misbehave and measures another.
//! `bench wire` holds our HTTP server alone, as `bench bare-wire`, against the bare one.
//! `bench proxy` holds `restive proxy` against nginx and HAProxy.
//! `bench receive` holds `restive receive` against hyper that only reads.
//! `bench cluster` holds two nodes on one PostgreSQL against pgbench.

mod api;
mod bare_http;
mod bare_live;
mod bare_receive;
mod bare_sqlite;
mod bare_webhooks;
mod bare_wire;
mod cluster;
mod count;
mod disk;
mod entropy;
mod histogram;
mod http;
mod live;
mod load;
mod measure;
mod metrics;
mod options;
mod process;
mod proxy;
mod receive;
mod report;
mod stage;
mod storm;
mod streams;
mod webhooks;
mod wire;
mod wire_h2;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::options::Options;

const USAGE: &str = "\
usage: bench api --server FILE [--quick] [--only NAME] [--json FILE] [--no-pin]
       bench webhooks --server FILE [--quick] [--only NAME] [--json FILE] [--no-pin]
       bench live --server FILE [--quick] [--only NAME] [--json FILE] [--no-pin]
       bench storm --server FILE [--quick] [--only NAME] [--json FILE]
       bench soak --server FILE [--minutes N]
       bench wire [--quick] [--only NAME] [--json FILE] [--no-pin]
       bench proxy --server FILE [--quick] [--only NAME] [--json FILE] [--no-pin]
       bench receive --server FILE [--quick] [--only NAME] [--json FILE] [--no-pin]
       bench cluster --server FILE --database URL --dir DIR [--quick] [--only NAME] [--json FILE]
       bench bare-http [--book-bytes N] [--list-bytes N]
       bench bare-live
       bench bare-receive [--dir DIR]
       bench bare-backend [--listen ADDR] [--dir DIR]
       bench bare-wire [--book-bytes N] [--dir DIR]
       bench bare-sqlite --dir DIR [--in-flight N] [--seconds S]
       bench bare-webhooks --target ADDR [--body-bytes N] [--in-flight N] [--seconds S]

  --server FILE   the release executable of restive
  --quick         50,000 books or events instead of 1,000,000, and short runs
  --only NAME     of api, one of: idle get list list-304 versions create-1 create-64
                  create-256 get-under-writes million (also: `create` for all three);
                  of webhooks, one of: bare drain live replay latency hanging million;
                  of live: fan-out-sse fan-out-ws idle-sse idle-ws idle-poll idle-h2 burst
                  stalled reconnect latency;
                  of wire: get threads h2 idle idle-tls idle-stream h3 large;
                  of proxy: get tls h2 large idle cached coalesce fanout reload failover;
                  of cluster: create get latency;
                  of receive: post-64 post-256 kills (kills only if it is named);
                  of storm: see the names it prints
  --database URL  of a PostgreSQL server, and --dir the folder of its programs
  --json FILE     the table once more, for programs
  --minutes N     length of the soak, 10 unless told
  --no-pin        do not pin the server to core 0 and the load to core 1
";

fn main() -> ExitCode {
    match dispatch() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("bench: a bar was missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// False if a bar was missed.
fn dispatch() -> Result<bool> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let options = Options::parse(arguments)?;
    match command.as_str() {
        "api" => api::run(&options),
        "webhooks" => webhooks::run(&options),
        "live" => live::run(&options),
        "wire" => wire::run(&options),
        "proxy" => proxy::run(&options),
        "receive" => receive::run(&options),
        "cluster" => cluster::run(&options),
        "storm" => storm::run(&options),
        "soak" => storm::soak::run(&options),
        "bare-backend" => proxy::backend::run(&options).map(|()| true),
        "bare-receive" => bare_receive::run(&options).map(|()| true),
        "bare-live" => bare_live::run().map(|()| true),
        "bare-wire" => bare_wire::run(&options).map(|()| true),
        "bare-http" => bare_http::run(&options).map(|()| true),
        "bare-sqlite" => bare_sqlite::run(&options).map(|()| true),
        "bare-webhooks" => bare_webhooks::run(&options).map(|()| true),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(true)
        }
        other => bail!("unknown command {other:?}\n\n{USAGE}"),
    }
}
