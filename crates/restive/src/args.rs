//! What was said on the command line and in `RESTIVE_*`. What it means is each sub-command's
//! affair.

use crate::moment::Moment;
use clap::builder::BoolishValueParser;
use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};
use model::schema::evolve;
use std::net::SocketAddr;
use std::path::PathBuf;
use wire::Networks;

/// REST that cannot keep still: a schema file in, a complete service out.
///
/// Without a command: serves the built-in bookshop on 127.0.0.1:8080.
#[derive(Parser)]
#[command(version, about, propagate_version = true, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Serve a schema: API, event log, health, metrics, OpenAPI
    Serve(Box<Serve>),
    /// Write a commented example schema
    Init(Init),
    /// Check a schema file: all errors at once, with line and column
    Check(Check),
    /// Tell what an edit of a schema file means for clients and data
    Plan(Plan),
    /// Create and list accounts
    Accounts(Accounts),
    /// Create, list, revoke and roll API keys
    Keys(Keys),
    /// Print the OpenAPI 3.1 document of a schema
    Openapi(Openapi),
    /// Copy the database consistently, also while it is being served
    Backup(Backup),
    /// Follow the events of a service, or look at one
    Events(Events),
    /// Send kept events to a webhook endpoint again
    Replay(Replay),
}

impl Command {
    /// No arguments at all: `serve`, with what the environment says.
    pub fn default_serve() -> Command {
        let args = Args::parse_from(["restive", "serve"]);
        args.command.unwrap_or_else(|| unreachable!("`serve` was given"))
    }
}

/// Where the data is.
#[derive(Arguments, Clone)]
pub struct Data {
    /// Folder that holds the database
    #[arg(long, value_name = "DIR", env = "RESTIVE_DATA", default_value = "./restive-data")]
    pub data: PathBuf,
}

/// Which schema.
#[derive(Arguments, Clone)]
pub struct SchemaFile {
    /// Schema file; without it the built-in bookshop
    #[arg(long, value_name = "FILE", env = "RESTIVE_SCHEMA")]
    pub schema: Option<PathBuf>,
}

#[derive(Arguments)]
pub struct Serve {
    #[command(flatten)]
    pub schema: SchemaFile,
    #[command(flatten)]
    pub data: Data,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", env = "RESTIVE_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub accept: Accept,
    #[command(flatten)]
    pub tls: Tls,
    #[command(flatten)]
    pub peers: Peers,
    /// Which clients of HTTP/1.1 are sent 103: browsers that load a page, all, or none
    #[arg(long, value_name = "WHOM", env = "RESTIVE_EARLY_HINTS", default_value = "asked")]
    pub early_hints: Hints,
    /// Address of its own for /metrics, without TLS or keys: shows the names of all accounts
    #[arg(long, value_name = "ADDR", env = "RESTIVE_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,
    /// Without TLS: whether HTTP/2 is spoken to clients that begin with it
    #[arg(long, value_name = "on|off", env = "RESTIVE_PRIOR_KNOWLEDGE", default_value = "on")]
    pub prior_knowledge: Switch,
    /// Requests per key and window, such as 100/1s; `off` for measurements [default: the schema's]
    #[arg(long, value_name = "N/WINDOW", env = "RESTIVE_RATE_LIMIT")]
    pub rate_limit: Option<String>,
    /// The first account's test key, instead of a random one
    #[arg(long, env = "RESTIVE_BOOTSTRAP_KEY", hide = true, hide_env_values = true)]
    pub bootstrap_key: Option<String>,
    /// The secret, `whsec_…`, that signs calls to action handlers which have none of their own
    #[arg(long, value_name = "SECRET", env = "RESTIVE_HANDLER_SECRET", hide_env_values = true)]
    pub handler_secret: Option<String>,
    /// Whether each request is logged, one JSON line on stderr
    #[arg(long, value_name = "on|off", env = "RESTIVE_ACCESS_LOG", default_value = "on")]
    pub access_log: Switch,
    /// Seconds between the signal to stop and the end of accepting; /health answers 503 meanwhile
    #[arg(long, value_name = "SECONDS", env = "RESTIVE_DRAIN_DELAY", default_value_t = 0)]
    pub drain_delay: u64,
}

/// Edits of the schema since the last start that are neither safe nor declared (see `plan`).
#[derive(Arguments)]
pub struct Accept {
    /// Serve an edited schema although clients notice: for this start, later ones compare with it
    #[arg(long, env = "RESTIVE_ACCEPT_CHANGES", value_parser = BoolishValueParser::new())]
    pub accept_changes: bool,
    /// The same, and delete the data that the edited schema has no place for
    #[arg(long, env = "RESTIVE_ACCEPT_DATA_LOSS", value_parser = BoolishValueParser::new())]
    pub accept_data_loss: bool,
}

