//! Chooses the version of a request: the one in its header, else the one that its account is pinned
//! to, else the newest; limited to the versions that the mount of its path serves. Versions are
//! passed as indices; dates are compared once, the newest first.

use http::{HeaderMap, HeaderName, HeaderValue};
use model::problem::{Code, Problem};
use model::record::Record;
use model::schema::{CollectionIx, Mount, Operation, Schema};
use model::time::is_date;
use model::version::{Versions, View};
use std::ops::RangeInclusive;
use std::sync::Arc;

pub const HEADER: HeaderName = HeaderName::from_static("restive-version");
/// Maximum number of versions that an error lists.
const MAX_LISTED: usize = 50;

/// All versions of the service, and which mount serves which.
pub struct Versioning {
    views: Versions,
    newest: Arc<View>,
    /// The date of each version, for the response header.
    names: Vec<HeaderValue>,
    mounts: Vec<Mount>,
    /// By collection.
    differing: Vec<bool>,
}

impl Versioning {
    pub fn new(schema: &Arc<Schema>) -> Versioning {
        let views = Versions::new(schema);
        let name = |view: &Arc<View>| {
            HeaderValue::from_str(&view.date).unwrap_or(HeaderValue::from_static("unknown"))
        };
        let differs = |collection| views.iter().any(|view| view.lens(collection).is_some());
        Versioning {
            differing: (0..schema.collections.len()).map(differs).collect(),
            newest: views.newest().clone(),
            names: views.iter().map(name).collect(),
            mounts: schema.mounts.clone(),
            views,
        }
    }

    pub fn newest(&self) -> &Arc<View> {
        &self.newest
    }

    /// The view at an index.
    pub fn view(&self, index: usize) -> &Arc<View> {
        self.views.get(index).unwrap_or(&self.newest)
    }

