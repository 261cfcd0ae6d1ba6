//! Create, replace (PUT), update (PATCH) and delete.

use super::{Context, Failure, commit, list, own};
use crate::respond::Reply;
use crate::route::refuse_parameters;
use crate::{body, condition};
use model::problem::{Code, Problem};
use model::record::Fields;
use model::schema::Collection;
use model::validate::{self, Mode};
use model::write::{Change, Committed, Response, Write};
use serde_json::Value;

pub async fn create(context: &Context<'_>) -> Result<Reply, Failure> {
    let write = creation(context, None).await?;
    commit(context, write).await
}

/// Who sends a record over a live channel.
#[derive(Clone)]
pub struct Author {
    pub user: Option<String>,
    /// A client with a token speaks for its user alone; one with a key may name anybody.
    pub by_token: bool,
}

impl Author {
    /// Sets the field of a feed that names its author. A client that has named another is refused,
    /// not corrected: it would believe that it had spoken for them.
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
            let message = format!(
                "`{name}` is the user of the connection, which the service sets; leave it out."
            );
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

/// Makes a record where no answer is to be written: its id, and whether it was made before.
pub async fn create_record(
    context: &Context<'_>,
    author: &Author,
) -> Result<(String, bool), Failure> {
    let write = creation(context, Some(author)).await?;
    let committed = context.store.commit(write).await?;
    let (response, replayed) = match committed.map_err(|problem| context.explain(problem))? {
        Committed::Fresh(response) => (response, false),
        Committed::Replayed { response, .. } => (response, true),
    };
    match response {
        Response::Created(record) | Response::Updated(record) => Ok((record.id, replayed)),
        Response::Deleted { id } => Ok((id, replayed)),
        Response::Refused(problem) => Err(problem.into()),
    }
}

async fn creation(context: &Context<'_>, author: Option<&Author>) -> Result<Write, Failure> {
    refuse_parameters(context.query)?;
    let sent = body::object(context.body, false)?;
    let mut fields = context.version.body(context.target.collection, sent, Mode::Create)?;
    own::complete(context, &mut fields);
    if let Some(author) = author {
        author.sign(context.collection(), &mut fields)?;
    }
    condition::of_creation(context.headers, || list::plain_tag(context))?;
    if context.target.parents.len() > 1 {
        context.check_parents().await?;
    }
    Ok(context.write(Change::Create { fields })?)
}

pub async fn replace(context: &Context<'_>) -> Result<Reply, Failure> {
    refuse_parameters(context.query)?;
    let sent = body::object(context.body, false)?;
    let fields = context.version.body(context.target.collection, sent, Mode::Replace)?;
    existing(context, Change::Replace { fields }).await
}

pub async fn update(context: &Context<'_>) -> Result<Reply, Failure> {
    refuse_parameters(context.query)?;
    let sent = body::object(context.body, false)?;
    let patch = context.version.body(context.target.collection, sent, Mode::Merge)?;
    existing(context, Change::Merge { patch }).await
}

pub async fn delete(context: &Context<'_>) -> Result<Reply, Failure> {
    refuse_parameters(context.query)?;
    existing(context, Change::Delete).await
}

/// A change of a record that is there. The store checks the direct parent; those above it here.
async fn existing(context: &Context<'_>, change: Change) -> Result<Reply, Failure> {
    if context.target.parents.len() > 1 {
        context.check_parents().await?;
    }
    commit(context, context.write(change)?).await
}