impl Accept {
    pub fn accepted(&self) -> evolve::Accept {
        match (self.accept_changes, self.accept_data_loss) {
            (_, true) => evolve::Accept::Loss,
            (true, false) => evolve::Accept::Changes,
            (false, false) => evolve::Accept::Nothing,
        }
    }
}

/// Whether HTTPS is spoken, and with which certificates. A list in a variable has commas.
#[derive(Arguments)]
pub struct Tls {
    /// Serve HTTPS with this certificate chain (PEM); several times for several names
    #[arg(long, value_name = "FILE", env = "RESTIVE_TLS_CERT", value_delimiter = ',')]
    pub tls_cert: Vec<PathBuf>,
    /// The private key of each --tls-cert, in the same order (PEM: PKCS#8, RSA or SEC1)
    #[arg(long, value_name = "FILE", env = "RESTIVE_TLS_KEY", value_delimiter = ',')]
    pub tls_key: Vec<PathBuf>,
    /// Serve HTTPS without a certificate of your own
    #[arg(long, value_name = "MODE", env = "RESTIVE_TLS")]
    pub tls: Option<TlsMode>,
    /// With --tls acme: the names of this server, for which the authority looks
    #[arg(long, value_name = "NAME", env = "RESTIVE_ACME_DOMAIN", value_delimiter = ',')]
    pub acme_domain: Vec<String>,
    /// With --tls acme: where the authority writes to when a certificate is not renewed
    #[arg(long, value_name = "ADDRESS", env = "RESTIVE_ACME_EMAIL")]
    pub acme_email: Option<String>,
    /// With --tls acme: the authority [default: Let's Encrypt]
    #[arg(long, value_name = "URL", env = "RESTIVE_ACME_DIRECTORY")]
    pub acme_directory: Option<String>,
    /// Also listen here for plain HTTP: sends clients to HTTPS, and is where ACME then looks
    #[arg(long, value_name = "ADDR", env = "RESTIVE_REDIRECT_HTTP")]
    pub redirect_http: Option<SocketAddr>,
    /// With HTTPS: whether HTTP/3 is spoken as well, on the UDP port of the same number
    #[arg(long, value_name = "on|off", env = "RESTIVE_HTTP3", default_value = "on")]
    pub http3: Switch,
}

