//! The commands of the operator on an inbox, also while it receives.

use crate::args::Format;
use crate::args::receive::{InboxFolder, ListedState, ReceiveCommand};
use crate::data;
use crate::output;
use crate::text::printable;
use anyhow::{Context as _, bail};
use model::Timestamp;
use restive_kit::inbox::{Filter, Inbox, Listed, Options, State, Stats};
use serde_json::json;

pub fn run(command: ReceiveCommand) -> anyhow::Result<()> {
    data::block_on(async {
        match command {
            ReceiveCommand::Status { folder, format, output } => {
                let format = format.or(output);
                output::print(&status(&open(&folder)?.stats().await?, format))
            }
            ReceiveCommand::List { folder, state, limit, format, output } => {
                let format = format.or(output);
                let filter = Filter { state: state.map(of_kit), limit, ..Filter::default() };
                let events = open(&folder)?.list(filter).await?;
                let lines: Vec<String> = events.iter().map(|event| line(event, format)).collect();
                output::print(&lines.concat())
            }
            ReceiveCommand::Retry { folder, id: Some(id), .. } => {
                if !open(&folder)?.retry(&id).await? {
                    bail!("no pending or dead event has the id {}", printable(&id));
                }
                output::print(&format!("{} is processed now\n", printable(&id)))
            }
            ReceiveCommand::Retry { folder, id: None, .. } => {
                let count = open(&folder)?.retry_dead().await?;
                output::print(&format!("{count} dead letter(s) are processed now\n"))
            }
            ReceiveCommand::Drop { folder, id } => {
                if !open(&folder)?.give_up(&id).await? {
                    bail!("no pending or dead event has the id {}", printable(&id));
                }
                output::print(&format!("{} is dropped\n", printable(&id)))
            }
        }
    })
}

fn open(folder: &InboxFolder) -> anyhow::Result<Inbox> {
    let file = folder.data.join(super::DATABASE);
    if !file.exists() {
        bail!("{} has no inbox; `restive receive` creates it", folder.data.display());
    }
    Inbox::open(&file, Options::default())
        .with_context(|| format!("the inbox in {} cannot be opened", folder.data.display()))
}

fn of_kit(state: ListedState) -> State {
    match state {
        ListedState::Pending => State::Pending,
        ListedState::Processed => State::Processed,
        ListedState::Dead => State::Dead,
        ListedState::Stale => State::Stale,
        ListedState::Dropped => State::Dropped,
    }
}

fn status(stats: &Stats, format: Format) -> String {
    let oldest = stats.oldest_pending.as_secs();
    let Stats { pending, retrying, dead, processed, skipped, conflicts, .. } = *stats;
    match format {
        Format::Json => {
            let text = json!({
                "pending": pending,
                "retrying": retrying,
                "oldest_pending_seconds": oldest,
                "dead": dead,
                "processed": processed,
                "skipped": skipped,
                "conflicts": conflicts,
            });
            format!("{text}\n")
        }
        Format::Pretty => format!(
            "pending    {pending}, the oldest for {oldest} s; {retrying} of them failed before\n\
             dead       {dead}\n\
             processed  {processed}\n\
             skipped    {skipped}, stale or dropped\n\
             conflicts  {conflicts}, bodies with the id of another event\n"
        ),
    }
}

fn line(event: &Listed, format: Format) -> String {
    let time = |ms: i64| Timestamp(ms).to_iso();
    let Listed { id, kind, state, attempts, error, .. } = event;
    let (received, due) = (time(event.received_ms), time(event.due_ms));
    match format {
        Format::Json => {
            let text = json!({
                "id": id,
                "type": kind,
                "resource": event.resource,
                "state": state.to_string(),
                "attempts": attempts,
                "received_at": received,
                "next_attempt_at": (*state == State::Pending).then_some(&due),
                "ended_at": (*state != State::Pending).then_some(&due),
                "error": error,
            });
            format!("{text}\n")
        }
        Format::Pretty => {
            let (id, kind) = (printable(id), printable(kind.as_deref().unwrap_or("-")));
            let error = error.as_deref().map(|error| format!("  {}", printable(error)));
            let error = error.unwrap_or_default();
            format!("{received}  {state:<9}  {attempts:>2}  {kind}  {id}{error}\n")
        }
    }
}
