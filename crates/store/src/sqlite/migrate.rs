//! A SQLite file as the source or the target of a move (`crate::migrate`). The caller holds the
//! lock of the folder: no server uses the file.

use super::layout::{self, quote};
use super::upgrade::{self, APPLICATION_ID, FORMAT};
use super::{acknowledged, connection, log, open, search};
use crate::migrate::{
    self, BODY, Cell, ColumnKind, Contents, HIDDEN, MARK, MOVED, Mark, Meta, NUMBER, PAGE_BYTES,
    PAGE_ROWS, Row, SCOPE, Side, Source, Table, Target, TargetState,
};
use crate::options::Options;
use crate::upgrade::{Cleanup, ServedSchema, Stage};
use crate::{Error, sync_folder};
use model::{Record, Scope, Timestamp};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params_from_iter};
use std::path::{Path, PathBuf};

const SET: &str = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
/// Nobody else may move into the same file.
const ADVANCE: &str = "UPDATE meta SET value = ?2 WHERE name = 'migration' AND value = ?1";
/// Tables that are not moved: `meta` has parts that are, and `sqlite_…` is the database's own.
const OWN: [&str; 3] = ["meta", "sqlite_sequence", "sqlite_stat1"];
/// Pages in the log file after which it is moved into the file.
const CHECKPOINT_PAGES: i64 = 4_000;

/// The file that is moved.
pub struct SqliteSource {
    path: PathBuf,
    connection: Connection,
}

/// The file that is made, and the search indexes of its collections.
pub struct SqliteTarget {
    path: PathBuf,
    connection: Option<Connection>,
    layout: Vec<layout::Table>,
}

impl SqliteSource {
    /// Opens a file that a server of this release has served.
    pub fn open(path: &Path) -> Result<SqliteSource, Error> {
        acknowledged::refuse_missing(path)?;
        if !path.exists() {
            return refused(format!("there is no database {}", path.display()));
        }
        let connection = connection::connect(path)?;
        // The source stays as it is, its log file included.
        connection.pragma_update(None, "query_only", true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        open::recognised(&connection, path)?;
        acknowledged::refuse_shortened(&connection, path)?;
        let format: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let cleanup: Option<Cleanup> = value::<String>(&connection, "cleanup")?
            .and_then(|text| serde_json::from_str(&text).ok());
        let cleaned = cleanup.is_some_and(|cleanup| cleanup.stage == Stage::Done);
        if format != FORMAT || !cleaned {
            return refused(format!(
                "{} was last served by an older release: start `restive serve` of this release on \
                 it once, stop it, and run this command again",
                path.display()
            ));
        }
        connection.execute_batch("BEGIN")?;
        Ok(SqliteSource { path: path.to_owned(), connection })
    }
}

impl SqliteTarget {
    /// A file to be made, or one that was begun.
    pub fn open(path: &Path) -> Result<SqliteTarget, Error> {
        acknowledged::refuse_missing(path)?;
        let connection = match path.exists() {
            true => Some(open_target(path)?),
            false => None,
        };
        Ok(SqliteTarget { path: path.to_owned(), connection, layout: Vec::new() })
    }

    fn connection(&self) -> Result<&Connection, Error> {
        self.connection.as_ref().ok_or_else(|| Error::Failed("the target has no file".into()))
    }

    /// The file under another name, complete: a move that is killed here leaves nothing that could
    /// be taken for a service.
    fn make(
        &self,
        path: &Path,
        contents: &Contents,
        meta: &Meta,
        mark: &Mark,
    ) -> Result<(), Error> {
        let mut connection = connection::connect(path)?;
        let edition = ServedSchema { text: Some(meta.schema_text.clone()), ..Default::default() };
        let options = Options { edition, ..Options::default() };
        upgrade::apply(&mut connection, None, &contents.versions, &options)?;
        let set = |name: &str, value: &dyn ToSql| {
            connection.execute(SET, [&name as &dyn ToSql, value]).map(drop)
        };
        set("schema", &meta.schema)?;
        set("cursor_key", &meta.cursor_key)?;
        set("version_usage_since", &meta.usage_since)?;
        if let Some(epoch) = meta.epoch {
            set("epoch", &epoch)?;
        }
        set(MARK, &mark.text()?)?;
        connection.close().map_err(|(_, error)| Error::from(error))
    }

