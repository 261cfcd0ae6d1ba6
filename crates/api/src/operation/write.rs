//! Create, replace (PUT), update (PATCH) and delete.

use super::{Context, Failure, commit, own, refuse_parameters};
use crate::body;
use crate::respond::Reply;
use model::validate::{self, Mode};
use model::write::Change;

pub async fn create(context: &Context<'_>) -> Result<Reply, Failure> {
    refuse_parameters(context)?;
    let sent = body::object(context.body, false)?;
    let mut fields = validate::body(context.collection(), sent, Mode::Create)?;
    own::complete(context, &mut fields);
    if context.target.parents.len() > 1 {
        context.check_parents().await?;
    }
    commit(context, context.write(Change::Create { fields })?).await
}

pub async fn replace(context: &Context<'_>) -> Result<Reply, Failure> {
    refuse_parameters(context)?;
    let sent = body::object(context.body, false)?;
    let fields = validate::body(context.collection(), sent, Mode::Replace)?;
    existing(context, Change::Replace { fields }).await
}

pub async fn update(context: &Context<'_>) -> Result<Reply, Failure> {
    refuse_parameters(context)?;
    let sent = body::object(context.body, false)?;
    let patch = validate::body(context.collection(), sent, Mode::Merge)?;
    existing(context, Change::Merge { patch }).await
}

pub async fn delete(context: &Context<'_>) -> Result<Reply, Failure> {
    refuse_parameters(context)?;
    existing(context, Change::Delete).await
}

/// A change of a record that is there. The store checks the direct parent; those above it here.
async fn existing(context: &Context<'_>, change: Change) -> Result<Reply, Failure> {
    if context.target.parents.len() > 1 {
        context.check_parents().await?;
    }
    commit(context, context.write(change)?).await
}
