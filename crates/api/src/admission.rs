//! Identifies the caller and checks that the request may continue: valid credentials, a free slot
//! among the requests of its account, and quota.

use crate::Outside;
use crate::auth::{self, Auth, Found, Identity, UnknownKey};
use crate::cors;
use crate::error::Failure;
use crate::in_flight::InFlight;
use crate::limit::{Bucket, Limiter, Quota};
use crate::trace::Trace;
use model::Schema;
use model::problem::Problem;
use std::sync::Arc;
use wire::Exchange;

/// Minimum number of free replays per window; an account with a larger limit has as many as its
/// limit. 100: a client that repeats each request several times stays below it, and the bodies that
/// the server reads for no quota have a limit.
const MIN_FREE_REPLAYS: u32 = 100;

/// What a request was admitted with.
#[derive(Debug)]
pub enum Admitted {
    /// One request of the quota.
    Quota,
    /// No quota is left. The request may only repeat an earlier one; otherwise the problem is its
    /// response.
    Replay(Problem),
}

impl Admitted {
    /// Refuses a request without quota that is not a replay.
    pub fn check(self) -> Result<(), Problem> {
        match self {
            Admitted::Quota => Ok(()),
            Admitted::Replay(problem) => Err(problem),
        }
    }
}

pub struct Admission {
    pub auth: Auth,
    pub limiter: Arc<Limiter>,
    pub in_flight: Arc<InFlight>,
    pub schema: Arc<Schema>,
}

impl Admission {
    /// Identifies the caller and takes a slot among the requests of its account.
    pub async fn identify(
        &self,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<Arc<Identity>, Failure> {
        let identity = self.caller(exchange, trace).await?;
        cors::check_sender(&self.schema.service.origins, exchange)?;
        // From here on the request may wait: for its body, the store or a handler.
        trace.slot = Some(self.in_flight.request(identity.caller.scope)?);
        Ok(identity)
    }

    /// Identifies the caller without taking a slot among the requests of its account.
    pub async fn caller(
        &self,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<Arc<Identity>, Failure> {
        trace.key_generation = self.auth.generation();
        let identity = match self.auth.look(&exchange.headers, trace.now) {
            Found::Caller(identity) => identity,
            Found::Refused(problem) => {
                self.take_for_address(exchange, trace)?;
                return Err(problem.into());
            }
            Found::Unknown(unknown) => self.look_up(unknown, exchange, trace).await?,
        };
        identity.note_use(trace.now);
        trace.identity = Some(identity.clone());
        Ok(identity)
    }

    /// Identifies the caller again if keys have changed since: while a body arrived, the key may
    /// have been revoked, restricted or have expired, and its account may have been deleted.
    pub async fn confirm(
        &self,
        identity: &mut Arc<Identity>,
        outside: &dyn Outside,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<(), Failure> {
        if self.auth.generation() != trace.key_generation {
            *identity = self.caller(exchange, trace).await?;
        }
        match identity.expires {
            Some(end) if end <= outside.now() => Err(auth::expired().into()),
            _ => Ok(()),
        }
    }

    /// Looks up a key in the store. The request is charged to the address first, so that an address
    /// without quota cannot load the store with guessed keys. A valid key does not use the quota of
    /// the address.
    async fn look_up(
        &self,
        unknown: UnknownKey,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<Arc<Identity>, Failure> {
        let is_paid = !unknown.was_valid;
        if is_paid {
            self.take_for_address(exchange, trace)?;
        }
        match self.auth.ask(unknown, trace.now).await? {
            Ok(identity) => {
                if is_paid {
                    self.limiter.give_back(&self.address_bucket(exchange), trace.moment());
                    trace.quota = None;
                }
                Ok(identity)
            }
            Err(problem) => {
                if !is_paid {
                    self.take_for_address(exchange, trace)?;
                }
                Err(problem.into())
            }
        }
    }

    /// Takes one request from the caller's quota.
    pub async fn take(&self, identity: &Identity, trace: &mut Trace) -> Result<(), Problem> {
        let own = identity.caller.rate_limit;
        let taken = self.limiter.take_of_key(&identity.bucket, own, trace.moment()).await;
        check_quota(taken, trace)
    }

    /// Takes one request from the caller's quota before the body is read. `may_repeat`: the request
    /// has an Idempotency-Key. Without quota, it may still get the response to an earlier request.
    pub async fn admit(
        &self,
        identity: &Identity,
        may_repeat: bool,
        trace: &mut Trace,
    ) -> Result<Admitted, Problem> {
        match self.take(identity, trace).await {
            Ok(()) => Ok(Admitted::Quota),
            Err(problem) if may_repeat && self.take_replay(identity, trace) => {
                Ok(Admitted::Replay(problem))
            }
            Err(problem) => Err(problem),
        }
    }

    /// Passes on the response to an earlier request, if `found` has one, and gives back the quota
    /// of the repetition as long as replays are free. Without quota, errors of the search make no
    /// difference: the request is refused.
    pub fn settle<T>(
        &self,
        found: Result<Option<T>, Failure>,
        admitted: &Admitted,
        identity: &Identity,
        trace: &mut Trace,
    ) -> Result<Option<T>, Failure> {
        let is_paid = matches!(admitted, Admitted::Quota);
        match found {
            Ok(Some(response)) => {
                if is_paid && self.take_replay(identity, trace) {
                    self.limiter.give_back(&identity.bucket, trace.moment());
                }
                let own = identity.caller.rate_limit;
                trace.quota = self.limiter.peek(&identity.bucket, own, trace.moment());
                Ok(Some(response))
            }
            Err(failure) if is_paid => Err(failure),
            Ok(None) | Err(_) => Ok(None),
        }
    }

    /// Takes one of the free replays of this window.
    fn take_replay(&self, identity: &Identity, trace: &Trace) -> bool {
        let Some(quota) = trace.quota else { return true };
        let bucket = self.limiter.bucket(&format!("replays of {}", identity.quota_of));
        let free = quota.limit.max(MIN_FREE_REPLAYS);
        self.limiter.take(&bucket, Some(free), trace.moment()).is_none_or(|(_, granted)| granted)
    }

    /// Takes one request from the quota of the client's address. For requests without a valid key.
    pub fn take_for_address(&self, exchange: &Exchange, trace: &mut Trace) -> Result<(), Problem> {
        let bucket = self.address_bucket(exchange);
        check_quota(self.limiter.take(&bucket, None, trace.moment()), trace)
    }

    /// One quota for an address, or for the network (/64) of an IPv6 address.
    fn address_bucket(&self, exchange: &Exchange) -> Arc<Bucket> {
        self.limiter.bucket(&wire::client_network(exchange.client).to_string())
    }
}

fn check_quota(taken: Option<(Quota, bool)>, trace: &mut Trace) -> Result<(), Problem> {
    let Some((quota, granted)) = taken else { return Ok(()) };
    trace.quota = Some(quota);
    if granted { Ok(()) } else { Err(quota.problem()) }
}
