//! One event, as it arrived.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{HashSet, VecDeque};

/// An event of the log, or a new record of a feed.
#[derive(Clone, Debug)]
pub struct Event {
    kind: String,
    text: String,
    position: String,
    head: Box<Head>,
}

/// The members that identify it. An envelope has `created`, a record of a feed `created_at`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    id: Value,
    object: Value,
    #[serde(rename = "type")]
    kind: Value,
    created: Option<u64>,
    created_at: Value,
    data: Option<Data>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    object: Option<Object>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    id: Value,
    object: Value,
    created_at: Value,
}

impl Event {
    pub(super) fn new(kind: String, text: String, position: String) -> Event {
        let head = Box::new(serde_json::from_str(&text).unwrap_or_default());
        Event { kind, text, position, head }
    }

    /// An event from the list of events, which has no position.
    pub(super) fn listed(text: String, position: String) -> Event {
        let head: Head = serde_json::from_str(&text).unwrap_or_default();
        let kind = head.kind.as_str().unwrap_or_default().to_owned();
        Event { kind, text, position, head: Box::new(head) }
    }

    /// The event's type, such as `order.created`. A new record of a feed has the feed's live name,
    /// such as `message`; if it was read again after a gap, it is an envelope of type
    /// `message.created`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The id of the event; `None` for a record of a feed, which has only its own.
    pub fn id(&self) -> Option<&str> {
        self.is_envelope().then(|| self.head.id.as_str()).flatten()
    }

    /// The envelope, or the record of a feed: JSON as the server sent it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text as any type that serde can read.
    pub fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.text)
    }

    /// Where a follower continues after this event, on any channel.
    pub fn position(&self) -> &str {
        &self.position
    }

    pub(super) fn move_to(&mut self, position: String) {
        self.position = position;
    }

    /// The id of a record of a feed.
    pub(super) fn number(&self) -> Option<u64> {
        self.head.id.as_u64()
    }

    pub(super) fn is_envelope(&self) -> bool {
        self.head.object == "event"
    }

    /// Unix seconds.
    pub(super) fn created(&self) -> Option<u64> {
        self.head.created.or_else(|| seconds(self.head.created_at.as_str()?))
    }

    /// What the event is, the same on all channels and in the list: the id of the event, or for a
    /// new record, also in its envelope, the record with its time.
    pub(super) fn mark(&self) -> String {
        let head = &self.head;
        let object = head.data.as_ref().and_then(|data| data.object.as_ref());
        match object {
            _ if !self.is_envelope() => {
                format!("{} {} {}", head.object, head.id, head.created_at)
            }
            // Only feeds have numbers as ids.
            Some(object) if object.id.is_number() && self.kind.ends_with(".created") => {
                format!("{} {} {}", object.object, object.id, object.created_at)
            }
            _ => head.id.as_str().unwrap_or_default().to_owned(),
        }
    }
}

/// The Unix seconds of a time such as `2026-11-18T11:24:31.562Z`.
fn seconds(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !text.ends_with('Z') || year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    // Days since 1970 in the Gregorian calendar; years begin in March, so that a leap day is last.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1;
    Some((days.checked_sub(719_468)? * 24 + hour) * 3600 + minute * 60 + second)
}

/// The marks of the last events, to recognise one that arrives again on another way.
#[derive(Default)]
pub(super) struct Recent {
    order: VecDeque<String>,
    marks: HashSet<String>,
}

/// More than the server commits between two statements of one request, which is how far the list
/// of events and the stream can overlap.
const RECENT: usize = 4096;

impl Recent {
    /// False if it is known.
    pub(super) fn insert(&mut self, mark: String) -> bool {
        if mark.is_empty() || !self.marks.insert(mark.clone()) {
            return mark.is_empty();
        }
        self.order.push_back(mark);
        if self.order.len() > RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.marks.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_unix_seconds() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-18T11:24:31.562Z", Some(1_795_001_071)),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199)),
            ("2000-03-01T00:00:00.000Z", Some(951_868_800)),
            ("2026-11-18", None),
            ("2026-11-18T11:24:31+01:00", None),
            ("1969-12-31T23:59:59Z", None),
            ("", None),
            ("üüüüüüüüüüüüüüüüüü", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_record_and_its_envelope_have_the_same_mark() {
        let record =
            r#"{"id":5,"object":"message","text":"x","created_at":"2026-11-18T11:24:31Z"}"#;
        let envelope = format!(
            r#"{{"id":"evt_1","object":"event","type":"message.created","created":1,
            "data":{{"object":{record}}}}}"#
        );
        let record = Event::new("message".into(), record.into(), "e.5".into());
        let listed = Event::listed(envelope, "e.5".into());
        assert_eq!(record.mark(), listed.mark());
        assert_eq!((record.id(), listed.id()), (None, Some("evt_1")));
        assert_eq!((record.kind(), listed.kind()), ("message", "message.created"));
        let book = r#"{"id":"evt_2","object":"event","data":{"object":{"id":"book_1"}}}"#;
        assert_eq!(Event::new("book.created".into(), book.into(), "e.6".into()).mark(), "evt_2");
    }

    #[test]
    fn known_events_are_recognised_and_old_ones_forgotten() {
        let mut recent = Recent::default();
        assert!(recent.insert("first".into()));
        assert!(!recent.insert("first".into()));
        assert!(recent.insert(String::new()) && recent.insert(String::new()), "not recognisable");
        (0..RECENT).for_each(|number| assert!(recent.insert(number.to_string())));
        assert!(recent.insert("first".into()));
        assert_eq!(recent.marks.len(), RECENT);
    }
}