    fn layout(&mut self, contents: &Contents) {
        if self.layout.is_empty() {
            self.layout = layout::tables(contents.versions.kept(), &contents.stored);
        }
    }
}

fn open_target(path: &Path) -> Result<Connection, Error> {
    let connection = connection::connect(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    Ok(connection)
}

fn refused<T>(reason: String) -> Result<T, Error> {
    Err(Error::Refused(vec![reason]))
}

fn value<T: rusqlite::types::FromSql>(
    connection: &Connection,
    name: &str,
) -> Result<Option<T>, rusqlite::Error> {
    let sql = "SELECT value FROM meta WHERE name = ?1";
    connection.query_row(sql, [name], |row| row.get(0)).optional()
}

fn meta(connection: &Connection, path: &Path) -> Result<Meta, Error> {
    let missing = |what: &str| {
        Error::Refused(vec![format!(
            "{} has no {what}: start `restive serve` of this release on it once, stop it, and run \
             this command again",
            path.display()
        )])
    };
    Ok(Meta {
        schema: value(connection, "schema")?.ok_or_else(|| missing("description"))?,
        schema_text: value(connection, "schema_text")?.ok_or_else(|| missing("schema file"))?,
        cursor_key: value(connection, "cursor_key")?.ok_or_else(|| missing("key for cursors"))?,
        epoch: value(connection, "epoch")?,
        usage_since: value(connection, "version_usage_since")?.unwrap_or(0),
    })
}

fn table_sql(table: &Table) -> String {
    match table.collection {
        Some(_) => quote(&layout::table_name(&table.name)),
        None => quote(&table.name),
    }
}

/// The names of the columns.
fn columns(table: &Table) -> Vec<String> {
    let name = |column: &migrate::Column| match column.is_field {
        true => layout::column_name(&column.name),
        false => quote(&column.name),
    };
    table.columns.iter().map(name).collect()
}

fn count(connection: &Connection, table: &Table) -> Result<u64, Error> {
    let sql = format!("SELECT count(*) FROM {}", table_sql(table));
    let rows: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
    Ok(u64::try_from(rows).unwrap_or(0))
}

fn page(connection: &Connection, table: &Table, after: &[Cell]) -> Result<Vec<Row>, Error> {
    let names = columns(table);
    let key = names[..table.key].join(", ");
    let marks = vec!["?"; table.key].join(", ");
    let condition = match after.is_empty() {
        true => String::new(),
        false => format!("WHERE ({key}) > ({marks})"),
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {} FROM {} {condition} ORDER BY {key} LIMIT {PAGE_ROWS}",
        names.join(", "),
        table_sql(table)
    ))?;
    let mut rows = statement.query(params_from_iter(after.iter().map(Bound)))?;
    let (mut page, mut bytes) = (Vec::new(), 0);
    while bytes < PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let cells = table.columns.iter().enumerate();
        let cells: Row = cells
            .map(|(place, column)| cell(row.get_ref(place)?, column.kind))
            .collect::<Result<_, Error>>()?;
        bytes += cells.iter().map(Cell::bytes).sum::<usize>();
        page.push(cells);
    }
    Ok(page)
}

fn cell(value: ValueRef<'_>, kind: ColumnKind) -> Result<Cell, Error> {
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|error| Error::Failed(Box::new(error)))
    };
    Ok(match (value, kind) {
        (ValueRef::Null, _) => Cell::Null,
        (ValueRef::Integer(whole), ColumnKind::Integer) => Cell::Integer(whole),
        (ValueRef::Real(number), ColumnKind::Number) => Cell::Number(number),
        (ValueRef::Text(bytes), ColumnKind::Text) => Cell::Text(text(bytes)?),
        (ValueRef::Blob(bytes), ColumnKind::Bytes) => Cell::Bytes(bytes.to_vec()),
        (other, _) => {
            let reason = format!("a column has a value of another type: {:?}", other.data_type());
            return Err(Error::Failed(reason.into()));
        }
    })
}

struct Bound<'c>(&'c Cell);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Cell::Null => ValueRef::Null,
            Cell::Integer(whole) => ValueRef::Integer(*whole),
            Cell::Number(number) => ValueRef::Real(*number),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
            Cell::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn insert(connection: &Connection, table: &Table, rows: &[Row]) -> Result<(), rusqlite::Error> {
    let names = columns(table);
    let marks = vec!["?"; names.len()].join(", ");
    let mut statement = connection.prepare_cached(&format!(
        "INSERT INTO {} ({}) VALUES ({marks})",
        table_sql(table),
        names.join(", ")
    ))?;
    for row in rows {
        statement.execute(params_from_iter(row.iter().map(Bound)))?;
    }
    Ok(())
}

/// Adds rows to the search index of their collection.
fn index(connection: &Connection, index: &layout::SearchTable, rows: &[Row]) -> Result<(), Error> {
    for row in rows {
        let (Cell::Integer(number), Cell::Integer(scope)) = (&row[NUMBER], &row[SCOPE]) else {
            continue;
        };
        let text = |place: usize| match &row[place] {
            Cell::Text(text) => Some(text.clone()),
            _ => None,
        };
        let record = Record {
            id: String::new(),
            number: *number,
            version: 0,
            updated: Timestamp(0),
            body: text(BODY).unwrap_or_default(),
            hidden: text(HIDDEN),
        };
        search::insert(connection, index, Scope(*scope), &record)?;
    }
    Ok(())
}

