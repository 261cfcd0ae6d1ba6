//! The task that asks the backend for a response and stores it: one for all clients that wait for
//! the same response.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::StatusCode;
use tokio::select;
use wire::{Chunks, Exchange, Hints, Payload, Response};

use super::Shared;
use super::condition;
use super::fetch::{self, Fetch};
use super::fill::{Charge, Fill, Head, Lead};
use super::key::Key;
use super::policy::{self, NotStored, Requester, Rules, Times};
use super::store::Stored;
use super::vary::Selection;
use crate::balance::Backend;
use crate::error::Failure;
use crate::follow::{Evidence, Exact};
use crate::forward::Forwarded;

pub(crate) struct Job {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Key,
    pub(crate) fill: Arc<Fill>,
    pub(crate) fetch: Fetch,
    /// The request of the first client, with its headers.
    pub(crate) exchange: Exchange,
    pub(crate) requester: Requester,
    /// What is stored and needs a validation.
    pub(crate) stale: Option<Arc<Stored>>,
}

/// How far a body was read.
enum Read {
    Whole,
    /// It is too large to be stored, or there is no memory for it now.
    TooLarge,
    /// It broke off, or all clients have left.
    Broken,
}

/// However the task ends, nobody may wait for it.
struct End<'j>(&'j Job);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.shared.flights.end(&self.0.key, &self.0.fill);
        self.0.fill.end();
    }
}

impl Job {
    pub(crate) async fn run(self) {
        let _end = End(&self);
        let hints = self.exchange.hints.clone();
        let sent = Instant::now();
        let outcome = select! {
            biased;
            outcome = self.ask(self.stale.as_ref(), hints) => outcome,
            () = self.fill.abandoned() => {
                self.shared.flights.end(&self.key, &self.fill);
                return self.fill.give_up();
            }
        };
        match outcome {
            Err(failure) => self.fail(failure),
            Ok(forwarded) => match (forwarded.response.status, &self.stale) {
                (StatusCode::NOT_MODIFIED, Some(stale)) => {
                    self.confirm(stale, forwarded, sent).await;
                }
                _ => self.take(forwarded, sent).await,
            },
        }
    }

    /// Asks for the whole response, or whether the stored one is valid.
    async fn ask(&self, stale: Option<&Arc<Stored>>, hints: Hints) -> Result<Forwarded, Failure> {
        let mut headers = self.exchange.headers.clone();
        for name in condition::OWN {
            headers.remove(name);
        }
        if let Some(stale) = stale {
            condition::validate(stale, &mut headers);
        }
        self.fetch.run(fetch::get(&self.exchange, headers, hints)).await
    }

    fn fail(&self, failure: Failure) {
        match self.stale.as_ref().filter(|stale| stale.rules.covers_errors(Instant::now())) {
            Some(stale) if failure.status.is_server_error() => self.fill.stale(stale.clone()),
            _ => self.fill.fail(failure),
        }
    }

    fn times(sent: Instant) -> Times {
        Times { sent, received: Instant::now(), date: SystemTime::now() }
    }

    /// A 304: the stored response is valid, with newer headers.
    async fn confirm(&self, stale: &Arc<Stored>, forwarded: Forwarded, sent: Instant) {
        let Forwarded { response, evidence, .. } = forwarded;
        if !condition::confirms(stale, &response.headers) {
            // It is about another response than the stored one.
            self.shared.flights.forget(&self.shared.store, &self.key, &stale.selection);
            let sent = Instant::now();
            return match self.ask(None, Hints::default()).await {
                Ok(forwarded) => self.take(forwarded, sent).await,
                Err(failure) => self.fill.fail(failure),
            };
        }
        let times = Job::times(sent);
        let headers = policy::freshened(&stale.headers, &response.headers);
        let selection = Selection::of(&headers, &self.exchange.headers);
        let rules = Rules::of(stale.status, &headers, self.requester, times);
        let cookies = condition::cookies(&response.headers);
        let is_stored = rules.is_ok() && selection.is_some();
        let stored = Arc::new(Stored {
            status: stale.status,
            headers: match &rules {
                Ok(rules) => rules.stored_headers(&headers, times),
                Err(_) => headers,
            },
            body: stale.body.clone(),
            selection: selection.unwrap_or_default(),
            rules: rules.unwrap_or_else(|_| stale.rules.clone()),
            exact: self.exact(evidence),
        });
        self.shared.metrics.confirmed();
        match is_stored {
            true => {
                self.shared.flights.store(&self.shared.store, &self.key, &self.fill, &stored);
            }
            // The backend forbids it from now on.
            false => {
                self.shared.flights.forget(&self.shared.store, &self.key, &stale.selection);
            }
        }
        self.fill.confirmed(stored, cookies, is_stored);
    }

