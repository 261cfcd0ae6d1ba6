//! Erasing what events show of one resource, on request. The request commits at once, and no read
//! returns the payloads from then on: the resource is in the table `erasing`, which every read of
//! the log checks in its own snapshot. The rows themselves are cleaned in slices, by one node at a
//! time, also after a restart. Ids and outcomes of erased events stay.

use super::connect::{Cells, Client};
use super::idempotency;
use super::param::params;
use crate::Error;
use crate::writer::Turns;
use model::Scope;
use std::time::{Duration, Instant};

/// Rows cleaned in one slice at most.
const SLICE_ROWS: usize = 500;
/// How long a slice takes: the next commit of this node waits for it.
const SLICE_TIME: Duration = Duration::from_millis(20);

/// Whether the event of a row of the log is to be erased. The argument is the name of the table.
macro_rules! erases {
    ($log:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM erasing x WHERE x.scope = ",
            $log,
            ".scope AND x.record = ",
            $log,
            ".record AND x.upto > ",
            $log,
            ".seq)"
        )
    };
}

/// A stored text as the database's JSON, whose strings have no NUL: U+FFFD takes its place. Two
/// backslashes before it are one of the text. The arguments together are the text.
macro_rules! json {
    ($($text:literal),+) => {
        concat!(
            "(CASE WHEN strpos(",
            $($text,)+
            r", '\u0000') = 0 THEN ",
            $($text,)+
            " ELSE regexp_replace(",
            $($text,)+
            r", '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g') END)::json"
        )
    };
}

/// What is left of an event's object.
macro_rules! remains {
    ($log:literal) => {
        concat!(
            "'{\"id\":' || to_json(",
            $log,
            ".record)::text || ',\"object\":' || coalesce((",
            $crate::postgres::erasure::json!($log, ".object"),
            " -> 'object')::text, 'null') || ',\"erased\":true}'"
        )
    };
}

/// The object of an event, as it may be read. The optional last argument of this and the next two
/// is a column that says whether the event is to be erased, where that was worked out before.
macro_rules! object {
    ($log:literal) => {
        $crate::postgres::erasure::object!($log, $crate::postgres::erasure::erases!($log))
    };
    ($log:literal, $erases:expr) => {
        concat!(
            "CASE WHEN ",
            $erases,
            " THEN ",
            $crate::postgres::erasure::remains!($log),
            " ELSE ",
            $log,
            ".object END"
        )
    };
}

/// Another text of an event that an erasure removes, as it may be read.
macro_rules! or_null {
    ($log:literal, $column:literal) => {
        $crate::postgres::erasure::or_null!($log, $column, $crate::postgres::erasure::erases!($log))
    };
    ($log:literal, $column:literal, $erases:expr) => {
        concat!("CASE WHEN ", $erases, " THEN NULL ELSE ", $log, ".", $column, " END")
    };
}

/// What caused an event, as it may be read: the request stays, who made it is erased.
macro_rules! origin {
    ($log:literal) => {
        $crate::postgres::erasure::origin!($log, $crate::postgres::erasure::erases!($log))
    };
    ($log:literal, $erases:expr) => {
        concat!(
            "CASE WHEN ",
            $erases,
            " THEN split_part(",
            $log,
            ".request, ' ', 1) ELSE ",
            $log,
            ".request END"
        )
    };
}

/// The text of an attempt without what the endpoint answered; everything else as it was written,
/// but for NUL. The argument is the column.
macro_rules! without_response {
    ($body:literal) => {
        concat!(
            "(SELECT '{' || string_agg(to_json(e.key)::text || ':' || CASE WHEN e.key = ",
            "'response_body' THEN 'null' ELSE e.value::text END, ',' ORDER BY e.place) || '}' ",
            "FROM json_each(",
            $crate::postgres::erasure::json!($body),
            ") WITH ORDINALITY e(key, value, place))"
        )
    };
}
pub(super) use {erases, json, object, or_null, origin, remains, without_response};

pub const COUNT: &str = "SELECT count(*) FROM log WHERE scope = $1 AND record = $2 \
    AND seq > $3 AND seq <= $4";
