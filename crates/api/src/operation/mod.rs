//! The operations on resources, each written once and driven by the schema: list, get, create,
//! replace, update, delete, act. `run` is the table of which request means which.

mod act;
mod event_types;
mod handler;
mod expand;
mod get;
mod list;
mod own;
mod owned;
mod write;

pub use write::{Author, create_record};

use crate::actions::Actions;
use crate::error::Shape;
use crate::in_flight::InFlight;
use crate::respond::Reply;
use crate::route::Target;
use crate::version::Versioning;
use crate::{Outside, body, condition, respond};
use http::{HeaderMap, Method, StatusCode};
use model::caller::{Access, Caller};
use model::decide;
use model::problem::{Code, Problem};
use model::query::View;
use model::record::{Fields, Record};
use model::schema::{Builtin, Collection, CollectionIx, Schema};
use model::version::{self, Lens};
use model::write::{Cause, Change, Idempotency, Precondition, Write};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use store::Store;

/// Why an operation has no result.
pub enum Failure {
    Problem(Problem),
    Store(store::Error),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::Problem(problem)
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Failure {
        Failure::Store(error)
    }
}

/// What an operation may look at and use.
pub struct Context<'a> {
    pub schema: &'a Arc<Schema>,
    /// The version that is spoken: what comes in and goes out has its shape.
    pub version: &'a Arc<version::View>,
    pub versions: &'a Arc<Versioning>,
    pub store: &'a Arc<dyn Store>,
    pub outside: &'a Arc<dyn Outside>,
    pub outgoing: &'a wire::Client,
    pub in_flight: &'a Arc<InFlight>,
    pub actions: &'a Arc<Actions>,
    pub cursor_key: &'a [u8; 32],
    pub caller: &'a Caller,
    pub target: &'a Target,
    pub method: &'a Method,
    pub path: &'a str,
    pub query: &'a str,
    pub headers: &'a HeaderMap,
    pub request_id: &'a str,
    /// Who asks, behind the proxies that are trusted.
    pub client: IpAddr,
    pub error_shape: Shape,
    /// The request body; empty for reads.
    pub body: &'a [u8],
    pub idempotency: Option<&'a Idempotency>,
}

impl<'a> Context<'a> {
    pub fn collection(&self) -> &'a Collection {
        &self.schema.collections[self.target.collection]
    }

    /// How the version shows the collection, where it differs from what is kept.
    pub fn lens(&self) -> Option<&'a Lens> {
        self.version.lens(self.target.collection)
    }

    /// Whether the version may have other names, values or codes than what is kept.
    fn speaks_otherwise(&self) -> bool {
        self.version.index > 0 || self.version.words(self.target.collection).is_some()
    }

    /// Whether the records are events, and not asked for in the newest version: what they are about
    /// has the shape of a collection each.
    pub fn tells_of_old(&self) -> bool {
        self.version.index > 0 && self.collection().builtin == Some(Builtin::Event)
    }

    /// A record of the collection of events as the version tells it; others as they are.
    pub fn told(&self, record: Record) -> Record {
        self.versions.told(self.collection(), self.version, record)
    }

    /// A problem of the newest shape, in the words of the version.
    fn explain(&self, problem: Problem) -> Problem {
        // They name ids, which may read like the name of a field, and fields of other collections.
        match problem.code {
            Code::NotFound => return problem,
            Code::StillReferenced => return self.without_unreadable(problem),
            _ => {}
        }
        // Looked at once more: what was read of it has become a write. Parameters are no fields.
        let sent = match self.target.action {
            None => body::object(self.body, true).unwrap_or_default(),
            Some(_) => Fields::new(),
        };
        self.version.explain(self.target.collection, &sent, problem)
    }

    /// A refused delete names no record that the key may not read.
    fn without_unreadable(&self, mut problem: Problem) -> Problem {
        let mut unreadable = BTreeSet::new();
        let referrers = problem.extra.get_mut("referrers").and_then(Value::as_array_mut);
        for referrer in referrers.into_iter().flatten() {
            let object = referrer["object"].as_str().unwrap_or_default();
            let named = self.schema.collections.iter().find(|other| other.object == object);
            let name = named.map_or(object, |other| &*other.name).to_owned();
            if !self.caller.may(&name, Access::Read) {
                referrer["id"] = Value::Null;
                unreadable.insert(format!("`{name}`"));
            }
        }
        if !unreadable.is_empty() {
            let names: Vec<String> = unreadable.into_iter().collect();
            problem.message = format!(
                "The {} cannot be deleted: records of {} refer to it, which this key may not read.",
                self.collection().object,
                names.join(", ")
            );
        }
        problem
    }

    /// Which view of a record a tag is for: stored shape, API version, members shown.
    pub fn plain_view(&self) -> u64 {
        plain_view(&self.version.schema, &**self.store, self.target.collection)
    }

    fn write(&self, change: Change) -> Result<Write, Problem> {
        Ok(Write {
            scope: self.caller.scope,
            collection: self.target.collection,
            id: self.target.id.clone(),
            parent: self.target.parent_id().map(str::to_owned),
            view: self.speaks_otherwise().then(|| self.version.clone()),
            precondition: match change {
                // Looked at before: it is about the collection.
                Change::Create { .. } => Precondition::None,
                _ => self.precondition()?,
            },
            change,
            idempotency: self.idempotency.cloned(),
            cause: Cause {
                request: Some(self.request_id.to_owned()),
                idempotency_key: self.idempotency.map(|idempotency| idempotency.key.clone()),
                client: Some(self.client),
            },
            now: self.outside.now(),
            entropy: self.outside.entropy(),
        })
    }

    fn precondition(&self) -> Result<Precondition, Problem> {
        let precondition = condition::of_write(self.headers)?;
        let guards_existing = self.target.id.is_some();
        let demanded = self.collection().require_if_match && guards_existing;
        if demanded && !condition::guards(self.headers) {
            let message = "Writes to this collection need `If-Match` with the record's ETag.";
            return Err(Problem::new(Code::PreconditionRequired, message).param("If-Match"));
        }
        Ok(precondition)
    }

    /// Every parent in the path must exist, each under the one before it.
    async fn check_parents(&self) -> Result<(), Failure> {
        let mut above: Option<&str> = None;
        for (collection, id) in &self.target.parents {
            let found = self.store.record(self.caller.scope, *collection, above, id).await?;
            if found.is_none() {
                return Err(decide::not_found(&self.schema.collections[*collection], id).into());
            }
            above = Some(id);
        }
        Ok(())
    }
}

