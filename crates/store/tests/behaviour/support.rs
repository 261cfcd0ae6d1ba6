//! What the suite works with: a small schema made by hand, short ways to write, and a bed that
//! holds a store with a clock of its own. Knows no kind of store.

use model::id::Entropy;
use model::query::{Filter, Page, Query, SortKey, Test};
use model::record::{Fields, Scalar};
use model::schema::rule::{Expression, Rule, Template};
use model::schema::{
    Action, Assignment, ErrorShape, EventNames, Feed, Kind, Operations, RateLimit, Service, States,
    Timed,
};
use model::write::{Cause, Committed, Idempotency, Precondition, Response};
use model::{Change, Collection, Field, Problem, Record, Schema, Scope, Timestamp, Write};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use store::{Error, Store};

pub const BOOKS: usize = 0;
pub const REVIEWS: usize = 1;
pub const REPLIES: usize = 2;
pub const ORDERS: usize = 3;
pub const MESSAGES: usize = 4;
pub const ACCOUNTS: usize = 5;
pub const KEYS: usize = 6;

pub const PAY: usize = 0;
pub const DECLINE: usize = 1;

pub const HERE: Scope = Scope(20);
pub const THERE: Scope = Scope(22);

pub const START: i64 = 1_700_000_000_000;

/// A store under test, its schema and its clock.
pub struct Bed {
    pub store: Arc<dyn Store>,
    pub time: Arc<AtomicI64>,
    /// Whatever must outlive the store: a directory, a server.
    pub _keep: Box<dyn std::any::Any + Send + Sync>,
}

pub fn schema() -> Schema {
    let mut books = collection(
        "books",
        "book",
        None,
        vec![
            field("title", Kind::String, |f| (f.required, f.search, f.sort) = (true, true, true)),
            field("author", Kind::String, |f| {
                (f.required, f.search, f.filter) = (true, true, true)
            }),
            field("price", Kind::Number, |f| (f.filter, f.sort) = (true, true)),
            field("isbn", Kind::String, |f| f.unique = true),
            field("code", Kind::String, |f| f.unique = true),
            field("stock", Kind::Integer, |f| (f.filter, f.sort) = (true, true)),
            field("note", Kind::String, |f| f.write_only = true),
        ],
    );
    books.indexes = vec![model::schema::Index { fields: vec!["stock".into(), "price".into()] }];
    let service = Service {
        early_hints: Vec::new(),
        name: "shop".into(),
        description: None,
        version: "2026-01-01".into(),
        mount: "/v1".into(),
        errors: ErrorShape::Structured,
        rate_limit: RateLimit { requests: 1, window: Duration::from_secs(1) },
        max_page: 100,
        max_body_bytes: 1 << 20,
        origins: Vec::new(),
    };
    let mut collections = vec![books];
    let parent = |name: &str, target: usize| {
        field(name, Kind::String, |f| (f.reference, f.read_only) = (Some(target), true))
    };
    collections.push(collection(
        "reviews",
        "review",
        Some(BOOKS),
        vec![
            parent("book", BOOKS),
            field("rating", Kind::Integer, |f| (f.filter, f.sort) = (true, true)),
        ],
    ));
    collections.push(collection(
        "replies",
        "reply",
        Some(REVIEWS),
        vec![parent("review", REVIEWS), field("text", Kind::String, |_| {})],
    ));
    collections.push(orders());
    let mut messages = collection(
        "messages",
        "message",
        None,
        vec![field("text", Kind::String, |f| f.search = true)],
    );
    messages.feed = Some(Feed { live_name: "message".into(), author: None });
    collections.push(messages);
    let mut schema = Schema::new(service, collections);
    let published = model::schema::EventType { name: "report.ready".into(), description: None };
    schema.events.published.push(published);
    schema
}

