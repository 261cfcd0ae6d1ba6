//! The command line and the `RESTIVE_*` variables, as given. Each sub-command interprets its own
//! arguments.

pub mod cluster;
pub mod logging;
pub mod migrate;
pub mod receive;
mod remote;
mod storage;
pub mod verify;

pub use remote::{Listen, Remote, Trigger};
pub use storage::{Data, Storage};

use crate::moment::Moment;
use clap::builder::BoolishValueParser;
use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};
use model::evolve;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use wire::Networks;

/// Turns a schema file into a complete REST service.
///
/// Without a command, restive serves the built-in bookshop on 127.0.0.1:8080.
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
    /// Forward requests to backends: a reverse proxy
    Proxy(Box<Proxy>),
    /// Receive webhooks: verify, store and hand them to a URL or a command
    Receive(Box<receive::Receive>),
    /// Check the signature of a webhook
    Verify(verify::Verify),
    /// Write a commented example schema
    Init(Init),
    /// Check a schema file; print all errors with line and column
    Check(Check),
    /// Show what a schema edit changes for clients and data
    Plan(Plan),
    /// Create and list accounts
    Accounts(Accounts),
    /// Create, list, revoke and roll API keys
    Keys(Keys),
    /// Show the nodes that share a database
    Cluster(cluster::Cluster),
    /// Print the OpenAPI 3.1 document of a schema
    Openapi(Openapi),
    /// Print the AsyncAPI 3.0 document of the live channels of a schema
    Asyncapi(Openapi),
    /// Write a typed client for the collections of a schema
    Generate(Generate),
    /// Write a consistent copy of the database, even while the server runs
    Backup(Backup),
    /// Put a backup in the place of the database, while no server runs
    Restore(Restore),
    /// Move a service from a data folder to PostgreSQL, or back
    Migrate(migrate::Migrate),
    /// Follow the event log, or show one event
    Events(Events),
    /// Send stored events to a webhook endpoint again
    Replay(Replay),
    /// Forward the events of a server to a local URL, signed like webhooks
    Listen(Listen),
    /// Cause an event of a type on a server, with sample data
    Trigger(Trigger),
    /// Check what a server needs: schema, data, disk, clock, port, certificate
    Doctor(Box<Doctor>),
    /// Print a script that completes commands and options in a shell
    Completions(Completions),
}

impl Command {
    /// Without arguments: `serve` with the settings of the environment.
    pub fn default_serve() -> Command {
        let args = Args::parse_from(["restive", "serve"]);
        args.command.unwrap_or_else(|| unreachable!("`serve` was given"))
    }
}

