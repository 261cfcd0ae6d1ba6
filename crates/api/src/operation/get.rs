//! One record.

use super::{Context, Failure, digest_number, expand, read_view};
use crate::condition;
use crate::respond::{self, Reply};
use model::decide;

pub async fn get(context: &Context<'_>, id: &str) -> Result<Reply, Failure> {
    let view = read_view(context)?;
    if context.target.parents.len() > 1 {
        Box::pin(context.check_parents()).await?;
    }
    let target = context.target;
    let found = context
        .store
        .record(context.caller.scope, target.collection, target.parent_id(), id)
        .await?;
    let collection = context.collection();
    let Some(record) = found else { return Err(decide::not_found(collection, id).into()) };
    let record = context.told(record);
    let cache_control = &collection.cache_control;
    let alone = view.expand.is_empty() && !collection.is_view();
    let dated = alone && !context.versions.differ(target.collection);
    if view.is_plain() {
        // What became of an event shows in it: the tag is of what is shown.
        let view = match collection.is_view() {
            true => digest_number(record.body.as_bytes()),
            false => context.plain_view(),
        };
        let tag = condition::record_tag(record.version, view);
        let (updated, body) = (record.updated, respond::shown(record, context.lens()));
        return Ok(respond::record(context.headers, cache_control, tag, updated, dated, body));
    }
    let (version, updated) = (record.version, record.updated);
    let shown = Box::pin(expand::show(context, target.collection, vec![record], &view));
    let mut shown = shown.await?;
    let body = shown.pop().unwrap_or_default();
    // Embedded records change without this one: the tag is of what is shown.
    let tag = condition::record_tag(version, digest_number(body.as_bytes()));
    Ok(respond::record(context.headers, cache_control, tag, updated, dated, body))
}
