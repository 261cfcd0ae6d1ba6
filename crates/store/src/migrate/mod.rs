//! Moves everything that a service has from one engine to the other, row by row, and compares both
//! sides at the end. Knows no engine: each implements `Source` and `Target`.
//!
//! The target has a mark from its first transaction on: which source is moved, and how far. Each
//! page of rows is written in one transaction with the mark, so a move that was killed goes on
//! where it stopped. A target with a mark is not served. The mark is removed after both sides were
//! found equal.

mod row;
mod tables;

pub use row::{Cell, Checksum, Row};
pub use tables::{BODY, Column, ColumnKind, Contents, HIDDEN, NUMBER, POSITIONS, SCOPE, Table};

use crate::Error;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Rows of a page at most, and the bytes of their texts after which it ends: memory does not grow
/// with the data, and a move that is killed repeats no more than this.
pub const PAGE_ROWS: usize = 2_000;
pub const PAGE_BYTES: usize = 4 << 20;

/// The rows of `meta` with the mark of a move that is not finished, and with the id of one that is.
pub const MARK: &str = "migration";
pub const MOVED: &str = "migrated";

/// What belongs to the service as a whole.
#[derive(Clone, PartialEq)]
pub struct Meta {
    /// The description of the tables, JSON.
    pub schema: String,
    /// The schema file that is served.
    pub schema_text: String,
    pub cursor_key: [u8; 32],
    /// Of the log; none if the next start begins another one.
    pub epoch: Option<u32>,
    pub usage_since: i64,
}

/// How far a move has come. It stands in the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Of the source.
    pub id: String,
    /// Newest event of the source.
    pub newest: i64,
    /// The table that is being moved, by its name; none if all are.
    pub table: Option<String>,
    /// Key of the last row of it that was moved.
    pub after: Vec<Cell>,
    /// Rows that were moved so far, of all tables.
    pub rows: u64,
}

impl Mark {
    pub fn text(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Failed(Box::new(error)))
    }
}

/// What is found where the data shall go.
pub enum TargetState {
    Empty,
    /// A move was begun; the text of its mark.
    Begun(String),
    /// A move was finished; its id.
    Moved(String),
}

/// One of the two places. Each call waits for its end.
pub trait Side {
    /// Where it is, without a password.
    fn shown(&self) -> String;

    fn meta(&mut self) -> Result<Meta, Error>;

    /// Sequence of the newest event.
    fn newest(&mut self) -> Result<i64, Error>;

    fn count(&mut self, table: &Table) -> Result<u64, Error>;

    /// The next rows after a key, in the order of the key; none at the end. Bounded in rows and
    /// bytes.
    fn page(&mut self, table: &Table, after: &[Cell]) -> Result<Vec<Row>, Error>;
}

pub trait Source: Side {
    /// Tables and columns that exist and are not among the contents.
    fn unknown(&mut self, contents: &Contents) -> Result<Vec<String>, Error>;

    /// Sees what was written since, from here on.
    fn refresh(&mut self) -> Result<(), Error>;

    /// Whether nobody could have begun to serve it.
    fn check_unused(&mut self) -> Result<(), Error>;
}

pub trait Target: Side {
    /// Refuses a target that holds something else.
    fn state(&mut self) -> Result<TargetState, Error>;

    /// Makes the tables, with the mark in them.
    fn create(&mut self, contents: &Contents, meta: &Meta, mark: &Mark) -> Result<(), Error>;

    /// Writes rows and replaces the mark, in one transaction.
    fn put(
        &mut self,
        contents: &Contents,
        table: &Table,
        rows: &[Row],
        marks: (&Mark, &Mark),
    ) -> Result<(), Error>;

    /// Removes the mark: from here on, the target is served.
    fn finish(&mut self, mark: &Mark) -> Result<(), Error>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Copying,
    Comparing,
}

/// Reported after each page.
pub struct Progress<'a> {
    pub stage: Stage,
    pub table: &'a str,
    /// Rows of this stage so far, and in all.
    pub done: u64,
    pub all: u64,
}

/// One table of both sides, compared.
pub struct Compared {
    pub table: String,
    pub source: Checksum,
    pub target: Checksum,
}

impl Compared {
    pub fn is_equal(&self) -> bool {
        self.source == self.target
    }
}

pub struct Report {
    pub tables: Vec<Compared>,
    /// The move had been begun by an earlier run.
    pub resumed: bool,
    /// An earlier run had finished it: nothing was done or compared.
    pub was_finished: bool,
}

impl Report {
    pub fn is_equal(&self) -> bool {
        self.tables.iter().all(Compared::is_equal)
    }
}

