//! Creates records from messages that a client sends over a socket. They pass the same quota,
//! validation and commit as any other request.

use crate::auth::Identity;
use crate::error::{self, Shape, explain};
use crate::idempotency;
use crate::limit::Moment;
use crate::operation::{self, Author, Operation};
use crate::request::RequestInfo;
use crate::route::{self, Target};
use crate::services::Services;
use bytes::Bytes;
use http::{HeaderMap, Method};
use live::{ChannelCaller, PendingPost, Posted, RecordWriter};
use model::problem::{Code, Problem};
use model::schema::CollectionIx;
use model::version::View;
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;

pub struct SocketWriter {
    services: Arc<Services>,
    identity: Arc<Identity>,
    /// The API version of the socket.
    version: Arc<View>,
    /// Prefix of every idempotency key, so that no user can reuse the `ref` of another user.
    owner: String,
    author: Author,
    client: Option<IpAddr>,
}

impl SocketWriter {
    pub fn new(
        services: Arc<Services>,
        identity: Arc<Identity>,
        version: Arc<View>,
        caller: &ChannelCaller,
        client: Option<IpAddr>,
    ) -> SocketWriter {
        // The length separates a user `a:b` from a user `a` whose refs begin with `b:`.
        let user = caller.user.as_deref().unwrap_or_default();
        let owner = format!("socket:{}:{}:{user}:", identity.caller.key, user.len());
        let author = Author { user: caller.user.clone(), by_token: caller.by_token };
        SocketWriter { services, identity, version, owner, author, client }
    }
}

impl RecordWriter for SocketWriter {
    fn post(&self, feed: CollectionIx, body: Bytes, reference: Option<String>) -> PendingPost {
        let (services, identity, client) =
            (self.services.clone(), self.identity.clone(), self.client);
        let (version, author) = (self.version.clone(), self.author.clone());
        let key = reference.map(|reference| format!("{}{reference}", self.owner));
        Box::pin(async move {
            post(&services, &identity, &version, feed, body, key, (&author, client)).await
        })
    }

    fn subscribed(&self, types: &[String]) {
        let now = self.services.outside.now();
        let used = self.services.deprecations.subscribed(self.version.index, types);
        used.iter().for_each(|part| self.identity.account.usage.count(part.place, now));
    }

    fn explain(&self, problem: &Problem) -> String {
        let (_, body) =
            error::body(problem, Shape::Structured, &self.services.telemetry.request_id());
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        body["error"].to_string()
    }
}

async fn post(
    services: &Arc<Services>,
    identity: &Arc<Identity>,
    version: &Arc<View>,
    feed: CollectionIx,
    body: Bytes,
    key: Option<String>,
    (author, client): (&Author, Option<IpAddr>),
) -> Result<Posted, Problem> {
    let request_id = services.telemetry.request_id();
    let now = services.outside.now();
    let at = Moment { now, uptime: services.outside.uptime() };
    let (limiter, own) = (&services.admission.limiter, identity.caller.rate_limit);
    let taken = limiter.take_of_key(&identity.bucket, own, at).await;
    if let Some((quota, false)) = taken {
        return Err(quota.problem());
    }
    let collection = &services.schema.collections[feed];
    if !version.serves(feed) {
        return Err(services.versions.missing(version, feed));
    }
    let usage = &identity.account.usage;
    usage.count(version.index, now);
    let used = services.deprecations.used(version.index, feed, &body, "");
    used.iter().for_each(|part| usage.count(part.place, now));
    if !collection.operations.create {
        let message = format!("`{}` does not accept new records.", collection.name);
        return Err(Problem::new(Code::PermissionDenied, message));
    }
    if collection.require_idempotency_key && key.is_none() {
        let message = "This feed requires a `ref`, so that a message that is sent again has no \
                       second effect.";
        return Err(Problem::new(Code::IdempotencyKeyRequired, message).param("ref"));
    }
    let path = route::template(&services.schema, feed, false, None);
    let user = author.user.as_deref().unwrap_or_default();
    let parts: [&[u8]; 5] =
        [b"socket", path.as_bytes(), &body, version.date.as_bytes(), user.as_bytes()];
    let idempotency = key.map(|key| idempotency::fingerprint(key, &parts));
    let target = Target { collection: feed, mount: 0, parents: Vec::new(), id: None, action: None };
    let request = RequestInfo {
        id: request_id.clone(),
        method: Method::POST,
        uri: path.parse().map_err(|_| Problem::new(Code::Internal, "The path is not a URI."))?,
        headers: HeaderMap::new(),
        body,
        client,
        target,
        identity: identity.clone(),
        version: version.clone(),
        error_shape: Shape::Structured,
        idempotency,
    };
    let created = operation::create_record(Operation { services, request: &request }, author).await;
    let (id, replayed) = created.map_err(|failure| {
        let problem = explain(failure, &request_id);
        match problem.code {
            Code::IdempotencyKeyReused => {
                let message = "This `ref` was already used for another message. Use a new one.";
                Problem::new(problem.code, message).param("ref")
            }
            _ => problem,
        }
    })?;
    // The id of a record in a feed is its position in the log.
    Ok(Posted { seq: id.parse().unwrap_or_default(), replayed })
}
