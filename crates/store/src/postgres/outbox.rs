//! The tables of deliveries: outcomes, positions, retries. The writer writes them in transactions
//! of their own; the delivery engine reads them when it starts and when something is due. Knows no
//! rule of delivery.

use super::connect::{Cells, Client, Step};
use super::param::{Param, params};
use super::shared::Shared;
use super::{erasure, log};
use crate::outbox::{
    Delivery, EndpointState, EndpointStates, Failures, Outcome, Retries, Retry, Settlement, Status,
};
use crate::{Error, event_bytes};
use model::Timestamp;
use tokio_postgres::Row;

/// The row of `positions` for every endpoint without a row of its own. Row numbers of
/// endpoints begin with 1.
pub const HEAD: i64 = 0;

/// One outcome: makes the row of the delivery or changes it, and adds the attempt. A delivery that
/// succeeded stays succeeded: a replay that fails, or an attempt that was in flight when another
/// one succeeded, changes nothing. A requested retry makes it pending first, and it stays pending
/// if an attempt that was in flight fails. (`manual` counts the requests.) Two senders, a replay
/// and the schedule, may count the same attempt; rows are never lost. Without a row (its event was
/// removed while it was in flight) there is no attempt either. An attempt that has its row already,
/// perhaps without what an erasure has removed, changes nothing: a settlement is sent again if
/// nobody knows whether it was committed.
const KEEP: &str = concat!(
    "WITH made AS (INSERT INTO deliveries (id, scope, event, endpoint, status, \
     attempts, next, manual, created, updated) SELECT $1, $2, $3, $4, $5, $6, $7, 0, $8, $8 \
     WHERE $9::bigint IS NULL ON CONFLICT (event, endpoint) DO NOTHING RETURNING n), \
     changed AS (UPDATE deliveries SET \
     status = CASE WHEN status = 1 THEN 1 WHEN manual > $10 AND $5 <> 1 THEN 0 ELSE $5 END, \
     attempts = attempts + CASE WHEN $11::text IS NULL THEN 0 ELSE 1 END, \
     next = CASE WHEN status = 1 THEN NULL WHEN manual > $10 AND $5 <> 1 THEN next ELSE $7 END, \
     manual = CASE WHEN manual > $10 AND $5 <> 1 THEN manual ELSE 0 END, updated = $8 \
     WHERE event = $3 AND endpoint = $4 AND n = coalesce($9, n) AND \
     NOT EXISTS (SELECT 1 FROM made) AND NOT EXISTS (SELECT 1 FROM attempts a \
     WHERE a.delivery = deliveries.n AND CASE WHEN a.created = $8 THEN a.body IN ($11, ",
    erasure::without_response!("$11"),
    ") ELSE false END) RETURNING n) \
     INSERT INTO attempts (delivery, n, created, body) SELECT x.n, \
     coalesce((SELECT max(a.n) FROM attempts a WHERE a.delivery = x.n), 0) + 1, $8, $11 \
     FROM (SELECT n FROM made UNION ALL SELECT n FROM changed) x WHERE $11 IS NOT NULL"
);
/// Positions never go back: a late report of an earlier one changes nothing.
const POSITION: &str = "INSERT INTO positions (endpoint, seq) VALUES ($1, $2) \
    ON CONFLICT (endpoint) DO UPDATE SET seq = greatest(positions.seq, excluded.seq)";
const CAUGHT_UP: &str = "DELETE FROM positions WHERE endpoint = $1";
const PAUSE: &str = "INSERT INTO endpoint_states (endpoint, paused) VALUES ($1, $2) \
    ON CONFLICT (endpoint) DO UPDATE SET paused = excluded.paused";
const FAILURES: &str = "INSERT INTO endpoint_states (endpoint, failures, first_failure, \
    last_failure) VALUES ($1, $2, $3, $4) ON CONFLICT (endpoint) DO UPDATE SET \
    failures = excluded.failures, first_failure = excluded.first_failure, \
    last_failure = excluded.last_failure";
