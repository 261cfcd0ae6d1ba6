//! A PostgreSQL database as the source or the target of a move (`crate::migrate`). Both work on the
//! thread of their caller and wait for the server.

use super::cluster::NAMES;
use super::connect::{Address, Cells, Client};
use super::layout::{self, quote, table_name};
use super::open::{self, refused};
use super::param::{Param, decoded, encoded, params};
use super::session::Session;
use super::shared::Locks;
use super::{log, room, search, upgrade, views};
use crate::Error;
use crate::migrate::{
    self, BODY, Cell, Column, ColumnKind, Contents, HIDDEN, MARK, MOVED, Mark, Meta, PAGE_BYTES,
    PAGE_ROWS, POSITIONS, Row, Side, Source, Table, Target, TargetState,
};
use crate::options::{Options, Role};
use crate::upgrade::ServedSchema;
use model::record::parse_object;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Reads what was committed before, however long it takes.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
    SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
/// Holds the locks of the source.
const GUARD: &str = "BEGIN; SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = 0; \
    SET LOCAL idle_in_transaction_session_timeout = 0";
const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'";
/// Nobody else may move into the same tables.
const ADVANCE: &str = "UPDATE meta SET value = $2 WHERE name = $3 AND value = $1";
const FORGET: &str = "DELETE FROM meta WHERE name = $1";
const LIVE: &str = "SELECT host, (extract(epoch FROM until - clock_timestamp()))::bigint + 1 \
    FROM restive_nodes WHERE until > clock_timestamp() ORDER BY started LIMIT 1";
const COLUMNS: &str = "SELECT c.table_name::text, c.column_name::text FROM \
    information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name) \
    WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' ORDER BY 1, 2";
/// Tables that are not moved: settings are, in part; the rest belongs to the nodes.
const OWN: [&str; 4] = ["meta", "writers", "settled", room::TABLE];
/// Tables that number their rows, and what else names such numbers.
const NUMBERED: [(&str, &str); 3] = [
    ("remembered", "(SELECT max(answers) FROM erasing)"),
    ("timers", "NULL::bigint"),
    ("deliveries", "(SELECT max(delivery) FROM attempts)"),
];

/// The database that is moved. `guard` holds the locks that keep servers from starting and from
/// writing; the session reads a snapshot.
pub struct PostgresSource {
    address: Address,
    session: Session,
    guard: Session,
    positions: String,
}

/// The database that is filled, and the tables of its collections.
pub struct PostgresTarget {
    address: Address,
    session: Session,
    schema: String,
    layout: Vec<layout::Table>,
}

impl PostgresSource {
    /// Opens a database that no server uses.
    pub fn open(address: &Address) -> Result<PostgresSource, Error> {
        let (guard, schema) = session(address)?;
        let locks = Locks::of(&schema);
        let client = guard.client()?;
        guard.run_long(client.batch(GUARD))?;
        guard
            .run_long(open::recognise(address, client, &schema))?
            .ok_or_else(|| refused(address, "has no tables: there is nothing to move"))?;
        guard.run_long(unused(address, client))?;
        let (upgrade, log) = (locks.upgrade, locks.log);
        let lock =
            format!("SELECT pg_advisory_xact_lock({upgrade}); SELECT pg_advisory_xact_lock({log})");
        guard.run_long(client.batch(&lock)).map_err(|error| match error {
            Error::Busy => refused(address, "is in use: a server starts or writes. Stop it first"),
            other => other,
        })?;
        guard.run_long(unused(address, client))?;
        let session = session_of(address)?;
        session.run_long(session.client()?.batch(SNAPSHOT))?;
        Ok(PostgresSource { address: address.clone(), session, guard, positions: String::new() })
    }
}

impl PostgresTarget {
    pub fn open(address: &Address) -> Result<PostgresTarget, Error> {
        let (session, schema) = session(address)?;
        Ok(PostgresTarget { address: address.clone(), session, schema, layout: Vec::new() })
    }

    fn layout(&mut self, contents: &Contents) {
        if self.layout.is_empty() {
            self.layout = layout::tables(contents.versions.kept(), &contents.stored);
        }
    }
}

