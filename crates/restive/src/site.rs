//! The pages of the service for people, from the crate `console`: the console and the
//! documentation.

use api::site::{Page, Site};
use console::Asset;
use console::docs::{Docs, ErrorCode, Service};
use model::Schema;
use model::version::Versions;
use std::sync::{Arc, OnceLock};

pub struct Pages {
    /// `--console off` removes `/console`.
    has_console: bool,
    schema: Arc<Schema>,
    /// Made for the first reader: most starts have none.
    docs: OnceLock<Docs>,
}

impl Pages {
    pub fn new(schema: Arc<Schema>, has_console: bool) -> Pages {
        Pages { has_console, schema, docs: OnceLock::new() }
    }

    fn docs(&self) -> &Docs {
        self.docs.get_or_init(|| Docs::new(service(&self.schema, self.has_console)))
    }

    fn asset(&self, path: &str, wants_html: bool) -> Option<Asset> {
        if path == "/console" || path.starts_with("/console/") {
            return console::asset(path).filter(|_| self.has_console);
        }
        // Other unknown paths must not cost the documentation.
        let is_documented = matches!(path, "/" | "/docs" | "/docs.md" | "/errors" | "/llms.txt");
        let is_documented = is_documented || path.starts_with("/docs/");
        if !is_documented { None } else { self.docs().find(path, wants_html) }
    }
}

impl Site for Pages {
    fn page(&self, path: &str, wants_html: bool) -> Option<Page> {
        let asset = self.asset(path, wants_html)?;
        Some(Page {
            content_type: asset.content_type,
            etag: asset.etag,
            body: asset.body,
            // Scanners look here whether responses are compressed, which is dangerous beside
            // secrets. This page has none, and is small.
            gzip: asset.gzip.filter(|_| path != "/"),
            content_security_policy: console::CONTENT_SECURITY_POLICY,
        })
    }
}

/// What the documentation shows of the schema.
fn service(schema: &Arc<Schema>, has_console: bool) -> Service {
    let code = |listed: api::openapi::ListedError| ErrorCode {
        code: listed.code,
        status: listed.status,
        kind: listed.kind,
        explanation: listed.explanation,
        actions: listed.actions,
    };
    Service {
        name: schema.service.name.clone(),
        description: schema.service.description.clone(),
        version: schema.service.version.clone(),
        mount: schema.service.mount.clone(),
        openapi: api::openapi::of_version(Versions::new(schema).newest(), None),
        errors: api::openapi::errors(Some(schema)).into_iter().map(code).collect(),
        changelog: api::changelog::markdown(schema),
        has_console,
    }
}
