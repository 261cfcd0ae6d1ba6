//! The service of every case: a collection for each way to misbehave.

use std::net::SocketAddr;

/// With `development`, because the receivers are on this machine and without TLS.
const SCHEMA: &str = "\
[service]
name = \"storm\"
max_page = 1000

[webhooks]
development = true

[collections.notes.fields]
number = { type = \"integer\", required = true, filter = true, sort = true }
text = { type = \"string\", required = true }
more = \"string\"

[collections.messages]
feed = true

[collections.messages.fields]
text = \"string\"

[collections.badges.fields]
code = { type = \"string\", unique = true, filter = true }

[collections.shelves]
object = \"shelf\"

[collections.shelves.fields]
name = \"string\"

[collections.volumes]
parent = \"shelves\"

[collections.volumes.fields]
title = \"string\"

[collections.jobs.fields]
name = \"string\"

[collections.jobs.states]
names = [\"waiting\", \"done\"]

[[collections.jobs.timed]]
from = \"waiting\"
to = \"done\"
after = \"TIMER\"

[collections.tasks.fields]
name = \"string\"

[collections.tasks.states]
names = [\"open\", \"approved\"]

[collections.tasks.actions.approve]
from = \"open\"
to = \"approved\"
handler = { url = \"http://HANDLER/approve\", timeout = \"60s\" }
";

/// The schema with the address of the handler of `approve`, and the timer of a job.
pub fn text(handler: SocketAddr, timer_seconds: u64) -> String {
    let timer = format!("{timer_seconds}s");
    SCHEMA.replace("HANDLER", &handler.to_string()).replace("TIMER", &timer)
}

/// A string of this many bytes; one field of a record holds at most 65,536 characters.
pub fn filler(bytes: usize) -> String {
    "All the text of this storm is alike. ".chars().cycle().take(bytes).collect()
}

/// The body of a note with about this many bytes, in two fields if one is too short.
pub fn note(number: u64, bytes: usize) -> String {
    let (first, second) = (filler(bytes.min(60_000)), filler(bytes.saturating_sub(60_000)));
    format!("{{\"number\":{number},\"text\":\"{first}\",\"more\":\"{second}\"}}")
}
