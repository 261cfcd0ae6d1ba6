//! Identifies the caller and checks that the request may continue: valid credentials, a free slot
//! among the requests of its account, and quota.

use crate::auth::{Auth, Found, Identity, UnknownKey};
use crate::error::Failure;
use crate::in_flight::InFlight;
use crate::limit::{Bucket, Limiter, Quota};
use crate::trace::Trace;
use model::problem::Problem;
use std::sync::Arc;
use wire::Exchange;

pub struct Admission {
    pub auth: Auth,
    pub limiter: Arc<Limiter>,
    pub in_flight: Arc<InFlight>,
}

impl Admission {
    /// Identifies the caller and takes a slot among the requests of its account.
    pub async fn identify(
        &self,
        exchange: &Exchange,
        trace: &mut Trace,
    ) -> Result<Arc<Identity>, Failure> {
        let identity = self.caller(exchange, trace).await?;
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
        let identity = match self.auth.look(&exchange.headers, trace.now) {
            Found::Caller(identity) => identity,
            Found::Refused(problem) => {
                self.take_for_address(exchange, trace)?;
                return Err(problem.into());
            }
            Found::Unknown(unknown) => self.look_up(unknown, exchange, trace).await?,
        };
        trace.identity = Some(identity.clone());
        Ok(identity)
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
    pub fn take(&self, identity: &Identity, trace: &mut Trace) -> Result<(), Problem> {
        let own = identity.caller.rate_limit;
        let taken = self.limiter.take(&identity.bucket, own, trace.moment());
        check_quota(taken, trace)
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