    pub fn find(&self, date: &str) -> Option<&Arc<View>> {
        self.views.find(date)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<View>> {
        self.views.iter()
    }

    pub fn dates(&self) -> Vec<&str> {
        self.views.iter().map(|view| view.date.as_str()).collect()
    }

    /// The text of an event in the version at an index.
    pub fn row(&self, record: &Record, index: usize) -> String {
        self.views.row(record, index)
    }

    /// The most that the formulas for an event of so many bytes can cost there.
    pub fn row_units(&self, index: usize, bytes: usize) -> u64 {
        self.views.row_units(index, bytes)
    }

    /// Whether a version shows the texts of a collection as they were written under a date.
    pub fn shows_as_written(&self, collection: CollectionIx, date: &str, view: &View) -> bool {
        self.views.shows_as_written(collection, date, view)
    }

    /// Whether versions show a collection differently. If so, the response to the same request can
    /// change when the account is pinned to another version, without a change of the record.
    pub fn differ(&self, collection: CollectionIx) -> bool {
        self.differing.get(collection).copied().unwrap_or(true)
    }

    /// The response header of the version at an index.
    pub fn name(&self, index: usize) -> HeaderValue {
        self.names.get(index).unwrap_or(&self.names[0]).clone()
    }

    /// Chooses the version of a request. Without a mount it may be any version.
    pub fn choose(
        &self,
        headers: &HeaderMap,
        pin: Option<usize>,
        mount: Option<usize>,
    ) -> Result<&Arc<View>, Problem> {
        let named = self.named(headers)?;
        let Some(mount) = mount.and_then(|mount| self.mounts.get(mount)) else {
            return Ok(self.view(named.or(pin).unwrap_or(0)));
        };
        let index = match named {
            None => pin.unwrap_or(0).clamp(mount.newest, mount.oldest),
            Some(index) if mount.serves(index) => index,
            Some(index) => return Err(self.outside(index, mount)),
        };
        Ok(self.view(index))
    }

    /// The version that the URL of a channel or the header asks for, if the mount has it. This is
    /// all that is known before the account is known.
    pub fn asked(
        &self,
        headers: &HeaderMap,
        said: Option<&str>,
        mount: Option<usize>,
    ) -> Option<usize> {
        let said = said.and_then(|date| self.find(date)).map(|view| view.index);
        let asked = said.or_else(|| self.named(headers).ok().flatten());
        asked.filter(|index| self.range(mount).contains(index))
    }

    /// The versions of a mount, newest first; all versions without a mount.
    pub fn range(&self, mount: Option<usize>) -> RangeInclusive<usize> {
        let mount = mount.and_then(|mount| self.mounts.get(mount));
        mount.map_or(0..=self.names.len() - 1, |mount| mount.newest..=mount.oldest)
    }

    /// The version that the header names.
    fn named(&self, headers: &HeaderMap) -> Result<Option<usize>, Problem> {
        let Some(asked) = headers.get(HEADER) else { return Ok(None) };
        if headers.get_all(HEADER).iter().nth(1).is_some() {
            let message = "There is more than one Restive-Version header; send one.";
            return Err(Problem::new(Code::UnknownVersion, message).param("Restive-Version"));
        }
        let found = self.names.iter().position(|name| name.as_bytes() == asked.as_bytes());
        found.map(Some).ok_or_else(|| {
            let shown: String =
                String::from_utf8_lossy(asked.as_bytes()).chars().take(40).collect();
            self.unknown(&shown, "Restive-Version")
        })
    }

    /// The error for an unknown version.
    pub fn unknown(&self, shown: &str, param: &str) -> Problem {
        let wrong = match is_date(shown) {
            true => format!("There is no version `{shown}`"),
            false => format!("`{shown}` is not a version: versions are dates such as 2026-11-01"),
        };
        let dates = self.dates();
        let known = listed(&dates);
        let message = format!("{wrong}; known versions: {known}.");
        Problem::new(Code::UnknownVersion, message).param(param).extra("versions", dates)
    }

    fn outside(&self, index: usize, mount: &Mount) -> Problem {
        let date = |index: usize| self.view(index).date.as_str();
        let (path, asked) = (&mount.path, date(index));
        let (newest, oldest) = (date(mount.newest), date(mount.oldest));
        let range = match mount.newest == mount.oldest {
            true => format!("only version {newest}"),
            false => format!("versions {oldest} to {newest}"),
        };
        let other = self.mounts.iter().find(|other| other.serves(index));
        let hint = other.map_or(String::new(), |other| format!("; {} serves {asked}", other.path));
        let message = format!("{path} serves {range}{hint}.");
        Problem::new(Code::UnknownVersion, message).param("Restive-Version")
    }

    /// The index of the version that an account is pinned to. If the schema no longer has it, the
    /// next older version is used: the account never asked for anything newer.
    pub fn pinned(&self, date: &str) -> usize {
        let found = self.views.iter().position(|view| view.date.as_str() <= date);
        found.unwrap_or(self.names.len() - 1)
    }

    /// Refuses a collection that the version of a request lacks, as far as that is known without
    /// the account: the request names that version, or no version of the mount has the collection.
    pub fn check_served(
        &self,
        asked: Option<usize>,
        mount: Option<usize>,
        collection: CollectionIx,
    ) -> Result<(), Problem> {
        let mut possible = asked.map_or(self.range(mount), |index| index..=index);
        let first = self.view(*possible.start());
        match possible.any(|index| self.view(index).serves(collection)) {
            true => Ok(()),
            false => Err(self.missing(first, collection)),
        }
    }

    /// The error for a collection that a version does not serve. A collection exists only while all
    /// its parents do.
    pub fn missing(&self, view: &View, collection: CollectionIx) -> Problem {
        let schema = &self.newest.schema;
        let name = &schema.collections[collection].name;
        let path = || std::iter::successors(Some(collection), |at| schema.collections[*at].parent);
        let added = |at| change(schema, at, |one| matches!(one, Operation::CollectionAdded));
        let removed = |at| change(schema, at, |one| matches!(one, Operation::CollectionRemoved));
        let since = path().filter_map(added).min();
        let until = path().filter_map(removed).max();
        let when = match (since.filter(|index| view.index > *index), until) {
            (Some(index), _) => format!("exists since version {}", self.view(index).date),
            (None, Some(index)) => {
                let last = self.view(index + 1);
                format!("existed until version {}", last.date)
            }
            (None, None) => "does not exist".to_owned(),
        };
        let message = format!("`{name}` {when}; this request uses version {}.", view.date);
        Problem::new(Code::RouteNotFound, message)
    }
}

/// The version with this change of a collection.
fn change(
    schema: &Schema,
    collection: CollectionIx,
    wanted: impl Fn(&Operation) -> bool,
) -> Option<usize> {
    let matches_change = |change: &model::schema::Change| {
        change.collection == collection && wanted(&change.operation)
    };
    schema.versions.iter().position(|version| version.changes.iter().any(matches_change))
}

fn listed(dates: &[&str]) -> String {
    let mut text = dates[..dates.len().min(MAX_LISTED)].join(", ");
    if dates.len() > MAX_LISTED {
        text.push_str(", and older ones");
    }
    text
}
