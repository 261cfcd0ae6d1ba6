//! The command line of `restive receive`, as given.

use super::{AsJson, Format, Listening, Switch};
use clap::{Args as Arguments, Subcommand, ValueEnum};
use std::path::PathBuf;
use wire::Networks;

/// The folder of the inbox.
#[derive(Arguments, Clone)]
pub struct InboxFolder {
    /// Folder that holds the received events
    #[arg(
        long,
        value_name = "DIR",
        env = "RESTIVE_RECEIVE_DATA",
        default_value = "./restive-inbox"
    )]
    pub data: PathBuf,
}

/// Receive webhooks.
#[derive(Arguments)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Receive {
    #[command(subcommand)]
    pub command: Option<ReceiveCommand>,
    #[command(flatten)]
    pub folder: InboxFolder,
    #[command(flatten)]
    pub listening: Listening,
    #[command(flatten)]
    pub signing: Signing,
    #[command(flatten)]
    pub handling: Handling,
    #[command(flatten)]
    pub reconciliation: Reconciliation,
    /// Only requests to this path are webhooks [default: all paths]
    #[arg(long, value_name = "PATH", env = "RESTIVE_RECEIVE_PATH", value_parser = path)]
    pub path: Option<String>,
    /// Accept requests over HTTPS only, or from a trusted proxy that says so
    #[arg(long, value_name = "on|off", env = "RESTIVE_HTTPS_ONLY", default_value = "off")]
    pub https_only: Switch,
    /// Accept requests only from these networks, separated by commas [default: from all]
    #[arg(long, value_name = "NETWORKS", env = "RESTIVE_RECEIVE_FROM")]
    pub from: Option<Networks>,
    /// Maximum size of a body
    #[arg(long, value_name = "BYTES", env = "RESTIVE_MAX_BODY_BYTES")]
    #[arg(default_value_t = restive_kit::receiver::MAX_BODY_BYTES)]
    pub max_body_bytes: usize,
}

fn path(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err(format!("a path begins with `/`: --path /{text}")),
    }
}

