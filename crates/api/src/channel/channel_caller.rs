//! Identifies the client of a channel: by an API key, or by a channel token where a browser cannot
//! send a key.

use crate::account;
use crate::auth::{self, Identity};
use crate::error::Failure;
use crate::key_status;
use crate::services::Services;
use crate::token::{Claims, PREFIX, USER, bad_user, is_name};
use crate::trace::Trace;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use live::{Bounds, ChannelCaller, Feeds, Permit, Validity};
use model::caller::{Access, Caller, Grant};
use model::problem::{Code, Problem};
use model::schema::{Builtin, Collection};
use std::sync::Arc;
use std::time::Duration;
use wire::{Exchange, websocket};

pub const ACCESS_TOKEN: &str = "access_token";
/// Prefix of a token that is sent as a subprotocol, to keep it out of URLs.
pub const TOKEN_PROTOCOL: &str = "access_token.";

/// Identifies the client and takes one request from its quota.
pub async fn identify(
    services: &Arc<Services>,
    exchange: &Exchange,
    pairs: &super::Pairs,
    trace: &mut Trace,
) -> Result<ChannelCaller, Failure> {
    if let Err(problem) = check_single(&exchange.headers, pairs) {
        services.admission.take_for_address(exchange, trace)?;
        return Err(problem.into());
    }
    let named = pairs.iter().find(|(name, _)| name == ACCESS_TOKEN).map(|(_, value)| value);
    let bearer = auth::bearer(&exchange.headers).filter(|text| text.starts_with(PREFIX));
    let offered = websocket::offered_protocols(&exchange.headers)
        .find_map(|name| name.strip_prefix(TOKEN_PROTOCOL));
    let token = bearer.or(named.map(String::as_str)).or(offered);
    let user = pairs.iter().find(|(name, _)| name == USER).map(|(_, value)| value.as_str());
    let caller = match token {
        Some(token) => by_token(services, token, user, trace).await,
        None => by_key(services, exchange, user, trace).await,
    };
    if let Err(Failure::Problem(problem)) = &caller
        && problem.code == Code::InvalidApiKey
        && token.is_some()
    {
        services.admission.take_for_address(exchange, trace)?;
    }
    let mut caller = caller?;
    // A web page can name a version only in the URL.
    let named = version(services, pairs);
    if let Some(identity) = trace.identity.clone() {
        trace.choose_version(&services.versions, exchange, &identity)?;
        // The response to an unknown version names no version.
        trace.version = named.as_ref().map_or(None, |named| named.or(trace.version));
        services.admission.take(&identity, trace).await?;
        // The events on the channel have a version too, so the account is pinned now.
        if identity.account.pin.is_none() {
            Box::pin(account::pin(services, &identity, trace.now)).await;
        }
    }
    named?;
    caller.version = trace.version.unwrap_or(0);
    Ok(caller)
}

/// Refuses more than one credential: which of them the client means is not known, and a proxy may
/// have checked another one than the server.
fn check_single(headers: &HeaderMap, pairs: &super::Pairs) -> Result<(), Problem> {
    let sent = headers.get_all(AUTHORIZATION).iter().count()
        + pairs.iter().filter(|(name, _)| name == ACCESS_TOKEN).count()
        + websocket::offered_protocols(headers)
            .filter(|name| name.starts_with(TOKEN_PROTOCOL))
            .count();
    if sent < 2 {
        return Ok(());
    }
    let message = "There is more than one credential. Send one: an Authorization header, \
                   `access_token` in the URL, or the subprotocol `access_token.<token>`.";
    Err(Problem::new(Code::InvalidHeader, message).param("Authorization"))
}

/// Index of the version that the parameters name.
fn version(services: &Services, pairs: &super::Pairs) -> Result<Option<usize>, Problem> {
    let Some(date) = live::asked_version(pairs) else { return Ok(None) };
    let unknown = || {
        let shown: String = date.chars().take(40).collect();
        services.versions.unknown(&shown, live::VERSION)
    };
    services.versions.find(date).map(|view| Some(view.index)).ok_or_else(unknown)
}

async fn by_key(
    services: &Arc<Services>,
    exchange: &Exchange,
    user: Option<&str>,
    trace: &mut Trace,
) -> Result<ChannelCaller, Failure> {
    let key_generation = services.store.key_generation();
    let identity = services.admission.identify(exchange, trace).await?;
    let caller = &identity.caller;
    let feeds = match &caller.grants {
        None => Feeds::All,
        Some(_) => Feeds::Only(writable(services, caller)),
    };
    if let Some(name) = user.filter(|name| !is_name(name)) {
        return Err(Failure::Problem(bad_user(name)));
    }
    Ok(ChannelCaller {
        scope: caller.scope,
        permit: permit(services, caller.grants.clone(), Vec::new(), None),
        user: user.map(str::to_owned),
        feeds,
        by_token: false,
        expires_in: identity.expires.map(|end| until(end.0, trace)),
        validity: services.channels.key_statuses.of(
            caller.scope,
            &caller.key,
            caller.grants.clone(),
        ),
        key_generation,
        version: 0,
        now: trace.now,
    })
}

/// The events that a channel token permits.
pub fn permit_of(services: &Services, claims: &Claims) -> Permit {
    let bounds = Bounds { resources: claims.resources.clone(), parents: claims.parents.clone() };
    let bounds = (bounds != Bounds::default()).then(|| Arc::new(bounds));
    permit(services, claims.grants(), claims.types.clone(), bounds)
}