/// Moves what is missing, compares both sides, and lets the target be served if they are equal.
pub fn run(
    source: &mut dyn Source,
    target: &mut dyn Target,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Report, Error> {
    let meta = source.meta()?;
    let contents = Contents::of(&meta)?;
    let unknown = source.unknown(&contents)?;
    if !unknown.is_empty() {
        return Err(Error::Refused(vec![format!(
            "{} has what this release does not move ({}): start `restive serve` of this release \
             on it once, stop it, and run this command again",
            source.shown(),
            unknown.join(", ")
        )]));
    }
    let (id, newest) = (id(&meta), source.newest()?);
    let (mark, resumed) = match target.state()? {
        TargetState::Empty => {
            let mark = Mark { id, newest, table: first(&contents), after: Vec::new(), rows: 0 };
            target.create(&contents, &meta, &mark)?;
            (mark, false)
        }
        TargetState::Begun(text) => (continued(&text, (&id, newest), source, target)?, true),
        TargetState::Moved(moved) if moved == id && target.newest()? == newest => {
            return Ok(Report { tables: Vec::new(), resumed: true, was_finished: true });
        }
        TargetState::Moved(moved) if moved == id => {
            return Err(Error::Refused(vec![format!(
                "{} was moved to {} before, and one of them has been used since. Choose an empty \
                 target",
                source.shown(),
                target.shown()
            )]));
        }
        TargetState::Moved(_) => return Err(not_empty(&target.shown())),
    };
    let mark = copy((&mut *source, &mut *target), &contents, mark, progress)?;
    let tables = compare((&mut *source, &mut *target), &contents, progress)?;
    let report = Report { tables, resumed, was_finished: false };
    if report.is_equal() {
        source.check_unused()?;
        target.finish(&mark)?;
    }
    Ok(report)
}

/// The error of a target that holds something else.
pub fn not_empty(shown: &str) -> Error {
    Error::Refused(vec![format!(
        "{shown} holds data already. Choose an empty target: a new folder, or a new database or \
         schema (`schema=…` in the URL)"
    )])
}

/// The error of opening a target whose move is not finished.
pub fn unfinished(shown: &str) -> String {
    format!(
        "{shown} is the target of a `restive migrate` that is not finished. Run the same command \
         again: it goes on where it stopped"
    )
}

/// The id of a service: the same as long as its cursors and positions are valid.
fn id(meta: &Meta) -> String {
    let mut hash = Sha256::new_with_prefix("restive migrate");
    hash.update(meta.cursor_key);
    hash.update(meta.epoch.unwrap_or_default().to_be_bytes());
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn first(contents: &Contents) -> Option<String> {
    contents.tables.first().map(|table| table.name.clone())
}

/// The mark of an earlier run, if it has moved the same source as it is now.
fn continued(
    text: &str,
    (id, newest): (&str, i64),
    source: &dyn Source,
    target: &dyn Target,
) -> Result<Mark, Error> {
    let refused = |reason: String| Err(Error::Refused(vec![reason]));
    let (from, to) = (source.shown(), target.shown());
    let Ok(mark) = serde_json::from_str::<Mark>(text) else {
        return refused(format!("{to} was begun by another release. Empty it and start again"));
    };
    if mark.id != id {
        return refused(format!(
            "{to} is the target of a `restive migrate` from another source than {from}. Finish \
             that one, or choose an empty target"
        ));
    }
    if mark.newest != newest {
        return refused(format!(
            "{from} was changed after the move had begun: it had {} events then, and has {newest} \
             now. Empty {to} and start again",
            mark.newest
        ));
    }
    Ok(mark)
}

type Sides<'s> = (&'s mut dyn Source, &'s mut dyn Target);

fn copy(
    (source, target): Sides<'_>,
    contents: &Contents,
    mut mark: Mark,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Mark, Error> {
    let mut all = 0;
    for table in &contents.tables {
        all += source.count(table)?;
    }
    let tables = &contents.tables;
    let begin = match &mark.table {
        Some(name) => tables.iter().position(|table| table.name == *name).unwrap_or(0),
        None => tables.len(),
    };
    for (place, table) in tables.iter().enumerate().skip(begin) {
        loop {
            progress(&Progress { stage: Stage::Copying, table: &table.name, done: mark.rows, all });
            let rows = source.page(table, &mark.after)?;
            let mut next = mark.clone();
            match rows.last() {
                Some(last) => {
                    next.after = last[..table.key].to_vec();
                    next.rows += rows.len() as u64;
                }
                None => {
                    next.after.clear();
                    next.table = tables.get(place + 1).map(|table| table.name.clone());
                }
            }
            target.put(contents, table, &rows, (&mark, &next))?;
            mark = next;
            if rows.is_empty() {
                break;
            }
        }
    }
    Ok(mark)
}

fn compare(
    (source, target): Sides<'_>,
    contents: &Contents,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Vec<Compared>, Error> {
    source.refresh()?;
    let mut compared = vec![Compared {
        table: "settings".to_owned(),
        source: checksum_of(&source.meta()?),
        target: checksum_of(&target.meta()?),
    }];
    let mut all = 0;
    for table in &contents.tables {
        all += source.count(table)? + target.count(table)?;
    }
    let mut done = 0;
    for table in &contents.tables {
        let mut report = |rows: usize| {
            done += rows as u64;
            let (stage, table) = (Stage::Comparing, table.name.as_str());
            progress(&Progress { stage, table, done, all });
        };
        report(0);
        compared.push(Compared {
            table: table.name.clone(),
            source: checksum(source, table, &mut report)?,
            target: checksum(target, table, &mut report)?,
        });
    }
    Ok(compared)
}

fn checksum<S: Side + ?Sized>(
    side: &mut S,
    table: &Table,
    report: &mut dyn FnMut(usize),
) -> Result<Checksum, Error> {
    let (mut sum, mut after) = (Checksum::default(), Vec::new());
    loop {
        let rows = side.page(table, &after)?;
        let Some(last) = rows.last() else { return Ok(sum) };
        after = last[..table.key].to_vec();
        rows.iter().for_each(|row| sum.add(row));
        report(rows.len());
    }
}

fn checksum_of(meta: &Meta) -> Checksum {
    let Meta { schema, schema_text, cursor_key, epoch, usage_since } = meta;
    let mut sum = Checksum::default();
    let text = |text: &String| Cell::Text(text.clone());
    for (name, value) in [
        ("schema", text(schema)),
        ("schema_text", text(schema_text)),
        ("cursor_key", Cell::Bytes(cursor_key.to_vec())),
        ("epoch", epoch.map_or(Cell::Null, |epoch| Cell::Integer(i64::from(epoch)))),
        ("version_usage_since", Cell::Integer(*usage_since)),
    ] {
        sum.add(&[Cell::Text(name.to_owned()), value]);
    }
    sum
}