    /// A response that is not a 304.
    async fn take(&self, forwarded: Forwarded, sent: Instant) {
        let Forwarded { response, backend, evidence } = forwarded;
        let status = response.status;
        let is_failure = matches!(status.as_u16(), 500 | 502..=504);
        if is_failure
            && let Some(stale) = &self.stale
            && stale.rules.covers_errors(Instant::now())
        {
            return self.fill.stale(stale.clone());
        }
        let times = Job::times(sent);
        match self.plan(&response, times) {
            Ok((head, charge)) => {
                let exact = self.exact(evidence);
                self.store((head, exact), charge, response, backend).await;
            }
            Err(reason) => {
                // These say nothing about the response for others.
                let is_own = matches!(reason, NotStored("memory" | "authorization"));
                if matches!(reason, NotStored("authorization")) {
                    self.shared.shareable.remove(self.key.fingerprint());
                }
                if !is_failure && !is_own {
                    self.shared.uncacheable.add(self.key.fingerprint());
                    if let Some(stale) = &self.stale {
                        let store = &self.shared.store;
                        self.shared.flights.forget(store, &self.key, &stale.selection);
                    }
                }
                let failure = matches!(status.as_u16(), 502..=504).then(|| failed(status));
                self.fill.own(Lead::Own(response, backend, reason), failure);
            }
        }
    }

    /// Whether the response is stored: its rules, and memory for it.
    fn plan(&self, response: &Response, times: Times) -> Result<(Head, Charge), NotStored> {
        let Response { status, headers, body, .. } = response;
        let rules = Rules::of(*status, headers, self.requester, times)?;
        let selection = Selection::of(headers, &self.exchange.headers);
        let selection = selection.ok_or(NotStored("vary"))?;
        let length_bytes = match body {
            Payload::Whole(bytes) => Some(bytes.len() as u64),
            Payload::Stream(chunks) => chunks.length_bytes(),
            Payload::TakeOver(_) | Payload::Later(_) => return Err(NotStored("upgrade")),
        };
        if length_bytes.is_some_and(|length| length > self.shared.store.max_body_bytes(&self.key)) {
            return Err(NotStored("size"));
        }
        let charge = self.shared.filling.take(length_bytes.unwrap_or(0));
        let charge = charge.ok_or(NotStored("memory"))?;
        let headers = rules.stored_headers(headers, times);
        Ok((Head { status: *status, headers, rules, selection, length_bytes }, charge))
    }

    /// Evidence is for entries of one credential: only those are validated without it.
    fn exact(&self, evidence: Option<Evidence>) -> Option<Exact> {
        let evidence = evidence.filter(|_| self.requester.is_private);
        self.fetch.follow.exact(evidence, &self.exchange.headers)
    }

    async fn store(
        &self,
        (head, exact): (Head, Option<Exact>),
        charge: Charge,
        response: Response,
        backend: Arc<Backend>,
    ) {
        let head = Arc::new(head);
        let lead = Lead::Headers(response.headers, backend, head.clone());
        self.fill.head(head.clone(), lead, charge);
        let mut trailers = None;
        match response.body {
            Payload::Whole(bytes) => drop(self.fill.piece(&bytes, true)),
            Payload::Stream(mut chunks) => match self.read(&mut chunks, &head).await {
                Read::Whole => trailers = chunks.trailers(),
                Read::TooLarge => return self.give(chunks),
                Read::Broken => return,
            },
            Payload::TakeOver(_) | Payload::Later(_) => return,
        }
        let stored = Arc::new(Stored {
            status: head.status,
            headers: head.headers.clone(),
            body: self.fill.body(),
            selection: head.selection.clone(),
            rules: head.rules.clone(),
            exact,
        });
        if self.shared.flights.store(&self.shared.store, &self.key, &self.fill, &stored) {
            self.shared.metrics.stored();
        }
        self.shared.uncacheable.remove(self.key.fingerprint());
        self.fill.done(stored, trailers);
    }

    async fn read(&self, chunks: &mut Box<dyn Chunks>, head: &Head) -> Read {
        let most = self.shared.store.max_body_bytes(&self.key);
        let mut total = 0;
        loop {
            let next = select! {
                biased;
                next = poll_fn(|cx| chunks.poll_chunk(cx)) => next,
                // How much more would be read for nobody is not known.
                () = self.fill.abandoned(), if head.length_bytes.is_none() => {
                    self.shared.flights.end(&self.key, &self.fill);
                    self.fill.give_up();
                    return Read::Broken;
                }
            };
            match next {
                None => return Read::Whole,
                Some(Ok(piece)) => {
                    total += piece.len() as u64;
                    let is_held = self.fill.piece(&piece, head.length_bytes.is_some());
                    if !is_held || total > most {
                        return Read::TooLarge;
                    }
                }
                Some(Err(_)) => {
                    let message = "The server's response broke off.";
                    self.fill.fail(Failure::new(StatusCode::BAD_GATEWAY, "bad_gateway", message));
                    return Read::Broken;
                }
            }
        }
    }

    /// The body is too large: the first client reads the rest itself.
    fn give(&self, rest: Box<dyn Chunks>) {
        self.shared.uncacheable.add(self.key.fingerprint());
        self.fill.hand_over(rest);
    }
}

/// What clients get that waited for a response by which the backend says that it fails. They get no
/// part of a response that was not theirs, and do not ask the failing backend again.
fn failed(status: StatusCode) -> Failure {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => Failure::unavailable(),
        StatusCode::GATEWAY_TIMEOUT => {
            Failure::new(status, "gateway_timeout", "The server did not respond in time.")
        }
        _ => Failure::new(status, "bad_gateway", "The server could not respond."),
    }
}
