//! A GET request that the proxy sends again by itself, from another position: the next part of a
//! stream or a feed that several clients share. It has the credential of its first client, and is
//! kept only while clients share its responses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Version};
use wire::outgoing::{Call, Client};

use super::headers::Sender;
use super::{Forward, Forwarded, call_timeouts, waits};
use crate::balance::Pool;
use crate::config::Route;
use crate::error::Failure;
use crate::fanout::{Reopen, Reopened, Reopening, without_position};
use crate::follow::Follow;

/// The request, owned, with the headers that the backend received.
pub(super) struct Repeat {
    client: Client,
    follow: Follow,
    pool: Arc<Pool>,
    route: Arc<Route>,
    /// Of the first client: its server may be chosen by it.
    address: IpAddr,
    /// The addresses that the backend is told, if the client is known.
    addresses: Option<(SocketAddr, SocketAddr)>,
    host: Option<HeaderValue>,
    /// With the query, without a position.
    path: Box<str>,
    headers: Box<[(HeaderName, HeaderValue)]>,
}

impl Repeat {
    /// None for a request without a path, which has nothing to share.
    pub(super) fn of(forward: &Forward<'_>, call: &Call<'_>) -> Option<Box<dyn Reopen>> {
        // Copies: a part of the client's request would keep all of it in memory.
        let copied = |value: &HeaderValue| {
            let mut copy = HeaderValue::from_bytes(value.as_bytes()).ok()?;
            copy.set_sensitive(value.is_sensitive());
            Some(copy)
        };
        // The position is in the path, and the blocks of a response must be readable.
        let is_kept = |name: &HeaderName| name != "last-event-id" && name != ACCEPT_ENCODING;
        let headers = call.headers.iter().filter(|(name, _)| is_kept(name));
        let headers: Option<Box<[_]>> =
            headers.map(|(name, value)| Some((name.clone(), copied(value)?))).collect();
        Some(Box::new(Repeat {
            client: forward.client.clone(),
            follow: forward.follow.clone(),
            pool: forward.pool.clone(),
            route: forward.route.clone(),
            address: forward.sender.client,
            addresses: forward.sender.is_client_known.then_some(forward.addresses),
            host: call.host.as_ref().and_then(copied),
            path: without_position(call.path.as_ref()?.as_str()).into(),
            headers: headers?,
        }))
    }

    /// The response is not shared once more.
    async fn send(&self, position: String) -> Result<Reopened, Failure> {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{separator}since={position}", self.path);
        let is_long_poll = waits(&path);
        let forward = Forward {
            client: &self.client,
            local: None,
            fanout: None,
            follow: &self.follow,
            pool: &self.pool,
            route: &self.route,
            sender: Sender {
                peer: self.address,
                client: self.address,
                is_client_known: self.addresses.is_some(),
                is_trusted: false,
                is_secure: false,
                version: Version::HTTP_11,
                name: "",
                request_id: "",
                certificate: None,
            },
            path: None,
            links: None,
            addresses: self.addresses.unwrap_or((([0; 4], 0).into(), ([0; 4], 0).into())),
        };
        let Some(first) = self.pool.backends.first() else { return Err(Failure::unavailable()) };
        let mut call = Call::new(Method::GET, &first.server.target);
        call.path = Some(PathAndQuery::try_from(path).map_err(|_| Failure::unavailable())?);
        call.host = self.host.clone();
        call.headers = self.headers.iter().cloned().collect::<HeaderMap>();
        call.timeouts = call_timeouts(self.route.timeouts, is_long_poll);
        let introduced = match self.addresses {
            Some((from, to)) => self.pool.introduced(from, to),
            None => Vec::new(),
        };
        let (Forwarded { response, backend, .. }, _) =
            forward.attempts(&mut call, &introduced, true).await?;
        Ok(Reopened { response, is_restive: backend.is_restive() })
    }
}

impl Reopen for Repeat {
    fn reopen(&self, position: String) -> Reopening<'_> {
        Box::pin(self.send(position))
    }
}
