//! `restive events tail|show`: reads the log, even while a server runs. Events about keys and
//! accounts are internal and never shown.

mod show;
mod tail;

use crate::args::{Events, EventsCommand};

pub fn run(events: Events) -> anyhow::Result<()> {
    match events.command {
        EventsCommand::Tail(tail) => tail::run(&tail),
        EventsCommand::Show(show) => show::run(&show),
    }
}
