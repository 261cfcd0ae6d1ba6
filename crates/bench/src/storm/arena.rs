//! The environment of a case: a new server with two accounts, A that misbehaves and B that is
//! measured. A case calls `quiet`, `storm_begins` and `storm_ends` around its work.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::Service;
use crate::stage::Stage;

use super::client::Account;
use super::probe::{Figures, Phase, Probe};
use super::schema;

/// Before B is measured at rest: connections are opened, caches are filled.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time limit of B's last records after a phase before they count as lost.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
/// The timers of jobs: longer than it takes to create all of them.
const TIMER_SECONDS: u64 = 25;
const QUICK_TIMER_SECONDS: u64 = 8;

pub struct Arena {
    pub service: Service,
    pub a: Account,
    pub b: Account,
    pub quick: bool,
    pub timer: Duration,
    /// The handler that approves tasks.
    pub handler: TcpListener,
    probe: Probe,
    notes: Mutex<Vec<String>>,
}

impl Arena {
    pub fn start(stage: &Stage<'_>, name: &str) -> Result<Self> {
        let quick = stage.options.quick;
        let seconds = if quick { QUICK_TIMER_SECONDS } else { TIMER_SECONDS };
        let handler = TcpListener::bind("127.0.0.1:0")?;
        let data = stage.folder(name)?;
        let file = stage.scratch.join("storm.toml");
        std::fs::write(&file, schema::text(handler.local_addr()?, seconds))?;
        let service = stage.restive(&data, Some(&file))?;
        let address = service.address.clone();
        let b = Account { address: address.clone(), key: stage.key.clone() };
        let a = Account { address, key: new_account(&stage.server, &data, "A")? };
        let probe = Probe::start(b.clone())?;
        let (timer, notes) = (Duration::from_secs(seconds), Mutex::default());
        Ok(Self { service, a, b, quick, timer, handler, probe, notes })
    }

    /// The full number, or the number of a quick run.
    pub fn count(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    /// The length of a storm without an end of its own.
    pub fn length(&self) -> Duration {
        Duration::from_secs(if self.quick { 4 } else { 10 })
    }

    /// Measures B while A does nothing.
    pub async fn quiet(&self) {
        println!("    B alone");
        self.probe.set(Phase::WarmUp);
        tokio::time::sleep(WARM_UP).await;
        self.probe.set(Phase::Quiet);
        tokio::time::sleep(Duration::from_secs(if self.quick { 3 } else { 6 })).await;
        self.rest().await;
    }

    /// B sends nothing until the storm begins, and everything it sent has arrived.
    async fn rest(&self) {
        self.probe.set(Phase::Rest);
        self.probe.settle(Phase::Quiet, SETTLE_LIMIT).await;
    }

    /// From now on B is measured during the storm.
    pub fn storm_begins(&self) {
        println!("    A misbehaves");
        self.probe.set(Phase::Storm);
    }

    /// B is no longer measured; waits for its outstanding records.
    pub async fn storm_ends(&self) {
        self.probe.set(Phase::Rest);
        self.probe.settle(Phase::Storm, SETTLE_LIMIT).await;
        println!("    A recovers");
    }

    /// B's figures at rest and during the storm.
    pub fn figures(&self) -> (Figures, Figures) {
        (self.probe.figures(Phase::Quiet), self.probe.figures(Phase::Storm))
    }

    /// A remark for the end of the report.
    pub fn note(&self, note: String) {
        println!("    {note}");
        if let Ok(mut notes) = self.notes.lock() {
            notes.push(note);
        }
    }

    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().map_or_else(|_| Vec::new(), |notes| notes.clone())
    }

    /// Sends a signal to the server by its name, such as `STOP`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let kill = format!("kill -{name} {}", self.service.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().context("cannot run sh")?;
        if !sent.success() {
            bail!("the server is gone");
        }
        Ok(())
    }

    /// SIGTERM must end the server in whatever state A left it.
    pub fn stop(self, limit: Duration) -> Result<()> {
        let Self { service, probe, .. } = self;
        drop(probe);
        service.stop_within(limit)
    }
}

/// Creates an account while the server runs; returns its test key.
pub fn new_account(server: &Path, data: &Path, name: &str) -> Result<String> {
    let mut command = Command::new(server);
    command.args(["accounts", "create", name, "--data"]).arg(data);
    let output = command.output().context("cannot run `restive accounts create`")?;
    if !output.status.success() {
        bail!("restive accounts create: {}", String::from_utf8_lossy(&output.stderr));
    }
    let printed = String::from_utf8(output.stdout)?;
    let key = printed.split_whitespace().find(|word| word.starts_with("sk_test_"));
    Ok(key.context("no test key was printed")?.to_owned())
}
