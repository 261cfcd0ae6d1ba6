//! What a client asks of a channel, read from query and headers. Everything wrong with it is
//! reported.

use crate::bounds::MAX_ID_BYTES;
use crate::interest::{Interest, Interests, Permit};
use crate::kind::EPHEMERAL;
use crate::permission;
use crate::position::{Epoch, ResumePoint};
use crate::reset::Gap;
use http::HeaderMap;
use model::problem::{Code, Problem};
use model::schema::Schema;
use model::webhook::pattern;
use model::{Scope, Timestamp};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Patterns of types in one subscription.
pub const MAX_TYPES: usize = 50;
const LAST_EVENT_ID: &str = "last-event-id";
/// The parameter that names a version: pages cannot set the header that does.
pub const VERSION: &str = "version";

/// The client that opens a channel, as its credentials say.
#[derive(Clone, Debug)]
pub struct ChannelCaller {
    pub scope: Scope,
    pub permit: Permit,
    /// The user of the connection, where it is known.
    pub user: Option<String>,
    /// The feeds it may write to over a socket.
    pub feeds: Feeds,
    /// Whether it has a channel token: then the owner of the key has named its user.
    pub by_token: bool,
    /// When the credentials end.
    pub expires_in: Option<Duration>,
    pub validity: Arc<dyn ValidityCheck>,
    /// `Store::key_generation` before the credentials were checked: a later one means that they may
    /// have been revoked since.
    pub key_generation: u64,
    /// Index in `Versions` of the version it reads; the newest is at 0.
    pub version: usize,
    pub now: Timestamp,
}

/// Checks whether credentials are still valid.
pub trait ValidityCheck: fmt::Debug + Send + Sync + 'static {
    fn check(&self) -> Pin<Box<dyn Future<Output = Validity> + Send>>;
}

/// Whether credentials are still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Valid,
    /// They expire after this.
    ExpiresIn(Duration),
    Revoked,
}

/// Feeds that may be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feeds {
    All,
    Only(Vec<String>),
}

impl Feeds {
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Feeds::All => true,
            Feeds::Only(names) => names.iter().any(|one| one == name),
        }
    }
}

/// A subscription and where it begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubscribeRequest {
    pub interest: Interest,
    pub since: Option<ResumePoint>,
}

/// Where a connection begins, and which gap must be reported first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartPosition {
    pub cursor: i64,
    pub gap: Option<(Gap, Option<i64>)>,
    pub resumes: bool,
}

impl SubscribeRequest {
    /// Reads the parameters of a stream. Those in `others` are read elsewhere.
    pub fn read(
        schema: &Schema,
        epoch: Epoch,
        pairs: &[(String, String)],
        headers: &HeaderMap,
        others: &[&str],
    ) -> Result<SubscribeRequest, Problem> {
        let mut asked = SubscribeRequest::default();
        for (name, value) in pairs {
            match name.as_str() {
                "types" => asked.interest.types = types(schema, "types", value.split(','))?,
                "resource" => asked.interest.resource = Some(text("resource", value)?),
                "parent" => asked.interest.parent = Some(text("parent", value)?),
                "since" | "last_event_id" => asked.since = Some(place(epoch, name, value)?),
                VERSION => {}
                other if others.contains(&other) => {}
                other => {
                    let known = ["types", "resource", "parent", "since", "last_event_id", VERSION];
                    return Err(Problem::unknown_parameter(other, &[&known, others].concat()));
                }
            }
        }
        // What the browser sends by itself is newer than what the page was loaded with.
        if let Some(text) = last_event_id(headers)? {
            asked.since = Some(place(epoch, "Last-Event-ID", text)?);
        }
        Ok(asked)
    }

    /// Whether it continues after an event that is not known here: another server may know it.
    pub fn is_ahead_of(&self, newest: i64) -> bool {
        matches!(self.since, Some(ResumePoint::After(seq)) if seq > newest)
    }

    /// Where it begins in a log that ends at `newest`.
    pub fn begin(&self, newest: i64) -> StartPosition {
        let fresh = StartPosition { cursor: newest, gap: None, resumes: false };
        match self.since {
            None => fresh,
            Some(ResumePoint::Foreign) => StartPosition { gap: Some((Gap::Epoch, None)), ..fresh },
            Some(ResumePoint::After(seq)) if seq > newest => {
                StartPosition { gap: Some((Gap::Ahead, Some(seq))), ..fresh }
            }
            Some(ResumePoint::After(seq)) => {
                StartPosition { cursor: seq, gap: None, resumes: true }
            }
        }
    }
}