const GONE: &str = "DELETE FROM endpoint_states WHERE endpoint = $1";
const SETTLED: &str = "UPDATE settled SET n = n + 1 WHERE slot = $1";
const ENDPOINT_STATES: &str = "SELECT e.endpoint, p.seq, (SELECT min(d.next) FROM deliveries d \
    WHERE d.endpoint = e.endpoint AND d.status = 0), \
    s.paused, s.failures, s.first_failure, s.last_failure \
    FROM unnest($1::bigint[]) WITH ORDINALITY e(endpoint, place) \
    LEFT JOIN positions p ON p.endpoint = e.endpoint \
    LEFT JOIN endpoint_states s ON s.endpoint = e.endpoint ORDER BY e.place";
const REQUESTED_RETRIES: &str =
    "SELECT DISTINCT endpoint FROM deliveries WHERE status = 0 AND manual > 0";
/// Removes the response body to an event that was erased while the request was in flight.
fn clean_attempts() -> String {
    format!(
        "UPDATE attempts SET body = {} WHERE delivery = (SELECT n FROM deliveries WHERE \
         event = $1 AND endpoint = $2) AND EXISTS (SELECT 1 FROM log WHERE seq = $1 AND ({} OR \
         ({} -> 'erased')::text = 'true'))",
        erasure::without_response!("body"),
        erasure::erases!("log"),
        erasure::json!("object")
    )
}
/// Events are numbered in the order of their times.
const WAITING: &str = "SELECT e.endpoint, l.created FROM unnest($1::bigint[]) WITH ORDINALITY \
    e(endpoint, place) JOIN log l ON l.seq = (SELECT min(d.event) FROM deliveries d WHERE \
    d.endpoint = e.endpoint AND d.status = 0) ORDER BY e.place";
const NEWEST_RETRY: &str = "SELECT max(updated) FROM deliveries WHERE status = 0";
/// Those asked for come before everything that is due by itself.
const DUE_ASKED: &str = "SELECT d.n, d.id, d.event, d.status, d.attempts, d.next, d.manual \
    FROM deliveries d WHERE d.endpoint = $1 AND d.status = 0 AND d.manual > 0 AND \
    d.n <> ALL($2) ORDER BY d.next LIMIT $3";
const DUE: &str = "SELECT d.n, d.id, d.event, d.status, d.attempts, d.next, d.manual \
    FROM deliveries d WHERE d.endpoint = $1 AND d.status = 0 AND d.manual = 0 AND \
    d.n <> ALL($2) AND d.next <= $4 ORDER BY d.next LIMIT $3";
const NEXT: &str = "SELECT min(next) FROM deliveries WHERE endpoint = $1 AND status = 0 \
    AND next > $2";
const PENDING_RETRIES: &str = "SELECT e.record, e.seq FROM deliveries d \
    JOIN log e ON e.seq = d.event WHERE d.endpoint = $1 AND d.status = 0 \
    ORDER BY d.event LIMIT $2";
const SOME: &str = "SELECT d.n, d.id, d.event, d.status, d.attempts, d.next \
    FROM unnest($1::bigint[]) WITH ORDINALITY e(event, place) \
    JOIN deliveries d ON d.event = e.event AND d.endpoint = $2 ORDER BY e.place";
/// Changes `updated`, which is the version of a delivery: earlier ETags are out of date.
pub const RETRY: &str = "UPDATE deliveries SET status = 0, next = $2, manual = manual + 1, \
    updated = greatest(updated + 1, $2) WHERE n = $1 AND event > 0";

