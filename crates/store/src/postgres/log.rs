//! The log: reading events in order, and the newest one. Appending is in `write`.
//!
//! A read moves few bytes that it does not keep: large texts stay in the database until it is known
//! that they fit. Those who follow the log for all accounts read on connections that all share.

use super::connect::{Cells, Client, is_unreadable};
use super::erasure;
use super::param::{Param, decoded, params};
use crate::log::EVENT_OVERHEAD_BYTES;
use crate::{Error, EventPage, Repeats, event_bytes};
use model::event::Event;
use model::{Scope, Timestamp};
use std::collections::HashMap;
use tokio_postgres::Row;

pub const NEWEST: &str = "SELECT seq, created FROM log ORDER BY seq DESC LIMIT 1";
/// Rows that are read at once: `max` may be any number, and a limit in bytes ends the read.
const PART: usize = 1_000;
/// Bytes of texts that are read at once, where no limit in bytes ends the read.
const PART_BYTES: usize = 16 << 20;
/// A text that is always read with its row: a second statement costs more.
const SMALL_BYTES: usize = 8 << 10;

/// Whether a text of a row is larger than `$1`. The size is known without reading the text.
macro_rules! unless_large {
    ($column:literal, $text:expr) => {
        concat!("CASE WHEN octet_length(log.", $column, ") > $1 THEN NULL ELSE ", $text, " END")
    };
}

/// What is read of an event: nothing that is being erased, and no text that is larger than `$1`.
/// Last comes the size of the texts, if one of them is. The limit inside keeps the database from
/// asking for each column anew whether it is being erased. (A running sum of the sizes, which would
/// end the rows at a limit, takes 40 % more time than this.)
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT seq, id, scope, type, created, collection, record, api_version, ",
            unless_large!("object", erasure::object!("log", "log.erases")),
            ", ",
            unless_large!("previous", erasure::or_null!("log", "previous", "log.erases")),
            ", ",
            erasure::origin!("log", "log.erases"),
            ", ",
            erasure::or_null!("log", "idempotency_key", "log.erases"),
            ", ",
            unless_large!("hidden", erasure::or_null!("log", "hidden", "log.erases")),
            ", CASE WHEN greatest(octet_length(log.object), octet_length(log.previous), \
             octet_length(log.hidden)) > $1 THEN octet_length(log.object)::bigint + \
             coalesce(octet_length(log.previous), 0) + coalesce(octet_length(log.hidden), 0) END \
             FROM (SELECT *, ",
            erasure::erases!("log"),
            " AS erases FROM log WHERE ",
            $condition,
            " ORDER BY seq LIMIT $2) log ORDER BY seq"
        )
    };
}
const OF_ALL: &str = select!("seq > $3");
const OF_SCOPE: &str = select!("seq > $3 AND scope = $4");
/// Of events that have a number: each of these.
const THESE: &str = select!("seq = ANY($3)");
/// What is read of an event but for its texts.
const ERASES: &str = concat!("SELECT ", erasure::erases!("log"), " FROM log WHERE seq = $1");
/// An event with all that it has, and nothing of another table.
const ALONE: &str = "SELECT length(row_to_json(log)::text) FROM log WHERE seq = $1";
/// The next event, whatever its texts are.
const NEXT: &str = "SELECT min(seq) FROM log WHERE seq > $1";
const NEXT_OF_SCOPE: &str = "SELECT min(seq) FROM log WHERE seq > $1 AND scope = $2";

static UNREADABLE: Repeats = Repeats::new();

/// Sequence and time of the newest event; zeros in an empty log.
pub async fn newest(client: &Client) -> Result<(i64, i64), Error> {
    match client.row(NEWEST, &[]).await? {
        Some(row) => Ok((row.cell(0)?, row.cell(1)?)),
        None => Ok((0, 0)),
    }
}

/// What a row of the log shows.
#[expect(clippy::large_enum_variant, reason = "almost all are whole")]
enum Seen {
    Whole(Event),
    /// Its texts are still in the database.
    Large {
        seq: i64,
        weight: usize,
    },
    /// The disk has damaged it.
    Damaged(i64),
}

