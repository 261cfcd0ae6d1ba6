//! Records: every change, and reads of records, lists and stored responses.

use crate::cluster::Bucket;
use crate::{BoxFuture, Error};
use model::query::{Position, Query};
use model::record::Record;
use model::write::{Committed, Response, Write};
use model::{CollectionIx, Problem, Scope};

/// Every change goes through `commit`. All reads see everything that was committed before they were
/// called.
pub trait Records: Send + Sync + 'static {
    /// Makes one durable change. `Ok(Err(problem))`: it was refused, and nothing was written.
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Result<Committed, Problem>, Error>>;

    /// One record of this scope. For a collection with a parent, `parent` must name it.
    fn record<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        parent: Option<&'a str>,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Record>, Error>>;

    /// A cursor page ends early, with `has_more`, when its records reach `PAGE_BYTES`; an offset
    /// page of that size is `TooLarge`.
    fn list<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        query: &'a Query,
    ) -> BoxFuture<'a, Result<Page, Error>>;

    /// Like `list`, but returns only the public text of each record, which is cheaper.
    fn texts<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        query: &'a Query,
    ) -> BoxFuture<'a, Result<Page<String>, Error>>;

    /// The records with these ids, in no order, missing ones left out: one query. In a server,
    /// `TooLarge` if they have more than `EMBEDDED_BYTES`.
    fn by_ids<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Record>, Error>>;

    /// The newest `limit` children of each parent (and one more, if there is one): one query.
    /// `TooLarge` if they have more than `EMBEDDED_BYTES`.
    fn children<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        parents: &'a [String],
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Child>, Error>>;

    /// Records of a collection in every scope, by row number, oldest first.
    fn every(
        &self,
        collection: CollectionIx,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>>;

    /// The same for the engine of webhooks: of replays only those with work left; with `buckets`
    /// only those of accounts in these.
    fn every_served(
        &self,
        collection: CollectionIx,
        buckets: Option<Vec<Bucket>>,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>>;

    /// The response that is stored under an idempotency key.
    fn remembered<'a>(
        &'a self,
        scope: Scope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Remembered>, Error>>;

    /// The record of the internal collection `keys` with this digest, in any scope.
    fn key_by_digest<'a>(
        &'a self,
        digest: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>>;

    /// The record of the internal collection `keys` with this id, in any scope.
    fn key_by_id<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>>;

    /// A number that grows whenever a record of this collection and scope changes; costs no query.
    fn collection_seq(&self, scope: Scope, collection: CollectionIx) -> i64;

    /// After it, `collection_seq` knows every change that was committed before the call, also by
    /// other processes. To be awaited before an answer says that nothing has changed.
    fn fresh(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Number of the collection's stored shape: part of ETags, grows with schema edits.
    fn shape(&self, collection: CollectionIx) -> i64;

    /// How often schema edits changed the rows of the collection: part of cursors, which hold
    /// values of the rows they were made over.
    fn rewrites(&self, collection: CollectionIx) -> i64;

    /// The secret that signs cursors: created once for each database.
    fn cursor_key(&self) -> [u8; 32];

    /// Grows when keys or accounts may have changed, also by another process.
    fn key_generation(&self) -> u64;
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T = Record> {
    pub records: Vec<T>,
    pub has_more: bool,
    /// Number of matching records; only for offset pages.
    pub total: Option<u64>,
    /// Where the page ended, if more follows; only for cursor pages.
    pub position: Option<Position>,
    /// Events that the search index had not read when the page was read; 0 if none was missing,
    /// and where nothing was searched for.
    pub search_behind: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub parent: String,
    pub record: Record,
}

/// A stored response to an idempotency key.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    pub fingerprint: [u8; 32],
    pub response: Response,
    /// The text of its record under the date on which it was written, where that is not the newest
    /// any more.
    pub as_written: Option<(String, String)>,
    /// Id of the request that it answered.
    pub request: String,
}
