//! Pages of keys and accounts, with the parameters, cursors and tags of other lists.

use super::Administration;
use crate::condition;
use crate::error::Failure;
use crate::operation::digest_number;
use crate::operation::list::{self, Found};
use crate::respond::{self, Reply};
use http::HeaderValue;
use model::Scope;
use model::cursor::{self, Fingerprint, Unusable};
use model::problem::Problem;
use model::query::{self, Page};
use model::record::Record;
use model::schema::Builtin;
use serde_json::Value;

/// Parameters of these lists.
pub(super) const PARAMETERS: [&str; 4] = ["limit", "after", "page", "sort"];

/// Filters of every list.
const FILTERS: [&str; 7] = [
    "id",
    "created_at",
    "min_created_at",
    "max_created_at",
    "updated_at",
    "min_updated_at",
    "max_updated_at",
];

/// Refuses other parameters than those of a list: keys are found by their digest, and accounts by
/// their version, inside the service only.
pub(super) fn check_names(pairs: &[(String, String)], known: &[&str]) -> Result<(), Problem> {
    let is_known = |name: &str| known.contains(&name) || FILTERS.contains(&name);
    match pairs.iter().find(|(name, _)| !is_known(name)) {
        Some((name, _)) => Err(Problem::unknown_parameter(name, known)),
        None => Ok(()),
    }
}

impl Administration<'_> {
    /// One page of a collection in a scope. `pairs` has only the parameters of every list.
    pub(super) async fn page(
        &self,
        (builtin, scope): (Builtin, Scope),
        pairs: &[(String, String)],
        show: impl Fn(&Record) -> Value,
    ) -> Result<Reply, Failure> {
        let services = self.services;
        let (collection, _) = self.collection(builtin);
        let mut asked = query::list(&services.schema, collection, None, pairs)?;
        if !asked.view.is_plain() {
            return Err(Problem::unknown_parameter("fields", &PARAMETERS).into());
        }
        let fingerprint = self.fingerprint(scope)?;
        let rewrites = services.store.rewrites(collection);
        if let Some(text) = &asked.after {
            let position = cursor::open(text, rewrites, fingerprint, &services.cursor_key);
            asked.query.page = Page::After(position.map_err(list::unusable)?);
        }
        let found = services.store.list(scope, collection, &asked.query).await;
        let store::Page { records, has_more, total, position, search_behind } =
            found.map_err(list::failure)?;
        let records = records.iter().map(|record| show(record).to_string()).collect();
        let found = Found { records, has_more, total, position, search_behind };
        let next =
            found.position.as_ref().filter(|_| found.has_more).map(|position| {
                cursor::seal(position, rewrites, fingerprint, &services.cursor_key)
            });
        let url = list::next_url(self.path, &asked, &self.pairs()?, &found, next.as_deref());
        let body = list::join(&found.records, &list::pagination(&asked, &found, next.as_deref()));
        let seq = services.store.collection_seq(scope, collection);
        let tag = condition::list_tag(seq, digest_number(body.as_bytes()));
        let cache = Some(HeaderValue::from_static("no-store"));
        if condition::is_fresh(self.headers, &tag, None) {
            return Ok(respond::not_modified(cache, tag));
        }
        Ok(respond::page(cache, tag, url.as_deref(), body))
    }

    /// The page of a list that has one object for the caller.
    pub(super) fn page_of_one(
        &self,
        builtin: Builtin,
        pairs: &[(String, String)],
        record: &Record,
        object: &Value,
    ) -> Result<Reply, Failure> {
        let asked = query::list(&self.services.schema, self.collection(builtin).0, None, pairs)?;
        if asked.after.is_some() {
            return Err(list::unusable(Unusable::Foreign).into());
        }
        let (records, total) = match asked.query.page {
            Page::Offset(page) if page > 1 => (Vec::new(), Some(1)),
            Page::Offset(_) => (vec![object.to_string()], Some(1)),
            _ => (vec![object.to_string()], None),
        };
        let found = Found { records, has_more: false, total, position: None, search_behind: 0 };
        let body = list::join(&found.records, &list::pagination(&asked, &found, None));
        let tag = condition::list_tag(record.version, digest_number(body.as_bytes()));
        Ok(respond::page(Some(HeaderValue::from_static("no-store")), tag, None, body))
    }

    /// What ties a cursor to a list: everything except the page and its length.
    fn fingerprint(&self, scope: Scope) -> Result<Fingerprint, Problem> {
        let mut pairs = self.pairs()?;
        pairs.retain(|(name, _)| !matches!(name.as_str(), "after" | "limit" | "page"));
        pairs.sort();
        let scopes = [self.identity.caller.scope, scope].map(|scope| scope.0.to_be_bytes());
        let mut parts: Vec<&[u8]> =
            vec![&scopes[0], &scopes[1], self.path.as_bytes(), self.version.as_bytes()];
        for (name, value) in &pairs {
            parts.extend([name.as_bytes(), value.as_bytes()]);
        }
        Ok(Fingerprint::of(&parts))
    }
}
