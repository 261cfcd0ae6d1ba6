//! `restive listen`: follows the event log of a server and posts each event to a local URL, signed
//! like a webhook. It needs only a key: no endpoint, no public address. It creates nothing on the
//! server, so several listeners do not affect each other.

mod forward;
mod show;

use crate::args::{Format, Listen};
use crate::moment::Moment;
use crate::output::{self, Output};
use crate::outside::{System, stop_signal};
use crate::{data, remote, text};
use anyhow::Context as _;
use api::Outside as _;
use forward::Forwarder;
use restive_kit::client::{ApiError, Client};
use restive_kit::follow::{Channel, Event, Follower, Status, Update};
use restive_kit::signature::Secret;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use show::Lines;
use std::time::Duration;

/// The server sends a sign of life every 25 s: a connection that is silent for longer is dead.
const IDLE: Duration = Duration::from_secs(40);
/// Pause between two attempts to read the envelope of a feed's record.
const PAUSE: Duration = Duration::from_secs(2);
/// Time for the last lines after a signal.
const GRACE: Duration = Duration::from_millis(500);

pub fn run(listen: &Listen) -> anyhow::Result<()> {
    data::block_on(async {
        let stop = stop_signal()?;
        let secret = secret(listen.secret.as_deref())?;
        let client = remote::client(&listen.remote)?;
        let forwarder = Forwarder::new(&listen.forward_to, &listen.routes, &secret)?;
        let follower = follower(listen, &client).await?;
        let mut output = Output::start()?;
        let lines =
            Lines::new(listen.format.or(listen.output) == Format::Json, listen.print_secret);
        output.write(lines.greeting(&listen.forward_to, &secret)).await?;
        let done = tokio::select! {
            done = serve(follower, &client, &forwarder, &lines, &mut output) => Some(done),
            () = stop => None,
            () = output::reader_gone(), if !listen.print_secret => None,
        };
        match done {
            Some(done) => output::quietly(done),
            None => {
                let _ = tokio::time::timeout(GRACE, output.finish()).await;
                Ok(())
            }
        }
    })
}

fn secret(given: Option<&str>) -> anyhow::Result<Secret> {
    match given {
        Some(text) => Secret::parse(text).context("--secret is no signing secret"),
        None => {
            let entropy = System::new().entropy().0;
            let mut bytes = [0; 24];
            bytes.copy_from_slice(&entropy[..24]);
            Ok(Secret::from_bytes(bytes))
        }
    }
}

async fn follower(listen: &Listen, client: &Client) -> anyhow::Result<Follower> {
    let types: Vec<&str> = listen.events.iter().map(String::as_str).collect();
    let mut builder = Follower::builder(client.clone(), Channel::ServerSentEvents)
        .types(&types)
        .idle_timeout(IDLE)
        .on_status(|status| match status {
            Status::Disconnected { reason, retry_in } => {
                let reason = text::printable(reason);
                eprintln!("restive: disconnected ({reason}); next attempt in {retry_in:.1?}");
            }
            Status::Connected => eprintln!("restive: connected"),
            Status::RereadRefused { reason } => {
                let reason = text::printable(reason);
                eprintln!("restive: events that were missed cannot be read: {reason}");
            }
            _ => {}
        });
    if let Some(since) = &listen.since {
        builder = builder.since_time(begin(since, client).await?);
    }
    Ok(builder.build())
}

/// The Unix seconds of a point in time.
async fn begin(since: &Moment, client: &Client) -> anyhow::Result<u64> {
    let now = System::new().now().0;
    let milliseconds = match since {
        Moment::Ago(age) => now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)),
        Moment::At(time) => time.0,
        Moment::Event(id) => {
            let event = client.resource("events").get(id).send().await?.value()?;
            return event["created"].as_u64().context("the event has no time");
        }
    };
    Ok(u64::try_from(milliseconds / 1000).unwrap_or(0))
}

/// Forwards events for ever.
async fn serve(
    mut follower: Follower,
    client: &Client,
    forwarder: &Forwarder,
    lines: &Lines,
    output: &mut Output,
) -> anyhow::Result<()> {
    loop {
        match follower.next().await? {
            Update::Event(event) => {
                let envelope = envelope(client, &event).await?;
                let outcome = forwarder.send(&envelope).await;
                let line = lines.outcome(&envelope, &outcome);
                match lines.to_stderr {
                    true => eprint!("{line}"),
                    false => output.write(line).await?,
                }
            }
            Update::Gap(gap) => {
                let reason = text::printable(&gap.reason);
                eprintln!(
                    "restive: the server cannot continue where this listener was ({reason}); \
                     events that it no longer has are lost, the others follow"
                );
            }
            _ => {}
        }
    }
}

/// An event as webhooks have it.
pub struct Envelope {
    pub id: String,
    pub kind: String,
    pub text: String,
}

/// The stream has a new record of a feed without its envelope, which the list of events has. Waits
/// while the server does not answer, as the follower does.
async fn envelope(client: &Client, event: &Event) -> anyhow::Result<Envelope> {
    if let Some(id) = event.id() {
        let (id, kind) = (id.to_owned(), event.kind().to_owned());
        return Ok(Envelope { id, kind, text: event.text().to_owned() });
    }
    let record: Value = event.json().context("the server sent a record that is not JSON")?;
    loop {
        match find_envelope(client, &record).await {
            Ok(Some(envelope)) => return Ok(envelope),
            // It was erased, or has expired: the record alone is better than nothing.
            Ok(None) => {
                let (id, kind) = (record_id(&record), event.kind().to_owned());
                let text = json!({ "object": "event", "type": kind, "data": { "object": record } });
                return Ok(Envelope { id: format!("record_{id}"), kind, text: text.to_string() });
            }
            Err(error) if error.api().is_some_and(is_final) => {
                return Err(error).context("an event of a feed cannot be read");
            }
            Err(error) => {
                eprintln!("restive: {}", text::printable(&error.to_string()));
                tokio::time::sleep(PAUSE).await; // waits for: the server to answer again
            }
        }
    }
}

/// Whether a repetition cannot help: the server itself refused, in its own words.
fn is_final(error: &ApiError) -> bool {
    let goes_away = matches!(error.status, 408 | 409 | 425 | 429);
    error.status < 500 && !goes_away && !error.code.is_empty()
}

/// The first event of a record.
async fn find_envelope(
    client: &Client,
    record: &Value,
) -> Result<Option<Envelope>, restive_kit::client::Error> {
    let list = client.resource("events").list().query("resource", &record_id(record));
    let mut events = list.query("sort", "created").records::<Box<RawValue>>();
    while let Some(raw) = events.next().await? {
        let found: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        if found["data"]["object"]["object"] == record["object"] {
            let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
            let (id, kind) = (text("id"), text("type"));
            return Ok(Some(Envelope { id, kind, text: raw.get().to_owned() }));
        }
    }
    Ok(None)
}

/// The id of a record; a feed has numbers.
fn record_id(record: &Value) -> String {
    match &record["id"] {
        Value::String(id) => id.clone(),
        id => id.to_string(),
    }
}
