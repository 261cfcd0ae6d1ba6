//! An event as the channels carry it: encoded once for each kind of channel and each version, when
//! it is first wanted, and shared by all connections that receive it.

use crate::conversions::INLINE_EVENT_UNITS;
use crate::kind::Kind;
use crate::position::Epoch;
use bytes::Bytes;
use model::event::Event;
use model::record::push_text;
use model::schema::Schema;
use model::version::Versions;
use model::webhook::pattern;
use model::{CollectionIx, Scope};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use wire::websocket::{self, Deflate};

/// How the channel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Sse,
    Socket,
    /// A WebSocket that agreed on compression.
    Deflated(Deflate),
}

/// What encoding needs besides the event.
#[derive(Debug)]
pub struct Codec {
    pub schema: Arc<Schema>,
    pub versions: Versions,
    pub epoch: Epoch,
}

/// A durable event.
#[derive(Debug)]
pub struct Entry {
    pub event: Event,
    /// Whether those who want everything want it: it is none of the service's own objects.
    pub is_for_all: bool,
    /// An erasure has removed its data.
    pub is_erased: bool,
    /// Whether the newest version has what it is about.
    is_visible: bool,
    collection: Option<CollectionIx>,
    codec: Arc<Codec>,
    /// Of the newest version.
    frames: Frames,
    /// Of the others, by their places after the newest; made when the first of them is wanted.
    older: OnceLock<Box<[Frames]>>,
    parent: OnceLock<Option<String>>,
}

/// One version's bytes for each kind of channel.
#[derive(Debug, Default)]
struct Frames {
    sse: OnceLock<Bytes>,
    socket: OnceLock<Bytes>,
    deflated: OnceLock<Option<Bytes>>,
}

impl Entry {
    pub fn new(codec: &Arc<Codec>, event: Event) -> Entry {
        let collection = codec.schema.find(&event.collection);
        Entry {
            is_for_all: pattern::matches("*", &event.kind),
            is_erased: false,
            is_visible: collection.is_none_or(|ix| !codec.schema.collections[ix].removed),
            collection,
            event,
            codec: codec.clone(),
            frames: Frames::default(),
            older: OnceLock::new(),
            parent: OnceLock::new(),
        }
    }

    /// The same event as the log has it after an erasure of its record.
    pub fn erased(&self) -> Entry {
        let object: Value = serde_json::from_str(&self.event.object).unwrap_or_default();
        let object = object.get("object").unwrap_or(&Value::Null);
        let mut erased = String::from("{\"id\":");
        push_text(&mut erased, &self.event.record);
        let _ = write!(erased, ",\"object\":{object},\"erased\":true}}");
        let event = Event { object: erased, previous: None, hidden: None, ..self.event.clone() };
        Entry { is_erased: true, ..Entry::new(&self.codec, event) }
    }

    /// What it is called on the channels: new records of a feed by the feed's live name, everything
    /// else by its type.
    pub fn name(&self) -> &str {
        self.live_name().unwrap_or(&self.event.kind)
    }

    fn live_name(&self) -> Option<&str> {
        let collection = &self.codec.schema.collections[self.collection?];
        let feed = collection.feed.as_ref()?;
        (self.event.kind == collection.events.created).then_some(&feed.live_name)
    }

    /// Id of the parent record, where there is one.
    pub fn parent(&self) -> Option<&str> {
        let found = self.parent.get_or_init(|| {
            let field = self.codec.schema.parent_field(self.collection?)?;
            let object: Value = serde_json::from_str(&self.event.object).ok()?;
            Some(object.get(field)?.as_str()?.to_owned())
        });
        found.as_deref()
    }

    /// The bytes that carry it, in the version at this place; the newest is at 0.
    pub fn frame(&self, encoding: Encoding, version: usize) -> Bytes {
        let frames = self.frames(version);
        match encoding {
            Encoding::Sse => frames.sse.get_or_init(|| self.encode_sse(version)).clone(),
            Encoding::Socket => {
                let encode = || websocket::text(&self.encode_message(version));
                frames.socket.get_or_init(encode).clone()
            }
            Encoding::Deflated(deflate) => self.deflate(&deflate, version),
        }
    }

    /// The same where it is there already or can be made in no time; if not, it is made by `frame`
    /// on a thread of `Conversions`.
    pub fn ready_frame(&self, encoding: Encoding, version: usize) -> Option<Bytes> {
        let is_quick = self.is_made(encoding, version) || !self.is_costly(version);
        is_quick.then(|| self.frame(encoding, version))
    }

