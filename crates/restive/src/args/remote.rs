//! Arguments of the commands that use a server over its API: `listen` and `trigger`.

use super::{AsJson, Format, SchemaFile};
use crate::moment::Moment;
use crate::route::{Route, Target};
use clap::Args as Arguments;
use serde_json::Value;
use std::path::PathBuf;

/// The server whose API a command uses.
#[derive(Arguments)]
pub struct Remote {
    /// URL of the server
    #[arg(long, env = "RESTIVE_URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// API key
    #[arg(long, env = "RESTIVE_API_KEY", hide_env_values = true)]
    pub key: String,
    /// Certificate authority of the server (PEM) [default: those of the system]
    #[arg(long, value_name = "FILE", env = "RESTIVE_CA")]
    pub ca: Option<PathBuf>,
    /// API version of events and requests [default: the version of the account]
    #[arg(long, value_name = "DATE")]
    pub api_version: Option<String>,
}

#[derive(Arguments)]
pub struct Listen {
    /// Local URL that receives the events, such as http://localhost:3000/hook
    #[arg(long, value_name = "URL")]
    pub forward_to: Target,
    /// Only these types: exact, or order.* [default: all except the service's own]
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Another path or URL for some types, such as 'order.*=/orders'; the first that matches
    #[arg(long = "route", value_name = "PATTERN=URL")]
    pub routes: Vec<Route>,
    /// First forward the events since then: 2h ago, a time, or an event [default: from now on]
    #[arg(long, value_name = "2h|TIME|EVENT_ID")]
    pub since: Option<Moment>,
    #[command(flatten)]
    pub remote: Remote,
    /// Secret that signs the requests [default: a new one for this session]
    #[arg(long, value_name = "WHSEC", env = "RESTIVE_LISTEN_SECRET", hide_env_values = true)]
    pub secret: Option<String>,
    /// Print the secret alone on the first line, for scripts; everything else goes to stderr
    #[arg(long)]
    pub print_secret: bool,
    /// Readable lines, or one line of JSON for each event
    #[arg(long, default_value = "pretty")]
    pub format: Format,
    #[command(flatten)]
    pub output: AsJson,
}

#[derive(Arguments)]
pub struct Trigger {
    /// Type of the event, such as book.created
    #[arg(value_name = "TYPE")]
    pub kind: String,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub schema: SchemaFile,
    /// Value of a field of the sample, or of a parameter of the action; JSON or text
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    pub values: Vec<(String, Value)>,
    #[command(flatten)]
    pub output: AsJson,
}

fn assignment(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write a name and a value, such as price=5")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}
