//! Connections to a PostgreSQL server: the URL, TLS, one client that pipelines statements, and what
//! its errors mean. Names no table. The password of the URL is never part of a message.
//!
//! A connection is driven by a task of the runtime on which `Address::connect` was called; the
//! client may be used from any thread.

use super::hosts::{CONNECT_AGAIN, CONNECT_EACH, Hosts, all, each_host};
use super::param::Param;
use super::tls::{Tls, Trust};
use crate::Error;
use futures_util::future::join_all;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{AsyncMessage, Config, Row, Statement};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// A server that does not acknowledge for this long is gone.
const SILENCE: Duration = Duration::from_secs(15);
/// Statements that are kept prepared on one connection. Beyond that all are forgotten: clients
/// think of many combinations of filters and sorts.
const STATEMENTS: usize = 512;
/// Bytes of the values that are sent together. A message and a value have less than 1 GiB, and the
/// server holds several copies of them. One write is far below.
const SENT_BYTES: usize = 512 << 20;
/// Between two attempts to connect: first and longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Where the database is, and how to connect to it.
#[derive(Clone)]
pub struct Address {
    hosts: Arc<Hosts>,
    tls: Tls,
    /// A pooler in transaction mode is in between: nothing of a session lasts.
    pooler: bool,
    /// Without the password.
    shown: String,
    schema: Option<String>,
}

/// What the service itself reads of the URL; the rest is the client's.
#[derive(Default)]
struct Own {
    sslmode: Option<String>,
    roots: Option<PathBuf>,
    schema: Option<String>,
    pooler: bool,
}

