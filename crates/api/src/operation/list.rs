//! Lists: offset pages and cursor pages.

use super::{Operation, digest_number, event_types, expand};
use crate::condition;
use crate::error::Failure;
use crate::respond::{self, Reply};
use crate::route;
use model::cursor::{self, Fingerprint, Unusable};
use model::problem::{Code, Problem};
use model::query::{self, ListRequest, Page};
use model::schema::{Builtin, CollectionIx};
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// A page of record texts.
pub type Found = store::Page<String>;

pub async fn list(operation: Operation<'_>) -> Result<Reply, Failure> {
    let target = &operation.request.target;
    let pairs = route::query_pairs(operation.request.query())?;
    let parent = target.parent_id().map(str::to_owned);
    let mut asked =
        query::list(&operation.request.version.schema, target.collection, parent, &pairs)?;
    if let Some(lens) = operation.lens() {
        lens.query(&mut asked.query);
    }
    let fingerprint = fingerprint(operation, &pairs);
    let rewrites = operation.services.store.rewrites(target.collection);
    if let Some(text) = &asked.after {
        let position = cursor::open(text, rewrites, fingerprint, &operation.services.cursor_key);
        asked.query.page = Page::After(position.map_err(unusable)?);
    }
    // Before the conditions: a list that the key may not read is not unchanged either.
    expand::check(operation, &asked.view.expand)?;
    operation.check_parents().await?;
    if operation.collection().builtin == Some(Builtin::Event) {
        event_types::check(operation, &asked.query).await?;
    }
    if condition::is_sent(&operation.request.headers) {
        // Another server may have committed: the tag must know it.
        operation.services.store.fresh().await?;
    }
    // Read the position before the records: a stream from this position delivers everything that
    // the list misses.
    let position = *operation.services.store.position().borrow();
    let position = live::Epoch(operation.services.store.epoch()).at(position).to_string();
    let cache_control = operation.cache_control();
    let tag = tag(operation, &asked, &pairs);
    if condition::is_fresh(&operation.request.headers, &tag, None) {
        let reply = respond::not_modified(cache_control, tag);
        return Ok(reply.header(respond::STREAM_POSITION, position));
    }
    let (scope, collection) = (operation.request.caller().scope, target.collection);
    let found = if asked.view.is_plain() && operation.is_as_stored() {
        operation.services.store.texts(scope, collection, &asked.query).await.map_err(failure)?
    } else {
        let found = operation
            .services
            .store
            .list(scope, collection, &asked.query)
            .await
            .map_err(failure)?;
        let store::Page { records, has_more, total, position, search_behind } = found;
        let records = match asked.view.is_plain() {
            true => operation.texts(collection, records).await,
            false => expand::show(operation, collection, records, &asked.view).await?,
        };
        Found { records, has_more, total, position, search_behind }
    };
    let next = found.position.as_ref().filter(|_| found.has_more).map(|position| {
        cursor::seal(position, rewrites, fingerprint, &operation.services.cursor_key)
    });
    let next_url = next_url(operation.request.path(), &asked, &pairs, &found, next.as_deref());
    let pagination = pagination(&asked, &found, next.as_deref());
    let body = join(&found.records, &pagination);
    let mut reply = respond::page(cache_control, tag, next_url.as_deref(), body);
    if found.search_behind > 0 {
        reply = respond::behind(reply, found.search_behind);
    }
    Ok(reply.header(respond::STREAM_POSITION, position))
}

pub fn failure(error: store::Error) -> Failure {
    match error {
        store::Error::SnapshotTooOld => Failure::Problem(expired_cursor()),
        store::Error::TooLarge => Failure::Problem(too_large()),
        other => Failure::Store(other),
    }
}

/// Texts of records are copied, not parsed.
pub fn join(records: &[String], pagination: &str) -> String {
    let size: usize = records.iter().map(|record| record.len() + 1).sum();
    let mut body = String::with_capacity(size + pagination.len() + 32);
    body.push_str("{\"object\":\"list\",\"data\":[");
    for (place, record) in records.iter().enumerate() {
        if place > 0 {
            body.push(',');
        }
        body.push_str(record);
    }
    body.push_str("],\"pagination\":");
    body.push_str(pagination);
    body.push('}');
    body
}

