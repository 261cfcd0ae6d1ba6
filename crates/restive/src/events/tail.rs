//! `restive events tail`: prints events as any process commits them.

use crate::accounts::choose;
use crate::args::{Format, Mode, Tail};
use crate::data;
use crate::output::{self, Output};
use crate::outside::{System, stop_signal};
use crate::text::{is_coloured, printable};
use api::Outside as _;
use api::keys::Keyring;
use model::event::Event;
use model::schema::Builtin;
use model::webhook::pattern;
use model::{Schema, Scope};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use store::{Follower, Store};

/// Events read, and lines written, in one step.
const BATCH: usize = 256;
/// Time for the last lines after a signal: a reader that has stopped reading must not prevent the
/// command from ending.
const GRACE: Duration = Duration::from_millis(500);

pub fn run(tail: &Tail) -> anyhow::Result<()> {
    data::block_on(async {
        let stop = stop_signal()?;
        let (schema, store) = data::attach_as(&tail.data, &tail.schema.or_local())?;
        if data::fits(&schema, &store) {
            warn_of_unknown_types(&schema, &tail.types);
        }
        let store = store.store();
        let wanted = Wanted::new(tail, &schema, &*store).await?;
        let newest = *store.position().borrow();
        let from = match &tail.since {
            Some(since) => since.position(&schema, &*store, System::new().now()).await?,
            None => newest,
        };
        let printer = Printer { schema, store, format: tail.format.or(tail.output) };
        let mut output = Output::start()?;
        let until = tail.no_follow.then_some(newest);
        let done = tokio::select! {
            done = printer.follow(&wanted, from, until, &mut output) => Some(done),
            () = stop => None,
            () = output::reader_gone() => None,
        };
        match done {
            Some(done) => output::quietly(done),
            None => {
                // Print the events that were read; ignore an error at this point.
                let _ = tokio::time::timeout(GRACE, output.finish()).await;
                Ok(())
            }
        }
    })
}

/// Warns about unknown types, which would never match if misspelt. Not an error: an earlier schema
/// may have had them.
fn warn_of_unknown_types(schema: &Schema, types: &[String]) {
    for kind in types.iter().filter(|kind| *kind != pattern::PING) {
        if let Err(why) = pattern::check(schema, kind) {
            eprintln!("restive: {why}");
        }
    }
}

/// The events to print.
struct Wanted<'a> {
    types: &'a [String],
    resource: Option<&'a str>,
    account_number: Option<i64>,
    livemode: Option<bool>,
}

impl Wanted<'_> {
    async fn new<'a>(
        tail: &'a Tail,
        schema: &Schema,
        store: &dyn Store,
    ) -> anyhow::Result<Wanted<'a>> {
        let keyring = Keyring { schema, store, outside: &System::new() };
        let account_number = match &tail.account {
            Some(id) => Some(choose(&keyring, Some(id)).await?.number),
            None => None,
        };
        Ok(Wanted {
            types: &tail.types,
            resource: tail.resource.as_deref(),
            account_number,
            livemode: tail.mode.map(|mode| mode == Mode::Live),
        })
    }

    fn has(&self, schema: &Schema, event: &Event) -> bool {
        let typed = || self.types.iter().any(|wanted| pattern::matches(wanted, &event.kind));
        !pattern::is_internal(schema, &event.collection)
            && (self.types.is_empty() || typed())
            && self.resource.is_none_or(|id| id == event.record)
            && self.account_number.is_none_or(|number| number == event.scope.account_number())
            && self.livemode.is_none_or(|livemode| livemode == event.scope.livemode())
    }
}

struct Printer {
    schema: Arc<Schema>,
    store: Arc<dyn Store>,
    format: Format,
}

impl Printer {
    /// Prints the events after `from`, up to `until` or forever.
    async fn follow(
        &self,
        wanted: &Wanted<'_>,
        from: i64,
        until: Option<i64>,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        let mut follower = Follower::new(self.store.clone(), None, from);
        let coloured = is_coloured(&std::io::stdout());
        while until.is_none_or(|until| follower.position() < until) {
            let mut events = follower.next_batch(BATCH).await?;
            events.retain(|event| {
                until.is_none_or(|until| event.seq <= until) && wanted.has(&self.schema, event)
            });
            let text = match self.format {
                Format::Pretty => events.iter().map(|event| line(event, coloured)).collect(),
                Format::Json => self.envelopes(&events).await?,
            };
            if !events.is_empty() {
                output.write(text).await?;
            }
        }
        Ok(output.finish().await?)
    }

    /// The events in the format of the API, with the number of pending deliveries.
    async fn envelopes(&self, events: &[Event]) -> anyhow::Result<String> {
        let mut ids: BTreeMap<Scope, Vec<String>> = BTreeMap::new();
        for event in events {
            ids.entry(event.scope).or_default().push(event.id.clone());
        }
        let collection = self.schema.own(Builtin::Event);
        let mut shown: HashMap<i64, String> = HashMap::with_capacity(events.len());
        for (scope, ids) in ids {
            let records = self.store.by_ids(scope, collection, &ids).await?;
            shown.extend(records.into_iter().map(|record| (record.number, record.body)));
        }
        let mut text = String::new();
        for event in events {
            // An event that was removed in the meantime has no deliveries.
            let body = shown.remove(&event.seq).unwrap_or_else(|| event.envelope(0));
            text.push_str(&body);
            text.push('\n');
        }
        Ok(text)
    }
}

/// One event on one line.
fn line(event: &Event, coloured: bool) -> String {
    let time = event.created.to_iso();
    let kind = printable(&event.kind);
    let resource = match event.record.is_empty() {
        true => "-".to_owned(),
        false => printable(&event.record),
    };
    let mode = if event.scope.livemode() { "live" } else { "test" };
    let id = &event.id;
    if !coloured {
        return format!("{time}  {kind:<32}  {resource:<36}  {id}  {mode}\n");
    }
    let tint = if event.scope.livemode() { "33" } else { "2" };
    format!(
        "\x1b[2m{time}\x1b[0m  \x1b[36m{kind:<32}\x1b[0m  {resource:<36}  \x1b[2m{id}\x1b[0m  \
         \x1b[{tint}m{mode}\x1b[0m\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;

    #[test]
    fn a_line_has_time_type_resource_id_and_mode_and_cannot_control_the_terminal() {
        let mut event = Event {
            seq: 1,
            id: "evt_1".into(),
            scope: Scope::new(3, true),
            kind: "order.created".into(),
            created: Timestamp(1_763_195_400_007),
            collection: "orders".into(),
            record: "ord_1".into(),
            api_version: "2026-11-01".into(),
            object: "{}".into(),
            previous: None,
            hidden: None,
            request: None,
            idempotency_key: None,
        };
        let text = line(&event, false);
        let words: Vec<&str> = text.split_whitespace().collect();
        let expected = ["2025-11-15T08:30:00.007Z", "order.created", "ord_1", "evt_1", "live"];
        assert_eq!(words, expected);
        assert!(line(&event, true).contains("\x1b[36morder.created"));
        event.record = "\x1b]0;owned\x07".into();
        assert!(!line(&event, false).contains('\x1b'));
    }
}
