//! Collections that are not stored as records: the log as `events`, deliveries and their attempts.
//! Each is a subquery with the columns that every list and read expects.

use super::connect::Cells;
use super::erasure;
use super::layout::{Source, Table, quote, table_name};
use crate::Error;
use crate::rendering::{self, DeliveryRow, STATUSES};
use model::event::Event;
use model::query::{Filter, Test};
use model::record::Scalar;
use model::schema::Builtin;
use model::{Record, Schema, Scope, Timestamp};
use tokio_postgres::Row;

/// What is selected of an event: the usual columns, then what its envelope needs, then how many
/// deliveries are still to come: rows that wait, and endpoints that have not come so far.
pub fn events_select(schema: &Schema) -> String {
    let endpoints = endpoints_table(schema);
    format!(
        "t.n, t.id, t.version, t.updated, t.shape, t.body, t.hidden, t.f_type, t.scope, \
         t.api_version, t.request, t.idempotency_key, \
         (SELECT count(*) FROM deliveries d WHERE d.event = t.n AND d.status = 0) + \
         (SELECT count(*) FROM {endpoints} w WHERE {}), t.collection, t.aside",
        waits()
    )
}

/// The position of the endpoint `w`; without a row of its own, that of the head of its bucket (see
/// `cluster::head_of`), or of the head of all (see `outbox::HEAD`).
pub const POSITION_OF_ENDPOINT: &str = "coalesce((SELECT p.seq FROM positions p WHERE \
    p.endpoint = w.n), greatest(w.n, coalesce((SELECT p.seq FROM positions p WHERE \
    p.endpoint = -1 - (((((w.scope >> 1) & 65535) * 40503) & 65535) >> 8)), \
    (SELECT p.seq FROM positions p WHERE p.endpoint = 0), 0)))";

/// Whether a text matches a pattern with `*`; both are SQL.
pub fn like(text: &str, pattern: &str) -> String {
    format!(
        "{text} LIKE replace(replace(replace(replace({pattern}, '\\', '\\\\'), '%', '\\%'), \
         '_', '\\_'), '*', '%')"
    )
}

/// Whether the event `t` is still to be delivered to the endpoint `w`.
fn waits() -> String {
    format!(
        "w.scope = t.scope AND w.f_status = 'enabled' AND t.n > {POSITION_OF_ENDPOINT} AND NOT \
         EXISTS (SELECT 1 FROM deliveries d WHERE d.event = t.n AND d.endpoint = w.n) AND \
         (t.f_type = 'ping' AND t.f_resource = w.id OR t.f_type <> 'ping' AND EXISTS (SELECT 1 \
         FROM json_array_elements_text({} -> 'enabled_events') j(value) WHERE {} AND \
         (j.value <> '*' OR split_part(t.f_type, '.', 1) NOT IN ('webhook_endpoint', 'replay', \
         'erasure') OR strpos(t.f_type, '.') = 0)))",
        erasure::json!("w.body"),
        like("t.f_type", "j.value")
    )
}

pub fn deliveries_select(schema: &Schema) -> String {
    let endpoints = endpoints_table(schema);
    format!(
        "t.n, t.id, t.version, t.updated, t.shape, t.body, t.hidden, t.created, t.status_n, \
         t.f_attempts, t.f_next_attempt_at, (SELECT e.id FROM log e WHERE e.seq = t.event_n), \
         (SELECT w.id FROM {endpoints} w WHERE w.n = t.endpoint_n), t.event_n, \
         (SELECT e.type FROM log e WHERE e.seq = t.event_n)"
    )
}

pub fn endpoints_table(schema: &Schema) -> String {
    let name = schema.collections.get(schema.own(Builtin::Endpoint)).map(|c| c.name.as_str());
    quote(&table_name(name.unwrap_or("webhook-endpoints")))
}

/// The subquery of a view.
pub fn definition(source: Source) -> Option<String> {
    Some(match source {
        Source::Rows => return None,
        // Keys and accounts are the service's business alone.
        Source::Events => concat!(
            "SELECT seq AS n, id, scope, NULL::text AS parent, seq AS version, created, created \
             AS updated, 1::bigint AS shape, ",
            erasure::object!("log"),
            " AS body, ",
            erasure::or_null!("log", "previous"),
            " AS hidden, type AS f_type, created / 1000 AS f_created, record AS f_resource, \
             api_version, ",
            erasure::origin!("log"),
            " AS request, ",
            erasure::or_null!("log", "idempotency_key"),
            " AS idempotency_key, collection, ",
            erasure::or_null!("log", "hidden"),
            " AS aside FROM log WHERE collection NOT IN ('accounts', 'keys')"
        )
        .to_owned(),
        Source::Deliveries => "SELECT n, id, scope, NULL::text AS parent, updated AS version, \
             created, updated, 1::bigint AS shape, ''::text AS body, NULL::text AS hidden, \
             event AS event_n, endpoint AS endpoint_n, status AS status_n, \
             attempts AS f_attempts, next AS f_next_attempt_at FROM deliveries"
            .to_owned(),
        Source::Attempts => format!(
            "SELECT a.n AS n, ''::text AS id, d.scope AS scope, d.id AS parent, a.n AS version, \
             a.created AS created, a.created AS updated, 1::bigint AS shape, \
             CASE WHEN EXISTS (SELECT 1 FROM log WHERE log.seq = d.event AND {}) \
             THEN {} ELSE a.body END AS body, NULL::text AS hidden, d.id AS f_delivery \
             FROM deliveries d JOIN attempts a ON a.delivery = d.n",
            erasure::erases!("log"),
            erasure::without_response!("a.body")
        ),
    })
}