fn orders() -> Collection {
    let mut orders = collection(
        "orders",
        "order",
        None,
        vec![
            field("book", Kind::String, |f| f.reference = Some(BOOKS)),
            field("quantity", Kind::Integer, |_| {}),
            field("status", Kind::String, |f| {
                (f.filter, f.read_only) = (true, true);
                f.choices = ["created", "paid", "shipped"].map(String::from).to_vec();
            }),
            field("failure", Kind::String, |f| f.read_only = true),
        ],
    );
    orders.states = Some(States {
        field: "status".into(),
        initial: "created".into(),
        names: ["created", "paid", "shipped"].map(String::from).to_vec(),
    });
    let action = |name: &str, to: Option<&str>, rules| Action {
        native: None,
        name: name.into(),
        description: None,
        from: vec!["created".into()],
        to: to.map(String::from),
        params: Vec::new(),
        rules,
        set: Vec::new(),
        event: format!("order.{name}"),
        handler: None,
    };
    let declined = Rule {
        when: Expression::compile("true").unwrap(),
        status: 402,
        kind: "card_error".into(),
        code: "card_declined".into(),
        message: "The card was declined.".into(),
        param: None,
        extra: Fields::new(),
        set: vec![Assignment {
            field: "failure".into(),
            value: Template::Fixed(json!("declined")),
        }],
        to: None,
        event: Some("order.payment_failed".into()),
    };
    orders.actions =
        vec![action("pay", Some("paid"), Vec::new()), action("decline", None, vec![declined])];
    orders.timed = vec![Timed {
        from: "paid".into(),
        to: "shipped".into(),
        after: Duration::from_secs(1),
        set: Vec::new(),
        event: "order.shipped".into(),
    }];
    orders
}

pub fn collection(
    name: &str,
    object: &str,
    parent: Option<usize>,
    fields: Vec<Field>,
) -> Collection {
    Collection {
        name: name.into(),
        object: object.into(),
        id_prefix: object.into(),
        description: None,
        parent,
        fields,
        states: None,
        actions: Vec::new(),
        timed: Vec::new(),
        events: EventNames {
            created: format!("{object}.created"),
            updated: format!("{object}.updated"),
            deleted: format!("{object}.deleted"),
        },
        feed: None,
        indexes: Vec::new(),
        operations: Operations::ALL,
        require_if_match: false,
        require_idempotency_key: false,
        cache_control: "no-store".into(),
        early_hints: Vec::new(),
        internal: false,
        removed: false,
        deprecated: None,
        builtin: None,
    }
}

pub fn field(name: &str, kind: Kind, with: impl FnOnce(&mut Field)) -> Field {
    let mut field = Field::new(name, kind);
    with(&mut field);
    field
}

pub fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        other => panic!("not an object: {other}"),
    }
}

/// A wish with fresh entropy; its other parts are set by the test.
pub fn write(collection: usize, id: Option<&str>, change: Change) -> Write {
    static DRAWS: AtomicU64 = AtomicU64::new(1);
    let mut entropy = [7; 32];
    let draw = DRAWS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    entropy[..8].copy_from_slice(&draw);
    entropy[12..20].copy_from_slice(&draw);
    Write {
        scope: HERE,
        collection,
        id: id.map(String::from),
        parent: None,
        change,
        view: None,
        precondition: Precondition::None,
        idempotency: None,
        cause: Cause { request: Some("req_1".into()), ..Cause::default() },
        now: Timestamp(START),
        entropy: Entropy(entropy),
    }
}

pub fn create(collection: usize, value: Value) -> Write {
    write(collection, None, Change::Create { fields: fields(value) })
}

pub fn merge(collection: usize, id: &str, patch: Value) -> Write {
    write(collection, Some(id), Change::Merge { patch: fields(patch) })
}

pub fn delete(collection: usize, id: &str) -> Write {
    write(collection, Some(id), Change::Delete)
}

pub fn keyed(mut write: Write, key: &str, fingerprint: u8) -> Write {
    write.idempotency = Some(Idempotency { key: key.into(), fingerprint: [fingerprint; 32] });
    write.cause.idempotency_key = Some(key.into());
    write
}

