//! The pages of the service itself: health, metrics, the OpenAPI and AsyncAPI documents of each
//! version, the changelog and the catalogue of errors.

use crate::error::Failure;
use crate::health::Health;
use crate::metrics::{self, Metrics};
use crate::respond::{self, Reply};
use crate::route::{self, Route};
use crate::usage::{self, SubjectKind, Usages};
use crate::version::Versioning;
use crate::{Outside, asyncapi, changelog, openapi, site};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, VARY};
use http::{Method, StatusCode};
use model::problem::Problem;
use model::schema::Schema;
use model::version::View;
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use store::Store;
use wire::Exchange;

/// Appends lines to the metrics page; with the names of single endpoints only for the operator,
/// which the second argument says.
pub type Figures = Arc<dyn Fn(&mut String, bool) + Send + Sync>;

const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// For pages that do not change while the service runs.
/// Says to a proxy that this is a restive server, whose responses it may keep for each credential.
const RESTIVE_SERVER: HeaderName = HeaderName::from_static("restive-server");
const FIXED: &str = "public, max-age=300";

pub struct Pages {
    schema: Arc<Schema>,
    versions: Arc<Versioning>,
    store: Arc<dyn Store>,
    outside: Arc<dyn Outside>,
    figures: Figures,
    health: Health,
    /// By version; the documents of older versions are generated on first use.
    openapi: Vec<OnceLock<Bytes>>,
    openapi_gzip: Vec<OnceLock<Option<Bytes>>>,
    asyncapi: Vec<OnceLock<Bytes>>,
    errors: Bytes,
    changelog: Bytes,
}

impl Pages {
    pub fn new(
        versions: Arc<Versioning>,
        store: Arc<dyn Store>,
        outside: Arc<dyn Outside>,
        figures: Figures,
    ) -> Pages {
        let schema = versions.newest().schema.clone();
        let pages = Pages {
            openapi: versions.iter().map(|_| OnceLock::new()).collect(),
            openapi_gzip: versions.iter().map(|_| OnceLock::new()).collect(),
            asyncapi: versions.iter().map(|_| OnceLock::new()).collect(),
            errors: Bytes::from(openapi::errors_markdown(Some(&schema))),
            changelog: Bytes::from(changelog::markdown(&schema)),
            health: Health::new(store.clone()),
            schema,
            versions,
            store,
            outside,
            figures,
        };
        pages.openapi(0);
        pages
    }

    pub async fn show(
        &self,
        page: &Route,
        exchange: &Exchange,
        figures: (&Metrics, &Usages),
        viewer: &Viewer,
        draining: bool,
    ) -> Result<Reply, Failure> {
        let method = &exchange.method;
        if method == Method::OPTIONS {
            return Ok(respond::options(&METHODS));
        }
        if !METHODS.contains(&method.as_str()) {
            return Err(respond::not_allowed(method, &METHODS).into());
        }
        Ok(match page {
            Route::Health => self.health(draining).await,
            Route::Metrics => metrics_reply(self.metrics(figures, viewer)),
            Route::Errors => markdown(self.errors.clone()),
            Route::Changelog => markdown(self.changelog.clone()),
            Route::AsyncApi => {
                let version = self.described(exchange.uri.query().unwrap_or_default())?;
                Reply::json(StatusCode::OK, self.asyncapi(version)).header(CACHE_CONTROL, FIXED)
            }
            Route::OpenApi
            | Route::Login
            | Route::Own(..)
            | Route::Channel(_)
            | Route::Resource(_) => {
                let version = self.described(exchange.uri.query().unwrap_or_default())?;
                let gzip = || self.compressed_openapi(version);
                site::encoded(&exchange.headers, self.openapi(version), gzip)
                    .header(CACHE_CONTROL, FIXED)
                    .header(VARY, "Accept-Encoding")
            }
        })
    }

    /// Index of the version that a page describes, independent of the version of the request.
    pub fn version_of(&self, page: &Route, query: &str) -> Option<usize> {
        match page {
            Route::OpenApi | Route::AsyncApi => self.described(query).ok(),
            _ => None,
        }
    }

    /// Index of the version whose document the query asks for; the newest by default.
    fn described(&self, query: &str) -> Result<usize, Problem> {
        let pairs = route::parameters(query)?;
        if let Some((name, _)) = pairs.iter().find(|(name, _)| name != "version") {
            return Err(Problem::unknown_parameter(name, &["version"]));
        }
        let Some((_, date)) = pairs.first() else { return Ok(0) };
        let view = self.versions.find(date).ok_or_else(|| {
            let shown: String = date.chars().take(40).collect();
            self.versions.unknown(&shown, "version")
        })?;
        Ok(view.index)
    }

    fn openapi(&self, index: usize) -> Bytes {
        self.document(&self.openapi, index, |view| openapi::of_version(view, None))
    }

    /// The console reads it on each visit, and the document is large.
    fn compressed_openapi(&self, index: usize) -> Option<Bytes> {
        let kept = self.openapi_gzip.get(index)?;
        kept.get_or_init(|| site::gzip(&self.openapi(index))).clone()
    }

    fn asyncapi(&self, index: usize) -> Bytes {
        self.document(&self.asyncapi, index, |view| asyncapi::of_version(view, None))
    }