/// A connection to a server that can do what a store needs, and the schema of its tables.
fn session(address: &Address) -> Result<(Session, String), Error> {
    let session = session_of(address)?;
    let schema = session.run_long(open::probe(address, session.client()?))?;
    Ok((session, schema))
}

fn session_of(address: &Address) -> Result<Session, Error> {
    let mut session = Session::new(address.clone(), String::new())?;
    session.connect_now()?;
    Ok(session)
}

/// Refuses a database that a node serves.
async fn unused(address: &Address, client: &Client) -> Result<(), Error> {
    let exists = "SELECT to_regclass('restive_nodes') IS NOT NULL";
    if !client.row(exists, &[]).await?.map_or(Ok(false), |row| row.cell::<bool>(0))? {
        return Ok(());
    }
    let Some(node) = client.row(LIVE, &[]).await? else { return Ok(()) };
    let (host, seconds): (String, i64) = (node.cell(0)?, node.cell(1)?);
    let (machine, process) = host.rsplit_once(':').unwrap_or((&host, "unknown"));
    Err(refused(
        address,
        &format!(
            "is served by a node on {machine}, process {process}. Stop it first; if it was killed, \
             its lease ends in {seconds} s"
        ),
    ))
}

async fn meta(address: &Address, client: &Client) -> Result<Meta, Error> {
    let missing = |what: &str| {
        refused(
            address,
            &format!(
                "has no {what}: start `restive serve` of this release on it once, stop it, and run \
                 this command again"
            ),
        )
    };
    let value = async |name: &str| upgrade::value(client, name).await;
    let schema = value("schema").await?.ok_or_else(|| missing("description"))?;
    let schema_text = value("schema_text").await?.ok_or_else(|| missing("schema file"))?;
    let key = value("cursor_key").await?.unwrap_or_default();
    let cursor_key = open::key_of(&key).ok_or_else(|| missing("key for cursors"))?;
    // After a failover, the next start begins another log.
    let same = value("timeline").await? == Some(open::timeline(client).await?);
    let epoch = value("epoch").await?.and_then(|text| text.parse().ok()).filter(|_| same);
    let since = value("version_usage_since").await?;
    let usage_since = since.and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Meta { schema, schema_text, cursor_key, epoch, usage_since })
}

fn table_sql(table: &Table) -> String {
    match table.collection {
        Some(_) => quote(&table_name(&table.name)),
        None => quote(&table.name),
    }
}

fn columns(table: &Table) -> Vec<String> {
    let name = |column: &Column| match column.is_field {
        true => layout::column_name(&column.name),
        false => quote(&column.name),
    };
    table.columns.iter().map(name).collect()
}

/// The positions as a process needs them that serves everything: one head, the furthest of all
/// buckets, and a row for each enabled endpoint that is behind it.
fn positions(contents: &Contents) -> String {
    let endpoints = views::endpoints_table(contents.versions.kept());
    let position = views::POSITION_OF_ENDPOINT;
    let head = "(SELECT max(h.seq) FROM positions h WHERE h.endpoint <= 0)";
    format!(
        "(SELECT o.endpoint, o.seq FROM positions o WHERE o.endpoint > 0 \
         UNION ALL SELECT 0, h.seq FROM {head} h(seq) WHERE h.seq IS NOT NULL \
         UNION ALL SELECT w.n, {position} FROM {endpoints} w WHERE w.f_status = 'enabled' AND \
         NOT EXISTS (SELECT 1 FROM positions o WHERE o.endpoint = w.n) AND \
         {position} < greatest(w.n, {head}))"
    )
}

async fn count(client: &Client, from: &str) -> Result<u64, Error> {
    let row = client.row(&format!("SELECT count(*) FROM {from} t"), &[]).await?;
    let rows: i64 = row.map_or(Ok(0), |row| row.cell(0))?;
    Ok(u64::try_from(rows).unwrap_or(0))
}