pub fn under(mut write: Write, parent: &str) -> Write {
    write.parent = Some(parent.into());
    write
}

pub fn book(title: &str, price: Value) -> Write {
    create(BOOKS, json!({"title": title, "author": "Somebody", "price": price}))
}

impl Bed {
    /// Commits at the bed's time.
    pub async fn commit(&self, mut write: Write) -> Result<Result<Committed, Problem>, Error> {
        write.now = Timestamp(self.time.load(Ordering::Relaxed));
        self.store.commit(write).await
    }

    /// Commits many at once, so that they share batches; the answers in their order.
    pub async fn commit_all(
        &self,
        writes: impl IntoIterator<Item = Write>,
    ) -> Vec<Result<Result<Committed, Problem>, Error>> {
        let tasks: Vec<_> = writes
            .into_iter()
            .map(|write| {
                let store = self.store.clone();
                tokio::spawn(async move { store.commit(write).await })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap());
        }
        answers
    }

    /// Commits many that must all succeed.
    pub async fn put_all(&self, writes: impl IntoIterator<Item = Write>) {
        for answer in self.commit_all(writes).await {
            answer.unwrap().unwrap();
        }
    }

    /// Commits what must succeed with a record.
    pub async fn put(&self, write: Write) -> Record {
        match self.commit(write).await.unwrap().unwrap() {
            Committed::Fresh(Response::Created(record) | Response::Updated(record))
            | Committed::Unchanged(Response::Updated(record)) => record,
            other => panic!("no record: {other:?}"),
        }
    }

    pub async fn refused(&self, write: Write) -> Problem {
        self.commit(write).await.unwrap().unwrap_err()
    }

    pub async fn record(&self, collection: usize, id: &str) -> Option<Record> {
        self.store.record(HERE, collection, None, id).await.unwrap()
    }

    pub fn newest(&self) -> i64 {
        *self.store.position().borrow()
    }

    pub fn pass(&self, millis: i64) {
        self.time.fetch_add(millis, Ordering::Relaxed);
    }

    pub async fn list(&self, query: &Query) -> store::Page {
        self.store.list(HERE, BOOKS, query).await.unwrap()
    }

    /// All rows of a cursor walk.
    pub async fn walk(&self, collection: usize, query: &Query) -> Vec<Record> {
        let mut query = query.clone();
        let mut all = Vec::new();
        loop {
            let page = self.store.list(HERE, collection, &query).await.unwrap();
            assert!(page.records.len() <= query.limit as usize);
            all.extend(page.records);
            match page.position.filter(|_| page.has_more) {
                Some(position) => query.page = Page::After(position),
                None => return all,
            }
        }
    }
}

/// `"price"` ascending, `"-price"` descending; several with commas.
pub fn query(sort: &str, limit: u32) -> Query {
    let keys = sort.split(',').map(|key| match key.strip_prefix('-') {
        Some(field) => SortKey::new(field, true),
        None => SortKey::new(key, false),
    });
    Query {
        parent: None,
        filters: Vec::new(),
        sort: keys.collect(),
        words: Vec::new(),
        revealed: Vec::new(),
        page: Page::First,
        limit,
    }
}

pub fn search(words: &[&str]) -> Query {
    Query { words: words.iter().map(|word| word.to_string()).collect(), ..query("-created_at", 50) }
}

pub fn any_of(field: &str, values: Vec<Scalar>) -> Filter {
    Filter { field: field.into(), test: Test::AnyOf(values) }
}

pub fn value(record: &Record, field: &str) -> Value {
    record.fields().get(field).cloned().unwrap_or(Value::Null)
}

pub fn titles(records: &[Record]) -> Vec<String> {
    let text = |record| value(record, "title").as_str().unwrap_or("?").to_owned();
    records.iter().map(text).collect()
}
