//! Opens a database: asks the server whether it can do what a store needs, recognises our own
//! tables, and reads the first values from them. `upgrade` applies a schema. Runs on a thread of
//! its own, which waits for the server.

use super::connect::{Address, Cells, Client, REPLICA, setting_text};
use super::param::params;
use super::session::Session;
use super::shared::Locks;
use super::{log, room, shared, upgrade, usage};
use crate::Error;
use crate::migrate;
use crate::options::{Options, Role};
use crate::usage::UsedInAll;
use model::Timestamp;
use model::evolve::Stored;
use model::version::Versions;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

/// The oldest server that has what is used: `pg_current_xact_id`, `gen_random_uuid`.
const OLDEST: i64 = 130_000;
/// How long a server that cannot be reached is waited for at the start.
const START: Duration = Duration::from_secs(10);

/// Statements may take as long as there is data, but a node that is frozen between two of them
/// must not keep the tables locked.
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = 0; \
    SET LOCAL idle_in_transaction_session_timeout = '60s'";

/// What was found in, or written into, the database.
pub struct Opened {
    pub session: Session,
    pub stored: Stored,
    pub cursor_key: [u8; 32],
    pub epoch: u32,
    pub timeline: String,
    pub usage: UsedInAll,
    pub newest: i64,
    pub node: String,
    pub slot: i64,
    pub locks: Locks,
    pub edition: String,
}

/// Opens or makes the tables and brings them to the schema.
pub fn open(address: &Address, versions: &Versions, options: &Options) -> Result<Opened, Error> {
    let (node, slot) = name()?;
    let mut session = Session::new(address.clone(), node.clone())?;
    connect(&mut session)?;
    let schema = session.run_long(probe(address, session.client()?))?;
    let locks = Locks::of(&schema);
    let client = session.client()?;
    session.run_long(check_clock(address, client, options))?;
    session.run_long(begin(client, &locks, options.role))?;
    let stored = session.run_long(recognise(address, client, &schema))?;
    let stored = match (stored, options.role) {
        (Some(stored), Role::Tool) => stored,
        (None, Role::Tool) => {
            return Err(refused(address, "has no tables yet: start `restive serve` first"));
        }
        (stored, Role::Server) => {
            let stored = upgrade::apply(&session, stored, versions, options, &locks)?;
            session.run_long(room::create(client))?;
            stored
        }
    };
    let (epoch, timeline) = session.run_long(epoch(client, options.role))?;
    // Of the tables as this node knows them: after COMMIT, another one may change both.
    let edition = session.run_long(upgrade::value(client, "edition"))?.unwrap_or_default();
    session.run_long(client.batch("COMMIT"))?;
    let found = session.run_long(async {
        let key = upgrade::value(client, "cursor_key").await?.unwrap_or_default();
        let usage = match options.role {
            Role::Server => usage::in_all(client).await?,
            Role::Tool => UsedInAll { since: Timestamp(0), subjects: Vec::new() },
        };
        let forget = "DELETE FROM writers WHERE seen < now() - interval '7 days'";
        client.execute(forget, &[]).await?;
        Ok((key, usage, log::newest(client).await?.0))
    })?;
    let (key, usage, newest) = found;
    let cursor_key = key_of(&key)
        .ok_or_else(|| refused(address, "has no readable key for cursors: restore a backup"))?;
    Ok(Opened {
        session,
        stored,
        cursor_key,
        epoch,
        timeline,
        usage,
        newest,
        node,
        slot,
        locks,
        edition,
    })
}

/// A name for this process, and its slot for counting settlements.
fn name() -> Result<(String, i64), Error> {
    let mut random = [0; 12];
    getrandom::fill(&mut random).map_err(|error| Error::Failed(Box::new(error)))?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let slot = u64::from(random[0]) % super::layout::SLOTS;
    Ok((format!("node_{name}"), i64::try_from(slot).unwrap_or(0)))
}

pub fn key_of(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(place * 2..place * 2 + 2)?, 16).ok()?;
    }
    Some(key)
}

pub fn refused(address: &Address, reason: &str) -> Error {
    Error::Refused(vec![format!("{} {reason}", address.shown())])
}

fn connect(session: &mut Session) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        match session.connect_now() {
            Err(Error::Unavailable(_)) if began.elapsed() < START => {
                // waits for: a server that starts at the same time
                std::thread::sleep(Duration::from_millis(250));
            }
            other => return other,
        }
    }
}

