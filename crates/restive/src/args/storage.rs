//! Where the data is.

use clap::Args as Arguments;
use std::path::PathBuf;

/// The data folder.
#[derive(Arguments, Clone)]
pub struct Data {
    /// Folder that holds the database
    #[arg(long, value_name = "DIR", env = "RESTIVE_DATA", default_value = "./restive-data")]
    pub data: PathBuf,
}

/// Where the data is: a folder, or a database that nodes share.
#[derive(Arguments, Clone)]
pub struct Storage {
    /// Folder that holds the database; with --database, what is this node's alone
    #[arg(long, value_name = "DIR", env = "RESTIVE_DATA", default_value = "./restive-data")]
    pub data: PathBuf,
    /// PostgreSQL database, postgres://user:password@host/name: any number of servers share it
    #[arg(long, value_name = "URL", env = "RESTIVE_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
}