impl Address {
    /// Reads a URL `postgres://user:password@host:port/database?sslmode=…`. Besides the client's
    /// own parameters it may have `sslmode` (disable, prefer, require, verify-full), `sslrootcert`,
    /// `schema`, and `pooler=transaction` for a pooler that gives each transaction another session.
    pub fn parse(url: &str) -> Result<Address, Error> {
        let refuse = |reason: String| Error::Refused(vec![format!("--database: {reason}")]);
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(refuse(
                "the URL must begin with postgres://, as in \
                 postgres://user:password@host:5432/database"
                    .to_owned(),
            ));
        }
        let (rest, own) = split(url).map_err(refuse)?;
        // The error of the parser names a parameter, never a value.
        let config = Config::from_str(&rest)
            .map_err(|error| refuse(format!("the URL cannot be read: {}", cause(&error))))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refuse("the URL names no host".to_owned()));
        }
        let has_at = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(has_at) {
            // What looks like a host is the end of a password.
            return Err(refuse("the URL has two `@`; in a password, write @ as %40".to_owned()));
        }
        if config.get_user().is_none() {
            return Err(refuse("the URL names no user".to_owned()));
        }
        let usual = if own.roots.is_some() { "verify-full" } else { "prefer" };
        let mode = own.sslmode.as_deref().unwrap_or(usual);
        let (mode, trust) = match (mode, &own.roots) {
            ("disable" | "prefer", Some(_)) => {
                return Err(refuse(format!(
                    "sslrootcert has no effect with sslmode={mode}; use verify-full"
                )));
            }
            ("disable", None) => (SslMode::Disable, Trust::Anyone),
            ("prefer", None) => (SslMode::Prefer, Trust::Anyone),
            ("require", None) => (SslMode::Require, Trust::Anyone),
            ("require" | "verify-full", _) => (SslMode::Require, Trust::Named),
            (other, _) => {
                return Err(refuse(format!(
                    "sslmode `{other}` is unknown; use disable, prefer, require or verify-full"
                )));
            }
        };
        let each: Result<Vec<Config>, _> =
            each_host(&rest).iter().map(|url| Config::from_str(url)).collect();
        let mut configs = match each {
            Ok(each) if config.get_hostaddrs().is_empty() => each,
            // The addresses belong to all hosts together.
            _ => vec![config],
        };
        let several = configs.len() > 1;
        let given = configs[0].get_connect_timeout().copied();
        let within = match given {
            Some(given) if several => vec![given],
            _ if several => vec![CONNECT_EACH, CONNECT_AGAIN],
            // The client's own limit is for each address and does not include the handshake of TLS.
            _ => vec![CONNECT * 2],
        };
        for config in &mut configs {
            complete(config, mode, &own).map_err(refuse)?;
        }
        let tls = Tls::new(trust, own.roots.as_deref())?;
        let shown = shown(&configs[0]);
        let hosts = Arc::new(Hosts::new(configs, within));
        Ok(Address { hosts, tls, pooler: own.pooler, shown, schema: own.schema })
    }

    /// The schema that the URL names.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The address as it may be logged.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether nothing of a session outlasts its transaction.
    pub fn is_pooled(&self) -> bool {
        self.pooler
    }

    /// Connects. The task that drives the connection ends with it.
    pub async fn connect(&self) -> Result<Client, Error> {
        self.connect_with(None).await
    }

    /// Connects, and passes on what `NOTIFY` sends to the connection: the payloads.
    pub async fn listen(&self, to: mpsc::UnboundedSender<String>) -> Result<Client, Error> {
        self.connect_with(Some(to)).await
    }

    async fn connect_with(
        &self,
        to: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<Client, Error> {
        let mut failures = Vec::new();
        for within in &self.hosts.within {
            failures.clear();
            let mut are_silent = true;
            for asking in self.hosts.asked() {
                match self.connect_to(asking.config(), *within, to.clone()).await {
                    Ok(client) => {
                        asking.answered();
                        return Ok(client);
                    }
                    Err(error) => {
                        are_silent &= asking.is_silent(*within);
                        asking.pass();
                        failures.push(error);
                    }
                }
            }
            if !are_silent {
                break;
            }
        }
        Err(all(failures))
    }

    async fn connect_to(
        &self,
        config: &Config,
        within: Duration,
        to: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<Client, Error> {
        let mut config = config.clone();
        if self.hosts.configs.len() > 1 {
            // Of each address, so that a name may have two. The system repeats a lost packet after
            // a second.
            config.connect_timeout(within * 3 / 4);
        }
        let config = &config;
        let connecting = tokio::time::timeout(within, config.connect(self.tls.clone()));
        let (client, mut connection) = match connecting.await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) if is_read_only(&error) => {
                let asking = tokio::time::timeout(within, self.why_read_only(config));
                let reason = asking.await.ok().flatten();
                let reason = reason.unwrap_or_else(|| cause(&error));
                return Err(Error::Refused(vec![format!("{} {reason}", shown(config))]));
            }
            Ok(Err(error)) => return Err(explain(&shown(config), error)),
            Err(_) => {
                let reason = format!("{} does not answer within {within:?}", shown(config));
                return Err(Error::Unavailable(reason.into()));
            }
        };
        tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notification(one)) => {
                        if let Some(to) = &to {
                            let _ = to.send(one.payload().to_owned());
                        }
                    }
                    Ok(_) => {}
                    // Every statement in flight gets the error as well.
                    Err(_) => return,
                }
            }
        });
        let (unnamed, statements) = (self.pooler, Mutex::new(HashMap::new()));
        Ok(Client { client, unnamed, statements })
    }

    /// Why a server accepts no writes; none if it does not say.
    async fn why_read_only(&self, config: &Config) -> Option<String> {
        let mut config = config.clone();
        config.target_session_attrs(TargetSessionAttrs::Any);
        let (client, connection) = config.connect(self.tls.clone()).await.ok()?;
        // It ends with the client.
        tokio::spawn(connection);
        let sql = "SELECT pg_is_in_recovery(), current_user::text, \
                   current_setting('default_transaction_read_only')";
        let rows = client.query_typed(sql, &[]).await.ok()?;
        let row = rows.first()?;
        if row.try_get(0).ok()? {
            return Some(REPLICA.to_owned());
        }
        let (user, now): (String, String) = (row.try_get(1).ok()?, row.try_get(2).ok()?);
        (now == "on").then(|| setting_text("default_transaction_read_only", &now, "off", &user))
    }

    /// Connects; while the server cannot be reached, again and again until `within` has passed.
    pub async fn connect_within(&self, within: Duration) -> Result<Client, Error> {
        let (deadline, mut backoff) = (tokio::time::Instant::now() + within, Backoff::default());
        loop {
            match self.connect().await {
                Err(Error::Unavailable(error)) => {
                    let pause = backoff.pause();
                    if tokio::time::Instant::now() + pause >= deadline {
                        return Err(Error::Unavailable(error));
                    }
                    tokio::time::sleep(pause).await;
                }
                other => return other,
            }
        }
    }
}

