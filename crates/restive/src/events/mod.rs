//! `restive events tail|show`: reads the log beside a running server. Events of keys and accounts
//! are the service's business alone and never shown.

mod show;
mod tail;

use crate::args::{Events, EventsCommand};

pub fn run(events: Events) -> anyhow::Result<()> {
    match events.command {
        EventsCommand::Tail(tail) => tail::run(&tail),
        EventsCommand::Show(show) => show::run(&show),
    }
}