/// The form of what a command prints.
#[derive(Arguments, Clone, Copy)]
pub struct AsJson {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// The schema file.
#[derive(Arguments, Clone)]
pub struct SchemaFile {
    /// Schema file [default: ./restive.toml if it exists, else the built-in bookshop]
    #[arg(long, value_name = "FILE", env = "RESTIVE_SCHEMA")]
    pub schema: Option<PathBuf>,
}

impl SchemaFile {
    /// The file that was given, or the one in this folder, if there is one.
    pub fn or_local(&self) -> SchemaFile {
        // Also a folder, or a link that leads nowhere: reading it says what is wrong.
        let exists = || Path::new(LOCAL_SCHEMA).symlink_metadata().is_ok();
        let local = || exists().then(|| PathBuf::from(LOCAL_SCHEMA));
        SchemaFile { schema: self.schema.clone().or_else(local) }
    }
}

/// The schema file that commands use without `--schema`, as `init` writes it.
const LOCAL_SCHEMA: &str = "./restive.toml";

/// `--edge` without a file.
pub const EDGE_WITHOUT_FILE: &str = "default";

#[derive(Arguments)]
pub struct Serve {
    #[command(flatten)]
    pub schema: SchemaFile,
    #[command(flatten)]
    pub data: Storage,
    #[command(flatten)]
    pub listening: Listening,
    #[command(flatten)]
    pub accept: Accept,
    /// Requests per key and window, such as 100/1s, or `off` [default: the limit of the schema]
    #[arg(long, value_name = "N/WINDOW", env = "RESTIVE_RATE_LIMIT")]
    pub rate_limit: Option<String>,
    /// Seconds that the clock may differ from the one of the PostgreSQL server's machine; with a
    /// wrong clock this server writes nothing
    #[arg(
        long,
        value_name = "SECONDS",
        env = "RESTIVE_MAX_CLOCK_DIFFERENCE",
        default_value_t = 10
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub max_clock_difference: u32,
    /// The first account's test key, instead of a random one
    #[arg(long, env = "RESTIVE_BOOTSTRAP_KEY", hide = true, hide_env_values = true)]
    pub bootstrap_key: Option<String>,
    /// Secret, `whsec_…`, that signs calls to action handlers without their own secret
    #[arg(long, value_name = "SECRET", env = "RESTIVE_HANDLER_SECRET", hide_env_values = true)]
    pub handler_secret: Option<String>,
    /// Log each request on stderr
    #[arg(long, value_name = "on|off", env = "RESTIVE_ACCESS_LOG", default_value = "on")]
    pub access_log: Switch,
    /// Serve the console, a page for people, at /console
    #[arg(long, value_name = "on|off", env = "RESTIVE_CONSOLE", default_value = "on")]
    pub console: Switch,
    /// Put the reverse proxy in front of the API in the same process, with this configuration file
    /// (see docs/proxy.md), in which the backend `self` is the API [without FILE: all routes]
    #[arg(long, value_name = "FILE", env = "RESTIVE_EDGE", num_args = 0..=1)]
    #[arg(default_missing_value = EDGE_WITHOUT_FILE)]
    pub edge: Option<PathBuf>,
    /// Seconds to accept requests after the stop signal, while /health already returns 503
    #[arg(long, value_name = "SECONDS", env = "RESTIVE_DRAIN_DELAY", default_value_t = 0)]
    pub drain_delay: u64,
    #[command(flatten)]
    pub edge_secret: EdgeSecretFile,
}

/// The secret between proxies and servers of one operator. The secret itself may also be in the
/// variable `RESTIVE_EDGE_SECRET`; it is no argument, because other users can see arguments.
#[derive(Arguments)]
pub struct EdgeSecretFile {
    /// File with a secret that servers and proxies share: proxies then follow what servers change
    #[arg(long, value_name = "FILE", env = "RESTIVE_EDGE_SECRET_FILE")]
    pub edge_secret_file: Option<PathBuf>,
}

/// The listening sockets, of the service and of the proxy.
#[derive(Arguments)]
pub struct Listening {
    /// Address to listen on, such as localhost:8080 or :443; port 0 selects a free port
    #[arg(long, value_name = "ADDR", env = "RESTIVE_LISTEN", default_value = "127.0.0.1:8080")]
    #[arg(value_parser = address)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub tls: Tls,
    #[command(flatten)]
    pub peers: Peers,
    #[command(flatten)]
    pub logging: logging::Logging,
    /// HTTP/1.1 clients that receive 103 Early Hints
    #[arg(long, value_name = "WHOM", env = "RESTIVE_EARLY_HINTS", default_value = "asked")]
    pub early_hints: Hints,
    /// Separate address for /metrics, without TLS or keys; shows the names of all accounts
    #[arg(long, value_name = "ADDR", env = "RESTIVE_METRICS_LISTEN")]
    #[arg(value_parser = address)]
    pub metrics_listen: Option<SocketAddr>,
    /// Without TLS: accept HTTP/2 with prior knowledge
    #[arg(long, value_name = "on|off", env = "RESTIVE_PRIOR_KNOWLEDGE", default_value = "on")]
    pub prior_knowledge: Switch,
}

/// An address with a port; without a host, such as `:443`, all addresses of the machine. A name is
/// looked up once; of several addresses, the first of IPv4 is used.
fn address(text: &str) -> Result<SocketAddr, String> {
    let full = match text.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => text.to_owned(),
    };
    if let Ok(address) = full.parse() {
        return Ok(address);
    }
    let message = "write an address and a port, such as 127.0.0.1:8080, localhost:8080 or :443";
    let port = full.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !port {
        return Err(message.to_owned());
    }
    let found = full.to_socket_addrs().map_err(|error| format!("{error}; {message}"))?;
    let found: Vec<SocketAddr> = found.collect();
    let first = found.iter().find(|one| one.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| message.to_owned())
}

/// Forward requests to backends.
#[derive(Arguments)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Proxy {
    #[command(subcommand)]
    pub command: Option<ProxyCommand>,
    #[command(flatten)]
    pub backends: ProxyConfig,
    /// Report all errors of the configuration and exit
    #[arg(long)]
    pub check: bool,
    /// Replace the running proxy: take over its listening sockets and have it drain
    #[arg(long)]
    pub take_over: bool,
    /// Seconds for requests, streams and WebSockets to end when the proxy stops or is replaced
    #[arg(long, value_name = "SECONDS", env = "RESTIVE_DRAIN_TIME", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub drain_time: u32,
    #[command(flatten)]
    pub control: ProxyControl,
    #[command(flatten)]
    pub data: Data,
    #[command(flatten)]
    pub listening: Listening,
    #[command(flatten)]
    pub clients: ClientCertificates,
    #[command(flatten)]
    pub edge_secret: EdgeSecretFile,
    /// Log each request on stderr
    #[arg(long, value_name = "on|off", env = "RESTIVE_ACCESS_LOG", default_value = "on")]
    pub access_log: Switch,
}

