//! This node among the others on one database: joins them, counts for the metrics page, and
//! `restive cluster status`.

use crate::args::Storage;
use crate::args::cluster::{Cluster as Arguments, ClusterCommand};
use crate::data;
use crate::output::{print, print_json};
use anyhow::bail;
use api::Outside;
use model::Timestamp;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use store::cluster::{Cluster, Solo};
use store::postgres::cluster::{PostgresCluster, Settings, Status};
use store::postgres::connect::Address;

/// The file in the data folder with the number of this node. After a kill, the next process has the
/// leases of the former one at once.
const NUMBER: &str = "node";
/// Interval at which the position in the log is reported to the other nodes.
const REPORT: Duration = Duration::from_secs(1);

/// Joins the nodes on the same database. A process with a folder is alone.
pub async fn join(
    storage: &Storage,
    store: &dyn Store,
    outside: &dyn Outside,
) -> anyhow::Result<Arc<dyn Cluster>> {
    let Some(url) = &storage.database else { return Ok(Solo::new()) };
    let random = outside.entropy().0;
    let number = i64::from_le_bytes(std::array::from_fn(|place| random[place]));
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let number_file = storage.data.join(NUMBER);
    let settings = Settings {
        // The lock of the folder is ours: the former process has ended.
        predecessor: fs::read_to_string(&number_file)
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        unfit: store.unfit(),
        ..Settings::new(number, host(), version)
    };
    // A process that cannot leave its number only takes longer to start again after a kill.
    if let Err(error) = fs::write(&number_file, format!("{}\n", settings.node)) {
        tracing::warn!(%error, "the number of this node cannot be written");
    }
    let position = *store.position().borrow();
    Ok(PostgresCluster::join(Address::parse(url)?, settings, position).await?)
}

/// Name of the machine and number of the process.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let name = if name.trim().is_empty() { "unknown" } else { name.trim() };
    format!("{name}:{}", std::process::id())
}

/// Reports how far this node knows the log, until it is dropped.
pub async fn report_position(cluster: Arc<dyn Cluster>, store: Arc<dyn Store>) {
    while cluster.is_shared() {
        cluster.set_position(*store.position().borrow());
        tokio::time::sleep(REPORT).await;
    }
}

/// Adds the metrics of this node, if there may be others.
pub fn render(text: &mut String, cluster: &dyn Cluster) {
    if !cluster.is_shared() {
        return;
    }
    let figures = cluster.figures();
    let mut family = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(text, "# HELP restive_cluster_{name} {help}");
        let _ = writeln!(text, "# TYPE restive_cluster_{name} {kind}");
        let _ = writeln!(text, "restive_cluster_{name} {value}");
    };
    family("nodes", "gauge", "Nodes that are alive.", figures.nodes as f64);
    family("leases", "gauge", "Buckets of accounts that this node holds.", figures.leases as f64);
    let age = figures.heartbeat_age.as_secs_f64();
    family("heartbeat_age_seconds", "gauge", "Time since this node's last heartbeat.", age);
    let taken = figures.takeovers as f64;
    family("takeovers_total", "counter", "Buckets that this node has taken.", taken);
    let dropped = figures.relay_dropped as f64;
    let help = "Ephemeral messages for other nodes that were dropped.";
    family("relay_dropped_total", "counter", help, dropped);
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let ClusterCommand::Status { database, output } = &arguments.command;
    let address = Address::parse(database)?;
    let found = data::block_on(async {
        let found = store::postgres::cluster::status(&address).await;
        found.map_err(|error| data::unusable(&address, error))
    })?;
    let Some(status) = found else {
        bail!("no node has served the database {} yet", address.shown());
    };
    match output.json {
        true => print_json(&as_json(&status)),
        false => print(&table(&status)),
    }
}

fn as_json(status: &Status) -> serde_json::Value {
    let nodes: Vec<_> = status
        .nodes
        .iter()
        .map(|node| {
            json!({
                "object": "cluster_node",
                "id": format!("{:016x}", node.node),
                "host": node.host,
                "version": node.version,
                "started_at": Timestamp(node.started).to_iso(),
                "heartbeat_age_ms": node.beat_age_ms,
                "alive": node.alive,
                "leases": node.leases,
                "position": node.position,
                "lag": status.position - node.position,
            })
        })
        .collect();
    let buckets = store::cluster::BUCKETS;
    json!({
        "object": "cluster_status",
        "nodes": nodes,
        "buckets": buckets,
        "free_buckets": status.free,
        "position": status.position,
    })
}

fn table(status: &Status) -> String {
    let mut text = String::new();
    let widest = status.nodes.iter().map(|node| node.host.chars().count()).max().unwrap_or(0);
    let wide = widest.max(4) + 2;
    let _ = writeln!(
        text,
        "{:<18}{:<wide$}{:<10}{:<26}{:<18}{:<8}LAG",
        "NODE", "HOST", "VERSION", "STARTED", "HEARTBEAT", "LEASES"
    );
    for node in &status.nodes {
        let seconds = node.beat_age_ms as f64 / 1000.0;
        let beat = if node.alive { format!("{seconds:.1} s ago") } else { "dead".to_owned() };
        let _ = writeln!(
            text,
            "{:<18}{:<wide$}{:<10}{:<26}{:<18}{:<8}{}",
            format!("{:016x}", node.node),
            node.host,
            node.version,
            Timestamp(node.started).to_iso(),
            beat,
            node.leases,
            status.position - node.position
        );
    }
    let count = status.nodes.iter().filter(|node| node.alive).count();
    let _ = writeln!(
        text,
        "{count} nodes, log at {}, {} of {} buckets without a node",
        status.position,
        status.free,
        store::cluster::BUCKETS
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::postgres::cluster::NodeStatus;

    #[test]
    fn the_table_shows_each_node_with_its_lag() {
        let node = |node: i64, alive: bool, position: i64| NodeStatus {
            node,
            host: "db-host:77".to_owned(),
            version: "0.1.0".to_owned(),
            started: 0,
            beat_age_ms: 1234,
            alive,
            leases: 128,
            position,
        };
        let nodes = vec![node(1, true, 90), node(2, false, 80)];
        let status = Status { nodes, free: 0, position: 90 };
        let text = table(&status);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].contains("1.2 s ago") && lines[1].ends_with(" 0"), "{text}");
        assert!(lines[2].contains("dead") && lines[2].ends_with(" 10"), "{text}");
        assert_eq!(lines[3], "1 nodes, log at 90, 0 of 256 buckets without a node");
        assert_eq!(as_json(&status)["nodes"][1]["lag"], 10);
    }
}
