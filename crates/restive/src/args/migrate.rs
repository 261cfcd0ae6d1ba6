//! Arguments of `restive migrate`.

use super::AsJson;
use clap::Args as Arguments;

/// Moves a service between a data folder and a PostgreSQL database.
#[derive(Arguments)]
pub struct Migrate {
    /// Data folder or postgres:// URL that is moved; no server may use it
    #[arg(long, value_name = "DIR|URL", env = "RESTIVE_MIGRATE_FROM", hide_env_values = true)]
    pub from: String,
    /// The other one of the two, empty: where the data goes
    #[arg(long, value_name = "URL|DIR", env = "RESTIVE_MIGRATE_TO", hide_env_values = true)]
    pub to: String,
    #[command(flatten)]
    pub output: AsJson,
}
