//! Arguments of `restive cluster`.

use super::AsJson;
use clap::{Args as Arguments, Subcommand};

/// Nodes that share a database.
#[derive(Arguments)]
pub struct Cluster {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Show each node: its heartbeat, the leases it holds, how far it is behind the log
    Status {
        /// PostgreSQL database, as of `restive serve`
        #[arg(long, value_name = "URL", env = "RESTIVE_DATABASE", hide_env_values = true)]
        database: String,
        #[command(flatten)]
        output: AsJson,
    },
}
