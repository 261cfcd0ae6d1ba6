//! The operations on resources, each written once and driven by the schema: list, get, create,
//! replace, update, delete, act. `run` maps each request to its operation.

mod act;
mod event_types;
mod handler;
mod expand;
mod get;
pub(crate) mod list;
mod own;
mod write;

pub use write::{Author, create_record};

use crate::error::Failure;
use crate::request::RequestInfo;
use crate::respond::Reply;
use crate::services::Services;
use crate::{body, condition, convert, respond};
use http::{HeaderValue, Method, StatusCode};
use model::caller::Access;
use model::decide;
use model::problem::{Code, Problem};
use model::query::View;
use model::record::{Fields, Record};
use model::schema::{Collection, CollectionIx, Schema};
use model::version::Lens;
use model::write::{Cause, Change, Precondition, Write};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::Store;

/// A request with the services that its operation may use.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    pub services: &'a Arc<Services>,
    pub request: &'a RequestInfo,
}

impl<'a> Operation<'a> {
    pub fn collection(&self) -> &'a Collection {
        &self.services.schema.collections[self.request.target.collection]
    }

    /// How long caches may keep a response.
    fn cache_control(&self) -> Option<HeaderValue> {
        self.services.cache_controls.get(self.request.target.collection)?.clone()
    }

    /// The conversion of the collection's records to the version, if it differs from the stored
    /// shape.
    pub fn lens(&self) -> Option<&'a Lens> {
        self.request.version.lens(self.request.target.collection)
    }

    /// Whether the version may have other names, values or codes than the stored shape.
    fn differs_from_newest(&self) -> bool {
        self.request.version.index > 0
            || self.request.version.words(self.request.target.collection).is_some()
    }

    /// Whether the version shows the records of the collection as they are stored.
    pub fn is_as_stored(&self) -> bool {
        let collection = self.request.target.collection;
        let is_event = convert::is_old_event(self.services, &self.request.version, collection);
        self.lens().is_none() && !is_event
    }

    /// The texts of records of a collection in the version.
    pub async fn texts(&self, collection: CollectionIx, records: Vec<Record>) -> Vec<String> {
        convert::texts(self.services, self.account(), &self.request.version, collection, records)
            .await
    }

    fn account(&self) -> i64 {
        self.request.caller().scope.account_number()
    }

    /// Converts a problem from the newest shape to the names of the version.
    fn explain(&self, problem: Problem) -> Problem {
        // These name ids, which can look like field names, and fields of other collections.
        match problem.code {
            Code::NotFound => return problem,
            Code::StillReferenced => return self.without_unreadable(problem),
            _ => {}
        }
        // Parsed again: the first parse became the write. The parameters of an action are not
        // fields.
        let sent = match self.request.target.action {
            None => body::object(&self.request.body, true).unwrap_or_default(),
            Some(_) => Fields::new(),
        };
        self.request.version.explain(self.request.target.collection, &sent, problem)
    }

    /// Hides the records that the key may not read in the error of a refused delete.
    fn without_unreadable(&self, mut problem: Problem) -> Problem {
        let mut unreadable = BTreeSet::new();
        let referrers = problem.extra.get_mut("referrers").and_then(Value::as_array_mut);
        for referrer in referrers.into_iter().flatten() {
            let object = referrer["object"].as_str().unwrap_or_default();
            let named =
                self.services.schema.collections.iter().find(|other| other.object == object);
            let name = named.map_or(object, |other| &*other.name).to_owned();
            if !self.request.caller().may(&name, Access::Read) {
                referrer["id"] = Value::Null;
                unreadable.insert(format!("`{name}`"));
            }
        }
        if !unreadable.is_empty() {
            let names: Vec<String> = unreadable.into_iter().collect();
            problem.message = format!(
                "The {} cannot be deleted: records of {} that this key may not read refer to it.",
                self.collection().object,
                names.join(", ")
            );
        }
        problem
    }

    /// Identifies the view of a record for its tag: stored shape, API version, fields shown.
    pub fn plain_view(&self) -> u64 {
        plain_view(
            &self.request.version.schema,
            &*self.services.store,
            self.request.target.collection,
        )
    }

    fn write(&self, change: Change) -> Result<Write, Problem> {
        Ok(Write {
            scope: self.request.caller().scope,
            collection: self.request.target.collection,
            id: self.request.target.id.clone(),
            parent: self.request.target.parent_id().map(str::to_owned),
            view: self.differs_from_newest().then(|| self.request.version.clone()),
            precondition: match change {
                // Checked before, because the condition is about the collection.
                Change::Create { .. } => Precondition::None,
                _ => self.precondition()?,
            },
            change,
            idempotency: self.request.idempotency.clone(),
            cause: Cause {
                request: Some(self.request.id.to_string()),
                idempotency_key: self
                    .request
                    .idempotency
                    .as_ref()
                    .map(|idempotency| idempotency.key.clone()),
                key: Some(self.request.caller().key.clone()),
                user: self.request.identity.user.clone(),
                client: self.request.client,
                lease: None,
            },
            now: self.services.outside.now(),
            entropy: self.services.outside.entropy(),
        })
    }

    fn precondition(&self) -> Result<Precondition, Problem> {
        let precondition = condition::of_write(&self.request.headers)?;
        let guards_existing = self.request.target.id.is_some();
        let required = self.collection().require_if_match && guards_existing;
        if required && !condition::names_a_version(&self.request.headers) {
            let message = "Writes to this collection need `If-Match` with the record's ETag; `*` \
                           and dates are not sufficient.";
            return Err(Problem::new(Code::PreconditionRequired, message).param("If-Match"));
        }
        Ok(precondition)
    }

    /// Checks that every parent in the path exists below the one before it.
    async fn check_parents(&self) -> Result<(), Failure> {
        let mut above: Option<&str> = None;
        for (collection, id) in &self.request.target.parents {
            let found = self
                .services
                .store
                .record(self.request.caller().scope, *collection, above, id)
                .await?;
            if found.is_none() {
                return Err(
                    decide::not_found(&self.services.schema.collections[*collection], id).into()
                );
            }
            above = Some(id);
        }
        Ok(())
    }
}