pub fn pagination(asked: &ListRequest, found: &Found, next: Option<&str>) -> String {
    match (&asked.query.page, found.total) {
        (Page::Offset(page), Some(total)) => {
            let limit = asked.query.limit;
            let total_pages = total.div_ceil(u64::from(limit));
            format!(
                "{{\"page\":{page},\"limit\":{limit},\"total\":{total},\
                 \"total_pages\":{total_pages}}}"
            )
        }
        // A cursor is base64url text: it needs no escaping.
        _ => match next {
            Some(cursor) => ["{\"next_cursor\":\"", cursor, "\",\"has_more\":true}"].concat(),
            None => "{\"next_cursor\":null,\"has_more\":false}".to_owned(),
        },
    }
}

/// The same query with the next cursor or page, for the Link header.
pub fn next_url(
    path: &str,
    asked: &ListRequest,
    pairs: &[(String, String)],
    found: &Found,
    next: Option<&str>,
) -> Option<String> {
    let (name, value) = match (&asked.query.page, next) {
        (Page::Offset(page), _) if found.has_more => ("page", (page + 1).to_string()),
        (Page::Offset(_), _) => return None,
        (_, Some(cursor)) => ("after", cursor.to_owned()),
        (_, None) => return None,
    };
    let given: usize = pairs.iter().map(|(other, text)| other.len() + text.len() + 2).sum();
    let mut url = String::with_capacity(path.len() + given + 128);
    url.push_str(path);
    url.push('?');
    for (other, text) in pairs.iter().filter(|(other, _)| other != name) {
        url.extend(encode(other));
        url.push('=');
        url.extend(encode(text));
        url.push('&');
    }
    url.push_str(name);
    url.push('=');
    url.push_str(&value);
    Some(url)
}

fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

/// What ties a cursor to a list: everything except the page and its length.
fn fingerprint(operation: Operation<'_>, pairs: &[(String, String)]) -> Fingerprint {
    let mut sorted: Vec<_> = pairs
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "after" | "limit" | "page"))
        .collect();
    sorted.sort();
    let scope = operation.request.caller().scope.0.to_be_bytes();
    let mut parts: Vec<&[u8]> = vec![
        &scope,
        operation.request.path().as_bytes(),
        operation.request.version.date.as_bytes(),
    ];
    for (name, value) in sorted {
        parts.push(name.as_bytes());
        parts.push(value.as_bytes());
    }
    Fingerprint::of(&parts)
}

/// The tag of a list: the newest change of any collection in it, and the query.
fn tag(operation: Operation<'_>, asked: &ListRequest, pairs: &[(String, String)]) -> String {
    tag_of(operation, asked.view.expand.collections(), pairs)
}

/// The tag of the list without parameters, which is the tag of the collection.
pub fn plain_tag(operation: Operation<'_>) -> String {
    tag_of(operation, Vec::new(), &[])
}

fn tag_of(
    operation: Operation<'_>,
    embedded: Vec<CollectionIx>,
    pairs: &[(String, String)],
) -> String {
    let collection = operation.request.target.collection;
    let involved = embedded.into_iter().chain([collection]);
    let seqs = involved.map(|index| {
        operation.services.store.collection_seq(operation.request.caller().scope, index)
    });
    let seq = seqs.max().unwrap_or_default();
    let mut query = String::with_capacity(128);
    let mut digits = itoa::Buffer::new();
    query.push_str(digits.format(operation.services.store.shape(collection)));
    query.push(' ');
    query.push_str(digits.format(operation.request.caller().scope.0));
    for part in [&operation.request.version.date, operation.request.path()] {
        query.push(' ');
        query.push_str(part);
    }
    for (name, value) in pairs {
        query.push('&');
        query.push_str(name);
        query.push('=');
        query.push_str(value);
    }
    condition::list_tag(seq, digest_number(query.as_bytes()))
}

pub fn unusable(cursor: Unusable) -> Problem {
    let (code, message) = match cursor {
        Unusable::Foreign => (
            Code::CursorInvalid,
            "The cursor was altered or belongs to another list (other filters, order, version, \
             account or mode). Start again without `after`.",
        ),
        Unusable::Outdated => (
            Code::CursorExpired,
            "The records were converted to another schema since the first page. Start again \
             without `after`.",
        ),
    };
    Problem::new(code, message).param("after")
}

/// Only offset pages: a page with a cursor ends early.
fn too_large() -> Problem {
    let message = format!(
        "This page has more than {} bytes of records. Use a smaller `limit`, or `after` instead of \
         `page`: such pages end early.",
        store::PAGE_BYTES
    );
    Problem::new(Code::InvalidParameter, message).param("limit")
}

fn expired_cursor() -> Problem {
    let message = "Too many records changed since the first page to continue in the same order. \
                   Start again without `after`.";
    Problem::new(Code::CursorExpired, message).param("after")
}
