//! Create, replace (PUT), update (PATCH) and delete.

use super::{Operation, commit, list, own};
use crate::error::Failure;
use crate::respond::Reply;
use crate::route::refuse_parameters;
use crate::{body, condition, convert};
use model::problem::{Code, Problem};
use model::record::Fields;
use model::schema::Collection;
use model::validate::{self, Mode};
use model::write::{Change, Committed, Response, Write};
use serde_json::Value;

pub async fn create(operation: Operation<'_>) -> Result<Reply, Failure> {
    let write = creation(operation, None).await?;
    commit(operation, write).await
}

/// The sender of a record over a live channel.
#[derive(Clone)]
pub struct Author {
    pub user: Option<String>,
    /// A client with a token sends as its own user only; a client with a key may name any user.
    pub by_token: bool,
}

impl Author {
    /// Sets the author field of a feed. A client that names another user is refused, not corrected:
    /// otherwise it would believe that it sent as that user.
    fn sign(&self, collection: &Collection, fields: &mut Fields) -> Result<(), Problem> {
        let feed = collection.feed.as_ref();
        let Some(name) = feed.and_then(|feed| feed.author.as_deref()) else { return Ok(()) };
        let Some(field) = collection.field(name) else { return Ok(()) };
        let said = fields.get(name).filter(|value| !value.is_null());
        let said = said.filter(|value| field.default.as_ref() != Some(*value));
        let mut own = self.user.as_deref().map_or(Value::Null, Value::from);
        if self.user.is_none() && !self.by_token {
            return Ok(());
        }
        if said.is_some_and(|said| *said != own) {
            let message =
                format!("The service sets `{name}` to the user of the connection; omit it.");
            return Err(Problem::new(Code::PermissionDenied, message).param(name));
        }
        if self.user.is_some() {
            validate::value(field, &mut own)
                .map_err(|violation| Problem::of(Code::ValidationFailed, vec![violation]))?;
        }
        fields.insert(name.to_owned(), own);
        Ok(())
    }
}

/// Creates a record without a response: returns its id, and whether it was created before.
pub async fn create_record(
    operation: Operation<'_>,
    author: &Author,
) -> Result<(String, bool), Failure> {
    let write = creation(operation, Some(author)).await?;
    let committed = operation.services.store.commit(write).await?;
    let (response, replayed) = match committed.map_err(|problem| operation.explain(problem))? {
        Committed::Fresh(response) | Committed::Unchanged(response) => (response, false),
        Committed::Replayed { response, .. } => (response, true),
    };
    match response {
        Response::Created(record) | Response::Updated(record) => Ok((record.id, replayed)),
        Response::Deleted { id } => Ok((id, replayed)),
        Response::Refused(problem) => Err(problem.into()),
    }
}

async fn creation(operation: Operation<'_>, author: Option<&Author>) -> Result<Write, Failure> {
    refuse_parameters(operation.request.query())?;
    let sent = body::object(&operation.request.body, false)?;
    let (view, collection) = (&operation.request.version, operation.request.target.collection);
    let place = (collection, operation.request.body.len());
    let mut fields =
        convert::creation(operation.services, operation.account(), view, place, sent).await?;
    own::complete(operation, &mut fields);
    own::check_readable(operation, &fields).await?;
    if let Some(author) = author {
        author.sign(operation.collection(), &mut fields)?;
    }
    if condition::is_sent(&operation.request.headers) {
        operation.services.store.fresh().await?;
    }
    condition::of_creation(&operation.request.headers, || list::plain_tag(operation))?;
    if operation.request.target.parents.len() > 1 {
        operation.check_parents().await?;
    }
    Ok(operation.write(Change::Create { fields })?)
}

pub async fn replace(operation: Operation<'_>) -> Result<Reply, Failure> {
    refuse_parameters(operation.request.query())?;
    let sent = body::object(&operation.request.body, false)?;
    let fields =
        operation.request.version.body(operation.request.target.collection, sent, Mode::Replace)?;
    existing(operation, Change::Replace { fields }, None).await
}

pub async fn update(operation: Operation<'_>) -> Result<Reply, Failure> {
    refuse_parameters(operation.request.query())?;
    let sent = body::object(&operation.request.body, false)?;
    let patch =
        operation.request.version.body(operation.request.target.collection, sent, Mode::Merge)?;
    let version = own::check_readable(operation, &patch).await?;
    existing(operation, Change::Merge { patch }, version).await
}

pub async fn delete(operation: Operation<'_>) -> Result<Reply, Failure> {
    refuse_parameters(operation.request.query())?;
    existing(operation, Change::Delete, None).await
}

/// Changes an existing record. The store checks the direct parent; the parents above it are checked
/// here. `version`: the only version that may be changed, if there is one.
async fn existing(
    operation: Operation<'_>,
    change: Change,
    version: Option<i64>,
) -> Result<Reply, Failure> {
    if operation.request.target.parents.len() > 1 {
        operation.check_parents().await?;
    }
    commit(operation, own::on_version(operation.write(change)?, version)).await
}