/// From the commit of this on, no read returns what events before a sequence show of a resource.
pub const BEGIN: &str = "INSERT INTO erasing (scope, record, upto, answers, seq, delivery, answer) \
    SELECT $1, $2, $3, coalesce(max(n), 0), 0, 0, 0 FROM remembered \
    ON CONFLICT (scope, record) DO UPDATE SET upto = excluded.upto, answers = excluded.answers";
const NEXT: &str = "SELECT scope, record, upto, answers, seq, delivery, answer, attempt, told \
    FROM erasing WHERE (scope, record) > ($1, $2) ORDER BY scope, record LIMIT 1";
const SAVE: &str = "UPDATE erasing SET seq = $3, delivery = $4, answer = $5, attempt = $6, \
    told = $7 WHERE scope = $1 AND record = $2";
const END: &str = "DELETE FROM erasing WHERE scope = $1 AND record = $2 AND upto = $3 \
    AND answers = $4";
const EVENT: &str = "SELECT seq FROM log WHERE scope = $1 AND record = $2 AND seq >= $3 \
    AND seq < $4 ORDER BY seq LIMIT 1";
const DELIVERIES: &str = "SELECT n FROM deliveries WHERE event = $1 AND n > $2 ORDER BY n LIMIT $3";
const ATTEMPTS: &str = "SELECT n FROM attempts WHERE delivery = $1 AND n > $2 ORDER BY n LIMIT $3";
const CLEAN_ATTEMPT: &str = concat!(
    "UPDATE attempts SET body = ",
    without_response!("body"),
    " WHERE delivery = $1 AND n = $2"
);
const CLEAN_EVENT: &str = concat!(
    "UPDATE log SET object = ",
    remains!("log"),
    ", previous = NULL, hidden = NULL, idempotency_key = NULL, \
     request = split_part(request, ' ', 1) WHERE seq = $1"
);

/// How many events are about a resource, after the first sequence and up to the second.
pub async fn count(
    client: &Client,
    scope: Scope,
    resource: &str,
    (after, upto): (i64, i64),
) -> Result<i64, Error> {
    let row = client.row(COUNT, params![scope.0, resource, after, upto]).await?;
    row.map_or(Ok(0), |row| row.cell(0))
}

/// Whether anything is left to do.
pub async fn is_pending(client: &Client) -> Result<bool, Error> {
    Ok(client.row("SELECT 1::bigint FROM erasing LIMIT 1", &[]).await?.is_some())
}

/// An erasure that is not finished.
struct Pending {
    scope: i64,
    record: String,
    upto: i64,
    answers: i64,
    seq: i64,
    delivery: i64,
    answer: i64,
    attempt: i64,
    told: i64,
}

impl Pending {
    /// Everything before this event is clean.
    fn come_to(&mut self, seq: i64) {
        (self.seq, self.delivery, self.attempt, self.told) = (seq, 0, 0, 0);
    }
}

/// Cleans some rows of the one erasure that has its turn. Returns whether any is left.
pub async fn slice(client: &Client, turns: &mut Turns) -> Result<bool, Error> {
    let mut pending = match next(client, turns).await? {
        Ok(pending) => pending,
        Err(left) => return Ok(left),
    };
    let mut budget = Budget { began: Instant::now(), rows: SLICE_ROWS };
    let finished = clean_answers(client, &mut pending, &mut budget).await?
        && clean_events(client, &mut pending, &mut budget).await?;
    let Pending { scope, ref record, upto, answers, seq, delivery, answer, attempt, told } =
        pending;
    let ended = match finished {
        // Unless it was asked for again in the meantime.
        true => client.execute(END, params![scope, record, upto, answers]).await?,
        false => 0,
    };
    if ended == 0 {
        let (seq, delivery) = if finished { (0, 0) } else { (seq, delivery) };
        let values = params![scope, record, seq, delivery, answer, attempt, told];
        client.execute(SAVE, values).await?;
    }
    Ok(true)
}

/// The erasure that has its turn now; otherwise whether any is left.
async fn next(client: &Client, turns: &mut Turns) -> Result<Result<Pending, bool>, Error> {
    let mut left = false;
    for mut after in turns.starts() {
        while let Some(row) = client.row(NEXT, params![after.0, &after.1]).await? {
            let (scope, record) = (row.cell(0)?, super::param::decoded(row.cell(1)?));
            if turns.take(scope, &record) {
                return Ok(Ok(Pending {
                    scope,
                    record,
                    upto: row.cell(2)?,
                    answers: row.cell(3)?,
                    seq: row.cell(4)?,
                    delivery: row.cell(5)?,
                    answer: row.cell(6)?,
                    attempt: row.cell(7)?,
                    told: row.cell(8)?,
                }));
            }
            left = true;
            after = (scope, record);
        }
    }
    Ok(Err(left))
}