/// The statements of a settlement. Rows are changed in one order by all nodes.
pub fn steps(shared: &Shared, settlement: &Settlement) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut outcomes: Vec<&Outcome> = settlement.outcomes.iter().collect();
    outcomes.sort_by_key(|outcome| (outcome.event, outcome.endpoint));
    for outcome in outcomes {
        steps.push(keep(outcome));
        if shared.erased_lately() && outcome.attempt.is_some() {
            let values = params![outcome.event, outcome.endpoint];
            steps.push(Step::new(clean_attempts(), values));
        }
    }
    let mut positions = settlement.positions.clone();
    positions.extend(settlement.head.map(|head| (HEAD, Some(head))));
    positions.sort_by_key(|(endpoint, _)| *endpoint);
    for (endpoint, seq) in positions {
        steps.push(match seq {
            Some(seq) => Step::new(POSITION, params![endpoint, seq]),
            None => Step::new(CAUGHT_UP, params![endpoint]),
        });
    }
    for (endpoint, until) in &settlement.pauses {
        steps.push(Step::new(PAUSE, params![*endpoint, until.0]));
    }
    for (endpoint, failures) in &settlement.failures {
        let first = failures.map(|failures| failures.first.0);
        let last = failures.map(|failures| failures.last.0);
        let count = failures.map(|failures| i64::from(failures.count));
        steps.push(Step::new(FAILURES, params![*endpoint, count, first, last]));
    }
    for endpoint in &settlement.gone {
        steps.push(Step::new(CAUGHT_UP, params![*endpoint]));
        steps.push(Step::new(GONE, params![*endpoint]));
    }
    steps.push(Step::new(SETTLED, params![shared.slot]));
    steps
}

fn keep(outcome: &Outcome) -> Step {
    let values = params![
        &outcome.id,
        outcome.scope.0,
        outcome.event,
        outcome.endpoint,
        outcome.status as i64,
        i64::from(outcome.attempts),
        outcome.next.map(|next| next.0),
        outcome.now.0,
        outcome.number,
        outcome.asked,
        outcome.attempt.as_deref()
    ];
    Step::new(KEEP, values)
}

/// The endpoint gets no event up to here any more. An endpoint without a position of its own has
/// reached the head, and the engine would not know a row that was created for it.
pub async fn pass(client: &Client, endpoint: i64, seq: i64) -> Result<(), Error> {
    let sql = "UPDATE positions SET seq = greatest(seq, $2) WHERE endpoint = $1";
    client.execute(sql, params![endpoint, seq]).await.map(drop)
}

pub async fn endpoint_states(
    client: &Client,
    endpoints: Vec<i64>,
) -> Result<EndpointStates, Error> {
    let head = "SELECT seq FROM positions WHERE endpoint = $1";
    let head = client.row(head, params![HEAD]).await?;
    let head = head.map(|row| row.cell(0)).transpose()?;
    let mut states = EndpointStates { head, endpoints: Vec::new() };
    for row in client.query(ENDPOINT_STATES, params![endpoints]).await? {
        let state = endpoint_state(&row)?;
        let moments = state.due.or(state.paused);
        if state.position.is_some() || moments.is_some() || state.failures.is_some() {
            states.endpoints.push(state);
        }
    }
    Ok(states)
}

fn endpoint_state(row: &Row) -> Result<EndpointState, Error> {
    let moment = |place: usize| -> Result<Option<Timestamp>, Error> {
        Ok(row.cell::<Option<i64>>(place)?.map(Timestamp))
    };
    let failures = match (row.cell::<Option<i64>>(4)?, moment(5)?, moment(6)?) {
        (Some(count), Some(first), Some(last)) => {
            Some(Failures { count: u32::try_from(count).unwrap_or(u32::MAX), first, last })
        }
        _ => None,
    };
    Ok(EndpointState {
        endpoint: row.cell(0)?,
        position: row.cell(1)?,
        due: moment(2)?,
        paused: moment(3)?,
        failures,
    })
}

pub async fn requested_retries(client: &Client) -> Result<Vec<i64>, Error> {
    let rows = client.query(REQUESTED_RETRIES, &[]).await?;
    rows.iter().map(|row| row.cell(0)).collect()
}