/// Why no connection to this server could be made.
fn explain(shown: &str, error: tokio_postgres::Error) -> Error {
    let refused = |what: &str| Error::Refused(vec![format!("{shown}: {what}")]);
    let Some(state) = error.code().cloned() else {
        let reason = format!("{shown}: {}", cause(&error));
        return match error.to_string().contains("TLS") {
            true => Error::Refused(vec![format!(
                "{reason}. See `sslmode` and `sslrootcert` in the URL"
            )]),
            false => Error::Unavailable(reason.into()),
        };
    };
    match state {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            refused(&format!("{}. Check user and password of the URL", cause(&error)))
        }
        SqlState::INVALID_CATALOG_NAME => {
            refused(&format!("{}. Create it first: createdb", cause(&error)))
        }
        _ => match Error::from(error) {
            Error::Failed(cause) => refused(&cause.to_string()),
            other => other,
        },
    }
}

/// Takes the service's own parameters out of a URL.
fn split(url: &str) -> Result<(String, Own), String> {
    let (head, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut own, mut rest) = (Own::default(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = || unescaped(value).ok_or_else(|| format!("`{name}` is not well escaped"));
        match name {
            "sslmode" => own.sslmode = Some(plain()?),
            "sslrootcert" => own.roots = Some(plain()?.into()),
            "schema" => own.schema = Some(plain()?),
            // Whatever is asked for, only the primary serves.
            "target_session_attrs" => match plain()?.as_str() {
                "read-write" | "primary" => {}
                other => {
                    return Err(format!(
                        "target_session_attrs `{other}` has no effect: a server uses the primary \
                         alone. Leave it out"
                    ));
                }
            },
            "pooler" => match plain()?.as_str() {
                "transaction" => own.pooler = true,
                "session" | "none" => own.pooler = false,
                other => {
                    return Err(format!("pooler `{other}` is unknown; use none or transaction"));
                }
            },
            _ => rest.push(pair),
        }
    }
    match rest.is_empty() {
        true => Ok((head.to_owned(), own)),
        false => Ok((format!("{head}?{}", rest.join("&")), own)),
    }
}

/// Sets what every connection has.
fn complete(config: &mut Config, mode: SslMode, own: &Own) -> Result<(), String> {
    config.ssl_mode(mode);
    // Of several hosts, and at each connection: a replica shows what is old, and a former primary
    // may come back as one.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    config.tcp_user_timeout(SILENCE).keepalives_idle(SILENCE);
    if config.get_application_name().is_none() {
        config.application_name("restive");
    }
    match &own.schema {
        Some(schema) => choose_schema(config, schema, own.pooler),
        None => Ok(()),
    }
}

fn unescaped(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(rest.next()?)? * 16 + digit(rest.next()?)?;
                u8::try_from(value).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Tables are not qualified: they are in the schema that the session begins with.
fn choose_schema(config: &mut Config, schema: &str, pooler: bool) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if schema.is_empty() || schema.len() > 63 || !schema.bytes().all(plain) {
        return Err("a `schema` has 1 to 63 of a-z, 0-9 and _".to_owned());
    }
    if pooler {
        return Err(format!(
            "a pooler in transaction mode does not pass on `schema`. Set it in the database \
             instead: ALTER ROLE … SET search_path = {schema}"
        ));
    }
    let given = config.get_options().map(|options| format!("{options} ")).unwrap_or_default();
    config.options(format!("{given}-c search_path={schema}"));
    Ok(())
}

pub(super) fn shown(config: &Config) -> String {
    let host = config.get_hosts().first().map_or(String::new(), |host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{host}:{port}/{database}")
}

/// Pauses that grow.
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(BACKOFF.0)
    }
}

