//! The server's own account of its deliveries: counters of /metrics while it runs, and afterwards
//! the rows of /v1/deliveries and /v1/events, read page by page.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::http::{Client, escape};
use crate::metrics;

use super::arrivals::EventKey;
use super::notes::{EVENT, PAGE, Requests};

/// Deliveries that succeeded since the server started.
const SUCCEEDED: &str = "restive_webhook_deliveries_total{outcome=\"succeeded\"}";
/// Known outcomes that are not durable yet.
const UNSETTLED: &str = "restive_webhook_unsettled";
const LOOK: Duration = Duration::from_millis(2);
/// Ten million rows: no list here is so long.
const MAX_PAGES: usize = 10_000;

/// The number of successful deliveries so far.
pub fn succeeded(client: &mut Client, requests: &Requests) -> Result<u64> {
    metrics::figure(&metrics::page(client, &requests.get(metrics::PATH))?, SUCCEEDED)
}

/// Waits until this many have succeeded and the outcome of each is durable.
pub fn expect_durable(
    client: &mut Client,
    requests: &Requests,
    wanted: u64,
    limit: Duration,
) -> Result<()> {
    let until = Instant::now() + limit;
    let mut seen = 0;
    loop {
        let page = metrics::page(client, &requests.get(metrics::PATH))?;
        let succeeded = metrics::figure(&page, SUCCEEDED)?;
        let unsettled = metrics::figure(&page, UNSETTLED)?;
        // Twice: the two figures are not read at the same time, and an outcome may be between them.
        seen = if succeeded >= wanted && unsettled == 0 { seen + 1 } else { 0 };
        if seen == 2 {
            return Ok(());
        }
        if Instant::now() >= until {
            let seconds = limit.as_secs();
            bail!("after {seconds} s {succeeded} of {wanted} succeeded, {unsettled} not durable");
        }
        std::thread::sleep(LOOK);
    }
}

/// Stored successful deliveries to one endpoint.
pub fn kept(client: &mut Client, requests: &Requests, endpoint: &str) -> Result<usize> {
    let mut count = 0;
    let list = format!("/v1/deliveries?endpoint={endpoint}&status=succeeded");
    walk(client, requests, &list, |_| count += 1)?;
    Ok(count)
}

/// The events of notes, by the id of the note.
pub fn events(client: &mut Client, requests: &Requests) -> Result<HashMap<String, EventKey>> {
    let mut found = HashMap::new();
    walk(client, requests, &format!("/v1/events?type={EVENT}"), |event| {
        let note = event["data"]["object"]["id"].as_str();
        if let (Some(note), Some(id)) = (note, event["id"].as_str()) {
            found.insert(note.to_owned(), EventKey::of(id.as_bytes()));
        }
    })?;
    Ok(found)
}

/// Calls a function with every row of a list.
fn walk(
    client: &mut Client,
    requests: &Requests,
    list: &str,
    mut see: impl FnMut(&Value),
) -> Result<()> {
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let after = cursor.map_or(String::new(), |cursor| format!("&after={}", escape(&cursor)));
        let answer = client.expect(200, &requests.get(&format!("{list}&limit={PAGE}{after}")))?;
        let page: Value = serde_json::from_slice(&answer.body)?;
        page["data"].as_array().context("a list without data")?.iter().for_each(&mut see);
        let more = page["pagination"]["has_more"].as_bool().context("no has_more")?;
        cursor = page["pagination"]["next_cursor"].as_str().map(str::to_owned);
        if !more || cursor.is_none() {
            return Ok(());
        }
    }
    bail!("the pages of {list} do not end")
}
