//! Conversions between versions, on the way in and out. Those that could take long do not run on
//! the thread of the request, which serves many connections, but on those of `live::Conversions`.

use crate::respond;
use crate::services::Services;
use model::CollectionIx;
use model::problem::Problem;
use model::record::{Fields, Record};
use model::schema::Builtin;
use model::validate::Mode;
use model::version::View;
use model::write::Response;
use std::sync::Arc;

/// Bytes that are parsed and written in the time of one step of a formula.
const BYTES_PER_UNIT: u64 = 16;

/// The texts of records of a collection in a version. `account`: whose request it is.
pub(crate) async fn texts(
    services: &Services,
    account: i64,
    view: &Arc<View>,
    collection: CollectionIx,
    records: Vec<Record>,
) -> Vec<String> {
    let is_event = is_old_event(services, view, collection);
    if view.lens(collection).is_none() && !is_event {
        return records.into_iter().map(|record| record.body).collect();
    }
    let units = |record: &Record| {
        let bytes = record.body.len() + record.hidden.as_ref().map_or(0, String::len);
        let formulas = match is_event {
            true => services.versions.row_units(view.index, bytes),
            false => view.formula_units((collection, None), bytes),
        };
        formulas.saturating_add(bytes as u64 / BYTES_PER_UNIT)
    };
    let units = records.iter().map(units).fold(0, u64::saturating_add);
    let (view, versions) = (view.clone(), services.versions.clone());
    let text = move |record: Record| match is_event {
        true => versions.row(&record, view.index),
        false => respond::shown(record, view.lens(collection)),
    };
    run(services, account, units, records, text).await
}

/// The result of a write, fresh or replayed, in a version.
pub(crate) async fn response(
    services: &Services,
    account: i64,
    view: &Arc<View>,
    collection: CollectionIx,
    response: Response,
) -> Response {
    let is_shown = view.lens(collection).is_none() && !is_old_event(services, view, collection);
    let (record, created) = match response {
        Response::Created(record) if !is_shown => (record, true),
        Response::Updated(record) if !is_shown => (record, false),
        other => return other,
    };
    let mut shown = record.clone();
    let texts = Box::pin(texts(services, account, view, collection, vec![record])).await;
    shown.body = texts.into_iter().next().unwrap_or_default();
    if created { Response::Created(shown) } else { Response::Updated(shown) }
}

/// The body of a create of so many bytes, checked and in the newest shape.
pub(crate) async fn creation(
    services: &Services,
    account: i64,
    view: &Arc<View>,
    (collection, bytes): (CollectionIx, usize),
    sent: Fields,
) -> Result<Fields, Problem> {
    let units = 2 * view.formula_units((collection, None), bytes);
    if units == 0 {
        return view.body(collection, sent, Mode::Create);
    }
    let view = view.clone();
    let raise = move |sent: Fields| view.body(collection, sent, Mode::Create);
    let raised = run(services, account, units, vec![sent], raise).await;
    raised.into_iter().next().unwrap_or_else(|| Ok(Fields::new()))
}

/// The same for the parameters of an action.
pub(crate) async fn params(
    services: &Services,
    account: i64,
    view: &Arc<View>,
    (collection, action, bytes): (CollectionIx, usize, usize),
    sent: Fields,
) -> Result<Fields, Problem> {
    let units = 2 * view.formula_units((collection, Some(action)), bytes);
    if units == 0 {
        return view.params(collection, action, sent);
    }
    let view = view.clone();
    let raise = move |sent: Fields| view.params(collection, action, sent);
    let raised = run(services, account, units, vec![sent], raise).await;
    raised.into_iter().next().unwrap_or_else(|| Ok(Fields::new()))
}

/// Whether the records are events in an older version: the object in each event has the shape of
/// its own collection.
pub(crate) fn is_old_event(services: &Services, view: &View, collection: CollectionIx) -> bool {
    let builtin = services.schema.collections[collection].builtin;
    view.index > 0 && builtin == Some(Builtin::Event)
}

/// `units`: what the conversions can cost at most.
async fn run<T: Send + 'static, R: Send + 'static>(
    services: &Services,
    account: i64,
    units: u64,
    items: Vec<T>,
    convert: impl Fn(T) -> R + Send + 'static,
) -> Vec<R> {
    if units <= live::INLINE_UNITS {
        return items.into_iter().map(convert).collect();
    }
    Box::pin(services.channels.hub.conversions.run(account, items, convert)).await
}