/// Whether the server can do what a store needs. Returns the name of the schema of the tables.
pub async fn probe(address: &Address, client: &Client) -> Result<String, Error> {
    probe_pooler(address, client).await?;
    let sql = "SELECT current_setting('server_version_num')::bigint, \
               current_setting('server_encoding'), current_schema()::text, \
               coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), \
               current_user::text, current_setting('server_version'), pg_is_in_recovery()";
    let row = client.row(sql, params![]).await?;
    let row = row.ok_or_else(|| refused(address, "does not answer a query"))?;
    let (version, shown): (i64, String) = (row.cell(0)?, row.cell(5)?);
    if version < OLDEST {
        let reason = format!("is PostgreSQL {shown}; 13 or later is needed. Upgrade the server");
        return Err(refused(address, &reason));
    }
    let encoding: String = row.cell(1)?;
    if encoding != "UTF8" {
        let reason = format!(
            "has the encoding {encoding}; UTF8 is needed. Create the database with: createdb \
             --encoding=UTF8 --template=template0"
        );
        return Err(refused(address, &reason));
    }
    if row.cell(6)? {
        return Err(refused(address, REPLICA));
    }
    let user: String = row.cell(4)?;
    let Some(schema) = row.cell::<Option<String>>(2)? else {
        let reason = match address.schema() {
            Some(name) => format!(
                "has no schema `{name}`. Create it: CREATE SCHEMA {name} AUTHORIZATION {user}"
            ),
            None => format!(
                "has no schema that `{user}` uses: create the one in the search_path, for example \
                 with: CREATE SCHEMA AUTHORIZATION {user}"
            ),
        };
        return Err(refused(address, &reason));
    };
    if !row.cell::<bool>(3)? {
        let reason = format!(
            "does not let `{user}` create tables in the schema `{schema}`. Run: GRANT CREATE, \
             USAGE ON SCHEMA {schema} TO {user}"
        );
        return Err(refused(address, &reason));
    }
    probe_settings(address, client, &user).await?;
    probe_locks(address, client).await?;
    Ok(schema)
}

/// Settings of the user or the database with which writes would be lost or fail.
async fn probe_settings(address: &Address, client: &Client, user: &str) -> Result<(), Error> {
    const NEEDED: [(&str, &[&str]); 3] = [
        ("synchronous_commit", &["on", "local", "remote_write", "remote_apply"]),
        ("default_transaction_isolation", &["read committed"]),
        ("default_transaction_read_only", &["off"]),
    ];
    for (name, fitting) in NEEDED {
        let row = client.row("SELECT current_setting($1)", params![name]).await?;
        let now: String = row.map_or(Ok(String::new()), |row| row.cell(0))?;
        if !fitting.contains(&&*now) {
            return Err(refused(address, &setting_text(name, &now, fitting[0], user)));
        }
    }
    Ok(())
}

/// Refuses a machine whose clock is wrong.
async fn check_clock(address: &Address, client: &Client, options: &Options) -> Result<(), Error> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let row = client.row(sql, &[]).await?;
    let ahead = (options.clock)().0.saturating_sub(row.map_or(Ok(0), |row| row.cell(0))?);
    match shared::is_far(ahead, options.max_clock_difference) {
        true => Err(refused(address, &format!("cannot be used: {}", shared::clock_text(ahead)))),
        false => Ok(()),
    }
}

/// Refuses a pooler that gives each transaction another session, unless the URL says that there is
/// one: the name of a prepared statement would mean another statement in another session.
async fn probe_pooler(address: &Address, client: &Client) -> Result<(), Error> {
    if client.is_unnamed() {
        return Ok(());
    }
    let other = address.connect().await?;
    // A pooler may use its sessions in turn, or the last one first.
    let (first, second) = (client.session().await?, client.session().await?);
    other.batch("BEGIN").await?;
    // A pooler with a single session has none left for a third question.
    let pooled =
        first != second || other.session().await? == first || client.session().await? != first;
    other.batch("ROLLBACK").await?;
    match pooled {
        false => Ok(()),
        true => Err(refused(
            address,
            "is behind a pooler in transaction mode: add `pooler=transaction` to the URL",
        )),
    }
}

/// Some engines speak the protocol and take advisory locks for no-ops: the log would lose its order
/// in silence.
async fn probe_locks(address: &Address, client: &Client) -> Result<(), Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| Error::Failed(Box::new(error)))?;
    let key = i64::from_ne_bytes(random);
    let other = address.connect().await?;
    client.batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({key})")).await?;
    let sql = format!("SELECT pg_try_advisory_xact_lock({key})");
    let granted = other.row(&sql, &[]).await;
    client.batch("ROLLBACK").await?;
    match granted?.map_or(Ok(true), |row| row.cell(0))? {
        false => Ok(()),
        true => Err(refused(
            address,
            "grants the same advisory lock twice: it is no PostgreSQL, or a pooler that shares \
             one session. The order of the log would be lost",
        )),
    }
}

impl Locks {
    /// Locks are common to a database; each schema has its own.
    pub fn of(schema: &str) -> Locks {
        let key = |what: &str| {
            let hash = Sha256::digest(format!("restive {what} {schema}"));
            let mut key = [0; 8];
            key.copy_from_slice(&hash[..8]);
            i64::from_be_bytes(key)
        };
        Locks { log: key("log"), upgrade: key("upgrade"), upkeep: key("upkeep") }
    }
}