/// The sizes of the texts are summed up by the server: it sends no more than a page.
fn page_sql(table: &Table, from: &str, continues: bool) -> String {
    let names = columns(table);
    let (all, key) = (names.join(", "), names[..table.key].join(", "));
    let marks: Vec<String> = (1..=table.key).map(|place| format!("${place}")).collect();
    let condition = match continues {
        true => format!("WHERE ({key}) > ({})", marks.join(", ")),
        false => String::new(),
    };
    let sizes = table.columns.iter().zip(&names).filter(|(one, _)| one.kind == ColumnKind::Text);
    let sizes: String =
        sizes.map(|(_, name)| format!(" + coalesce(octet_length({name}), 0)")).collect();
    format!(
        "SELECT {all} FROM (SELECT {all}, row_number() OVER w AS place_, sum(0{sizes}) OVER w AS \
         upto_ FROM (SELECT {all} FROM {from} t {condition} ORDER BY {key} LIMIT {PAGE_ROWS}) p \
         WINDOW w AS (ORDER BY {key} ROWS UNBOUNDED PRECEDING)) q \
         WHERE place_ = 1 OR upto_ <= {PAGE_BYTES} ORDER BY {key}"
    )
}

async fn page(
    client: &Client,
    table: &Table,
    from: &str,
    after: &[Cell],
) -> Result<Vec<Row>, Error> {
    let sql = page_sql(table, from, !after.is_empty());
    let after: Vec<Param<'_>> = after
        .iter()
        .map(|cell| match cell {
            Cell::Integer(whole) => Param::from(*whole),
            Cell::Text(text) => Param::from(text),
            Cell::Null | Cell::Number(_) | Cell::Bytes(_) => Param::Text(None),
        })
        .collect();
    let rows = client.query(&sql, &after).await?;
    rows.iter().map(|row| cells(row, table)).collect()
}

fn cells(row: &tokio_postgres::Row, table: &Table) -> Result<Row, Error> {
    let cell = |(place, column): (usize, &Column)| {
        Ok(match column.kind {
            ColumnKind::Integer => row.cell::<Option<i64>>(place)?.map(Cell::Integer),
            ColumnKind::Number => row.cell::<Option<f64>>(place)?.map(Cell::Number),
            ColumnKind::Text => {
                row.cell::<Option<String>>(place)?.map(|text| Cell::Text(decoded(text)))
            }
            ColumnKind::Bytes => row.cell::<Option<Vec<u8>>>(place)?.map(Cell::Bytes),
        }
        .unwrap_or(Cell::Null))
    };
    table.columns.iter().enumerate().map(cell).collect()
}

/// The values of one column of some rows.
fn array(rows: &[Row], place: usize, kind: ColumnKind) -> Param<'_> {
    let cells = rows.iter().map(|row| &row[place]);
    match kind {
        ColumnKind::Integer => Param::Integers(
            cells
                .map(|cell| match cell {
                    Cell::Integer(whole) => Some(*whole),
                    _ => None,
                })
                .collect(),
        ),
        ColumnKind::Number => Param::Numbers(
            cells
                .map(|cell| match cell {
                    Cell::Number(number) => Some(*number),
                    _ => None,
                })
                .collect(),
        ),
        ColumnKind::Text => Param::Texts(
            cells
                .map(|cell| match cell {
                    Cell::Text(text) => Some(encoded(Cow::Borrowed(text))),
                    _ => None,
                })
                .collect(),
        ),
        ColumnKind::Bytes => Param::Blobs(
            cells
                .map(|cell| match cell {
                    Cell::Bytes(bytes) => Cow::Borrowed(&bytes[..]),
                    _ => Cow::Borrowed(&[][..]),
                })
                .collect(),
        ),
    }
}

/// The words of each row, as text.
fn words<'r>(searched: &[layout::SearchField], rows: &'r [Row]) -> Param<'r> {
    let words = |row: &Row| {
        let text = |place: usize| match &row[place] {
            Cell::Text(text) => text.as_str(),
            _ => "{}",
        };
        let mut fields = parse_object(text(BODY));
        fields.extend(parse_object(text(HIDDEN)));
        Some(Cow::Owned(search::vector(searched, &fields)))
    };
    Param::Texts(rows.iter().map(words).collect())
}