/// Certificates of clients, with HTTPS.
#[derive(Arguments)]
pub struct ClientCertificates {
    /// With HTTPS: ask clients for a certificate of these authorities (PEM)
    #[arg(long, value_name = "FILE", env = "RESTIVE_CLIENT_CA")]
    pub client_ca: Option<PathBuf>,
    /// With --client-ca: clients without a certificate
    #[arg(long, value_name = "MODE", env = "RESTIVE_CLIENT_AUTH", default_value = "require")]
    pub client_auth: ClientAuth,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientAuth {
    /// Are refused
    Require,
    /// Are served; backends see that there is none
    Request,
}

/// Where requests go: servers for all of them, or a file with sites and routes.
#[derive(Arguments)]
pub struct ProxyConfig {
    /// Server that all requests are forwarded to; repeat it for several
    #[arg(long, value_name = "ADDR|URL", env = "RESTIVE_TO", value_delimiter = ',')]
    #[arg(conflicts_with = "config")]
    pub to: Vec<String>,
    /// Configuration file with sites, routes and backends (see docs/proxy.md)
    #[arg(long, value_name = "FILE", env = "RESTIVE_PROXY_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The control socket of the running proxy.
#[derive(Arguments)]
pub struct ProxyControl {
    /// Unix socket for `reload` and --take-over, or `off` [default: proxy.sock in the data folder]
    #[arg(long, value_name = "PATH", env = "RESTIVE_PROXY_CONTROL")]
    pub control: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum ProxyCommand {
    /// Have the running proxy read its configuration file again; print its errors
    Reload {
        #[command(flatten)]
        control: ProxyControl,
        #[command(flatten)]
        data: Data,
    },
    /// Show what the proxy does with a request: route, servers, timeouts, retries, headers
    Explain {
        #[command(flatten)]
        backends: ProxyConfig,
        /// Method of the request
        method: String,
        /// URL of the request, with scheme and host
        url: String,
        #[command(flatten)]
        output: AsJson,
    },
}

/// Schema edits since the last start that are neither safe nor declared (see `plan`).
#[derive(Arguments)]
pub struct Accept {
    /// Serve an edited schema even if it breaks clients; later starts compare with this schema
    #[arg(long, env = "RESTIVE_ACCEPT_CHANGES", value_parser = BoolishValueParser::new())]
    pub accept_changes: bool,
    /// The same, and delete data that does not fit the edited schema
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

/// HTTPS and its certificates. Lists in variables are separated by commas.
#[derive(Arguments)]
pub struct Tls {
    /// Serve HTTPS with this certificate chain (PEM); repeat it for several names
    #[arg(long, value_name = "FILE", env = "RESTIVE_TLS_CERT", value_delimiter = ',')]
    pub tls_cert: Vec<PathBuf>,
    /// Private key of each --tls-cert, in the same order (PEM: PKCS#8, RSA or SEC1)
    #[arg(long, value_name = "FILE", env = "RESTIVE_TLS_KEY", value_delimiter = ',')]
    pub tls_key: Vec<PathBuf>,
    /// Serve HTTPS without your own certificate
    #[arg(long, value_name = "MODE", env = "RESTIVE_TLS")]
    pub tls: Option<TlsMode>,
    /// With --tls acme: host names of this server, separated by commas
    #[arg(long, value_name = "NAME", env = "RESTIVE_ACME_DOMAIN", value_delimiter = ',')]
    pub acme_domain: Vec<String>,
    /// With --tls acme: contact address for the authority
    #[arg(long, value_name = "ADDRESS", env = "RESTIVE_ACME_EMAIL")]
    pub acme_email: Option<String>,
    /// With --tls acme: directory URL of the authority [default: Let's Encrypt]
    #[arg(long, value_name = "URL", env = "RESTIVE_ACME_DIRECTORY")]
    pub acme_directory: Option<String>,
    /// Also listen here for plain HTTP: redirect clients to HTTPS and answer ACME challenges
    #[arg(long, value_name = "ADDR", env = "RESTIVE_REDIRECT_HTTP")]
    #[arg(value_parser = address)]
    pub redirect_http: Option<SocketAddr>,
    /// With HTTPS: also serve HTTP/3 on the UDP port with the same number
    #[arg(long, value_name = "on|off", env = "RESTIVE_HTTP3", default_value = "on")]
    pub http3: Switch,
}

/// Limits of connections, and trusted proxies.
#[derive(Arguments)]
pub struct Peers {
    /// Networks of trusted proxies, such as 10.0.0.0/8, separated by commas
    #[arg(long, value_name = "NETWORKS", env = "RESTIVE_TRUSTED_PROXIES", default_value = "")]
    pub trusted_proxies: Networks,
    /// Require the PROXY protocol on every connection, from a trusted proxy
    #[arg(long, value_name = "on|off", env = "RESTIVE_PROXY_PROTOCOL", default_value = "off")]
    pub proxy_protocol: Switch,
    /// Maximum number of connections; over it clients get 503, an EventSource gets `retry:`
    #[arg(long, value_name = "N", env = "RESTIVE_MAX_CONNECTIONS", default_value_t = 20_000)]
    pub max_connections: usize,
    /// Maximum number of connections per address, except trusted proxies [default: no limit]
    #[arg(long, value_name = "N", env = "RESTIVE_MAX_CONNECTIONS_PER_ADDRESS")]
    pub max_connections_per_address: Option<usize>,
    /// Seconds after which a connection is closed whose client acknowledges or reads no data
    #[arg(long, value_name = "SECONDS", env = "RESTIVE_VANISHED_AFTER", default_value_t = 150)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub vanished_after: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TlsMode {
    /// For development: created at the first start and stored in the data folder
    SelfSigned,
    /// From an authority such as Let's Encrypt, whose terms you accept; renewed automatically
    Acme,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hints {
    /// Browsers that load a page
    Asked,
    /// All clients
    Always,
    /// No clients
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
    #[command(flatten)]
    pub output: AsJson,
}

#[derive(Arguments)]
pub struct Plan {
    /// Schema file that is currently served
    pub old: PathBuf,
    /// Edited schema file
    pub new: PathBuf,
    #[command(flatten)]
    pub output: AsJson,
}

#[derive(Arguments)]
pub struct Accounts {
    #[command(subcommand)]
    pub command: AccountsCommand,
}

#[derive(Subcommand)]
pub enum AccountsCommand {
    /// Create an account with a test key and a live key
    Create {
        #[command(flatten)]
        data: Storage,
        #[arg(value_parser = label)]
        name: String,
        #[command(flatten)]
        output: AsJson,
    },
    /// List the accounts
    List {
        #[command(flatten)]
        data: Storage,
        #[command(flatten)]
        output: AsJson,
    },
}

/// A name for people, as the API takes it.
fn label(text: &str) -> Result<String, String> {
    match text.chars().count() {
        1..=200 if !text.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => Err("a name has 1 to 200 characters, and no control characters".to_owned()),
    }
}

#[derive(Arguments)]
pub struct Keys {
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Subcommand)]
pub enum KeysCommand {
    /// Create a key; it is shown only once
    Create {
        #[command(flatten)]
        data: Storage,
        #[command(flatten)]
        of: KeyOwner,
        /// What the key is for
        #[arg(long, value_parser = label)]
        name: Option<String>,
        /// Restrict the key to a scope such as books:read; may be repeated
        #[arg(long = "scope", value_name = "COLLECTION:read|write")]
        scopes: Vec<String>,
        /// Let a key without scopes create and revoke keys over the API; a key of the first account
        /// then also manages all accounts
        #[arg(long, conflicts_with = "scopes")]
        admin: bool,
        /// Requests per window [default: the limit of the service]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        rate_limit: Option<u32>,
        /// Time at which the key expires, such as 2027-01-31T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
        #[command(flatten)]
        output: AsJson,
    },
    /// List the keys of an account, abbreviated: the server does not store the keys themselves
    List {
        #[command(flatten)]
        data: Storage,
        /// Id of the account [default: the first account]
        #[arg(long, value_name = "ID")]
        account: Option<String>,
        #[command(flatten)]
        output: AsJson,
    },
    /// Revoke a key at once
    Revoke {
        #[command(flatten)]
        data: Storage,
        /// Id of the key, as `keys list` shows it
        id: String,
        #[command(flatten)]
        output: AsJson,
    },
    /// Replace a key: create a new one and let the old one expire
    Roll {
        #[command(flatten)]
        data: Storage,
        /// Id of the key, as `keys list` shows it
        id: String,
        /// Hours during which both keys work
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        overlap: u32,
        #[command(flatten)]
        output: AsJson,
    },
}

#[derive(Arguments)]
pub struct KeyOwner {
    /// Id of the account [default: the first account]
    #[arg(long, value_name = "ID")]
    pub account: Option<String>,
    /// Mode of the key
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
    /// URL of the service, for `servers` in the document
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// API version to describe [default: the newest]
    #[arg(long, value_name = "DATE")]
    pub api_version: Option<String>,
}

#[derive(Arguments)]
pub struct Generate {
    /// Language of the client
    pub language: Language,
    #[command(flatten)]
    pub schema: SchemaFile,
    /// API version of the client [default: the newest]
    #[arg(long, value_name = "DATE")]
    pub api_version: Option<String>,
    /// File to write, replaced if it exists [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// On top of the npm package restive-client
    Typescript,
    /// On top of the PyPI package restive-client, sync and async
    Python,
    /// On top of the crate restive-kit with its feature `client`
    Rust,
}

#[derive(Arguments)]
pub struct Backup {
    #[command(flatten)]
    pub data: Storage,
    /// File to write; it must not exist yet
    pub file: PathBuf,
    #[command(flatten)]
    pub output: AsJson,
}

#[derive(Arguments)]
pub struct Restore {
    #[command(flatten)]
    pub data: Data,
    /// The backup, as `restive backup` wrote it
    pub file: PathBuf,
    /// If there is a database, move it aside
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub output: AsJson,
}

#[derive(Arguments)]
pub struct Doctor {
    #[command(flatten)]
    pub schema: SchemaFile,
    #[command(flatten)]
    pub data: Storage,
    #[command(flatten)]
    pub listening: Listening,
    #[command(flatten)]
    pub output: AsJson,
}

#[derive(Arguments)]
pub struct Completions {
    pub shell: Shell,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
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
    /// Show one event and its deliveries
    Show(Show),
}

#[derive(Arguments)]
pub struct Tail {
    #[command(flatten)]
    pub data: Storage,
    #[command(flatten)]
    pub schema: SchemaFile,
    /// Only these types: exact, order.*, or * for all except the service's own [default: all]
    #[arg(long = "type", value_name = "PATTERN", value_delimiter = ',', value_parser = pattern)]
    pub types: Vec<String>,
    /// Only events about the record with this id
    #[arg(long, value_name = "ID")]
    pub resource: Option<String>,
    /// Only events of this account [default: all]
    #[arg(long, value_name = "ID")]
    pub account: Option<String>,
    /// Only events of this mode [default: both]
    #[arg(long)]
    pub mode: Option<Mode>,
    /// Start in the past: 2h ago, a time, or an event [default: now]
    #[arg(long, value_name = "2h|TIME|EVENT_ID")]
    pub since: Option<Moment>,
    /// Readable lines, or the event as one line of JSON
    #[arg(long, default_value = "pretty")]
    pub format: Format,
    #[command(flatten)]
    pub output: AsJson,
    /// Exit after the events up to now
    #[arg(long, requires = "since")]
    pub no_follow: bool,
}

#[derive(Arguments)]
pub struct Show {
    #[command(flatten)]
    pub data: Storage,
    /// Id of the event
    #[arg(value_name = "EVENT_ID")]
    pub id: String,
    /// Readable, with deliveries; or the event alone as one line of JSON
    #[arg(long, default_value = "pretty")]
    pub format: Format,
    #[command(flatten)]
    pub output: AsJson,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Pretty,
    Json,
}

impl Format {
    /// `--json` means the same as `--format json`.
    pub fn or(self, output: AsJson) -> Format {
        if output.json { Format::Json } else { self }
    }
}

#[derive(Arguments)]
pub struct Replay {
    #[command(flatten)]
    pub data: Storage,
    #[command(flatten)]
    pub schema: SchemaFile,
    /// Id of the endpoint that receives the events
    #[arg(long, value_name = "ID")]
    pub endpoint: String,
    /// First event: 2h ago, a time, or an event [default: the oldest stored event]
    #[arg(long, value_name = "2h|TIME|EVENT_ID")]
    pub since: Option<Moment>,
    /// Only events before this [default: now]
    #[arg(long, value_name = "2h|TIME|EVENT_ID")]
    pub until: Option<Moment>,
    /// Only these types: exact, order.*, or *
    #[arg(long = "type", value_name = "PATTERN", value_delimiter = ',', value_parser = pattern)]
    pub types: Vec<String>,
    /// Only events without a successful delivery to this endpoint
    #[arg(long)]
    pub without_success: bool,
    /// Maximum deliveries per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: Option<u32>,
    /// Only count the events
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub output: AsJson,
}

fn pattern(text: &str) -> Result<String, String> {
    model::webhook::pattern::check_form(text).map(|()| text.to_owned())
}