/// What is left of a slice.
struct Budget {
    began: Instant,
    rows: usize,
}

impl Budget {
    /// Counts one row; `false` when the slice is over.
    fn take(&mut self) -> bool {
        self.rows = self.rows.saturating_sub(1);
        self.rows > 0 && self.began.elapsed() < SLICE_TIME
    }
}

/// Cleans answers that were remembered for requests about the resource; whether all are clean.
async fn clean_answers(
    client: &Client,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, Error> {
    loop {
        let bounds = (pending.answer, pending.answers);
        let next = idempotency::next_about(client, pending.scope, &pending.record, bounds).await?;
        let Some(n) = next else { return Ok(true) };
        idempotency::erase(client, n, None).await?;
        pending.answer = n;
        if !budget.take() {
            return Ok(false);
        }
    }
}

/// Cleans events and what endpoints answered to them; whether all are clean.
async fn clean_events(
    client: &Client,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, Error> {
    loop {
        let bounds = params![pending.scope, &pending.record, pending.seq, pending.upto];
        let Some(row) = client.row(EVENT, bounds).await? else { return Ok(true) };
        let seq = row.cell(0)?;
        if seq != pending.seq {
            pending.come_to(seq);
        }
        if !clean_deliveries(client, pending, budget).await?
            || !clean_told(client, pending, budget).await?
        {
            return Ok(false);
        }
        client.execute(CLEAN_EVENT, params![seq]).await?;
        pending.come_to(seq + 1);
        if !budget.take() {
            return Ok(false);
        }
    }
}

/// Cleans stored responses that show what the event at `pending.seq` shows. One event may have any
/// number of them: each update that changed nothing leaves one.
async fn clean_told(
    client: &Client,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, Error> {
    loop {
        let told = idempotency::showing_event(client, pending.seq, pending.told, SLICE_ROWS);
        let told = told.await?;
        if told.is_empty() {
            return Ok(true);
        }
        for (n, about) in told {
            // Answers about the resource itself were cleaned before any event.
            let is_clean = n <= pending.answers && about.as_ref() == Some(&pending.record);
            if !is_clean {
                idempotency::erase(client, n, Some(&pending.record)).await?;
            }
            pending.told = n;
            if !budget.take() {
                return Ok(false);
            }
        }
    }
}

/// Removes the bodies that endpoints answered with to the event at `pending.seq`.
async fn clean_deliveries(
    client: &Client,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, Error> {
    loop {
        let rows = page(client, DELIVERIES, pending.seq, pending.delivery).await?;
        if rows.is_empty() {
            return Ok(true);
        }
        for delivery in rows {
            if !clean_attempts(client, delivery, pending, budget).await? {
                return Ok(false);
            }
            (pending.delivery, pending.attempt) = (delivery, 0);
            if !budget.take() {
                return Ok(false);
            }
        }
    }
}

/// A delivery may have any number of attempts: each requested retry adds one.
async fn clean_attempts(
    client: &Client,
    delivery: i64,
    pending: &mut Pending,
    budget: &mut Budget,
) -> Result<bool, Error> {
    loop {
        let rows = page(client, ATTEMPTS, delivery, pending.attempt).await?;
        if rows.is_empty() {
            return Ok(true);
        }
        for attempt in rows {
            client.execute(CLEAN_ATTEMPT, params![delivery, attempt]).await?;
            pending.attempt = attempt;
            if !budget.take() {
                return Ok(false);
            }
        }
    }
}

/// Numbers of the next rows after one of them: no more than a slice takes.
async fn page(client: &Client, sql: &str, of: i64, after: i64) -> Result<Vec<i64>, Error> {
    let most = i64::try_from(SLICE_ROWS).unwrap_or(i64::MAX);
    let rows = client.query(sql, params![of, after, most]).await?;
    rows.iter().map(|row| row.cell(0)).collect()
}
