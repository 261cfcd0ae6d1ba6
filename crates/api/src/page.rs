//! The pages beside the resources: health, metrics, the contract and the catalogue of errors.

use crate::metrics::Metrics;
use crate::operation::Failure;
use crate::respond::{self, Reply};
use crate::route::Route;
use crate::service::Figures;
use crate::{Outside, openapi};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Method, StatusCode};
use model::schema::Schema;
use std::sync::Arc;
use store::Store;

const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// What does not change while the service runs.
const FIXED: &str = "public, max-age=300";

pub struct Pages {
    schema: Arc<Schema>,
    store: Arc<dyn Store>,
    outside: Arc<dyn Outside>,
    figures: Figures,
    openapi: Bytes,
    errors: Bytes,
}

impl Pages {
    pub fn new(
        schema: Arc<Schema>,
        store: Arc<dyn Store>,
        outside: Arc<dyn Outside>,
        figures: Figures,
    ) -> Pages {
        Pages {
            openapi: Bytes::from(openapi::document(&schema, None).to_string()),
            errors: Bytes::from(openapi::errors_markdown()),
            schema,
            store,
            outside,
            figures,
        }
    }

    pub async fn show(
        &self,
        page: &Route,
        method: &Method,
        metrics: &Metrics,
        draining: bool,
    ) -> Result<Reply, Failure> {
        if method == Method::OPTIONS {
            return Ok(respond::options(&METHODS));
        }
        if !METHODS.contains(&method.as_str()) {
            return Err(respond::not_allowed(method, &METHODS).into());
        }
        Ok(match page {
            Route::Health => self.health(draining).await,
            Route::Metrics => Reply::json(StatusCode::OK, self.metrics(metrics))
                .header(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")
                .header(CACHE_CONTROL, "no-store"),
            Route::Errors => Reply::json(StatusCode::OK, self.errors.clone())
                .header(CONTENT_TYPE, "text/markdown; charset=utf-8")
                .header(CACHE_CONTROL, FIXED),
            Route::OpenApi | Route::Channel(_) | Route::Resource(_) => {
                Reply::json(StatusCode::OK, self.openapi.clone()).header(CACHE_CONTROL, FIXED)
            }
        })
    }

    fn metrics(&self, metrics: &Metrics) -> String {
        let mut text = metrics.page(&self.store.figures());
        (self.figures)(&mut text);
        text
    }

    /// 503 tells a balancer to send requests elsewhere: the store fails, or this instance goes.
    async fn health(&self, draining: bool) -> Reply {
        let store = self.store.health().await;
        let (status, word) = match (&store, draining) {
            (Err(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "store_failed"),
            (Ok(()), true) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
            (Ok(()), false) => (StatusCode::OK, "ok"),
        };
        let position = *self.store.position().borrow();
        let body = serde_json::json!({
            "status": word,
            "service": self.schema.service.name,
            "version": self.schema.service.version,
            "uptime_seconds": self.outside.uptime().as_secs(),
            "position": position,
            "reason": store.err().map(|error| error.to_string()),
        });
        Reply::json(status, body.to_string()).header(CACHE_CONTROL, "no-store")
    }
}