    fn is_made(&self, encoding: Encoding, version: usize) -> bool {
        let frames = self.frames(version);
        match encoding {
            Encoding::Sse => frames.sse.get().is_some(),
            Encoding::Socket => frames.socket.get().is_some(),
            Encoding::Deflated(deflate) if is_usual(&deflate) => match frames.deflated.get() {
                Some(None) => frames.socket.get().is_some(),
                deflated => deflated.is_some(),
            },
            // What takes long is sent without compression then.
            Encoding::Deflated(_) => self.is_costly(version) && frames.socket.get().is_some(),
        }
    }

    /// Whether the conversion to a version could keep others waiting.
    pub fn is_costly(&self, version: usize) -> bool {
        self.codec.versions.event_units(&self.event, version) > INLINE_EVENT_UNITS
    }

    fn frames(&self, version: usize) -> &Frames {
        let Some(place) = version.checked_sub(1) else { return &self.frames };
        let older = self.older.get_or_init(|| {
            self.codec.versions.iter().skip(1).map(|_| Frames::default()).collect()
        });
        older.get(place).unwrap_or(&self.frames)
    }

    /// Whether clients of a version receive it: their version must have the collection.
    pub fn is_visible_in(&self, version: usize) -> bool {
        match (version, self.collection) {
            (0, _) => self.is_visible,
            (_, None) => true,
            (_, Some(collection)) => {
                let view = self.codec.versions.get(version);
                view.is_some_and(|view| !view.schema.collections[collection].removed)
            }
        }
    }

    /// The record it is about, in a version.
    pub fn object(&self, version: usize) -> Cow<'_, str> {
        self.codec.versions.object(&self.event, version)
    }

    /// Roughly what it takes to keep it.
    pub fn size_bytes(&self) -> usize {
        // Encoded, it stands here again for each kind of channel, with its envelope. Where there
        // are older versions, a second one is expected to be wanted, seldom more.
        let previous = self.event.previous.as_ref().map_or(0, String::len);
        let shapes = if self.codec.versions.get(1).is_some() { 2 } else { 1 };
        3 * shapes * (self.event.object.len() + previous + 300) + size_of::<Entry>()
    }

    fn deflate(&self, deflate: &Deflate, version: usize) -> Bytes {
        let encode = || websocket::deflated(&self.encode_message(version), deflate);
        // Another window than the usual one is rare enough to be encoded each time, and to be sent
        // without compression where that takes long.
        let compressed = match is_usual(deflate) {
            true => self.frames(version).deflated.get_or_init(encode).clone(),
            false if self.is_costly(version) => None,
            false => encode(),
        };
        compressed.unwrap_or_else(|| self.frame(Encoding::Socket, version))
    }

    fn data(&self, version: usize) -> Cow<'_, str> {
        match self.live_name() {
            Some(_) => self.object(version),
            // How many webhooks are still to come is for `GET /v1/events/{id}`: it changes.
            None => self.codec.versions.envelope(&self.event, version, 0).into(),
        }
    }

    fn encode_sse(&self, version: usize) -> Bytes {
        let position = self.codec.epoch.at(self.event.seq).to_string();
        sse(Some(self.name()), Some(&position), &self.data(version))
    }

    fn encode_message(&self, version: usize) -> String {
        let position = self.codec.epoch.at(self.event.seq);
        // Names and positions need no escaping.
        let (name, data) = (self.name(), self.data(version));
        format!("{{\"type\":\"{name}\",\"position\":\"{position}\",\"data\":{data}}}")
    }
}

fn is_usual(deflate: &Deflate) -> bool {
    deflate.server_window_bits == Deflate::USUAL.server_window_bits
}

/// One block of an event stream. Data of several lines is a field for each of them.
pub fn sse(name: Option<&str>, id: Option<&str>, data: &str) -> Bytes {
    let mut out = String::with_capacity(data.len() + 96);
    for (field, value) in [("event", name), ("id", id)] {
        if let Some(value) = value {
            out.push_str(field);
            out.push_str(": ");
            out.push_str(value);
            out.push('\n');
        }
    }
    let mut rest = data;
    loop {
        let end = rest.find(['\r', '\n']).unwrap_or(rest.len());
        out.push_str("data: ");
        out.push_str(&rest[..end]);
        out.push('\n');
        let width = match rest.as_bytes().get(end..) {
            None | Some([]) => break,
            Some([b'\r', b'\n', ..]) => 2,
            Some(_) => 1,
        };
        rest = &rest[end + width..];
    }
    out.push('\n');
    Bytes::from(out)
}