pub async fn pending_retries(
    client: &Client,
    endpoint: i64,
    max: usize,
) -> Result<Vec<(String, i64)>, Error> {
    let rows = client.query(PENDING_RETRIES, params![endpoint, max as i64]).await?;
    rows.iter().map(|row| Ok((row.cell(0)?, row.cell(1)?))).collect()
}

pub async fn waiting(client: &Client, endpoints: Vec<i64>) -> Result<Vec<(i64, Timestamp)>, Error> {
    let rows = client.query(WAITING, params![endpoints]).await?;
    rows.iter().map(|row| Ok((row.cell(0)?, Timestamp(row.cell(1)?)))).collect()
}

pub async fn newest_retry(client: &Client) -> Result<Option<Timestamp>, Error> {
    let row = client.row(NEWEST_RETRY, &[]).await?;
    let newest: Option<i64> = row.map_or(Ok(None), |row| row.cell(0))?;
    Ok(newest.map(Timestamp))
}

pub async fn retries(
    client: &Client,
    endpoint: i64,
    now: Timestamp,
    max: usize,
    bytes: usize,
) -> Result<Retries, Error> {
    let (mut due, mut left, mut handled) = (Vec::new(), bytes, Vec::new());
    loop {
        let most = max - due.len();
        let rows = due_rows(client, (endpoint, now), most, &handled).await?;
        let seqs: Vec<i64> = rows.iter().map(|(delivery, _)| delivery.event).collect();
        let (mut events, reached) = log::these(client, &seqs, left, due.is_empty()).await?;
        let (is_last, is_full) = (rows.len() < most, reached < rows.len());
        for (delivery, asked) in rows.into_iter().take(reached) {
            handled.push(delivery.number);
            // Those without a readable event take the place of no other.
            let Some(event) = events.remove(&delivery.event) else { continue };
            left = left.saturating_sub(event_bytes(&event));
            due.push(Retry { delivery, asked, event });
        }
        if due.len() >= max || is_full && !due.is_empty() {
            return Ok(Retries { due, next: Some(now) });
        }
        if is_last && !is_full {
            break;
        }
    }
    let next = client.row(NEXT, params![endpoint, now.0]).await?;
    let next: Option<i64> = next.map_or(Ok(None), |row| row.cell(0))?;
    Ok(Retries { due, next: next.map(Timestamp) })
}

/// Deliveries that are due, but for some, each with the number of requests to try it again.
async fn due_rows(
    client: &Client,
    (endpoint, now): (i64, Timestamp),
    most: usize,
    but: &[i64],
) -> Result<Vec<(Delivery, i64)>, Error> {
    let asked = params![endpoint, but.to_vec(), most as i64];
    let mut rows = client.query(DUE_ASKED, asked).await?;
    let most = most.saturating_sub(rows.len()) as i64;
    rows.extend(client.query(DUE, params![endpoint, but.to_vec(), most, now.0]).await?);
    rows.iter().map(|row| Ok((delivery_of(row)?, row.cell(6)?))).collect()
}

pub async fn deliveries(
    client: &Client,
    endpoint: i64,
    events: &[i64],
) -> Result<Vec<Delivery>, Error> {
    let values: [Param<'_>; 2] = [events.to_vec().into(), endpoint.into()];
    client.query(SOME, &values).await?.iter().map(delivery_of).collect()
}

fn delivery_of(row: &Row) -> Result<Delivery, Error> {
    Ok(Delivery {
        number: row.cell(0)?,
        id: row.cell(1)?,
        event: row.cell(2)?,
        status: match row.cell::<i64>(3)? {
            0 => Status::Pending,
            1 => Status::Succeeded,
            2 => Status::Failed,
            _ => Status::Skipped,
        },
        attempts: u32::try_from(row.cell::<i64>(4)?).unwrap_or(u32::MAX),
        next: row.cell::<Option<i64>>(5)?.map(Timestamp),
    })
}