impl Side for SqliteSource {
    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn meta(&mut self) -> Result<Meta, Error> {
        meta(&self.connection, &self.path)
    }

    fn newest(&mut self) -> Result<i64, Error> {
        Ok(log::newest(&self.connection)?.0)
    }

    fn count(&mut self, table: &Table) -> Result<u64, Error> {
        count(&self.connection, table)
    }

    fn page(&mut self, table: &Table, after: &[Cell]) -> Result<Vec<Row>, Error> {
        page(&self.connection, table, after)
    }
}

impl Source for SqliteSource {
    fn unknown(&mut self, contents: &Contents) -> Result<Vec<String>, Error> {
        let sql = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c \
                   WHERE t.type = 'table'";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut unknown = Vec::new();
        while let Some(row) = rows.next()? {
            let (name, column): (String, String) = (row.get(0)?, row.get(1)?);
            // Search indexes are made again. A pause has a table of its own since format 3.
            let is_search = name.starts_with("s_");
            if is_search || OWN.contains(&&*name) || (&*name, &*column) == ("positions", "paused") {
                continue;
            }
            let quoted = quote(&name);
            let known = contents.tables.iter().find(|table| table_sql(table) == quoted);
            if !known.is_some_and(|table| columns(table).contains(&quote(&column))) {
                unknown.push(format!("{name}.{column}"));
            }
        }
        Ok(unknown)
    }

    fn refresh(&mut self) -> Result<(), Error> {
        Ok(self.connection.execute_batch("COMMIT; BEGIN")?)
    }

    /// The lock of the folder keeps servers away.
    fn check_unused(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl Side for SqliteTarget {
    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn meta(&mut self) -> Result<Meta, Error> {
        meta(self.connection()?, &self.path)
    }

    fn newest(&mut self) -> Result<i64, Error> {
        Ok(log::newest(self.connection()?)?.0)
    }

    fn count(&mut self, table: &Table) -> Result<u64, Error> {
        count(self.connection()?, table)
    }

    fn page(&mut self, table: &Table, after: &[Cell]) -> Result<Vec<Row>, Error> {
        page(self.connection()?, table, after)
    }
}

impl Target for SqliteTarget {
    fn state(&mut self) -> Result<TargetState, Error> {
        let Some(connection) = &self.connection else { return Ok(TargetState::Empty) };
        let application: i32 =
            connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        if application != APPLICATION_ID {
            return Err(migrate::not_empty(&self.shown()));
        }
        if let Some(mark) = value(connection, MARK)? {
            return Ok(TargetState::Begun(mark));
        }
        match value(connection, MOVED)? {
            Some(id) => Ok(TargetState::Moved(id)),
            None => Err(migrate::not_empty(&self.shown())),
        }
    }

    fn create(&mut self, contents: &Contents, meta: &Meta, mark: &Mark) -> Result<(), Error> {
        let partial = self.path.with_extension("migrating");
        for left in [partial.clone(), beside(&partial, "-wal"), beside(&partial, "-shm")] {
            let _ = std::fs::remove_file(left);
        }
        self.make(&partial, contents, meta, mark)?;
        std::fs::File::open(&partial)?.sync_all()?;
        std::fs::rename(&partial, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        sync_folder(folder.unwrap_or(Path::new(".")))?;
        self.connection = Some(open_target(&self.path)?);
        Ok(())
    }

    fn put(
        &mut self,
        contents: &Contents,
        table: &Table,
        rows: &[Row],
        (before, after): (&Mark, &Mark),
    ) -> Result<(), Error> {
        self.layout(contents);
        let search = table.collection.and_then(|ix| self.layout[ix].search.as_ref());
        let Some(connection) = &mut self.connection else {
            return Err(Error::Failed("the target has no file".into()));
        };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if transaction.execute(ADVANCE, [before.text()?, after.text()?])? != 1 {
            return refused("another `restive migrate` moves into the same folder".to_owned());
        }
        insert(&transaction, table, rows)?;
        if let Some(search) = search {
            index(&transaction, search, rows)?;
        }
        Ok(transaction.commit()?)
    }

    fn finish(&mut self, mark: &Mark) -> Result<(), Error> {
        let connection = self.connection()?;
        let (text, newest) = (mark.text()?, mark.newest);
        connection.execute_batch("BEGIN IMMEDIATE")?;
        connection.execute(SET, ("search_position", newest))?;
        connection.execute(SET, (MOVED, &mark.id))?;
        let removed = "DELETE FROM meta WHERE name = 'migration' AND value = ?1";
        connection.execute(removed, [text])?;
        connection.execute_batch("COMMIT")?;
        // Not needed: the next start reads the log file.
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        Ok(())
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    super::tail::beside(path, ending)
}