/// A message for the connections that are open now, which is not stored.
#[derive(Debug)]
pub struct Ephemeral {
    pub scope: Scope,
    pub kind: Kind,
    /// The connection that sent it, which does not receive it.
    pub from: Option<u32>,
    /// The record that it is about, if the sender named one.
    pub about: Option<Box<str>>,
    sse: OnceLock<Bytes>,
    socket: OnceLock<Bytes>,
    /// Members of the message after its type, as they stand in a JSON object.
    members: String,
}

impl Ephemeral {
    pub fn new(scope: Scope, kind: Kind, from: Option<u32>, members: String) -> Ephemeral {
        let (sse, socket) = (OnceLock::new(), OnceLock::new());
        Ephemeral { scope, kind, from, about: None, sse, socket, members }
    }

    /// Members of the message after its type.
    pub fn members(&self) -> &str {
        &self.members
    }

    pub fn about(self, about: Option<String>) -> Ephemeral {
        Ephemeral { about: about.map(String::into_boxed_str), ..self }
    }

    /// Roughly what it takes to keep it, encoded for both kinds of channel.
    pub fn size_bytes(&self) -> usize {
        let about = self.about.as_ref().map_or(0, |about| about.len());
        3 * (self.members.len() + 64) + about + size_of::<Ephemeral>()
    }

    pub fn frame(&self, encoding: Encoding) -> Bytes {
        let (name, members) = (self.kind.name(), &self.members);
        match encoding {
            // Without an id: ephemeral messages do not move the position in the log.
            Encoding::Sse => {
                self.sse.get_or_init(|| sse(Some(name), None, &format!("{{{members}}}"))).clone()
            }
            Encoding::Socket | Encoding::Deflated(_) => {
                let message = || format!("{{\"type\":\"{name}\",{members}}}");
                self.socket.get_or_init(|| websocket::text(&message())).clone()
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use model::Timestamp;
    use model::parse;
    use model::schema::BOOKSHOP;

    #[test]
    fn data_of_several_lines_is_a_field_for_each() {
        let block = |data| String::from_utf8(sse(None, None, data).to_vec()).unwrap();
        assert_eq!(block("one"), "data: one\n\n");
        assert_eq!(block(""), "data: \n\n");
        assert_eq!(block("a\nb\rc\r\nd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
        assert_eq!(block("a\n"), "data: a\ndata: \n\n");
        assert_eq!(block("a\n\r\nb"), "data: a\ndata: \ndata: b\n\n");
    }

    pub fn codec() -> Arc<Codec> {
        static CODEC: OnceLock<Arc<Codec>> = OnceLock::new();
        let codec = || {
            let schema = Arc::new(parse::parse(BOOKSHOP).unwrap());
            let versions = Versions::new(&schema);
            Arc::new(Codec { schema, versions, epoch: Epoch(0xab) })
        };
        CODEC.get_or_init(codec).clone()
    }

    /// An event of the bookshop; its type begins with the object whose collection it is one of.
    pub fn event(scope: i64, seq: i64, kind: &str, record: &str, object: &str) -> Event {
        let name = kind.split('.').next().unwrap();
        Event {
            seq,
            id: format!("evt_{seq}"),
            scope: Scope(scope),
            kind: kind.into(),
            created: Timestamp(0),
            collection: format!("{name}s"),
            record: record.into(),
            api_version: String::new(),
            object: object.into(),
            previous: None,
            hidden: None,
            request: None,
            idempotency_key: None,
        }
    }

    fn entry() -> Entry {
        let text = "the same again and again. ".repeat(40);
        let object = format!("{{\"id\":7,\"text\":\"{text}\"}}");
        Entry::new(&codec(), event(1, 7, "message.created", "7", &object))
    }

    #[test]
    fn an_event_is_encoded_once_for_each_kind_of_channel() {
        let entry = entry();
        let usual = Encoding::Deflated(Deflate::USUAL);
        let place = |encoding| entry.frame(encoding, 0).as_ptr();
        let places = [Encoding::Sse, Encoding::Socket, usual].map(place);
        assert!(places[0] != places[1] && places[1] != places[2]);
        // The next caller is given the same bytes.
        assert_eq!([Encoding::Sse, Encoding::Socket, usual].map(place), places);
        let ephemeral = Ephemeral::new(Scope(1), Kind::Typing, None, "\"user\":\"ann\"".into());
        let place = |encoding| ephemeral.frame(encoding).as_ptr();
        assert_eq!(place(Encoding::Sse), place(Encoding::Sse));
        assert_eq!(place(Encoding::Socket), place(usual));
    }

    #[test]
    fn a_block_names_its_kind_and_its_place() {
        let block = sse(Some("message"), Some("000000ab.7"), "{}");
        assert_eq!(&block[..], b"event: message\nid: 000000ab.7\ndata: {}\n\n");
    }
}
