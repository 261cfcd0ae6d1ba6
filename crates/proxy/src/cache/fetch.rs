//! A request to the backend that does not depend on the client's connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Version};
use wire::outgoing::Client;
use wire::{Body, Exchange, Hints, Service};

use crate::balance::Pool;
use crate::config::Route;
use crate::error::Failure;
use crate::fanout::Fanout;
use crate::follow::Follow;
use crate::forward::headers::Sender;
use crate::forward::{Forward, Forwarded, Links};

/// What a request is forwarded with, owned.
pub(crate) struct Fetch {
    client: Client,
    local: Option<Arc<dyn Service>>,
    fanout: Option<Fanout>,
    pub(crate) follow: Follow,
    pool: Arc<Pool>,
    route: Arc<Route>,
    peer: IpAddr,
    address: IpAddr,
    is_trusted: bool,
    is_secure: bool,
    version: Version,
    name: Box<str>,
    request_id: Box<str>,
    addresses: (SocketAddr, SocketAddr),
    path: Option<PathAndQuery>,
    links: Option<Links>,
}

impl Fetch {
    pub(crate) fn of(forward: &Forward<'_>) -> Fetch {
        let sender = &forward.sender;
        Fetch {
            client: forward.client.clone(),
            local: forward.local.cloned(),
            fanout: forward.fanout.cloned(),
            follow: forward.follow.clone(),
            pool: forward.pool.clone(),
            route: forward.route.clone(),
            peer: sender.peer,
            address: sender.client,
            is_trusted: sender.is_trusted,
            is_secure: sender.is_secure,
            version: sender.version,
            name: sender.name.into(),
            request_id: sender.request_id.into(),
            addresses: forward.addresses,
            path: forward.path.clone(),
            links: forward.links.clone(),
        }
    }

    pub(crate) async fn run(&self, mut exchange: Exchange) -> Result<Forwarded, Failure> {
        let certificate = exchange.client_certificate.clone();
        let forward = Forward {
            client: &self.client,
            local: self.local.as_ref(),
            fanout: self.fanout.as_ref(),
            follow: &self.follow,
            pool: &self.pool,
            route: &self.route,
            sender: Sender {
                peer: self.peer,
                client: self.address,
                is_trusted: self.is_trusted,
                is_client_known: exchange.is_client_known,
                is_secure: self.is_secure,
                version: self.version,
                name: &self.name,
                request_id: &self.request_id,
                certificate: certificate.as_deref(),
            },
            path: self.path.clone(),
            links: self.links.clone(),
            addresses: self.addresses,
        };
        forward.run(&mut exchange).await
    }
}

/// A GET request like this one, with these headers and without a body.
pub(crate) fn get(exchange: &Exchange, headers: HeaderMap, hints: Hints) -> Exchange {
    Exchange {
        method: Method::GET,
        uri: exchange.uri.clone(),
        version: exchange.version,
        headers,
        peer: exchange.peer,
        local: exchange.local,
        client: exchange.client,
        is_client_known: exchange.is_client_known,
        is_proxied: exchange.is_proxied,
        is_secure: exchange.is_secure,
        is_misdirected: exchange.is_misdirected,
        client_certificate: exchange.client_certificate.clone(),
        body: Body::empty(),
        hints,
    }
}
