//! A schema of the test server, and nodes with short times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use store::cluster::{Cluster, Holding};
use store::postgres::cluster::{PostgresCluster, Settings};
use store::postgres::connect::{Address, Client};

pub const LEASE: Duration = Duration::from_millis(1500);
pub const HEARTBEAT: Duration = Duration::from_millis(150);
pub const MARGIN: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Bed {
    pub address: Address,
    pub client: Client,
    nodes: AtomicU32,
}

/// `None` without a server: the test has nothing to do.
pub async fn bed() -> Option<Bed> {
    static BEDS: AtomicU32 = AtomicU32::new(0);
    let Ok(url) = std::env::var("RESTIVE_TEST_POSTGRES") else {
        eprintln!("RESTIVE_TEST_POSTGRES is not set: nothing was tested");
        return None;
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let number = BEDS.fetch_add(1, SeqCst);
    let schema = format!("cluster_{}_{}_{number}", now.as_millis(), std::process::id());
    let root = Address::parse(&url).unwrap().connect().await.unwrap();
    root.batch(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    let joint = if url.contains('?') { '&' } else { '?' };
    let address =
        Address::parse(&format!("{url}{joint}schema={schema}&application_name={schema}")).unwrap();
    let client = address.connect().await.unwrap();
    Some(Bed { address, client, nodes: AtomicU32::new(0) })
}

impl Bed {
    pub async fn node(&self) -> Arc<PostgresCluster> {
        let number = self.nodes.fetch_add(1, SeqCst) + 1;
        self.join(i64::from(number) << 20, None).await
    }

    pub async fn join(&self, node: i64, predecessor: Option<i64>) -> Arc<PostgresCluster> {
        let settings = Settings {
            lease: LEASE,
            heartbeat: HEARTBEAT,
            margin: MARGIN,
            hand_over: Duration::from_millis(400),
            patience: Duration::from_millis(800),
            predecessor,
            ..Settings::new(node, format!("machine:{node}"), "1.2.3".to_owned())
        };
        PostgresCluster::join(self.address.clone(), settings, 7).await.unwrap()
    }
}

/// How many buckets a node serves at this moment.
pub fn serving(node: &PostgresCluster) -> usize {
    let holdings = node.holdings().borrow().clone();
    let is_over = holdings.until().is_some_and(|until| until <= Instant::now());
    let serves = |holding: &Holding| matches!(holding, Holding::Serve(_));
    if is_over { 0 } else { holdings.leases().filter(serves).count() }
}

/// Waits for a condition, and fails when it does not come.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        // waits for: the condition
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