/// Begins the transaction that looks at the tables. No other server changes them meanwhile. A tool
/// has no lock, so it sees everything as it was at one moment.
pub async fn begin(client: &Client, locks: &Locks, role: Role) -> Result<(), Error> {
    client.batch(BEGIN).await?;
    match role {
        Role::Server => lock(client, locks.upgrade).await,
        Role::Tool => client.batch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await,
    }
}

/// From now on, until the transaction ends, no node writes.
pub async fn lock_log(client: &Client, locks: &Locks) -> Result<(), Error> {
    lock(client, locks.log).await
}

async fn lock(client: &Client, key: i64) -> Result<(), Error> {
    let sql = format!("SELECT pg_advisory_xact_lock({key})");
    client.batch(&sql).await.map_err(|error| match error {
        Error::Busy => Error::Refused(vec![
            "another server brings the tables to a schema, or `restive migrate` moves them: start \
             again when it has ended"
                .to_owned(),
        ]),
        other => other,
    })
}

/// Tells our tables from none and from foreign ones, before anything is written.
pub async fn recognise(
    address: &Address,
    client: &Client,
    schema: &str,
) -> Result<Option<Stored>, Error> {
    if !has_our_tables(address, client, schema).await? {
        return Ok(None);
    }
    if upgrade::value(client, migrate::MARK).await?.is_some() {
        return Err(Error::Refused(vec![migrate::unfinished(address.shown())]));
    }
    let text = upgrade::value(client, "schema").await?;
    match text.map(|text| serde_json::from_str(&text)) {
        Some(Ok(stored)) => Ok(Some(stored)),
        _ => Err(refused(address, "has no readable description of its tables: restore a backup")),
    }
}

/// Whether there are tables; foreign and newer ones are refused.
pub async fn has_our_tables(
    address: &Address,
    client: &Client,
    schema: &str,
) -> Result<bool, Error> {
    let sql = "SELECT count(*), coalesce(sum((tablename = 'meta')::int), 0)::bigint FROM \
               pg_tables WHERE schemaname = current_schema()";
    let row = client.row(sql, &[]).await?;
    let row = row.ok_or_else(|| refused(address, "does not list its tables"))?;
    let (tables, ours): (i64, i64) = (row.cell(0)?, row.cell(1)?);
    if tables == 0 {
        return Ok(false);
    }
    let foreign = || {
        let reason = format!(
            "has tables of another program in the schema `{schema}`. Choose another database, or \
             an empty schema with `schema=…` in the URL"
        );
        refused(address, &reason)
    };
    if ours == 0 {
        return Err(foreign());
    }
    let columns = "SELECT count(*) FROM information_schema.columns WHERE table_schema = \
                   current_schema() AND table_name = 'meta' AND column_name IN ('name', 'value')";
    let row = client.row(columns, &[]).await?;
    if row.map_or(Ok(0), |row| row.cell::<i64>(0))? != 2
        || upgrade::value(client, "application").await?.as_deref() != Some("restive")
    {
        return Err(foreign());
    }
    let format = upgrade::value(client, "format").await?.and_then(|text| text.parse::<i64>().ok());
    if format.is_none_or(|format| format > upgrade::FORMAT) {
        return Err(refused(address, "was written by a newer release. Use that release"));
    }
    Ok(true)
}

/// The number of this log. After a failover to a replica, the log may lack events that clients have
/// seen: it is another one, from the start of the first server on.
async fn epoch(client: &Client, role: Role) -> Result<(u32, String), Error> {
    let timeline = timeline(client).await?;
    let kept = upgrade::value(client, "epoch").await?.and_then(|text| text.parse().ok());
    let known = upgrade::value(client, "timeline").await?;
    // Earlier builds kept the first part only.
    let is_same = |known: &String| {
        known == &timeline || (!known.contains('/') && timeline.starts_with(known.as_str()))
    };
    // A tool has no lock: a server may begin an epoch at the same moment.
    let is_kept = role == Role::Tool || known.as_ref().is_some_and(is_same);
    if let (Some(epoch), true) = (kept, is_kept) {
        if role == Role::Server && known.as_ref() != Some(&timeline) {
            upgrade::set_value(client, "timeline", &timeline).await?;
        }
        return Ok((epoch, timeline));
    }
    if let (Some(known), Some(_)) = (&known, kept) {
        tracing::warn!(%known, %timeline, "the database failed over or was restored: a new epoch");
    }
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| Error::Failed(Box::new(error)))?;
    let epoch = u32::from_ne_bytes(random).max(1);
    upgrade::set_value(client, "timeline", &timeline).await?;
    upgrade::set_value(client, "epoch", &epoch.to_string()).await?;
    Ok((epoch, timeline))
}

/// The history of the server, the database and the installation: another one after a failover, and
/// where a dump was restored.
pub async fn timeline(client: &Client) -> Result<String, Error> {
    let sql = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' || \
               (SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || \
               (SELECT system_identifier FROM pg_control_system())";
    client.row(sql, &[]).await?.map_or(Ok(String::new()), |row| row.cell(0))
}
