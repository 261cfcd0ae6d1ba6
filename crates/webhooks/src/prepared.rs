//! An event ready to be sent: encoded once per form and version, shared by every endpoint that
//! wants it, and charged to its account for as long as it is held. Knows the form of a body,
//! not who gets it.

use crate::evaluation_time::EvaluationTime;
use bytes::Bytes;
use http::HeaderValue;
use model::Scope;
use model::event::Event;
use model::record::{Fields, parse_object};
use model::version::Versions;
use serde_json::Value;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use wire::{Budget, Share};

/// Erasures that are remembered; more than events can wait in memory in the meantime.
const ERASURES: usize = 10_000;
/// One event is charged at most this part of the budget, so that the largest one still fits.
const LARGEST_PART: usize = 4;

/// Steps of formulas that nobody pays for: a tenth of a millisecond. Most conversions take less,
/// and an account that sends many of them must not be slowed down.
const FREE_UNITS: u64 = 1_000;

/// Why a filter is not evaluated on an event whose record was erased. Members that it asks for are
/// gone: it would fail, or decide by their absence.
pub const FILTER_OF_ERASED: &str = "the record was erased, so the filter cannot judge the event";

pub struct Prepared {
    pub event: Rc<Event>,
    /// The header `webhook-id`.
    pub id: HeaderValue,
    /// How many endpoints are to get it.
    pending: u32,
    /// Of the newest version.
    fat: OnceCell<Bytes>,
    thin: OnceCell<Bytes>,
    /// Bodies of other versions, by version and payload form. There are few at a time.
    older: RefCell<Vec<((usize, bool), Bytes)>>,
    /// What filters look at, by version.
    envelopes: RefCell<Vec<(usize, Rc<Fields>)>>,
    weight: usize,
    share: RefCell<Share<i64>>,
    loaded: Loaded,
}

/// What all prepared events have in common: the budget that they are charged to, how their bodies
/// are made, and which of them must no longer be sent.
#[derive(Clone)]
pub struct Loaded {
    budget: Arc<Budget<i64>>,
    versions: Arc<Versions>,
    erased: Rc<RefCell<Erased>>,
    times: Rc<EvaluationTime>,
}

/// Records whose events were erased from the log, and with which commit. Looked at when a body is
/// needed, so that it holds for events that were read before, wherever they wait.
#[derive(Default)]
struct Erased {
    records: HashMap<(Scope, String), i64>,
    /// The latest last.
    order: VecDeque<(Scope, String)>,
}

impl Loaded {
    /// `bytes` for the events of all accounts; `times`: what they pay for costly conversions.
    pub fn new(versions: Arc<Versions>, bytes: usize, times: Rc<EvaluationTime>) -> Loaded {
        Loaded { budget: Budget::new(bytes), versions, erased: Rc::default(), times }
    }

    pub fn bytes(&self) -> usize {
        self.budget.held()
    }

    /// How much more an account may load now.
    pub fn room(&self, account: i64) -> usize {
        self.budget.room(account)
    }

    /// Sets bytes aside for a read whose size is not known yet: what there is room for, and not
    /// less than `least`. However many accounts hold all they can get, some room is left for one
    /// more, and it must not wait for more than that.
    pub fn reserve(&self, account: i64, bytes: usize, least: usize) -> Option<Share<i64>> {
        let bytes = bytes.min(self.room(account)).max(least).min(self.largest());
        if bytes == 0 { None } else { self.budget.take(account, bytes) }
    }

    fn largest(&self) -> usize {
        self.budget.total() / LARGEST_PART
    }

    /// Events of a record before this commit are not sent any more.
    pub fn erase(&self, scope: Scope, record: &str, seq: i64) {
        let mut erased = self.erased.borrow_mut();
        let key = (scope, record.to_owned());
        if erased.records.insert(key.clone(), seq).is_none() {
            erased.order.push_back(key);
        }
        if erased.order.len() > ERASURES
            && let Some(oldest) = erased.order.pop_front()
        {
            erased.records.remove(&oldest);
        }
    }

