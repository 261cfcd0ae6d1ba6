//! What a client receives when it cannot resume from its position: what was lost, from which
//! position on events are sent again, and what to read instead.

use crate::entry::{Codec, Encoding, sse};
use crate::interest::{Interest, Interests};
use crate::kind::{Kind, Kinds};
use crate::presence;
use bytes::Bytes;
use model::schema::Schema;
use model::webhook::pattern;
use serde_json::{Value, json};
use wire::websocket;

pub const NAME: &str = "stream.reset";
/// Ephemeral messages were missed.
const PRESENCE: &str = "presence.reset";

/// Collections named at most.
const MAX_REFETCH: usize = 20;

/// Why there is a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The log is no longer kept from there on.
    Expired,
    /// The position is one of another log.
    Epoch,
    /// The position has not been reached: the log was set back.
    Ahead,
}

impl Gap {
    fn reason(self) -> &'static str {
        match self {
            Gap::Expired => "expired",
            Gap::Epoch => "other_epoch",
            Gap::Ahead => "ahead_of_log",
        }
    }
}

/// The message, as the channel writes it.
pub fn frame(
    codec: &Codec,
    interests: &Interests,
    encoding: Encoding,
    gap: Gap,
    requested: Option<i64>,
    resumed_at: i64,
) -> Bytes {
    let position = codec.epoch.at(resumed_at).to_string();
    let data = json!({
        "reason": gap.reason(),
        "requested": requested.map(|seq| codec.epoch.at(seq).to_string()),
        "resumed_at": position,
        "refetch": refetch(codec, interests),
    });
    match encoding {
        Encoding::Sse => sse(Some(NAME), Some(&position), &data.to_string()),
        Encoding::Socket | Encoding::Deflated(_) => {
            let message = json!({ "type": NAME, "position": position, "data": data });
            websocket::text(&message.to_string())
        }
    }
}

/// What a connection receives that missed ephemeral messages of these kinds. Without a position: it
/// missed nothing of the log.
pub fn presence(codec: &Codec, interests: &Interests, encoding: Encoding, missed: Kinds) -> Bytes {
    let missed: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| missed.contains(*kind)).collect();
    let names: Vec<&str> = missed.iter().map(|kind| kind.name()).collect();
    let mount = mount(schema(codec, interests), interests);
    let list = missed.contains(&Kind::Online).then(|| format!("{mount}/{}", presence::SCOPE));
    let data = json!({ "missed": names, "refetch": Vec::from_iter(list) });
    match encoding {
        Encoding::Sse => sse(Some(PRESENCE), None, &data.to_string()),
        Encoding::Socket | Encoding::Deflated(_) => {
            websocket::text(&json!({ "type": PRESENCE, "data": data }).to_string())
        }
    }
}

/// The schema as the connection's version has it.
fn schema<'a>(codec: &'a Codec, interests: &Interests) -> &'a Schema {
    let view = codec.versions.get(interests.version);
    view.map_or(&codec.schema, |view| &view.schema)
}

/// Below which path that version is served.
fn mount<'a>(schema: &'a Schema, interests: &Interests) -> &'a str {
    let mounted = schema.mounts.iter().find(|mount| interests.version <= mount.oldest);
    mounted.map_or(&schema.service.mount, |mount| &mount.path)
}

/// The lists whose changes may have been missed.
fn refetch(codec: &Codec, interests: &Interests) -> Vec<Value> {
    let schema = schema(codec, interests);
    let mount = mount(schema, interests);
    let concerned = |interest: &Interest, object: &str, live: Option<&str>| {
        let own = |pattern: &String| {
            pattern == "*"
                || pattern.split('.').next() == Some(object)
                || live.is_some_and(|live| pattern::matches(pattern, live))
        };
        interest.types.is_empty() || interest.types.iter().any(own)
    };
    schema
        .routed()
        .filter(|(_, c)| c.parent.is_none() && c.builtin.is_none() && c.operations.list)
        .filter(|(_, c)| {
            let live = c.feed.as_ref().map(|feed| feed.live_name.as_str());
            interests.wanted.iter().any(|(one, _)| concerned(one, &c.object, live))
        })
        .take(MAX_REFETCH)
        .map(|(_, c)| Value::String(format!("{mount}/{}", c.name)))
        .collect()
}
