//! Create, replace (PUT), update (PATCH) and delete.

use super::{Context, Failure, commit, list, own};
use crate::respond::Reply;
use crate::route::refuse_parameters;
use crate::{body, condition};
use model::validate::Mode;
use model::write::{Change, Committed, Response, Write};

pub async fn create(context: &Context<'_>) -> Result<Reply, Failure> {
    let write = creation(context).await?;
    commit(context, write).await
}

/// Makes a record where no answer is to be written: its id, and whether it was made before.
pub async fn create_record(context: &Context<'_>) -> Result<(String, bool), Failure> {
    let write = creation(context).await?;
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

async fn creation(context: &Context<'_>) -> Result<Write, Failure> {
    refuse_parameters(context.query)?;
    let sent = body::object(context.body, false)?;
    let mut fields = context.version.body(context.target.collection, sent, Mode::Create)?;
    own::complete(context, &mut fields);
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