impl Seen {
    fn of(row: &Row) -> Result<Seen, Error> {
        let (seq, large): (i64, Option<i64>) = (row.cell(0)?, row.cell(13)?);
        if let Some(size) = large {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            return Ok(Seen::Large { seq, weight: size.saturating_add(EVENT_OVERHEAD_BYTES) });
        }
        Ok(match event_of(row) {
            Ok(event) => Seen::Whole(event),
            Err(error) => Seen::damaged(seq, &error),
        })
    }

    fn damaged(seq: i64, error: &Error) -> Seen {
        if let Some(times) = UNREADABLE.note(&seq.to_string()) {
            tracing::error!(
                seq,
                %error,
                times,
                "an event in the log is damaged and is left out: restore a backup"
            );
        }
        Seen::Damaged(seq)
    }

    fn seq(&self) -> i64 {
        match self {
            Seen::Whole(event) => event.seq,
            Seen::Large { seq, .. } | Seen::Damaged(seq) => *seq,
        }
    }

    /// What it takes in memory.
    fn weight(&self) -> usize {
        match self {
            Seen::Whole(event) => event_bytes(event),
            Seen::Large { weight, .. } => *weight,
            Seen::Damaged(_) => 0,
        }
    }
}

/// Up to `max` events, and up to `bytes` of them but for the first. An event that the disk has
/// damaged is left out: those who follow the log for all accounts would otherwise stand still. If
/// the database itself cannot read it, a transaction ends with that, and the read fails.
pub async fn events(
    client: &Client,
    scope: Option<Scope>,
    after: i64,
    max: usize,
    bytes: usize,
) -> Result<EventPage, Error> {
    let (mut found, mut left, mut after) = (EventPage::default(), bytes, after);
    // Fewer at a time, up to an event that the database cannot read.
    let mut narrow = PART;
    loop {
        let fitting = left / EVENT_OVERHEAD_BYTES + 1;
        let most = (max - found.events.len()).min(fitting).min(narrow);
        let rows = match part(client, scope, after, (most, left)).await {
            Err(error) if most > 1 && is_unreadable(&error) => {
                narrow = most.div_ceil(8);
                continue;
            }
            rows => rows?,
        };
        let (is_last, mut fit) = (rows.len() < most, Vec::with_capacity(rows.len()));
        for row in rows {
            if row.weight() > left && !(fit.is_empty() && found.events.is_empty()) {
                found.more = true;
                break;
            }
            (left, after) = (left.saturating_sub(row.weight()), row.seq());
            match row {
                Seen::Damaged(_) => narrow = PART,
                row => fit.push(row),
            }
        }
        found.events.extend(whole(client, fit).await?);
        if found.events.len() >= max {
            found.more = true;
        } else if found.more && found.events.is_empty() {
            // What took the room could not be read.
            (found.more, left) = (false, bytes);
            continue;
        }
        if found.more || is_last {
            return Ok(found);
        }
    }
}

/// Those of these events that exist, up to `bytes` of them, but for the first one if there is
/// `none` yet. Also, how many of the list it is about.
pub async fn these(
    client: &Client,
    seqs: &[i64],
    bytes: usize,
    none: bool,
) -> Result<(HashMap<i64, Event>, usize), Error> {
    let rows = numbered(client, seqs, share(seqs.len(), bytes)).await?;
    let mut rows: HashMap<i64, Seen> = rows.into_iter().map(|row| (row.seq(), row)).collect();
    let (mut left, mut fit, mut reached) = (bytes, Vec::new(), 0);
    for seq in seqs {
        if let Some(row) = rows.remove(seq) {
            if row.weight() > left && !(none && fit.is_empty()) {
                break;
            }
            left = left.saturating_sub(row.weight());
            fit.push(row);
        }
        reached += 1;
    }
    let events = whole(client, fit).await?;
    Ok((events.into_iter().map(|event| (event.seq, event)).collect(), reached))
}

/// Up to what size a text is read with its row, so that all rows together have not much more than
/// is wanted.
fn share(rows: usize, bytes: usize) -> i64 {
    let share = bytes.min(PART_BYTES) / rows.max(1);
    i64::try_from(share.max(SMALL_BYTES)).unwrap_or(i64::MAX)
}

