//! A PostgreSQL server for the tests: the distribution's, with data of its own in a folder for
//! temporary files, on a port of its own. It ends with the command.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::ci::{TEST_LIMIT, release_build};
use crate::judge;
use crate::process::{cargo, output, run, run_within};

/// Where Debian and its relatives install the programs, by version.
const INSTALLED: &str = "/usr/lib/postgresql";
/// The pooler that a test puts in front of the server.
const POOLER: &str = "/usr/sbin/pgbouncer";
/// The server does not run as root: this user comes with the package.
const USER: &str = "postgres";
/// Of the superuser, and of the user of the tests.
const PASSWORD: &str = "only-for-tests";

/// The parts of the suites that run again on PostgreSQL. What is about the files of the other
/// engine alone is left out by the tests themselves, which say so.
const E2E_MODULES: [&str; 29] = [
    "actions::",
    "auth::",
    "cluster::",
    "cluster_handlers::",
    "cluster_refusals::",
    "concurrency::",
    "conditions::",
    "cursors::",
    "deliveries::",
    "delivery_lists::",
    "endpoints::",
    "errors::",
    "events::",
    "events_cli::",
    "expansion::",
    "filters::",
    "idempotency::",
    "limits::",
    "lists::",
    "live_browser::",
    "long_texts::",
    "migrate::",
    "nodes::",
    "resources::",
    "service::",
    "timers::",
    "version_events::",
    "version_limits::",
    "formats::",
];

/// The modules of a sample.
const E2E_SAMPLE: [&str; 7] = [
    "nodes::",
    "cluster::",
    "cluster_handlers::",
    CHAOS,
    "migrate::",
    "resources::",
    "idempotency::",
];
/// Restarts the server in its long form, so that no other test may run then.
const CHAOS: &str = "cluster_chaos::";

/// A running server.
pub struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    /// For the user of the tests.
    pub url: String,
}

impl Postgres {
    /// Installs PostgreSQL if it is missing, and starts a server with an empty database.
    pub fn start() -> Result<Postgres> {
        let programs = programs()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // Not in the target folder: the server's user may not enter the folders above it.
        let mut make = as_user(Path::new("mktemp"))?;
        let data = PathBuf::from(output(make.args(["-d", "/tmp/restive-postgres-XXXXXX"]))?.trim());
        fs::write(data.join("password"), PASSWORD)?;
        if is_root()? {
            run(Command::new("chown").arg("-R").arg(USER).arg(&data))?;
        }
        let cluster = data.join("data");
        let mut initdb = as_user(&programs.join("initdb"))?;
        initdb.arg("-D").arg(&cluster).args(["-U", "postgres", "--auth=scram-sha-256"]);
        initdb.args(["--encoding=UTF8", "--locale=C", "--no-instructions", "--pwfile"]);
        run_quietly(initdb.arg(data.join("password")))?;
        let settings = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
             -c max_connections=500 -c shared_buffers=256MB"
        );
        let mut start = as_user(&programs.join("pg_ctl"))?;
        start.arg("-D").arg(&cluster).arg("-l").arg(data.join("log")).args(["-w", "-o"]);
        run_quietly(start.arg(settings).arg("start"))?;
        let url = format!("postgres://shop:{PASSWORD}@127.0.0.1:{port}/shop");
        let server = Postgres { programs, data, url };
        for sql in [
            // CREATEROLE: some tests need a role of their own, whose limits they change.
            // REPLICATION: a test makes a standby.
            &format!(
                "CREATE ROLE shop LOGIN CREATEDB CREATEROLE REPLICATION PASSWORD '{PASSWORD}'"
            ),
            "CREATE DATABASE shop OWNER shop",
        ] {
            let mut psql = Command::new("psql");
            psql.args(["-h", "127.0.0.1", "-U", "postgres", "-d", "postgres", "-c", sql]);
            run_quietly(psql.arg("-p").arg(port.to_string()).env("PGPASSWORD", PASSWORD))?;
        }
        Ok(server)
    }
}

