//! Who opens a channel: by an API key, or by a channel token where a browser cannot send one.

use super::standing;
use super::token::PREFIX;
use crate::account;
use crate::auth::{self, Identity};
use crate::operation::Failure;
use crate::service::{Core, Trace};
use live::{Bounds, Feeds, Held, Permit, Visitor};
use model::caller::{Access, Caller, Grant};
use model::problem::{Code, Problem};
use model::schema::{Builtin, Collection};
use std::sync::Arc;
use std::time::Duration;
use wire::{Exchange, websocket};

pub const ACCESS_TOKEN: &str = "access_token";
/// For whom a connection is that was opened with a key.
pub const USER: &str = "user";
/// Before a token among the subprotocols, where it is in no URL.
pub const TOKEN_PROTOCOL: &str = "access_token.";
pub const MAX_USER_CHARS: usize = 200;

/// Knows the caller and takes from their quota.
pub async fn visitor(
    core: &Arc<Core>,
    exchange: &Exchange,
    pairs: &super::Pairs,
    trace: &mut Trace,
) -> Result<Visitor, Failure> {
    let named = pairs.iter().find(|(name, _)| name == ACCESS_TOKEN).map(|(_, value)| value);
    let bearer = auth::bearer(&exchange.headers).filter(|text| text.starts_with(PREFIX));
    let offered = websocket::offered_protocols(&exchange.headers)
        .find_map(|name| name.strip_prefix(TOKEN_PROTOCOL));
    let token = bearer.or(named.map(String::as_str)).or(offered);
    let user = pairs.iter().find(|(name, _)| name == USER).map(|(_, value)| value.as_str());
    let visitor = match token {
        Some(token) => by_token(core, token, user, trace).await,
        None => by_key(core, exchange, user, trace).await,
    };
    if let Err(Failure::Problem(problem)) = &visitor
        && problem.code == Code::InvalidApiKey
        && token.is_some()
    {
        core.take_for_address(exchange, trace)?;
    }
    let mut visitor = visitor?;
    // A page can say it in the URL alone.
    let named = version(core, pairs);
    if let Some(identity) = trace.identity.clone() {
        core.choose_version(exchange, &identity, trace)?;
        // One that does not exist is nobody's.
        trace.version = named.as_ref().map_or(None, |named| named.or(trace.version));
        core.take(&identity, trace)?;
        // What comes over the channel is in some version, too.
        if identity.account.pin.is_none() {
            Box::pin(account::pin(core, &identity, trace.now)).await;
        }
    }
    named?;
    visitor.version = trace.version.unwrap_or(0);
    Ok(visitor)
}

/// Place of the version that the parameters name.
fn version(core: &Core, pairs: &super::Pairs) -> Result<Option<usize>, Problem> {
    let Some(date) = live::asked_version(pairs) else { return Ok(None) };
    let unknown = || {
        let shown: String = date.chars().take(40).collect();
        core.versions.unknown(&shown, live::VERSION)
    };
    core.versions.find(date).map(|view| Some(view.index)).ok_or_else(unknown)
}

async fn by_key(
    core: &Arc<Core>,
    exchange: &Exchange,
    user: Option<&str>,
    trace: &mut Trace,
) -> Result<Visitor, Failure> {
    let identity = core.identify(exchange, trace).await?;
    let caller = &identity.caller;
    let feeds = match &caller.grants {
        None => Feeds::All,
        Some(_) => Feeds::Only(writable(core, caller)),
    };
    if let Some(name) = user.filter(|name| !is_name(name)) {
        return Err(Failure::Problem(bad_user(name)));
    }
    Ok(Visitor {
        scope: caller.scope,
        permit: permit(core, caller.grants.clone(), Vec::new(), None),
        user: user.map(str::to_owned),
        feeds,
        by_token: false,
        expires_in: identity.expires.map(|end| until(end.0, trace)),
        standing: core.standings.of(core, caller.scope, &caller.key),
        version: 0,
        now: trace.now,
    })
}

/// What is said in passing is read, too: who is typing, by those who may read what is then sent.
fn permit(
    core: &Core,
    grants: Option<Vec<Grant>>,
    types: Vec<String>,
    bounds: Option<Arc<Bounds>>,
) -> Permit {
    let reads = |collection: &str| match &grants {
        None => true,
        Some(grants) => grants.iter().any(|grant| grant.covers(collection, Access::Read)),
    };
    let deaf = !core.schema.feeds().any(|(_, c)| reads(&c.name) || reads("events"));
    Permit { grants, types, deaf, bounds }
}

/// Live names of the feeds a restricted key may write to.
fn writable(core: &Core, caller: &Caller) -> Vec<String> {
    let feeds = core.schema.feeds().filter(|(_, c)| caller.may(&c.name, Access::Write));
    feeds.filter_map(|(_, c)| Some(c.feed.as_ref()?.live_name.clone())).collect()
}