/// The next rows. Fails with more than one, if one of them cannot be read.
async fn part(
    client: &Client,
    scope: Option<Scope>,
    after: i64,
    (most, bytes): (usize, usize),
) -> Result<Vec<Seen>, Error> {
    let limit = share(most, bytes);
    let rows = match scope {
        None => query(client, OF_ALL, params![limit, most as i64, after]).await,
        Some(scope) => query(client, OF_SCOPE, params![limit, most as i64, after, scope.0]).await,
    };
    match rows {
        Err(error) if most == 1 && is_unreadable(&error) => {
            let next = match scope {
                None => client.row(NEXT, params![after]).await?,
                Some(scope) => client.row(NEXT_OF_SCOPE, params![after, scope.0]).await?,
            };
            let next: Option<i64> = next.map_or(Ok(None), |row| row.cell(0))?;
            let rows = numbered(client, next.as_slice(), limit).await?;
            // It may have been removed meanwhile. That is not the end of the log.
            let removed = next.filter(|_| rows.is_empty()).map(Seen::Damaged);
            Ok(rows.into_iter().chain(removed).collect())
        }
        rows => rows,
    }
}

/// Rows by their numbers. Each one that the database cannot read is damaged.
async fn numbered(client: &Client, seqs: &[i64], limit: i64) -> Result<Vec<Seen>, Error> {
    let together = params![limit, seqs.len() as i64, seqs.to_vec()];
    match query(client, THESE, together).await {
        Err(error) if is_unreadable(&error) => {}
        rows => return rows,
    }
    let mut rows = Vec::with_capacity(seqs.len());
    for seq in seqs {
        match query(client, THESE, params![limit, 1, vec![*seq]]).await {
            Err(error) if is_unreadable(&error) => {
                if !is_event_unreadable(client, *seq).await? {
                    return Err(error);
                }
                rows.push(Seen::damaged(*seq, &error));
            }
            row => rows.extend(row?),
        }
    }
    Ok(rows)
}

/// Whether the fault is in the event. If it is in the table of what is being erased, each event
/// looks damaged, and none may be left out.
async fn is_event_unreadable(client: &Client, seq: i64) -> Result<bool, Error> {
    match client.query(ERASES, params![seq]).await {
        // Its texts are what cannot be read.
        Ok(_) => return Ok(true),
        Err(error) if is_unreadable(&error) => {}
        Err(error) => return Err(error),
    }
    match client.query(ALONE, params![seq]).await {
        Ok(_) => Ok(false),
        Err(error) if is_unreadable(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

async fn query(client: &Client, sql: &str, values: &[Param<'_>]) -> Result<Vec<Seen>, Error> {
    client.query(sql, values).await?.iter().map(Seen::of).collect()
}

/// The events of rows; the large ones are read now. One that was removed in the meantime, or that
/// is damaged, is left out.
async fn whole(client: &Client, rows: Vec<Seen>) -> Result<Vec<Event>, Error> {
    let (mut groups, mut room): (Vec<Vec<i64>>, _) = (Vec::new(), 0);
    for row in &rows {
        let Seen::Large { seq, weight } = *row else { continue };
        match groups.last_mut() {
            Some(group) if weight <= room => group.push(seq),
            _ => {
                groups.push(vec![seq]);
                room = PART_BYTES;
            }
        }
        room = room.saturating_sub(weight);
    }
    let mut large = HashMap::new();
    for group in groups {
        for row in numbered(client, &group, i64::MAX).await? {
            large.insert(row.seq(), row);
        }
    }
    let event = |row: Seen| match row {
        Seen::Large { seq, .. } => match large.remove(&seq) {
            Some(Seen::Whole(event)) => Some(event),
            _ => None,
        },
        Seen::Whole(event) => Some(event),
        Seen::Damaged(_) => None,
    };
    Ok(rows.into_iter().filter_map(event).collect())
}

fn event_of(row: &Row) -> Result<Event, Error> {
    Ok(Event {
        seq: row.cell(0)?,
        id: row.cell(1)?,
        scope: Scope(row.cell(2)?),
        kind: row.cell(3)?,
        created: Timestamp(row.cell(4)?),
        collection: row.cell(5)?,
        record: decoded(row.cell(6)?),
        api_version: row.cell(7)?,
        object: row.cell(8)?,
        previous: row.cell(9)?,
        request: row.cell(10)?,
        idempotency_key: row.cell(11)?,
        hidden: row.cell(12)?,
    })
}