/// The record that a row of a view is.
pub fn record_of(row: &Row, table: &Table) -> Result<Record, Error> {
    match table.source {
        Source::Events => {
            let versions = table.versions.as_deref();
            let pending = u32::try_from(row.cell::<i64>(12)?).unwrap_or(u32::MAX);
            return Ok(rendering::event(&event_of(row)?, versions, pending));
        }
        Source::Deliveries => return Ok(delivery_of(row)?.record()),
        Source::Rows | Source::Attempts => {}
    }
    Ok(Record {
        number: row.cell(0)?,
        id: row.cell(1)?,
        version: row.cell(2)?,
        updated: Timestamp(row.cell(3)?),
        body: row.cell(5)?,
        hidden: None,
    })
}

/// An event from a row of `events_select`.
fn event_of(row: &Row) -> Result<Event, Error> {
    Ok(Event {
        seq: row.cell(0)?,
        id: row.cell(1)?,
        scope: Scope(row.cell(8)?),
        kind: row.cell(7)?,
        created: Timestamp(row.cell(3)?),
        collection: row.cell(13)?,
        record: String::new(),
        api_version: row.cell(9)?,
        object: row.cell(5)?,
        previous: row.cell(6)?,
        hidden: row.cell(14)?,
        request: row.cell(10)?,
        idempotency_key: row.cell(11)?,
    })
}

/// A delivery from a row of `deliveries_select`.
pub fn delivery_of(row: &Row) -> Result<DeliveryRow, Error> {
    Ok(DeliveryRow {
        number: row.cell(0)?,
        id: row.cell(1)?,
        status: row.cell(8)?,
        attempts: row.cell(9)?,
        next: row.cell::<Option<i64>>(10)?.map(Timestamp),
        created: Timestamp(row.cell(7)?),
        updated: Timestamp(row.cell(3)?),
        event_seq: row.cell(13)?,
        event: row.cell(11)?,
        event_type: row.cell(14)?,
        endpoint: row.cell(12)?,
    })
}
/// The condition of a filter that is no plain column of its view, and its values.
pub fn filter(schema: &Schema, table: &Table, filter: &Filter) -> Option<(String, Vec<Scalar>)> {
    let Test::AnyOf(values) = &filter.test else { return None };
    let marks = vec!["?"; values.len()].join(", ");
    let endpoints = endpoints_table(schema);
    let numbers = || values.iter().map(status_number).collect::<Vec<_>>();
    Some(match (table.source, filter.field.as_str()) {
        (Source::Events, "delivery") => {
            let rows = format!(
                "EXISTS (SELECT 1 FROM deliveries d WHERE d.event = t.n AND d.status IN ({marks}))"
            );
            let pending = values.contains(&Scalar::Text(STATUSES[0].to_owned()));
            let text = match pending {
                true => {
                    format!("({rows} OR EXISTS (SELECT 1 FROM {endpoints} w WHERE {}))", waits())
                }
                false => rows,
            };
            (text, numbers())
        }
        (Source::Deliveries, "event") => {
            let text = format!("t.event_n IN (SELECT e.seq FROM log e WHERE e.id IN ({marks}))");
            (text, values.clone())
        }
        (Source::Deliveries, "endpoint") => {
            let text =
                format!("t.endpoint_n IN (SELECT w.n FROM {endpoints} w WHERE w.id IN ({marks}))");
            (text, values.clone())
        }
        (Source::Deliveries, "status") => {
            let numbers = numbers();
            // The database uses the index of open deliveries only if success is excluded.
            let open =
                if numbers.contains(&Scalar::Integer(1)) { "" } else { "t.status_n <> 1 AND " };
            let test = match numbers.len() {
                1 => "= ?".to_owned(),
                _ => format!("IN ({marks})"),
            };
            (format!("{open}t.status_n {test}"), numbers)
        }
        _ => return None,
    })
}

fn status_number(value: &Scalar) -> Scalar {
    let place = match value {
        Scalar::Text(text) => STATUSES.iter().position(|status| status == text),
        _ => None,
    };
    Scalar::Integer(place.map_or(-1, |place| place as i64))
}