    /// Whether a filter has nothing to judge: the record was erased, before the event was read or
    /// since.
    pub fn is_blank(&self, event: &Event) -> bool {
        self.is_erased(event) || model::version::is_erased(&event.object)
    }

    /// Whether the record was erased since the event was read.
    pub fn is_erased(&self, event: &Event) -> bool {
        let erased = self.erased.borrow();
        if erased.records.is_empty() {
            return false;
        }
        let seq = erased.records.get(&(event.scope, event.record.clone()));
        seq.is_some_and(|seq| event.seq < *seq)
    }
}

impl Prepared {
    /// What an event costs here, by what it costs in a read: its texts, and the body made of them.
    pub const BYTES_FACTOR: usize = 2;

    /// Charges the event to its account; `None` while the account has no room for it.
    pub fn new(event: Rc<Event>, pending: u32, loaded: &Loaded) -> Option<Rc<Prepared>> {
        let weight = weigh(&event);
        let account = event.scope.account_number();
        let share = loaded.budget.take(account, weight.min(loaded.largest()))?;
        let id = HeaderValue::from_str(&event.id);
        Some(Rc::new(Prepared {
            id: id.unwrap_or_else(|_| HeaderValue::from_static("")),
            event,
            pending,
            fat: OnceCell::new(),
            thin: OnceCell::new(),
            older: RefCell::default(),
            envelopes: RefCell::default(),
            weight,
            share: RefCell::new(share),
            loaded: loaded.clone(),
        }))
    }

    pub fn weight(&self) -> usize {
        self.weight
    }

    pub fn is_blank(&self) -> bool {
        self.loaded.is_blank(&self.event)
    }

    /// The body in the version at this place; the newest is at 0.
    pub fn body(&self, thin: bool, version: usize) -> Bytes {
        if self.loaded.is_erased(&self.event) {
            return Bytes::from(self.erased(version));
        }
        if version > 0 {
            return self.older_body(thin, version);
        }
        let cell = if thin { &self.thin } else { &self.fat };
        cell.get_or_init(|| Bytes::from(self.encode(thin, 0))).clone()
    }

    fn older_body(&self, thin: bool, version: usize) -> Bytes {
        let key = (version, thin);
        let mut older = self.older.borrow_mut();
        if let Some((_, body)) = older.iter().find(|(known, _)| *known == key) {
            return body.clone();
        }
        let body = Bytes::from(match self.is_costly(thin, version) {
            true => self.loaded.times.measure(self.account(), || self.encode(thin, version)),
            false => self.encode(thin, version),
        });
        // Without room it is made again for the next endpoint.
        if self.share.borrow_mut().grow(body.len()) {
            older.push((key, body.clone()));
        }
        body
    }

    /// Whether the formulas of a version could keep others waiting. The account pays for them.
    fn is_costly(&self, thin: bool, version: usize) -> bool {
        !thin && self.loaded.versions.event_units(&self.event, version) > FREE_UNITS
    }

    fn account(&self) -> i64 {
        self.event.scope.account_number()
    }

    /// What a filter sees: the whole envelope in the version of what is sent, thin or not.
    pub fn envelope(&self, version: usize) -> Rc<Fields> {
        let mut envelopes = self.envelopes.borrow_mut();
        if let Some((_, envelope)) = envelopes.iter().find(|(known, _)| *known == version) {
            return envelope.clone();
        }
        let body = self.body(false, version);
        let read = || serde_json::from_slice::<Fields>(&body).unwrap_or_default();
        let envelope = Rc::new(self.loaded.times.measure(self.account(), read));
        if self.share.borrow_mut().grow(self.weight) {
            envelopes.push((version, envelope.clone()));
        }
        envelope
    }