impl Backoff {
    /// How long to wait before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(BACKOFF.1);
        pause
    }
}

/// One connection. Statements of several futures that are polled together are pipelined, in the
/// order of their first polls. Each statement is prepared once, without a name behind a pooler.
pub struct Client {
    client: tokio_postgres::Client,
    unnamed: bool,
    /// By their text; one for each combination of types that it was used with.
    statements: Mutex<HashMap<Box<str>, Vec<Statement>>>,
}

impl Client {
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub fn is_unnamed(&self) -> bool {
        self.unnamed
    }

    /// Stops the statement that runs now.
    pub fn cancel_token(&self) -> tokio_postgres::CancelToken {
        self.client.cancel_token()
    }

    /// The server's number of the session in which a transaction ran.
    pub async fn session(&self) -> Result<i32, Error> {
        let rows = self.client.query_typed("SELECT pg_backend_pid()", &[]).await?;
        rows.first().map_or(Ok(0), |row| row.cell(0))
    }

    /// Prepares a statement, so that the next calls take one round trip.
    pub async fn prepare(&self, sql: &str, params: &[Param<'_>]) -> Result<Statement, Error> {
        let same = |known: &&Statement| {
            let kinds = known.params().iter().zip(params);
            known.params().len() == params.len() && kinds.clone().all(|(one, p)| *one == p.kind())
        };
        let known = self.statements.lock().get(sql).and_then(|all| all.iter().find(same).cloned());
        if let Some(known) = known {
            return Ok(known);
        }
        let kinds: Vec<Type> = params.iter().map(Param::kind).collect();
        let made = self.client.prepare_typed(sql, &kinds).await?;
        let mut statements = self.statements.lock();
        if statements.len() >= STATEMENTS {
            statements.clear();
        }
        statements.entry(sql.into()).or_default().push(made.clone());
        Ok(made)
    }

    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        if self.unnamed {
            let typed: Vec<(&(dyn ToSql + Sync), Type)> = typed(params);
            return Ok(self.client.query_typed(sql, &typed).await?);
        }
        let statement = self.prepare(sql, params).await?;
        let bound: Vec<&(dyn ToSql + Sync)> = params.iter().map(|one| one as _).collect();
        Ok(self.client.query(&statement, &bound).await?)
    }