/// The number in a record's tag for everything but its version. Plain views are numbered without
/// hashing: this is on the way of every read.
pub fn plain_view(schema: &Schema, store: &dyn Store, collection: CollectionIx) -> u64 {
    let shape = store.shape(collection);
    let version = schema.service.version.bytes().filter(u8::is_ascii_digit);
    let date = version.fold(0u64, |date, digit| date * 10 + u64::from(digit - b'0'));
    date << 24 ^ u64::try_from(shape).unwrap_or(0) << 8 ^ u64::try_from(collection).unwrap_or(0)
}

/// What a request to a resource needs the key to be allowed to do.
pub fn access(method: &Method) -> Access {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => Access::Read,
        _ => Access::Write,
    }
}

/// Runs the operation that method and target name. The method is one that `route::offers`.
/// All but the commonest are boxed: a future is as large as the largest it may hold, and this one
/// is made and moved for every request.
pub async fn run(context: &Context<'_>) -> Result<Reply, Failure> {
    let target = context.target;
    match (context.method.as_str(), &target.id, target.action) {
        ("GET" | "HEAD", Some(id), None) => get::get(context, id).await,
        ("GET" | "HEAD", None, _) => Box::pin(list::list(context)).await,
        ("POST", None, _) => Box::pin(write::create(context)).await,
        ("PUT", Some(_), None) => Box::pin(write::replace(context)).await,
        ("PATCH", Some(_), None) => Box::pin(write::update(context)).await,
        ("DELETE", Some(_), None) => Box::pin(write::delete(context)).await,
        ("POST", Some(_), Some(action)) => Box::pin(act::act(context, action)).await,
        _ => Ok(Reply::empty(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

/// Commits and says what came of it.
async fn commit(context: &Context<'_>, write: Write) -> Result<Reply, Failure> {
    use model::write::Committed;
    let tag = context.plain_view();
    let shape = context.error_shape;
    let answer = |response, request: &str| {
        let response = context.versions.response(context.collection(), context.version, response);
        respond::written(context.version, context.target, response, tag, shape, request)
    };
    let committed = context.store.commit(write).await?;
    match committed.map_err(|problem| context.explain(problem))? {
        Committed::Fresh(response) => Ok(answer(response, context.request_id)),
        Committed::Replayed { response, request } => {
            Ok(respond::replayed(answer(response, &request)))
        }
    }
}

/// A hash of what is shown, for the tags of views that are put together.
pub fn digest_number(bytes: &[u8]) -> u64 {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(bytes);
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has more than 8 bytes"))
}

fn read_view(context: &Context<'_>) -> Result<View, Problem> {
    if context.query.is_empty() {
        return Ok(View::default());
    }
    let pairs = crate::route::query_pairs(context.query)?;
    model::query::view(&context.version.schema, context.target.collection, &pairs)
}