    /// The document of a version: generated on first use, then kept.
    fn document(
        &self,
        kept: &[OnceLock<Bytes>],
        index: usize,
        generate: impl Fn(&View) -> Value,
    ) -> Bytes {
        let compose = || Bytes::from(generate(self.versions.view(index)).to_string());
        let kept = kept.get(index).or(kept.first());
        kept.map_or_else(compose, |kept| kept.get_or_init(compose).clone())
    }

    pub fn metrics(&self, (counted, usages): (&Metrics, &Usages), viewer: &Viewer) -> String {
        let mut text = counted.page(&self.store.figures());
        let dates = self.versions.dates();
        let totals = usages.totals();
        let mut push = |name: &str, kind: &str, help: &str, of: fn(&(u64, u64)) -> u64| {
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            for (date, total) in dates.iter().zip(&totals) {
                text.push_str(&format!("{name}{{version=\"{date}\"}} {}\n", of(total)));
            }
        };
        let name = "restive_version_requests_total";
        push(name, "counter", "Requests to resources, by API version.", |(requests, _)| *requests);
        let name = "restive_version_accounts";
        let help = "Accounts with such requests.";
        push(name, "gauge", help, |(_, accounts)| *accounts);
        push_deprecated_use(usages, viewer, &mut text);
        metrics::push_silences(&mut text, &self.health.silences());
        (self.figures)(&mut text, *viewer == Viewer::Operator);
        text
    }

    /// 503 makes a load balancer send requests elsewhere: the store fails, a loop is stuck, or this
    /// instance is about to stop.
    async fn health(&self, draining: bool) -> Reply {
        let report = self.health.check().await;
        let word = report.word().or(draining.then_some("draining"));
        let status = match word {
            Some(_) => StatusCode::SERVICE_UNAVAILABLE,
            None => StatusCode::OK,
        };
        let stuck = |one: &store::Stuck| {
            let seconds = one.silent.as_secs();
            serde_json::json!({ "loop": one.name, "silent_seconds": seconds })
        };
        let position = *self.store.position().borrow();
        let body = serde_json::json!({
            "status": word.unwrap_or("ok"),
            "service": self.schema.service.name,
            "version": self.schema.service.version,
            "uptime_seconds": self.outside.uptime().as_secs(),
            "position": position,
            "reason": report.reason(),
            "stuck": report.stuck.iter().map(stuck).collect::<Vec<_>>(),
        });
        Reply::json(status, body.to_string())
            .header(CACHE_CONTROL, "no-store")
            .header(RESTIVE_SERVER, env!("CARGO_PKG_VERSION"))
    }
}

/// A page that is the same in all versions, except for the version header of the response.
fn markdown(text: Bytes) -> Reply {
    Reply::json(StatusCode::OK, text)
        .header(CONTENT_TYPE, "text/markdown; charset=utf-8")
        .header(CACHE_CONTROL, FIXED)
        .header(VARY, "Restive-Version")
}

pub fn metrics_reply(text: String) -> Reply {
    Reply::json(StatusCode::OK, text)
        .header(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")
        .header(CACHE_CONTROL, "no-store")
}

/// Who reads the metrics, which decides which accounts are shown by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Sees no account by name.
    Anybody,
    /// Sees its own account by name.
    Account(String),
    /// Sees all accounts by name.
    Operator,
}

impl Viewer {
    /// The counts that the viewer may see, each with the label of its account.
    fn shown(&self, counts: Vec<(String, u64)>) -> Vec<(Option<String>, u64)> {
        match self {
            Viewer::Operator => {
                counts.into_iter().map(|(name, count)| (Some(name), count)).collect()
            }
            Viewer::Anybody => vec![(None, counts.iter().map(|(_, count)| count).sum())],
            Viewer::Account(own) => {
                let (own, others): (Vec<_>, Vec<_>) =
                    counts.into_iter().partition(|(name, _)| name == own);
                let others = others.iter().map(|(_, count)| count).sum();
                let own = own.into_iter().map(|(name, count)| (Some(name), count));
                own.chain([(Some(usage::OTHER.to_owned()), others)]).collect()
            }
        }
    }
}

/// Writes who still uses deprecated things: one metric for each kind.
fn push_deprecated_use(usages: &Usages, viewer: &Viewer, text: &mut String) {
    let name = "restive_usage_unkept_requests";
    let help = "Requests counted but not saved yet, which a crash would lose.";
    let unsaved = usages.unsaved();
    text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {unsaved}\n"));
    let mut family = "";
    // The subjects are sorted by kind.
    let old = usages.subjects().iter().enumerate().filter(|(_, one)| one.deprecated.is_some());
    for (place, subject) in old {
        let (kind, labels) = match &subject.kind {
            SubjectKind::Version(date) => ("version", format!("version=\"{date}\"")),
            SubjectKind::Collection(name) => ("collection", format!("collection=\"{name}\"")),
            SubjectKind::Field { collection, name } => {
                ("field", format!("collection=\"{collection}\",field=\"{name}\""))
            }
        };
        let name = format!("restive_deprecated_{kind}_requests_total");
        if family != kind {
            family = kind;
            let help = format!("Requests that used a deprecated {kind}, by account.");
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} counter\n"));
        }
        for (account, requests) in viewer.shown(usages.by_account(place)) {
            let account = account.map_or(String::new(), |one| format!(",account=\"{one}\""));
            text.push_str(&format!("{name}{{{labels}{account}}} {requests}\n"));
        }
    }
}