    /// The first row, if there is one.
    pub async fn row(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, Error> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// The number of rows that were changed.
    pub async fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64, Error> {
        if self.unnamed {
            let typed: Vec<(&(dyn ToSql + Sync), Type)> = typed(params);
            return Ok(self.client.execute_typed(sql, &typed).await?);
        }
        let statement = self.prepare(sql, params).await?;
        self.carry_out(&statement, params).await
    }

    /// The rows of several questions, in one round trip once they are prepared.
    pub async fn query_all(&self, steps: &[Step]) -> Result<Vec<Vec<Row>>, Error> {
        let run = steps.iter().map(|step| self.query(&step.sql, &step.values));
        join_all(run).await.into_iter().collect()
    }

    /// Runs statements in their order, in one round trip once they are prepared. Returns how many
    /// rows each has changed, or the first error.
    pub async fn all(&self, steps: &[Step]) -> Result<Vec<u64>, Error> {
        let ready = self.ready(steps).await?;
        self.run(&ready).await
    }

    /// Prepares statements, so that `run` sends them at once. They are kept here: the others of the
    /// connection may push them out meanwhile, and one that had to be prepared again would come
    /// too late. Steps that cannot be sent are refused here: what is pipelined behind them, as
    /// COMMIT is, would be sent without them.
    pub async fn ready<'s>(&self, steps: &'s [Step]) -> Result<Vec<Ready<'s>>, Error> {
        let bytes: usize = steps.iter().flat_map(|step| &step.values).map(Param::bytes).sum();
        if bytes > SENT_BYTES {
            let reason = format!("{bytes} bytes are more than the {SENT_BYTES} sent together");
            return Err(Error::Failed(reason.into()));
        }
        let ready = steps.iter().map(async |step| {
            let statement = match self.unnamed {
                true => None,
                false => Some(self.prepare(&step.sql, &step.values).await?),
            };
            Ok(Ready { step, statement })
        });
        join_all(ready).await.into_iter().collect()
    }

    /// The same as `all`, in one round trip.
    pub async fn run(&self, ready: &[Ready<'_>]) -> Result<Vec<u64>, Error> {
        let run = ready.iter().map(async |Ready { step, statement }| match statement {
            Some(statement) => self.carry_out(statement, &step.values).await,
            None => self.execute(&step.sql, &step.values).await,
        });
        join_all(run).await.into_iter().collect()
    }

    async fn carry_out(&self, statement: &Statement, params: &[Param<'_>]) -> Result<u64, Error> {
        let bound: Vec<&(dyn ToSql + Sync)> = params.iter().map(|one| one as _).collect();
        Ok(self.client.execute(statement, &bound).await?)
    }

    /// Statements without values, separated by semicolons.
    pub async fn batch(&self, sql: &str) -> Result<(), Error> {
        Ok(self.client.batch_execute(sql).await?)
    }
}

fn typed<'p>(params: &'p [Param<'_>]) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
    params.iter().map(|one| (one as _, one.kind())).collect()
}

/// A statement with its values, to be run later.
pub struct Step {
    pub sql: Cow<'static, str>,
    pub values: Vec<Param<'static>>,
}

/// A step whose statement is prepared; without a statement behind a pooler.
pub struct Ready<'s> {
    step: &'s Step,
    statement: Option<Statement>,
}

impl Step {
    pub fn new(sql: impl Into<Cow<'static, str>>, values: &[Param<'_>]) -> Step {
        let values = values.iter().cloned().map(Param::owned).collect();
        Step { sql: sql.into(), values }
    }
}

/// Reads the cells of a row.
pub trait Cells {
    fn cell<'r, T: FromSql<'r>>(&'r self, place: usize) -> Result<T, Error>;
}

impl Cells for Row {
    fn cell<'r, T: FromSql<'r>>(&'r self, place: usize) -> Result<T, Error> {
        self.try_get(place).map_err(|error| Error::Failed(Box::new(error)))
    }
}

/// What is wrong with a server that replays the log of another one.
pub const REPLICA: &str = "is a read-only replica. Give the address of the primary";

/// What is wrong with a setting, and what to do about it.
pub fn setting_text(name: &str, now: &str, needed: &str, user: &str) -> String {
    format!(
        "has `{name}` set to `{now}` for `{user}`, with which writes would fail or be lost. Run: \
         ALTER ROLE {user} SET {name} = '{needed}'"
    )
}

/// Whether the server of a connection that failed accepts no writes.
fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.code().is_none() && cause(error).contains("does not allow writes")
}

/// The innermost reason: the outer ones say only "db error" or "error connecting".
fn cause(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let hint = db.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        return format!("{}{hint}", db.message());
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let (outer, inner) = (error.to_string(), inner.to_string());
    if outer.contains(&inner) { outer } else { format!("{outer}: {inner}") }
}

