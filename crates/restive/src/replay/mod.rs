//! `restive replay`: creates a replay, which sends stored events to an endpoint again, and shows
//! its progress. The server sends; this command creates the record, as `POST /v1/replays` would.

mod progress;

use crate::args::{AsJson, Replay, Storage};
use crate::data;
use crate::output::print_json;
use crate::output::say;
use crate::outside::{System, stop_signal};
use crate::text::printable;
use anyhow::bail;
use api::Outside;
use model::problem::Problem;
use model::record::{Fields, Record};
use model::schema::Builtin;
use model::validate::{self, Mode};
use model::write::{Cause, Change, Committed, Precondition, Response, Write};
use model::{Schema, Scope, Timestamp, id};
use progress::{Bar, Progress};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::Duration;
use store::Store;
use tokio::sync::watch;

/// Endpoints read in one query.
const PAGE: usize = 500;
/// Interval between two reads of the progress; the store notices commits of other processes as
/// often.
const LOOK: Duration = Duration::from_millis(100);
/// Time without progress after which the command checks whether the server still runs.
const QUIET: Duration = Duration::from_secs(1);

pub fn run(replay: &Replay) -> anyhow::Result<()> {
    let storage = &replay.data;
    let (schema, store) = data::attach_as(storage, &replay.schema.or_local())?;
    if !data::fits(&schema, &store) {
        // The schema must match: types are checked against it, and the replay's own event carries
        // its version.
        bail!(
            "the data in {} is served with another schema; pass its file with --schema",
            data::shown(storage)
        );
    }
    let job = Job {
        schema: &schema,
        store: &*store,
        outside: &System::new(),
        storage,
        output: replay.output,
    };
    data::block_on(async {
        let (scope, endpoint) = job.endpoint(&replay.endpoint).await?;
        let fields = job.fields(replay).await?;
        if !replay.dry_run && !replay.yes && !confirmed(&question(scope, &endpoint, &fields))? {
            bail!("nothing was sent");
        }
        let stop = stop_signal()?;
        let made = job.commit(scope, None, Change::Create { fields }).await?;
        if !data::is_served(storage).await? {
            if replay.output.json {
                return print_json(&json!({ "id": made.id, "status": "waiting" }));
            }
            say!("{}", made.id);
            say!(
                "No server runs on {}: the replay starts when `restive serve` starts.",
                data::shown(storage)
            );
            return Ok(());
        }
        eprintln!("{}: Ctrl-C cancels the replay", made.id);
        job.watch(scope, made, stop).await
    })
}

/// The parts that every step needs.
struct Job<'a> {
    schema: &'a Schema,
    store: &'a dyn Store,
    outside: &'a dyn Outside,
    storage: &'a Storage,
    output: AsJson,
}

