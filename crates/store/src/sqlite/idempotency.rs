//! Remembered answers. A narrow row per key, made in the commit of the write it belongs to: records
//! are rebuilt from their event, so no body is kept twice. Knows no rule.

use crate::Remembered;
use model::problem::Problem;
use model::write::Response;
use model::{Record, Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

/// How long a key is remembered (design, section 4).
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;
/// Most expired rows removed at once: a commit must not wait for more.
const EXPIRED_AT_ONCE: i64 = 500;

const CREATED: i64 = 0;
const UPDATED: i64 = 1;
const REFUSED: i64 = 2;
const DELETED: i64 = 3;

const FIND: &str = "SELECT r.fingerprint, r.created, r.kind, r.seq, r.number, r.updated, \
    coalesce(r.record, l.record), coalesce(r.text, l.object), r.request \
    FROM remembered r LEFT JOIN log l ON l.seq = r.seq WHERE r.scope = ?1 AND r.digest = ?2";
const KEEP: &str = "INSERT OR REPLACE INTO remembered (scope, digest, fingerprint, created, kind, \
    seq, number, updated, record, text, request) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
    ?11)";
/// Rows are numbered in time order, so the oldest are found without an index on time.
const EXPIRE: &str = "DELETE FROM remembered WHERE n <= (SELECT max(n) FROM \
    (SELECT n, created FROM remembered ORDER BY n LIMIT ?1) WHERE created <= ?2)";

fn digest(key: &str) -> [u8; 16] {
    let hash = Sha256::digest(key.as_bytes());
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash[..16]);
    digest
}

/// What the key answered, unless that is too long ago.
pub fn find(
    connection: &Connection,
    scope: Scope,
    key: &str,
    now: Timestamp,
) -> Result<Option<Remembered>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(FIND)?;
    let found = statement
        .query_row(params![scope.0, digest(key)], |row| {
            let created: i64 = row.get(1)?;
            if created <= now.0 - KEPT_MS {
                return Ok(None);
            }
            let (id, text): (Option<String>, Option<String>) = (row.get(6)?, row.get(7)?);
            let (id, text) = (id.unwrap_or_default(), text.unwrap_or_default());
            let record = |id, body| -> Result<Record, rusqlite::Error> {
                Ok(Record {
                    id,
                    number: row.get(4)?,
                    version: row.get(3)?,
                    updated: Timestamp(row.get(5)?),
                    body,
                    hidden: None,
                })
            };
            let response = match row.get::<_, i64>(2)? {
                CREATED => Response::Created(record(id, text)?),
                UPDATED => Response::Updated(record(id, text)?),
                DELETED => Response::Deleted { id },
                _ => Response::Refused(serde_json::from_str(&text).unwrap_or_else(|_| {
                    Problem::new(model::Code::Internal, "the remembered answer is unreadable")
                })),
            };
            Ok(Some(Remembered { fingerprint: row.get(0)?, response, request: row.get(8)? }))
        })
        .optional()?;
    Ok(found.flatten())
}

/// What to keep of a write's answer.
pub struct Keeping<'a> {
    pub scope: Scope,
    pub key: &'a str,
    pub fingerprint: &'a [u8; 32],
    pub request: &'a str,
    pub now: Timestamp,
    /// Whether the write's last event holds the body that was answered.
    pub has_event: bool,
}

pub fn keep(
    connection: &Connection,
    keeping: &Keeping<'_>,
    response: &Response,
) -> Result<(), rusqlite::Error> {
    let none = || (0, 0, 0);
    let whole = |record: &Record| (record.version, record.number, record.updated.0);
    let (kind, (seq, number, updated), record, text) = match response {
        Response::Created(record) => (CREATED, whole(record), record_text(keeping, record), None),
        Response::Updated(record) => (UPDATED, whole(record), record_text(keeping, record), None),
        Response::Deleted { id } => (DELETED, none(), Some((id.as_str(), None)), None),
        Response::Refused(problem) => {
            let text = serde_json::to_string(problem)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
            (REFUSED, none(), None, Some(text))
        }
    };
    let (id, body) = record.map_or((None, None), |(id, body)| (Some(id), body));
    connection.prepare_cached(KEEP)?.execute(params![
        keeping.scope.0,
        digest(keeping.key),
        keeping.fingerprint,
        keeping.now.0,
        kind,
        seq,
        number,
        updated,
        id,
        text.as_deref().or(body),
        keeping.request
    ])?;
    Ok(())
}

/// An answer without an event of its own (an update that changed nothing) keeps its record whole.
fn record_text<'a>(
    keeping: &Keeping<'_>,
    record: &'a Record,
) -> Option<(&'a str, Option<&'a str>)> {
    (!keeping.has_event).then_some((record.id.as_str(), Some(record.body.as_str())))
}

/// Removes some expired rows; true when more may be left.
pub fn expire(connection: &Connection, now: Timestamp) -> Result<bool, rusqlite::Error> {
    let mut statement = connection.prepare_cached(EXPIRE)?;
    let removed = statement.execute(params![EXPIRED_AT_ONCE, now.0 - KEPT_MS])?;
    Ok(removed as i64 == EXPIRED_AT_ONCE)
}