impl Postgres {
    /// A shell command that restarts the server; the mode of the stop is to be added.
    fn restart(&self) -> Result<String> {
        let control = self.programs.join("pg_ctl");
        let control = match is_root()? {
            true => format!("runuser -u {USER} -- {}", control.display()),
            false => control.display().to_string(),
        };
        let (data, log) = (self.data.join("data"), self.data.join("log"));
        let folders = format!("-D {} -l {}", data.display(), log.display());
        Ok(format!("cd / && {control} {folders} -w restart > /dev/null"))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Err(error) = stop(&self.programs, &self.data) {
            eprintln!("xtask: the PostgreSQL server of the tests cannot be stopped: {error:#}");
        }
        let _ = fs::remove_dir_all(&self.data);
    }
}

/// `bench cluster`, on a server of its own.
pub fn bench(arguments: &[String]) -> Result<()> {
    let release = release_build()?;
    let server = Postgres::start()?;
    let mut command = Command::new(release.join("bench"));
    command.args(arguments).arg("--server").arg(release.join("restive"));
    command.arg("--database").arg(&server.url).arg("--dir").arg(&server.programs);
    run(&mut command)
}

fn stop(programs: &Path, data: &Path) -> Result<()> {
    let mut stop = as_user(&programs.join("pg_ctl"))?;
    run_quietly(stop.arg("-D").arg(data.join("data")).args(["-m", "fast", "-w", "stop"]))
}

/// The folder of the newest version that is installed.
fn programs() -> Result<PathBuf> {
    let newest = || {
        let versions = fs::read_dir(INSTALLED).ok()?.filter_map(Result::ok);
        let programs = versions.map(|version| version.path().join("bin"));
        let number = |path: &PathBuf| path.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
        programs.filter(|path| path.join("initdb").exists()).max_by_key(number)
    };
    if let Some(found) = newest().filter(|_| Path::new(POOLER).exists()) {
        return Ok(found);
    }
    judge::install_postgres()?;
    newest().with_context(|| format!("the package `postgresql` has no programs in {INSTALLED}"))
}

fn is_root() -> Result<bool> {
    Ok(output(Command::new("id").arg("-u"))?.trim() == "0")
}

/// A program of the server, which refuses to run as root.
fn as_user(program: &Path) -> Result<Command> {
    if !is_root()? {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("runuser");
    command.args(["-u", USER, "--"]).arg(program).current_dir("/");
    Ok(command)
}

/// The output is shown only when the program fails.
fn run_quietly(command: &mut Command) -> Result<()> {
    // Not piped: the server would keep the pipe open.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if !status.success() {
        bail!("{:?} failed: {status}", command.get_program());
    }
    Ok(())
}

/// What a run covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Part of `test`: the behaviour of the store, several servers, and the main operations.
    Sample,
    /// Everything that is meant to pass.
    Full,
}

/// The behaviour of the store, and the service over it, on a server of their own.
pub fn test(threads: &str, extent: Extent) -> Result<()> {
    let server = Postgres::start()?;
    let run_test = |name: &str, filters: &[&str], store: &str| {
        let mut test = cargo(["test", "--quiet", "--workspace", "--locked", "--test", name, "--"]);
        test.args(filters).env("RUST_TEST_THREADS", threads);
        test.env("RESTIVE_TEST_STORE", store).env("RESTIVE_TEST_POSTGRES", &server.url);
        if extent == Extent::Full {
            test.env("RESTIVE_TEST_LONG", "1");
        }
        if filters == [CHAOS] {
            test.env("RESTIVE_TEST_POSTGRES_RESTART", server.restart()?);
        }
        run_within(TEST_LIMIT, &mut test)
    };
    run_test("behaviour", &["on_postgres", "nodes", "sessions", "writing"], "")?;
    run_test("cluster", &[], "")?;
    if extent == Extent::Sample {
        return run_test("e2e", &E2E_SAMPLE, "postgres");
    }
    run_test("e2e", &E2E_MODULES, "postgres")?;
    run_test("e2e", &[CHAOS], "postgres")
}