/// Who may connect, and who is believed about for whom.
#[derive(Arguments)]
pub struct Peers {
    /// Proxies that are believed about the client's address: networks like 10.0.0.0/8, with commas
    #[arg(long, value_name = "NETWORKS", env = "RESTIVE_TRUSTED_PROXIES", default_value = "")]
    pub trusted_proxies: Networks,
    /// Whether every connection begins with the PROXY protocol, from one of the trusted proxies
    #[arg(long, value_name = "on|off", env = "RESTIVE_PROXY_PROTOCOL", default_value = "off")]
    pub proxy_protocol: Switch,
    /// Connections at a time; over it a client is answered 503, an EventSource to come again
    #[arg(long, value_name = "N", env = "RESTIVE_MAX_CONNECTIONS", default_value_t = 20_000)]
    pub max_connections: usize,
    /// Connections of one address at a time, trusted proxies aside [default: not limited]
    #[arg(long, value_name = "N", env = "RESTIVE_MAX_CONNECTIONS_PER_ADDRESS")]
    pub max_connections_per_address: Option<usize>,
    /// Seconds after which a client is given up that acknowledges, or takes, nothing it was sent
    #[arg(long, value_name = "SECONDS", env = "RESTIVE_VANISHED_AFTER", default_value_t = 150)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub vanished_after: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TlsMode {
    /// For development: one made at the first start and kept in the data folder
    SelfSigned,
    /// From an authority such as Let's Encrypt, whose terms you agree to; renewed by itself
    Acme,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hints {
    /// Browsers that load a page
    Asked,
    Always,
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

#[derive(Arguments)]
pub struct Init {
    /// File to write
    #[arg(default_value = "restive.toml")]
    pub file: PathBuf,
    /// Write the JSON Schema of schema files instead, for editors
    #[arg(long)]
    pub json_schema: bool,
}

#[derive(Arguments)]
pub struct Check {
    /// Schema file
    #[arg(default_value = "restive.toml")]
    pub file: PathBuf,
}

#[derive(Arguments)]
pub struct Plan {
    /// Schema file that is served now
    pub old: PathBuf,
    /// Schema file that shall be served
    pub new: PathBuf,
}

#[derive(Arguments)]
pub struct Accounts {
    #[command(subcommand)]
    pub command: AccountsCommand,
}

#[derive(Subcommand)]
pub enum AccountsCommand {
    /// Make an account with a test and a live key
    Create {
        #[command(flatten)]
        data: Data,
        name: String,
    },
    /// Show the accounts
    List {
        #[command(flatten)]
        data: Data,
    },
}

#[derive(Arguments)]
pub struct Keys {
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Subcommand)]
pub enum KeysCommand {
    /// Make a key; it is shown once
    Create {
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        of: KeyOwner,
        /// What the key is for
        #[arg(long)]
        name: Option<String>,
        /// Restrict the key to a scope such as books:read; may be given several times
        #[arg(long = "scope", value_name = "COLLECTION:read|write")]
        scopes: Vec<String>,
        /// Requests per window, where it differs from the service's
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        rate_limit: Option<u32>,
        /// When the key ends, such as 2027-01-31T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Show the keys of an account, by hint: the keys themselves are not kept
    List {
        #[command(flatten)]
        data: Data,
        /// Id of the account; without it the first one
        #[arg(long, value_name = "ID")]
        account: Option<String>,
    },
    /// End a key now
    Revoke {
        #[command(flatten)]
        data: Data,
        /// Id of the key, as `keys list` shows it
        id: String,
    },
    /// Make a successor of a key and let the old one end after a while
    Roll {
        #[command(flatten)]
        data: Data,
        /// Id of the key, as `keys list` shows it
        id: String,
        /// Hours during which both keys work
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        overlap: u32,
    },
}

#[derive(Arguments)]
pub struct KeyOwner {
    /// Id of the account; without it the first one
    #[arg(long, value_name = "ID")]
    pub account: Option<String>,
    /// Which of the account's two worlds the key opens
    #[arg(long, default_value = "test")]
    pub mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    Test,
    Live,
}

#[derive(Arguments)]
pub struct Openapi {
    #[command(flatten)]
    pub schema: SchemaFile,
    /// Address of the service, for the document's `servers`
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The API version to describe; without it the newest
    #[arg(long, value_name = "DATE")]
    pub api_version: Option<String>,
}

#[derive(Arguments)]
pub struct Backup {
    #[command(flatten)]
    pub data: Data,
    /// File to write; it must not exist yet
    pub file: PathBuf,
}

#[derive(Arguments)]
pub struct Events {
    #[command(subcommand)]
    pub command: EventsCommand,
}

#[derive(Subcommand)]
pub enum EventsCommand {
    /// Print events as they are committed, until Ctrl-C
    Tail(Tail),
    /// Show one event and what became of its deliveries
    Show(Show),
}

#[derive(Arguments)]
pub struct Tail {
    #[command(flatten)]
    pub data: Data,
    #[command(flatten)]
    pub schema: SchemaFile,
    /// Only these types: exact, order.*, or * for all but the service's own; without it all
    #[arg(long = "type", value_name = "PATTERN", value_delimiter = ',', value_parser = pattern)]
    pub types: Vec<String>,
    /// Only events about the record with this id
    #[arg(long, value_name = "ID")]
    pub resource: Option<String>,
    /// Only those of this account; without it of all
    #[arg(long, value_name = "ID")]
    pub account: Option<String>,
    /// Only those of this mode; without it of both
    #[arg(long)]
    pub mode: Option<Mode>,
    /// Begin with those since 2h ago, a time, or an event; without it with what comes
    #[arg(long, value_name = "2h|TIME|EVENT_ID")]
    pub since: Option<Moment>,
    /// A line for people, or the event's envelope as a line of JSON
    #[arg(long, default_value = "pretty")]
    pub format: Format,
    /// End when everything up to now was printed
    #[arg(long, requires = "since")]
    pub no_follow: bool,
}

#[derive(Arguments)]
pub struct Show {
    #[command(flatten)]
    pub data: Data,
    /// Id of the event
    #[arg(value_name = "EVENT_ID")]
    pub id: String,
    /// For people, with its deliveries; or the envelope alone as a line of JSON
    #[arg(long, default_value = "pretty")]
    pub format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Pretty,
    Json,
}

#[derive(Arguments)]
pub struct Replay {
    #[command(flatten)]
    pub data: Data,
    #[command(flatten)]
    pub schema: SchemaFile,
    /// Id of the endpoint that gets the events
    #[arg(long, value_name = "ID")]
    pub endpoint: String,
    /// Events from here on: 2h ago, a time, or an event; without it all that are kept
    #[arg(long, value_name = "2h|TIME|EVENT_ID")]
    pub since: Option<Moment>,
    /// Events before this; without it up to now
    #[arg(long, value_name = "2h|TIME|EVENT_ID")]
    pub until: Option<Moment>,
    /// Only these types: exact, order.*, or *
    #[arg(long = "type", value_name = "PATTERN", value_delimiter = ',', value_parser = pattern)]
    pub types: Vec<String>,
    /// Only events that this endpoint has not taken successfully
    #[arg(long)]
    pub without_success: bool,
    /// Deliveries per second, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: Option<u32>,
    /// Only count the events
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask whether it is meant
    #[arg(long)]
    pub yes: bool,
}

fn pattern(text: &str) -> Result<String, String> {
    model::webhook::pattern::check_form(text).map(|()| text.to_owned())
}
