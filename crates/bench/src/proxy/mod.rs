//! `bench proxy`: `restive proxy` compared with nginx and HAProxy, one after the other on one core,
//! with the same backend and the same load on another core; and what only `restive proxy` promises:
//! one backend request for a crowd of misses, one backend stream for a crowd of clients, reloads
//! and lost backends that no client notices.
//! Knows the proxies only from outside: command lines, HTTP and /proc. `xtask` installs the others.

pub mod backend;
mod client;
mod coalesce;
mod failover;
mod fanout;
mod idle;
mod load;
mod reload;
mod steady;
mod subject;
mod traffic;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::options::Options;
use crate::process::{Pinning, Service};
use crate::report::{Bar, Report};

const SCENARIOS: [&str; 10] =
    ["get", "tls", "h2", "large", "idle", "cached", "coalesce", "fanout", "reload", "failover"];

/// What every scenario needs.
pub struct Bench {
    pub quick: bool,
    pub pinning: Pinning,
    /// The release executable of restive.
    pub server: PathBuf,
    pub report: Report,
}

/// True when every bar was met.
pub fn run(options: &Options) -> Result<bool> {
    // First, because threads that start later inherit the core.
    let pinning = Pinning::claim(options.pin);
    if let Some(only) = options.only.as_deref()
        && !SCENARIOS.contains(&only)
    {
        bail!("--only {only}: there are {}", SCENARIOS.join(" "));
    }
    let server = options.server.clone().context("--server FILE is missing")?;
    println!("bench proxy: {}", pinning.describe());
    let mut bench = Bench { quick: options.quick, pinning, server, report: Report::default() };
    for name in SCENARIOS {
        if options.only.as_deref().is_none_or(|only| only == name) {
            bench.scenario(name);
        }
    }
    let mut report = bench.report;
    report.note(format!("{}; the backend runs on the core of the load", pinning.describe()));
    report.note("CPU µs is user+system time of the proxy's process per request");
    report.note("a ratio is the median of its rounds' own, with the least and the most of them");
    report.print();
    if let Some(file) = &options.json {
        report.save(file)?;
    }
    Ok(report.passed())
}

impl Bench {
    /// A scenario that cannot run to its end is a missed bar, and the others still run.
    fn scenario(&mut self, name: &str) {
        let done = match name {
            "idle" => idle::run(self),
            "coalesce" => coalesce::run(self),
            "fanout" => fanout::run(self),
            "reload" => reload::run(self),
            "failover" => failover::run(self),
            _ => traffic::run(self, name),
        };
        if let Err(error) = done {
            println!("    {name}: {error:#}");
            self.report.bar(name, Bar::at_most("errors that ended it", 1.0, 0.0, ""));
            self.report.note(format!("{name} was not measured: {error:#}"));
        }
    }

    /// A backend with fixed responses on the core of the load, which this process has.
    pub fn bare_backend(&self, arguments: &[&str]) -> Result<Service> {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args(arguments);
        Service::start(command)
    }
}
