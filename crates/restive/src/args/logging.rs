//! Options of the log, for the commands that serve.

use clap::{Args as Arguments, ValueEnum};

#[derive(Arguments)]
pub struct Logging {
    /// Form of the log on stderr: lines for people, or one JSON object per line [default: text on
    /// a terminal, otherwise json]
    #[arg(long, value_name = "auto|text|json", env = "RESTIVE_LOG_FORMAT")]
    #[arg(default_value = "auto", hide_default_value = true, hide_possible_values = true)]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Auto,
    Text,
    Json,
}
