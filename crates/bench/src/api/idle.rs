//! The cost of an unused server: idle memory and the size of the executable.

use std::time::Duration;

use anyhow::Result;

use crate::http::Client;
use crate::report::Bar;

use super::Bench;

const MIB: f64 = 1024.0 * 1024.0;
/// Long enough for everything that starts after the listener.
const SETTLE: Duration = Duration::from_secs(1);

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    println!("==> idle");
    let data = bench.stage.folder("idle")?;
    let service = bench.restive(&data)?;
    let mut client = Client::connect(&service.address)?;
    // One request, so that lazily created parts exist.
    client.expect(200, &bench.requests.get("/health"))?;
    std::thread::sleep(SETTLE);
    let (resident, _) = service.memory()?;
    bench.stage.report.bar("idle", Bar::at_most("resident", resident as f64 / MIB, 40.0, "MiB"));
    let size = std::fs::metadata(&bench.stage.server)?.len();
    bench.stage.report.bar("idle", Bar::at_most("executable", size as f64 / MIB, 40.0, "MiB"));
    // The client's connection is closed first, so that the drain does not wait for it.
    drop(client);
    service.stop()
}