/// The number in a record's tag for everything except its version. The default view needs no hash:
/// every read computes this.
pub fn plain_view(schema: &Schema, store: &dyn Store, collection: CollectionIx) -> u64 {
    let shape = store.shape(collection);
    let version = schema.service.version.bytes().filter(u8::is_ascii_digit);
    let date = version.fold(0u64, |date, digit| date * 10 + u64::from(digit - b'0'));
    date << 24 ^ u64::try_from(shape).unwrap_or(0) << 8 ^ u64::try_from(collection).unwrap_or(0)
}

/// The access that a request needs.
pub fn access(method: &Method) -> Access {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => Access::Read,
        _ => Access::Write,
    }
}

/// Runs the operation for method and target. The method is one that `route::offers`. All operations
/// but the most frequent are boxed: a future is as large as the largest one it contains, and this
/// one is created and moved for every request.
pub async fn run(operation: Operation<'_>) -> Result<Reply, Failure> {
    let target = &operation.request.target;
    match (operation.request.method.as_str(), &target.id, target.action) {
        ("GET" | "HEAD", Some(id), None) => get::get(operation, id).await,
        ("GET" | "HEAD", None, _) => Box::pin(list::list(operation)).await,
        ("POST", None, _) => Box::pin(write::create(operation)).await,
        ("PUT", Some(_), None) => Box::pin(write::replace(operation)).await,
        ("PATCH", Some(_), None) => Box::pin(write::update(operation)).await,
        ("DELETE", Some(_), None) => Box::pin(write::delete(operation)).await,
        ("POST", Some(_), Some(action)) => Box::pin(act::act(operation, action)).await,
        _ => Ok(Reply::empty(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

/// Commits a write and builds the response.
async fn commit(operation: Operation<'_>, write: Write) -> Result<Reply, Failure> {
    use model::write::Committed;
    let tag = operation.plain_view();
    let shape = operation.request.error_shape;
    let (view, target) = (&operation.request.version, &operation.request.target);
    let converted = |response| {
        let account = operation.account();
        convert::response(operation.services, account, view, target.collection, response)
    };
    let answer = |response, request: &str| {
        respond::written(&view.schema, target, response, tag, shape, request)
    };
    let committed = operation.services.store.commit(write).await?;
    match committed.map_err(|problem| operation.explain(problem))? {
        Committed::Fresh(response) => Ok(answer(converted(response).await, &operation.request.id)),
        Committed::Unchanged(response) => {
            Ok(answer(converted(response).await, &operation.request.id).repeatable())
        }
        Committed::Replayed { response, request } => {
            Ok(respond::replayed(answer(converted(response).await, &request)))
        }
    }
}

/// A hash of the response, for the tags of views that are composed of several records.
pub fn digest_number(bytes: &[u8]) -> u64 {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(bytes);
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has more than 8 bytes"))
}

fn read_view(operation: Operation<'_>) -> Result<View, Problem> {
    if operation.request.query().is_empty() {
        return Ok(View::default());
    }
    let pairs = crate::route::query_pairs(operation.request.query())?;
    model::query::view(
        &operation.request.version.schema,
        operation.request.target.collection,
        &pairs,
    )
}