/// How requests are verified.
#[derive(Arguments)]
pub struct Signing {
    /// Signing secret of the endpoint, whsec_…; several during a rotation. Other users of the
    /// machine can see arguments: prefer the variable or --secret-file
    #[arg(long, value_name = "SECRET", env = "RESTIVE_RECEIVE_SECRET", hide_env_values = true)]
    #[arg(value_delimiter = ',')]
    pub secret: Vec<String>,
    /// File with one secret per line
    #[arg(long, value_name = "FILE", env = "RESTIVE_RECEIVE_SECRET_FILE")]
    pub secret_file: Option<PathBuf>,
    /// Form of the signature
    #[arg(long, value_name = "FORM", env = "RESTIVE_SIGNATURE", default_value = "detect")]
    pub signature: SignatureForm,
    /// Header of the signature, if it is not the usual one of its form
    #[arg(long, value_name = "NAME", env = "RESTIVE_SIGNATURE_HEADER")]
    pub signature_header: Option<String>,
    /// Seconds that the time of a signature may differ from the clock
    #[arg(long, value_name = "SECONDS", env = "RESTIVE_TOLERANCE", default_value_t = 300)]
    pub tolerance: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SignatureForm {
    /// Standard Webhooks, Restive-Signature or Stripe-Signature, whichever the request has
    Detect,
    /// t=…,v1=… in Stripe-Signature, or in --signature-header
    Stripe,
    /// Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature
    Standard,
    /// sha256=… in X-Hub-Signature-256, without a time
    Github,
    /// The hex digest in --signature-header, without a time
    Hex,
}

/// What happens with received events.
#[derive(Arguments)]
pub struct Handling {
    /// Send each event to this URL with POST; 2xx means processed
    #[arg(long, value_name = "URL", env = "RESTIVE_FORWARD")]
    #[arg(conflicts_with_all = ["exec", "store_only"])]
    pub forward: Option<String>,
    /// Run this shell command for each event, with the event on its input; exit status 0 means
    /// processed
    #[arg(long, value_name = "COMMAND", env = "RESTIVE_EXEC", conflicts_with = "store_only")]
    pub exec: Option<String>,
    /// Only store events; process them later
    #[arg(long)]
    pub store_only: bool,
    /// Events that are processed at the same time; those of one resource never are
    #[arg(long, value_name = "N", env = "RESTIVE_WORKERS", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Seconds for one attempt
    #[arg(long, value_name = "SECONDS", env = "RESTIVE_HANDLER_TIMEOUT", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub timeout: u32,
    /// Attempts before an event becomes a dead letter
    #[arg(long, value_name = "N", env = "RESTIVE_ATTEMPTS", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub attempts: u32,
    /// Milliseconds to wait after the first failure; the wait doubles up to an hour
    #[arg(long, value_name = "MS", env = "RESTIVE_RETRY_FIRST", default_value_t = 1_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3_600_000), hide = true)]
    pub retry_first: u32,
    /// Events that are older than the newest processed state of their resource
    #[arg(long, value_name = "WHAT", env = "RESTIVE_STALE", default_value = "deliver")]
    pub stale: Stale,
}

/// Which events the provider has, to fetch those that no webhook brought.
#[derive(Arguments)]
pub struct Reconciliation {
    /// URL of the provider's API: events that no webhook brought are fetched from it
    #[arg(long, value_name = "URL", env = "RESTIVE_RECEIVE_PROVIDER")]
    pub provider: Option<String>,
    /// API key that may read events. Other users of the machine can see arguments: prefer the
    /// variable
    #[arg(long, value_name = "KEY", env = "RESTIVE_RECEIVE_KEY", hide_env_values = true)]
    pub provider_key: Option<String>,
    /// Form of the provider's list of events
    #[arg(long, value_name = "FORM", default_value = "restive")]
    pub provider_form: ListForm,
    /// Only these types: those of the webhook endpoint [default: all]
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub provider_types: Vec<String>,
    /// Certificate authority of the provider (PEM) [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub provider_ca: Option<PathBuf>,
    /// Seconds between two comparisons
    #[arg(long, value_name = "SECONDS", env = "RESTIVE_RECONCILE_EVERY", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub reconcile_every: u32,
    /// Seconds that the first comparison goes back [default: 259200, three days]
    #[arg(
        long,
        value_name = "SECONDS",
        env = "RESTIVE_RECONCILE_LOOKBACK",
        hide_default_value = true
    )]
    #[arg(default_value_t = 259_200, value_parser = clap::value_parser!(u32).range(1..))]
    pub reconcile_lookback: u32,
    /// Seconds that an event must be old: before, its webhook may be on its way
    #[arg(long, value_name = "SECONDS", default_value_t = 60, hide = true)]
    pub reconcile_min_age: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListForm {
    /// GET /v1/events of restive
    Restive,
    /// GET /v1/events of Stripe
    Stripe,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stale {
    /// Are processed, and marked
    Deliver,
    /// Are not processed
    Skip,
}

#[derive(Subcommand)]
pub enum ReceiveCommand {
    /// Show how many events are pending, processed and dead
    Status {
        #[command(flatten)]
        folder: InboxFolder,
        #[arg(long, default_value = "pretty")]
        format: Format,
        #[command(flatten)]
        output: AsJson,
    },
    /// List events, the newest first
    List {
        #[command(flatten)]
        folder: InboxFolder,
        /// Only events in this state
        #[arg(long)]
        state: Option<ListedState>,
        #[arg(long, value_name = "N", default_value_t = 50)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long, default_value = "pretty")]
        format: Format,
        #[command(flatten)]
        output: AsJson,
    },
    /// Process an event now, from the first attempt on; or all dead letters
    Retry {
        #[command(flatten)]
        folder: InboxFolder,
        /// Id of a pending or dead event
        #[arg(value_name = "EVENT_ID", required_unless_present = "dead", conflicts_with = "dead")]
        id: Option<String>,
        /// All dead letters
        #[arg(long)]
        dead: bool,
    },
    /// Give up an event: it will not be processed
    Drop {
        #[command(flatten)]
        folder: InboxFolder,
        /// Id of a pending or dead event
        #[arg(value_name = "EVENT_ID")]
        id: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListedState {
    Pending,
    Processed,
    Dead,
    Stale,
    Dropped,
}
