//! Reads one record.

use super::{Operation, digest_number, expand, read_view};
use crate::condition;
use crate::error::Failure;
use crate::respond::{self, Reply};
use model::decide;

pub async fn get(operation: Operation<'_>, id: &str) -> Result<Reply, Failure> {
    let view = read_view(operation)?;
    if operation.request.target.parents.len() > 1 {
        Box::pin(operation.check_parents()).await?;
    }
    let target = &operation.request.target;
    let found = operation
        .services
        .store
        .record(operation.request.caller().scope, target.collection, target.parent_id(), id)
        .await?;
    let collection = operation.collection();
    let Some(record) = found else { return Err(decide::not_found(collection, id).into()) };
    let cache_control = operation.cache_control();
    let alone = view.expand.is_empty() && !collection.is_view();
    let dated = alone && !operation.services.versions.differ(target.collection);
    if view.is_plain() {
        let (version, updated) = (record.version, record.updated);
        let body = match operation.is_as_stored() {
            true => record.body,
            false => {
                let texts = Box::pin(operation.texts(target.collection, vec![record])).await;
                texts.into_iter().next().unwrap_or_default()
            }
        };
        // A view also shows data that changes without the record, so its tag is a hash of the
        // response.
        let view = match collection.is_view() {
            true => digest_number(body.as_bytes()),
            false => operation.plain_view(),
        };
        let tag = condition::record_tag(version, view);
        return Ok(respond::record(
            &operation.request.headers,
            cache_control,
            tag,
            updated,
            dated,
            body,
        ));
    }
    let (version, updated) = (record.version, record.updated);
    let shown = Box::pin(expand::show(operation, target.collection, vec![record], &view));
    let mut shown = shown.await?;
    let body = shown.pop().unwrap_or_default();
    // Embedded records change without this record, so the tag is a hash of the response.
    let tag = condition::record_tag(version, digest_number(body.as_bytes()));
    Ok(respond::record(&operation.request.headers, cache_control, tag, updated, dated, body))
}