/// An error of the database, by what helps.
impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        let text = || cause(&error);
        let Some(db) = error.as_db_error() else {
            // No answer of the server: the connection failed, or the client did.
            let lost = error.is_closed()
                || std::error::Error::source(&error).is_some_and(|one| one.is::<std::io::Error>());
            return match lost && !is_unsent(&error) {
                true => Error::Unavailable(text().into()),
                false => Error::Failed(text().into()),
            };
        };
        let state = db.code();
        match *state {
            SqlState::DISK_FULL => Error::Full,
            SqlState::QUERY_CANCELED => Error::Timeout,
            SqlState::LOCK_NOT_AVAILABLE
            | SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED => Error::Busy,
            // A replica, or a transaction that this node left open for too long.
            SqlState::READ_ONLY_SQL_TRANSACTION
            | SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
            | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Error::Unavailable(text().into()),
            // Prepared in another session: a pooler came after the start.
            SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => {
                let what = "a pooler in transaction mode needs `pooler=transaction` in the URL";
                Error::Unavailable(format!("{}: {what}", text()).into())
            }
            _ => {
                let class = &state.code()[..2];
                // Connections, resources, an operator's shutdown, and a pooler without a server.
                let away =
                    matches!(class, "08" | "53" | "57") || db.message().contains("pgbouncer");
                let named = format!("{} (SQLSTATE {})", text(), state.code());
                match away {
                    true => Error::Unavailable(named.into()),
                    false => Error::Failed(named.into()),
                }
            }
        }
    }
}

/// Whether the client could not make a message of it. Its cause is an error of input and output as
/// well, but the connection is as it was. The kind of an error can only be told by its text.
fn is_unsent(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    text.starts_with("error encoding message") || text.starts_with("error serializing parameter")
}

/// Whether a statement met a value that cannot be read: one that is not what it is converted to, or
/// that the disk has damaged.
pub fn is_unreadable(error: &Error) -> bool {
    let Error::Failed(cause) = error else { return false };
    let text = cause.to_string();
    text.contains("(SQLSTATE 22") || text.contains("(SQLSTATE XX001")
}

/// Whether a transaction has ended with an earlier statement.
pub fn is_aborted(error: &Error) -> bool {
    matches!(error, Error::Failed(cause) if cause.to_string().contains("SQLSTATE 25P02"))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Address {
        pub(in crate::postgres) fn hosts(&self) -> Arc<Hosts> {
            self.hosts.clone()
        }
    }

    fn refusal(url: &str) -> String {
        match Address::parse(url) {
            Err(error) => error.to_string(),
            Ok(address) => panic!("was accepted: {}", address.shown()),
        }
    }

    #[test]
    fn a_url_is_read_and_never_shown_with_its_password() {
        for (url, shown) in [
            ("postgres://u:geheim@db:5433/shop", "postgres://db:5433/shop"),
            ("postgresql://u:geheim@db/shop?sslmode=disable", "postgres://db:5432/shop"),
            ("postgres://u:geheim@db/shop?pooler=transaction", "postgres://db:5432/shop"),
            (
                "postgres://u@/shop?host=/var/run/postgresql",
                "postgres:///var/run/postgresql:5432/shop",
            ),
        ] {
            let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(address.shown(), shown);
        }
        for (url, reason) in [
            ("mysql://u:geheim@db/shop", "must begin with postgres://"),
            ("postgres://u:geheim@db/shop?sslmode=maybe", "sslmode `maybe`"),
            ("postgres://u:geheim@db/shop?frobnicate=1", "frobnicate"),
            ("postgres://u:geheim@db/shop?pooler=statement", "pooler `statement`"),
            ("postgres://u:geheim@db/shop?schema=A%20b", "schema"),
            ("postgres://u:geheim@db/shop?schema=a&pooler=transaction", "search_path"),
            ("postgres://u:geheim@db:port/shop", "cannot be read"),
            ("postgres://db/shop", "no user"),
            ("postgres://u:geheim@/shop", "no host"),
            ("postgres://u@db/shop?sslmode=verify-full&sslrootcert=/none.pem", "sslrootcert"),
            ("postgres://u@db/shop?sslrootcert=/none.pem", "/none.pem"),
            ("postgres://u@db/shop?sslmode=prefer&sslrootcert=/c.pem", "use verify-full"),
            ("postgres://u:x@geheim@db/shop", "write @ as %40"),
            ("postgres://u:geheim@db,other:port/shop", "cannot be read"),
        ] {
            let refused = refusal(url);
            assert!(refused.contains(reason), "{url}: {refused}");
            assert!(!refused.contains("geheim"), "{refused}");
        }
    }
}
