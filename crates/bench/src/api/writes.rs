//! Creating: many in flight compared with the bare SQLite loop, and one at a time compared with one
//! fsync.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::disk;
use crate::report::{Bar, Sample};

use super::Bench;

/// Appends to time: enough for a steady median, done in about a second.
const SYNCS: usize = 2_000;

/// One client that waits for each response: one fsync, plus our overhead.
pub fn one_at_a_time(bench: &mut Bench<'_>) -> Result<()> {
    if !bench.stage.wants("create-1") {
        return Ok(());
    }
    println!("==> create-1");
    let data = bench.stage.folder("create-1")?;
    let service = bench.restive(&data)?;
    let (mut syncs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.stage.rounds() {
        let latency = disk::append_and_sync(&bench.stage.scratch, SYNCS)?;
        let (p50_us, p99_us) = (latency.micros(0.5), latency.micros(0.99));
        syncs.push(Sample { per_second: 1e6 / p50_us, p50_us, p99_us, cpu_us: 0.0 });
        ours.push(bench.measure(&service, 1, 201, &|_| bench.requests.creates())?);
    }
    let (sync, ours) = (Sample::median(&syncs), Sample::median(&ours));
    bench.stage.report.sample("create-1", "append 4 KiB + fdatasync", sync, None);
    let bar = Bar::at_most("p50 − fsync p50", ours.p50_us - sync.p50_us, 300.0, "µs");
    bench.stage.report.sample("create-1", "restive", ours, Some(bar));
    service.stop()
}

/// A closed loop with this many clients.
pub fn in_groups(bench: &mut Bench<'_>, in_flight: usize) -> Result<()> {
    let name = format!("create-{in_flight}");
    if !bench.stage.wants(&name) {
        return Ok(());
    }
    println!("==> {name}");
    let bare_dir = bench.stage.folder("bare")?;
    let data = bench.stage.folder(&name)?;
    let service = bench.restive(&data)?;
    let (mut limits, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.stage.rounds() {
        limits.push(bare_sqlite(bench, &bare_dir, in_flight)?);
        ours.push(bench.measure(&service, in_flight, 201, &|_| bench.requests.creates())?);
    }
    let (bare, ours) = (Sample::median(&limits), Sample::median(&ours));
    bench.stage.report.sample(&name, "bare SQLite", bare, None);
    let bar = Bar::at_least("rate ratio", ours.per_second / bare.per_second, 0.5, "× bare");
    bench.stage.report.sample(&name, "restive", ours, Some(bar));
    service.stop()?;
    std::fs::remove_dir_all(bare_dir)?;
    std::fs::remove_dir_all(data)?;
    Ok(())
}

/// One run of the bare loop in a separate process, on the server's core.
fn bare_sqlite(bench: &Bench<'_>, dir: &Path, in_flight: usize) -> Result<Sample> {
    let mut command = bench.stage.pinning.command(&std::env::current_exe()?);
    command.args(["bare-sqlite", "--in-flight", &in_flight.to_string()]);
    command.args(["--seconds", &bench.duration().as_secs_f64().to_string()]);
    let output = command.arg("--dir").arg(dir).output().context("cannot start bare-sqlite")?;
    if !output.status.success() {
        bail!("bare-sqlite: {}", String::from_utf8_lossy(&output.stderr));
    }
    let figures: Value = serde_json::from_slice(&output.stdout)?;
    let figure = |name: &str| figures[name].as_f64().with_context(|| format!("no {name}"));
    Ok(Sample {
        per_second: figure("per_second")?,
        p50_us: figure("p50_us")?,
        p99_us: figure("p99_us")?,
        cpu_us: figure("cpu_us")?,
    })
}
