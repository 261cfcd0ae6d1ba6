//! `restive events show`: shows one event and, in the readable format, its delivery to each
//! endpoint.

use crate::accounts::text_of;
use crate::args::{Format, Show};
use crate::event_id::find;
use crate::text::{indented, printable};
use crate::{data, output};
use model::query::{Filter, Page, Query, SortKey, Test};
use model::record::{Fields, Scalar};
use model::schema::Builtin;
use model::{Schema, Scope};
use serde_json::Value;
use store::Store;

/// Maximum deliveries shown; an event has one per endpoint.
const DELIVERIES: u32 = 500;

pub fn run(show: &Show) -> anyhow::Result<()> {
    let (schema, store) = data::attach(&show.data)?;
    let text = data::block_on(async {
        let (scope, event) = find(&schema, &*store, &show.id).await?;
        match show.format.or(show.output) {
            Format::Json => Ok(format!("{}\n", event.body)),
            Format::Pretty => {
                let table = deliveries(&schema, &*store, scope, &event.id, &event.fields()).await?;
                let envelope: Vec<String> = indented(&event.body).lines().map(printable).collect();
                Ok(format!("{}\n\n{table}", envelope.join("\n")))
            }
        }
    })?;
    output::print(&text)
}

async fn deliveries(
    schema: &Schema,
    store: &dyn Store,
    scope: Scope,
    id: &str,
    envelope: &Fields,
) -> anyhow::Result<String> {
    let of_event =
        Filter { field: "event".into(), test: Test::AnyOf(vec![Scalar::Text(id.to_owned())]) };
    let query = newest(None, vec![of_event], DELIVERIES);
    let page = store.list(scope, schema.own(Builtin::Delivery), &query).await?;
    let mut text = String::new();
    for delivery in &page.records {
        let query = newest(Some(delivery.id.clone()), Vec::new(), 1);
        let attempts = store.list(scope, schema.own(Builtin::Attempt), &query).await?;
        let last = attempts.records.first().map(|attempt| outcome(&attempt.fields()));
        let fields = delivery.fields();
        text.push_str(&format!(
            "{:<34}{:<11}{:<10}{:<26}{}\n",
            printable(&text_of(&fields, "endpoint")),
            text_of(&fields, "status"),
            text_of(&fields, "attempts"),
            text_of(&fields, "next_attempt_at"),
            last.as_deref().unwrap_or("-"),
        ));
    }
    let open = envelope.get("pending_webhooks").and_then(Value::as_u64).unwrap_or(0);
    Ok(match (text.is_empty(), open, page.has_more) {
        (true, 0, _) => "No endpoint receives this event.\n".to_owned(),
        (true, open, _) => format!("Not sent yet; {open} endpoint(s) will receive it.\n"),
        (false, _, more) => {
            let rest = if more { "… and more: GET /v1/deliveries?event=…\n" } else { "" };
            format!(
                "{:<34}{:<11}{:<10}{:<26}LAST RESPONSE\n{text}{rest}",
                "ENDPOINT", "STATUS", "ATTEMPTS", "NEXT ATTEMPT"
            )
        }
    })
}

/// The result of an attempt: the status of the response, or the reason why there was none.
fn outcome(attempt: &Fields) -> String {
    let word = |name: &str| attempt.get(name).and_then(Value::as_str);
    let status = attempt.get("status").and_then(Value::as_i64).map(|status| status.to_string());
    let parts = [status.as_deref(), word("error"), word("error_message")];
    let shown: Vec<&str> = parts.into_iter().flatten().collect();
    match shown.is_empty() {
        true => "-".to_owned(),
        false => printable(&shown.join(" ")),
    }
}

/// A query, newest first.
fn newest(parent: Option<String>, filters: Vec<Filter>, limit: u32) -> Query {
    Query {
        parent,
        filters,
        sort: vec![SortKey::new("created_at", true)],
        words: Vec::new(),
        revealed: Vec::new(),
        page: Page::First,
        limit,
    }
}