/// The date of the version that a channel was asked for in its parameters.
pub fn version(pairs: &[(String, String)]) -> Option<&str> {
    let named = pairs.iter().rev().find(|(name, _)| name == VERSION);
    named.map(|(_, date)| date.as_str())
}

impl ChannelCaller {
    /// Whether it may subscribe to this. `names` are the collections as scopes name them.
    pub fn check(
        &self,
        schema: &Schema,
        names: &Schema,
        interest: &Interest,
    ) -> Result<(), Problem> {
        permission::check(&self.permit, schema, names, interest)
    }

    pub fn interests(&self, interest: Interest, from: i64) -> Interests {
        let permit = self.permit.clone();
        let wanted = vec![(interest, from)];
        Interests::new(self.scope, permit, self.version, wanted)
    }
}

/// `Last-Event-ID`, where it is not empty.
fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(LAST_EVENT_ID).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let message = "`Last-Event-ID` is sent more than once; send the `id` of the last event.";
        return Err(invalid("Last-Event-ID", "", message));
    }
    match value.to_str() {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(_) => {
            let message = "`Last-Event-ID` is not ASCII text; send the `id` of the last event.";
            Err(invalid("Last-Event-ID", "", message))
        }
    }
}

/// A place in the log that a parameter names.
pub fn place(epoch: Epoch, name: &str, text: &str) -> Result<ResumePoint, Problem> {
    epoch.read(text).ok_or_else(|| {
        let message = format!(
            "`{name}` must be a position such as `{}`, or the id of a feed's record; use the `id` \
             of the last event, or X-Stream-Position of a list.",
            epoch.at(42)
        );
        invalid(name, text, message)
    })
}

/// Patterns of types, each of which matches some type.
pub fn types<'a>(
    schema: &Schema,
    name: &str,
    patterns: impl Iterator<Item = &'a str>,
) -> Result<Vec<String>, Problem> {
    let mut types = Vec::new();
    for one in patterns.map(str::trim).filter(|one| !one.is_empty()) {
        // As they are: `o*` for `online` would mean orders too.
        let mut feeds = schema.collections.iter().filter_map(|c| c.feed.as_ref());
        let known = EPHEMERAL.contains(&one) || feeds.any(|feed| feed.live_name == one);
        if !known {
            pattern::check(schema, one).map_err(|message| invalid(name, one, message + "."))?;
        }
        types.push(one.to_owned());
    }
    if types.is_empty() {
        let message =
            format!("`{name}` is empty; name event types, or leave it out to receive all of them.");
        return Err(invalid(name, "", message));
    }
    if types.len() > MAX_TYPES {
        return Err(invalid(name, "", format!("`{name}` has at most {MAX_TYPES} types.")));
    }
    Ok(types)
}

pub fn text(name: &str, value: &str) -> Result<String, Problem> {
    if value.is_empty() || value.len() > MAX_ID_BYTES {
        return Err(invalid(name, value, format!("`{name}` must be the id of a record.")));
    }
    Ok(value.to_owned())
}

pub fn invalid(name: &str, value: &str, message: impl Into<String>) -> Problem {
    let shown: String = value.chars().take(100).collect();
    Problem::new(Code::InvalidParameter, message).param(name).value(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::parse;
    use model::schema::BOOKSHOP;

    #[test]
    fn types_are_those_of_events_of_feeds_and_of_ephemeral_messages() {
        let schema = parse::parse(BOOKSHOP).unwrap();
        let read = |text: &str| types(&schema, "types", text.split(','));
        for good in ["message", "typing,online", "order.*, book.created", "*", "replay.*"] {
            assert!(read(good).is_ok(), "{good}");
        }
        assert_eq!(read("message,, typing ").unwrap(), ["message", "typing"]);
        for empty in ["", " ", ",", " , "] {
            assert!(read(empty).unwrap_err().message.contains("empty"), "{empty:?}");
        }
        // `o*` would be `online` and all orders.
        for bad in ["o*", "mess*", "onlin", "orders.*", "**", "key.created"] {
            let problem = read(bad).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some("types"), "{bad}");
        }
        assert!(read(&["message"; MAX_TYPES].join(",")).is_ok());
        assert!(read(&["message"; MAX_TYPES + 1].join(",")).is_err());
    }
}