/// Sets which ephemeral messages the client may read: a client sees who is typing only if it may
/// read a feed.
fn permit(
    services: &Services,
    grants: Option<Vec<Grant>>,
    types: Vec<String>,
    bounds: Option<Arc<Bounds>>,
) -> Permit {
    let reads = |collection: &str| match &grants {
        None => true,
        Some(grants) => grants.iter().any(|grant| grant.covers(collection, Access::Read)),
    };
    let reads_no_feed = !services.schema.feeds().any(|(_, c)| reads(&c.name) || reads("events"));
    Permit { grants, types, reads_no_feed, bounds }
}

/// Live names of the feeds that a restricted key may write to.
fn writable(services: &Services, caller: &Caller) -> Vec<String> {
    let feeds = services.schema.feeds().filter(|(_, c)| caller.may(&c.name, Access::Write));
    feeds.filter_map(|(_, c)| Some(c.feed.as_ref()?.live_name.clone())).collect()
}

async fn by_token(
    services: &Arc<Services>,
    token: &str,
    user: Option<&str>,
    trace: &mut Trace,
) -> Result<ChannelCaller, Failure> {
    let claims = services.channels.tokens.open(token, trace.now)?;
    if user.is_some() {
        let message = "A channel token already names its user; omit `user`.";
        return Err(Problem::new(Code::InvalidParameter, message).param(USER).into());
    }
    let scope = model::Scope(claims.scope);
    let keys = services.schema.own(Builtin::Key);
    let key_generation = services.store.key_generation();
    let grants = claims.grants();
    let asked = (scope, &*claims.key, grants.as_deref());
    let held = key_status::holds(&*services.store, keys, asked, trace.now).await?;
    // A token does not outlive its key, nor a scope of it.
    let expires_in = match held {
        Validity::Valid => until(claims.expires, trace),
        Validity::ExpiresIn(time) => until(claims.expires, trace).min(time),
        Validity::Revoked => {
            let message = "The API key that made this channel token is no longer valid, or has \
                           fewer scopes than the token.";
            return Err(Problem::new(Code::InvalidApiKey, message).param(ACCESS_TOKEN).into());
        }
    };
    let caller = Caller {
        scope,
        account: claims.account.clone(),
        key: claims.key.clone(),
        grants: claims.grants(),
        admin: None,
        rate_limit: None,
    };
    // Each user has a separate quota: a user who floods the service does not block the others.
    let who = format!("{}:{}", claims.key, claims.user.as_deref().unwrap_or_default());
    let account = services.admission.auth.account(&claims.account).await?;
    let bucket = services.admission.limiter.bucket_of_key(&who);
    let identity = Identity::of_token(caller, bucket, account, claims.user.clone());
    trace.identity = Some(Arc::new(identity));
    let permit = permit_of(services, &claims);
    Ok(ChannelCaller {
        scope,
        permit,
        user: claims.user,
        feeds: Feeds::Only(claims.publish),
        by_token: true,
        expires_in: Some(expires_in),
        validity: services.channels.key_statuses.of(scope, &claims.key, grants),
        key_generation,
        version: 0,
        now: trace.now,
    })
}

fn until(end_ms: i64, trace: &Trace) -> Duration {
    Duration::from_millis(u64::try_from(end_ms - trace.now.0).unwrap_or(0))
}

/// Whether a client may read a feed.
pub fn may_read(caller: &ChannelCaller, collection: &Collection) -> Result<(), Problem> {
    let live_name = collection.feed.as_ref().map_or("", |feed| &feed.live_name);
    // A poll returns every record of the feed, so a token that is limited to some records may not
    // poll.
    let unbounded = caller.permit.bounds.is_none();
    if unbounded && caller.permit.reads(&collection.name, &[live_name, &collection.events.created])
    {
        return Ok(());
    }
    let message = format!("These credentials may not read `{}`.", collection.name);
    Err(Problem::new(Code::PermissionDenied, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::parse;
    use model::schema::BOOKSHOP;

    #[derive(Debug)]
    struct Good;

    impl live::ValidityCheck for Good {
        fn check(&self) -> std::pin::Pin<Box<dyn Future<Output = Validity> + Send>> {
            Box::pin(std::future::ready(Validity::Valid))
        }
    }

    /// Whether a client with these scopes, and a token for these types, may poll the messages.
    fn polls(scopes: Option<&[&str]>, types: &[&str]) -> bool {
        let schema = parse::parse(BOOKSHOP).unwrap();
        let messages = &schema.collections[schema.find("messages").unwrap()];
        let grants = scopes.map(|all| all.iter().filter_map(|one| Grant::parse(one)).collect());
        let types = types.iter().map(|one| (*one).to_owned()).collect();
        let caller = ChannelCaller {
            scope: model::Scope(2),
            permit: Permit { grants, types, ..Permit::default() },
            user: None,
            feeds: Feeds::All,
            by_token: false,
            expires_in: None,
            validity: Arc::new(Good),
            key_generation: 0,
            version: 0,
            now: model::Timestamp(0),
        };
        may_read(&caller, messages).is_ok()
    }

    #[test]
    fn polling_a_feed_needs_read_access_to_its_records_or_to_the_log() {
        assert!(polls(None, &[]));
        assert!(polls(Some(&["messages:read"]), &[]));
        assert!(polls(Some(&["events:read"]), &["*"]));
        assert!(polls(None, &["message"]));
        assert!(polls(None, &["order.*", "message.created"]));
        assert!(!polls(Some(&["books:read"]), &[]));
        assert!(!polls(Some(&[]), &[]));
        assert!(!polls(Some(&["messages:read"]), &["typing"]));
        assert!(!polls(None, &["order.*"]));
    }
}
