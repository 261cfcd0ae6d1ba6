//! Gives a request to the service in this process, without a socket (`restive serve --edge`). The
//! service sees it as its own listener would have given it: nothing is added about the client,
//! whom the exchange names itself.

use std::time::Instant;

use http::Uri;
use wire::{Exchange, Payload, Response};

use super::headers;
use super::{Counted, Forward, Forwarded};
use crate::balance::InProgress;
use crate::error::Failure;
use crate::metrics::Outcome;

impl Forward<'_> {
    pub(super) async fn call_local(&self, mut exchange: Exchange) -> Result<Forwarded, Failure> {
        let backend = self.pool.backends.first();
        let (Some(service), Some(backend)) = (self.local, backend) else {
            return Err(Failure::unavailable());
        };
        exchange.body.guard(self.route.max_body_bytes, headers::keeps_request_trailer);
        headers::apply(&self.route.request_headers, &mut exchange.headers);
        if self.route.compress {
            headers::strengthen(&mut exchange.headers);
        }
        if let Some(path) = &self.path {
            exchange.uri = Uri::from(path.clone());
        }
        let in_progress = InProgress::begin(backend);
        let mut response = service.call(exchange).await;
        self.note(backend, Outcome::of(response.status), true, Instant::now());
        let edits = &self.route.response_headers;
        headers::apply(edits, &mut response.headers);
        response.body = match response.body {
            Payload::Stream(chunks) => {
                let edits = edits.clone();
                Payload::Stream(Box::new(Counted { chunks, edits, _in_progress: in_progress }))
            }
            Payload::Later(answer) => {
                let edits = edits.clone();
                Payload::Later(Box::pin(async move {
                    let mut response: Response = answer.await;
                    headers::apply(&edits, &mut response.headers);
                    response
                }))
            }
            whole @ (Payload::Whole(_) | Payload::TakeOver(_)) => whole,
        };
        Ok(Forwarded { response, backend: backend.clone(), evidence: None })
    }
}
