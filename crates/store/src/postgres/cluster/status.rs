//! What `restive cluster status` shows: the nodes, their leases and how far they have read the log.

use crate::Error;
use crate::postgres::connect::{Address, Cells as _};
use crate::postgres::param::params;

/// The cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    pub nodes: Vec<NodeStatus>,
    /// Buckets that no node holds.
    pub free: i64,
    /// The newest position that any node has seen.
    pub position: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    pub node: i64,
    pub host: String,
    pub version: String,
    /// Milliseconds since 1970.
    pub started: i64,
    /// Milliseconds since its last heartbeat.
    pub beat_age_ms: i64,
    pub alive: bool,
    pub leases: i64,
    pub position: i64,
}

const NODES: &str = "SELECT n.node, n.host, n.version, \
    (extract(epoch FROM n.started) * 1000)::bigint, \
    (extract(epoch FROM clock_timestamp() - n.beat) * 1000)::bigint, \
    n.until > clock_timestamp(), \
    (SELECT count(*) FROM restive_leases l WHERE l.node = n.node), n.position \
    FROM restive_nodes n ORDER BY n.started, n.node";
const FREE: &str = "SELECT count(*) FROM restive_leases l WHERE NOT EXISTS \
    (SELECT 1 FROM restive_nodes n WHERE n.node = l.node)";

/// `None` if no node has ever served this database.
pub async fn status(address: &Address) -> Result<Option<Status>, Error> {
    let client = address.connect().await?;
    let exists = "SELECT to_regclass('restive_nodes') IS NOT NULL";
    let exists = client.row(exists, params![]).await?;
    if !exists.map_or(Ok(false), |row| row.cell::<bool>(0))? {
        return Ok(None);
    }
    let mut nodes = Vec::new();
    for row in client.query(NODES, params![]).await? {
        nodes.push(NodeStatus {
            node: row.cell(0)?,
            host: row.cell(1)?,
            version: row.cell(2)?,
            started: row.cell(3)?,
            beat_age_ms: row.cell(4)?,
            alive: row.cell(5)?,
            leases: row.cell(6)?,
            position: row.cell(7)?,
        });
    }
    let position = nodes.iter().map(|node| node.position).max().unwrap_or(0);
    let free = client.row(FREE, params![]).await?;
    let free = free.map_or(Ok(0), |row| row.cell(0))?;
    Ok(Some(Status { nodes, free, position }))
}