async fn insert(
    client: &Client,
    table: &Table,
    rows: &[Row],
    searched: Option<&[layout::SearchField]>,
) -> Result<(), Error> {
    let names = columns(table).join(", ");
    let kinds = table.columns.iter().map(|column| match column.kind {
        ColumnKind::Integer => "bigint",
        ColumnKind::Number => "double precision",
        ColumnKind::Text => "text",
        ColumnKind::Bytes => "bytea",
    });
    let marks: Vec<String> =
        kinds.enumerate().map(|(place, kind)| format!("${}::{kind}[]", place + 1)).collect();
    let marks = marks.join(", ");
    let columns = table.columns.iter().enumerate();
    let mut values: Vec<Param<'_>> =
        columns.map(|(place, column)| array(rows, place, column.kind)).collect();
    let sql = match searched {
        None => format!(
            "INSERT INTO {} ({names}) SELECT * FROM unnest({marks}) q({names})",
            table_sql(table)
        ),
        Some(searched) => {
            values.push(words(searched, rows));
            format!(
                "INSERT INTO {} ({names}, search) SELECT {names}, words_::tsvector FROM \
                 unnest({marks}, ${}::text[]) q({names}, words_)",
                table_sql(table),
                values.len()
            )
        }
    };
    client.execute(&sql, &values).await.map(drop)
}

impl Side for PostgresSource {
    fn shown(&self) -> String {
        self.address.shown().to_owned()
    }

    fn meta(&mut self) -> Result<Meta, Error> {
        self.session.run_long(meta(&self.address, self.session.client()?))
    }

    fn newest(&mut self) -> Result<i64, Error> {
        Ok(self.session.run_long(log::newest(self.session.client()?))?.0)
    }

    fn count(&mut self, table: &Table) -> Result<u64, Error> {
        let from = self.from(table);
        self.session.run_long(count(self.session.client()?, &from))
    }

    fn page(&mut self, table: &Table, after: &[Cell]) -> Result<Vec<Row>, Error> {
        let from = self.from(table);
        self.session.run_long(page(self.session.client()?, table, &from, after))
    }
}

impl PostgresSource {
    fn from(&self, table: &Table) -> String {
        match table.name == POSITIONS && table.collection.is_none() {
            true => self.positions.clone(),
            false => table_sql(table),
        }
    }
}

impl Source for PostgresSource {
    fn unknown(&mut self, contents: &Contents) -> Result<Vec<String>, Error> {
        self.positions = positions(contents);
        let rows = self.session.run_long(self.session.client()?.query(COLUMNS, &[]))?;
        let named = |table: &Table| {
            let of = table_sql(table);
            columns(table).into_iter().map(move |column| (of.clone(), column))
        };
        let known: BTreeSet<(String, String)> = contents.tables.iter().flat_map(named).collect();
        let is_record = |name: &String| {
            contents
                .tables
                .iter()
                .any(|table| table.collection.is_some() && table_sql(table) == *name)
        };
        let mut unknown = Vec::new();
        for row in &rows {
            let (name, column): (String, String) = (row.cell(0)?, row.cell(1)?);
            let quoted = quote(&name);
            let is_words = column == "search" && is_record(&quoted);
            let is_known = known.contains(&(quoted, quote(&column)));
            if !is_words && !is_known && !OWN.contains(&&*name) && !NAMES.contains(&&*name) {
                unknown.push(format!("{name}.{column}"));
            }
        }
        Ok(unknown)
    }

    fn refresh(&mut self) -> Result<(), Error> {
        self.session.run_long(async {
            let client = self.session.client()?;
            client.batch("COMMIT").await?;
            client.batch(SNAPSHOT).await
        })
    }

    fn check_unused(&mut self) -> Result<(), Error> {
        // The locks are held as long as this connection answers.
        self.guard.run_long(unused(&self.address, self.guard.client()?))
    }
}

impl Side for PostgresTarget {
    fn shown(&self) -> String {
        self.address.shown().to_owned()
    }

    fn meta(&mut self) -> Result<Meta, Error> {
        self.session.run_long(meta(&self.address, self.session.client()?))
    }

    fn newest(&mut self) -> Result<i64, Error> {
        Ok(self.session.run_long(log::newest(self.session.client()?))?.0)
    }