async fn by_token(
    core: &Arc<Core>,
    token: &str,
    user: Option<&str>,
    trace: &mut Trace,
) -> Result<Visitor, Failure> {
    let claims = core.tokens.open(token, trace.now)?;
    if user.is_some() {
        let message = "A channel token names its user itself; leave `user` out.";
        return Err(Problem::new(Code::InvalidParameter, message).param(USER).into());
    }
    let scope = model::Scope(claims.scope);
    let keys = core.schema.own(Builtin::Key);
    let held = standing::holds(&*core.store, keys, scope, &claims.key, trace.now).await?;
    // A token is worth no more than its key.
    let expires_in = match held {
        Held::Yes => until(claims.expires, trace),
        Held::For(time) => until(claims.expires, trace).min(time),
        Held::No => {
            let message = "The API key that made this channel token is no longer valid.";
            return Err(Problem::new(Code::InvalidApiKey, message).param(ACCESS_TOKEN).into());
        }
    };
    let grants = claims.grants();
    let caller = Caller {
        scope,
        account: claims.account.clone(),
        key: claims.key.clone(),
        grants: grants.clone(),
        rate_limit: None,
    };
    // Each user has a quota of their own: one who floods does not shut the others out.
    let who = format!("{}:{}", claims.key, claims.user.as_deref().unwrap_or_default());
    let account = core.auth.account(&claims.account).await?;
    let identity = Identity::of_token(caller, core.limiter.bucket(&who), account);
    trace.identity = Some(Arc::new(identity));
    let bounds = Bounds { resources: claims.resources, parents: claims.parents };
    let bounds = (bounds != Bounds::default()).then(|| Arc::new(bounds));
    Ok(Visitor {
        scope,
        permit: permit(core, grants, claims.types, bounds),
        user: claims.user,
        feeds: Feeds::Only(claims.publish),
        by_token: true,
        expires_in: Some(expires_in),
        standing: core.standings.of(core, scope, &claims.key),
        version: 0,
        now: trace.now,
    })
}

fn until(end_ms: i64, trace: &Trace) -> Duration {
    Duration::from_millis(u64::try_from(end_ms - trace.now.0).unwrap_or(0))
}

/// Whether a text can stand for a user.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_USER_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

pub fn bad_user(name: &str) -> Problem {
    let shown: String = name.chars().take(100).collect();
    let message = format!("`user` must have 1 to {MAX_USER_CHARS} printable characters.");
    Problem::new(Code::InvalidParameter, message).param(USER).value(shown)
}

/// Whether a restricted key may do this.
pub fn may(identity: &Identity, collection: &str, access: Access) -> Result<(), Problem> {
    if identity.caller.may(collection, access) {
        return Ok(());
    }
    let word = if access == Access::Read { "read" } else { "write" };
    let message = format!("This key lacks the scope `{collection}:{word}`.");
    Err(Problem::new(Code::PermissionDenied, message))
}

/// Whether a visitor may read a feed.
pub fn may_read(visitor: &Visitor, collection: &Collection) -> Result<(), Problem> {
    let live_name = collection.feed.as_ref().map_or("", |feed| &feed.live_name);
    // A poll shows every record of the feed.
    let unbounded = visitor.permit.bounds.is_none();
    if unbounded && visitor.permit.reads(&collection.name, &[live_name, &collection.events.created])
    {
        return Ok(());
    }
    let message = format!("These credentials may not read `{}`.", collection.name);
    Err(Problem::new(Code::PermissionDenied, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::schema::{BOOKSHOP, parse};

    #[test]
    fn a_name_has_characters_to_show_and_not_too_many() {
        for good in ["ann", "Ann Müller", "🦀", &"x".repeat(MAX_USER_CHARS)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a\nb", "\u{7f}", "\u{85}", &"ü".repeat(MAX_USER_CHARS + 1)] {
            assert!(!is_name(bad), "{bad}");
        }
        let problem = bad_user(&"x".repeat(5000));
        assert_eq!((problem.code, problem.param.as_deref()), (Code::InvalidParameter, Some(USER)));
        assert_eq!(problem.value.as_ref().unwrap().as_str().unwrap().len(), 100);
    }

    #[derive(Debug)]
    struct Good;

    impl live::Standing for Good {
        fn holds(&self) -> std::pin::Pin<Box<dyn Future<Output = Held> + Send>> {
            Box::pin(std::future::ready(Held::Yes))
        }
    }

    /// Whether somebody with these scopes, and a token for these types, may poll the messages.
    fn polls(scopes: Option<&[&str]>, types: &[&str]) -> bool {
        let schema = parse::parse(BOOKSHOP).unwrap();
        let messages = &schema.collections[schema.find("messages").unwrap()];
        let grants = scopes.map(|all| all.iter().filter_map(|one| Grant::parse(one)).collect());
        let types = types.iter().map(|one| (*one).to_owned()).collect();
        let visitor = Visitor {
            scope: model::Scope(2),
            permit: Permit { grants, types, ..Permit::default() },
            user: None,
            feeds: Feeds::All,
            by_token: false,
            expires_in: None,
            standing: Arc::new(Good),
            version: 0,
            now: model::Timestamp(0),
        };
        may_read(&visitor, messages).is_ok()
    }

    #[test]
    fn a_feed_is_polled_by_those_who_may_read_its_records_or_the_log() {
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
