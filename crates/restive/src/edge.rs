//! `restive serve --edge`: the reverse proxy in front of the API in one process. The proxy calls
//! the API without a socket; sites, files, limits and the cache are those of `restive proxy`.

use crate::args::EDGE_WITHOUT_FILE;
use crate::operator::Measured;
use crate::outside::System;
use crate::proxy::{self, Journal};
use ::proxy::{Config, Proxy, Settings};
use api::Api;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use wire::{Payload, Response, Service};

/// The configuration, before there is an API.
pub struct Edge {
    config: Config,
    file: Option<PathBuf>,
}

/// The proxy and the API behind it.
pub struct OpenEdge {
    proxy: Arc<Proxy>,
    api: Arc<Api>,
    file: Option<PathBuf>,
}

impl Edge {
    /// Reads the file; the error lists all errors with line and column.
    pub fn read(file: &Path) -> anyhow::Result<Edge> {
        if file.as_os_str() == EDGE_WITHOUT_FILE {
            let config = Config::local().map_err(|why| anyhow::anyhow!("{why}"))?;
            return Ok(Edge { config, file: None });
        }
        Ok(Edge { config: proxy::read(file, true)?, file: Some(file.to_owned()) })
    }

    pub fn start(self, api: &Arc<Api>) -> Arc<OpenEdge> {
        let outside = Arc::new(Journal { system: System::new(), log: api.access_log() });
        let local: Arc<dyn Service> = api.clone();
        let settings = Settings { outside, edge_secret: None, local: Some(local) };
        let proxy = Arc::new(Proxy::new(self.config, settings));
        Arc::new(OpenEdge { proxy, api: api.clone(), file: self.file })
    }
}

impl OpenEdge {
    pub fn service(&self) -> Arc<dyn Service> {
        self.proxy.clone()
    }

    /// Checks the servers of other backends, and reads the file again on SIGHUP.
    pub fn follow(&self) -> anyhow::Result<AbortHandle> {
        // There is no control socket: its sender waits for nothing.
        let (sender, requests) = mpsc::channel(1);
        let follow = proxy::follow(self.proxy.clone(), self.file.clone(), requests, true)?;
        let task = tokio::spawn(async move {
            let _sender = sender;
            follow.await;
        });
        Ok(task.abort_handle())
    }
}

impl Measured for OpenEdge {
    /// The metrics of the API, and then those of the proxy.
    fn metrics(&self) -> Response {
        let mut response = self.api.operator_metrics();
        if let Payload::Whole(bytes) = &response.body {
            let mut text = String::from_utf8_lossy(bytes).into_owned();
            self.proxy.metrics(&mut text);
            response.body = text.into();
        }
        response
    }
}