    fn count(&mut self, table: &Table) -> Result<u64, Error> {
        self.session.run_long(count(self.session.client()?, &table_sql(table)))
    }

    fn page(&mut self, table: &Table, after: &[Cell]) -> Result<Vec<Row>, Error> {
        let from = table_sql(table);
        self.session.run_long(page(self.session.client()?, table, &from, after))
    }
}

impl Target for PostgresTarget {
    fn state(&mut self) -> Result<TargetState, Error> {
        let (address, schema) = (&self.address, &self.schema);
        self.session.run_long(async {
            let client = self.session.client()?;
            if !open::has_our_tables(address, client, schema).await? {
                return Ok(TargetState::Empty);
            }
            if let Some(mark) = upgrade::value(client, MARK).await? {
                return Ok(TargetState::Begun(mark));
            }
            match upgrade::value(client, MOVED).await? {
                Some(id) => Ok(TargetState::Moved(id)),
                None => Err(migrate::not_empty(address.shown())),
            }
        })
    }

    fn create(&mut self, contents: &Contents, meta: &Meta, mark: &Mark) -> Result<(), Error> {
        let (address, session) = (&self.address, &self.session);
        let (client, locks) = (session.client()?, Locks::of(&self.schema));
        session.run_long(open::begin(client, &locks, Role::Server))?;
        if session.run_long(open::has_our_tables(address, client, &self.schema))? {
            return Err(migrate::not_empty(address.shown()));
        }
        let edition = ServedSchema { text: Some(meta.schema_text.clone()), ..Default::default() };
        let options = Options { edition, ..Options::default() };
        upgrade::apply(session, None, &contents.versions, &options, &locks)?;
        let key: String = meta.cursor_key.iter().map(|byte| format!("{byte:02x}")).collect();
        session.run_long(async {
            let set = async |name: &str, value: &str| upgrade::set_value(client, name, value).await;
            upgrade::keep_described(client, &meta.schema, Some(&meta.schema_text)).await?;
            set("cursor_key", &key).await?;
            set("version_usage_since", &meta.usage_since.to_string()).await?;
            if let Some(epoch) = meta.epoch {
                set("epoch", &epoch.to_string()).await?;
                set("timeline", &open::timeline(client).await?).await?;
            }
            set(MARK, &mark.text()?).await?;
            client.batch("COMMIT").await
        })
    }

    fn put(
        &mut self,
        contents: &Contents,
        table: &Table,
        rows: &[Row],
        (before, after): (&Mark, &Mark),
    ) -> Result<(), Error> {
        self.layout(contents);
        let search = table.collection.and_then(|ix| self.layout[ix].search.as_deref());
        let (before, after) = (before.text()?, after.text()?);
        let shown = self.address.shown();
        self.session.run_long(async {
            let client = self.session.client()?;
            client.batch(BEGIN).await?;
            if client.execute(ADVANCE, params![&before, &after, MARK]).await? != 1 {
                let reason = format!("another `restive migrate` moves into {shown}");
                return Err(Error::Refused(vec![reason]));
            }
            if !rows.is_empty() {
                insert(client, table, rows, search).await?;
            }
            client.batch("COMMIT").await
        })
    }

    fn finish(&mut self, mark: &Mark) -> Result<(), Error> {
        let text = mark.text()?;
        self.session.run_long(async {
            let client = self.session.client()?;
            client.batch(BEGIN).await?;
            for (table, other) in NUMBERED {
                let numbered = format!(
                    "SELECT setval(pg_get_serial_sequence('{table}', 'n'), coalesce(m, 1), m IS \
                     NOT NULL) FROM (SELECT greatest(max(n), {other}) m FROM {table}) q"
                );
                client.query(&numbered, &[]).await?;
            }
            // Nobody has measured the new tables.
            client.batch("ANALYZE").await?;
            if client.execute(ADVANCE, params![&text, &mark.id, MARK]).await? != 1 {
                return Err(Error::Failed("the mark of the move has changed".into()));
            }
            upgrade::set_value(client, MOVED, &mark.id).await?;
            client.execute(FORGET, params![MARK]).await?;
            client.batch("COMMIT").await
        })
    }
}