    fn encode(&self, thin: bool, version: usize) -> String {
        if !thin {
            return self.loaded.versions.envelope(&self.event, version, self.pending);
        }
        // No more of the object than what it takes to fetch it.
        let mut object = parse_object(&self.event.object);
        object.retain(|name, _| matches!(name.as_str(), "id" | "object"));
        self.reduced(object, version)
    }

    /// As the log has it since.
    fn erased(&self, version: usize) -> String {
        let mut object = parse_object(&self.event.object);
        object.retain(|name, _| name == "object");
        object.insert("id".into(), Value::String(self.event.record.clone()));
        object.insert("erased".into(), Value::Bool(true));
        self.reduced(object, version)
    }

    /// The envelope with this in place of the record.
    fn reduced(&self, object: Fields, version: usize) -> String {
        let view = self.loaded.versions.get(version);
        let date = view.map_or("", |view| view.date.as_str());
        self.event.envelope_of(date, &Value::Object(object).to_string(), None, self.pending)
    }
}

/// What an event costs while it is loaded.
pub fn weigh(event: &Event) -> usize {
    Prepared::BYTES_FACTOR * store::event_bytes(event)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use model::{Scope, Timestamp};
    use serde_json::json;

    pub(crate) fn loaded() -> Loaded {
        let schema = model::parse::parse(model::schema::BOOKSHOP).unwrap();
        Loaded::new(Arc::new(Versions::new(&Arc::new(schema))), 1 << 20, Rc::default())
    }

    pub(crate) fn prepared(seq: i64, record: &str, loaded: &Loaded) -> Rc<Prepared> {
        Prepared::new(Rc::new(event(seq, record)), 1, loaded).unwrap()
    }

    pub(crate) fn event(seq: i64, record: &str) -> Event {
        Event {
            seq,
            id: format!("evt_{seq}"),
            scope: Scope::new(1, false),
            kind: "book.updated".into(),
            created: Timestamp(1_760_000_000_000),
            collection: "books".into(),
            record: record.into(),
            api_version: "2026-11-15".into(),
            object: json!({ "id": record, "object": "book", "title": "Emma" }).to_string(),
            previous: Some(json!({ "title": "Ema" }).to_string()),
            hidden: None,
            request: Some("req_1".into()),
            idempotency_key: None,
        }
    }

    #[test]
    fn a_thin_body_has_only_the_id_of_the_record() {
        let loaded = loaded();
        let prepared = Prepared::new(Rc::new(event(7, "book_1")), 3, &loaded).unwrap();
        let read = |bytes: Bytes| serde_json::from_slice::<Value>(&bytes).unwrap();
        let (fat, mut thin) = (read(prepared.body(false, 0)), read(prepared.body(true, 0)));
        assert_eq!(fat["data"]["object"]["title"], "Emma");
        assert_eq!(fat["pending_webhooks"], 3);
        assert_eq!(thin["data"], json!({ "object": { "id": "book_1", "object": "book" } }));
        thin["data"] = fat["data"].clone();
        assert_eq!(thin, fat);
        assert_eq!(prepared.envelope(0)["type"], "book.updated");
    }

    #[test]
    fn an_event_is_charged_until_the_last_holder_drops_it() {
        let loaded = loaded();
        let first = prepared(1, "a", &loaded);
        let second = first.clone();
        assert_eq!(loaded.bytes(), first.weight());
        first.envelope(0);
        assert_eq!(loaded.bytes(), 2 * first.weight());
        drop(first);
        assert!(loaded.bytes() > 0);
        drop(second);
        assert_eq!(loaded.bytes(), 0);
    }

    #[test]
    fn an_event_larger_than_the_whole_budget_still_fits() {
        let mut large = event(1, "a");
        large.object = "x".repeat(4 << 20);
        let loaded = loaded();
        assert!(Prepared::new(Rc::new(large), 1, &loaded).is_some());
    }
}