impl Job<'_> {
    /// Finds an endpoint by its id, in any account and mode.
    async fn endpoint(&self, id: &str) -> anyhow::Result<(Scope, Record)> {
        let endpoints = self.schema.own(Builtin::Endpoint);
        let prefix = &self.schema.collections[endpoints].id_prefix;
        let mut known = Vec::new();
        let mut after = 0;
        loop {
            let page = self.store.every(endpoints, after, PAGE).await?;
            let full = page.len() == PAGE;
            for (scope, endpoint) in page {
                if endpoint.id == id {
                    return Ok((scope, endpoint));
                }
                after = endpoint.number;
                known.push(endpoint.id);
            }
            if !full {
                break;
            }
        }
        known.truncate(10);
        let shown: String = id.chars().take(100).collect();
        match (known.is_empty(), id::is_well_formed(prefix, id)) {
            (true, _) => bail!("there is no endpoint yet; create one: POST /v1/webhook-endpoints"),
            (_, true) => bail!("there is no endpoint {shown}; there are: {}", known.join(", ")),
            (_, false) => bail!(
                "`{shown}` is not an endpoint id: endpoint ids begin with {prefix}_; there are: {}",
                known.join(", ")
            ),
        }
    }

    /// The fields of the replay, validated as if they had been posted.
    async fn fields(&self, replay: &Replay) -> anyhow::Result<Fields> {
        let now = self.outside.now();
        let mut fields = Fields::new();
        fields.insert("endpoint".into(), replay.endpoint.as_str().into());
        for (name, moment) in [("since", &replay.since), ("until", &replay.until)] {
            if let Some(moment) = moment {
                let instant = moment.instant(self.schema, self.store, now).await?;
                fields.insert(name.into(), instant.to_iso().into());
            }
        }
        if !replay.types.is_empty() {
            fields.insert("types".into(), replay.types.clone().into());
        }
        fields.insert("without_success".into(), replay.without_success.into());
        fields.insert("dry_run".into(), replay.dry_run.into());
        if let Some(rate) = replay.rate {
            fields.insert("rate_limit".into(), rate.into());
        }
        let collection = &self.schema.collections[self.schema.own(Builtin::Replay)];
        validate::body(collection, fields, Mode::Create).map_err(|problem| refusal(&problem))
    }

    async fn commit(
        &self,
        scope: Scope,
        id: Option<&str>,
        change: Change,
    ) -> anyhow::Result<Record> {
        let write = Write {
            scope,
            collection: self.schema.own(Builtin::Replay),
            id: id.map(str::to_owned),
            parent: None,
            change,
            view: None,
            precondition: Precondition::None,
            idempotency: None,
            cause: Cause::default(),
            now: self.outside.now(),
            entropy: self.outside.entropy(),
        };
        match self.store.commit(write).await? {
            Ok(
                Committed::Fresh(Response::Created(record) | Response::Updated(record))
                | Committed::Unchanged(Response::Updated(record)),
            ) => Ok(record),
            Ok(other) => bail!("unexpected result of the store: {other:?}"),
            Err(problem) => Err(refusal(&problem)),
        }
    }

    /// Shows the progress until the replay ends, the server stops, or the user interrupts it.
    async fn watch(
        &self,
        scope: Scope,
        made: Record,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let replays = self.schema.own(Builtin::Replay);
        let mut stop = pin!(stop);
        let mut bar = Bar::new(std::io::stderr());
        // Subscribed before the first read, so that no change is missed.
        let mut position = self.store.position();
        loop {
            position.borrow_and_update();
            let Some(record) = self.store.record(scope, replays, None, &made.id).await? else {
                bail!("the replay {} no longer exists", made.id);
            };
            let progress = Progress::read(&record);
            bar.show(&progress, self.outside.uptime());
            if progress.has_ended() {
                bar.end();
                return conclude(&made.id, &progress, self.output);
            }
            let moved = tokio::select! {
                () = &mut stop => {
                    bar.end();
                    return self.cancel(scope, &made.id).await;
                }
                moved = moved(&mut position) => moved,
            };
            if !moved && !data::is_served(self.storage).await? {
                bar.end();
                say!("The server has stopped; {} continues when it starts again.", made.id);
                return Ok(());
            }
        }
    }

    async fn cancel(&self, scope: Scope, id: &str) -> anyhow::Result<()> {
        let replays = self.schema.own(Builtin::Replay);
        let actions = &self.schema.collections[replays].actions;
        let Some(action) = actions.iter().position(|action| action.name == "cancel") else {
            bail!("replays cannot be cancelled");
        };
        let change = Change::Act { action, params: Fields::new(), callout: None };
        let cancelled = self.commit(scope, Some(id), change).await;
        // It may have ended at the same moment; then show its result.
        let Some(record) = self.store.record(scope, replays, None, id).await? else {
            bail!("the replay {id} no longer exists");
        };
        let progress = Progress::read(&record);
        match cancelled {
            Err(error) if !progress.has_ended() => Err(error),
            _ => conclude(id, &progress, self.output),
        }
    }
}

/// Waits for a commit; false if there was none for a while.
async fn moved(position: &mut watch::Receiver<i64>) -> bool {
    match tokio::time::timeout(QUIET, position.changed()).await {
        Ok(_) => {
            // A busy server commits a thousand times a second; no person reads that fast.
            tokio::time::sleep(LOOK).await;
            true
        }
        Err(_) => false,
    }
}

/// Prints the result; an error unless it succeeded.
fn conclude(id: &str, progress: &Progress, output: AsJson) -> anyhow::Result<()> {
    match progress.status.as_str() {
        "succeeded" if output.json => print_json(&json!({
            "id": id,
            "status": progress.status,
            "dry_run": progress.dry_run,
            "total": progress.total,
            "done": progress.done,
            "succeeded": progress.succeeded,
        })),
        "succeeded" if progress.dry_run => {
            say!("{} event(s) would be sent", progress.total.unwrap_or(progress.done));
            Ok(())
        }
        "succeeded" => {
            say!("{id}: sent {} event(s), {} succeeded", progress.done, progress.succeeded);
            if progress.succeeded < progress.done {
                say!("For the others, see GET /v1/deliveries or `restive events show`");
            }
            Ok(())
        }
        "cancelled" => bail!("{id} was cancelled; it sent {}", progress.counts()),
        _ => {
            let why = progress.error.as_deref().unwrap_or("no reason was given");
            bail!("{id} failed after {}: {}", progress.counts(), printable(why))
        }
    }
}

fn question(scope: Scope, endpoint: &Record, fields: &Fields) -> String {
    let of = endpoint.fields();
    let url = of.get("url").and_then(Value::as_str).unwrap_or_default();
    let mode = if scope.livemode() { "live" } else { "test" };
    let time = |name: &str| fields.get(name).and_then(Value::as_str).and_then(Timestamp::parse);
    let since = time("since").map_or("the oldest stored one".to_owned(), |t| t.to_iso());
    let until = time("until").map_or("now".to_owned(), |t| t.to_iso());
    format!("Send the events from {since} to {until} to {} ({mode})? [y/N] ", printable(url))
}

/// Asks on a terminal. Without a terminal there is no answer, so the command refuses: customers
/// would receive events that nobody meant to send.
fn confirmed(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        bail!("this sends events to an endpoint again; confirm with --yes");
    }
    eprint!("{question}");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn refusal(problem: &Problem) -> anyhow::Error {
    let found: Vec<&str> = problem.violations.iter().map(|v| v.message.as_str()).collect();
    match found.is_empty() {
        true => anyhow::anyhow!("{}", problem.message),
        false => anyhow::anyhow!("{}", found.join("\n  ")),
    }
}
