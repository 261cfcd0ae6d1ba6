//! One request to the local URL: signed like a webhook, 30 s, no redirects, no retries.

use super::Envelope;
use crate::outside::System;
use crate::route::{Route, Target, choose};
use api::Outside as _;
use restive_kit::client::{Client, Method, Response};
use restive_kit::signature::{Secret, Signer};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(30);
/// The response is shown in part and not used otherwise.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

pub struct Forwarder {
    other: Target,
    routes: Vec<Route>,
    signer: Signer,
    /// By origin: all targets are known at the start.
    clients: HashMap<String, Client>,
}

/// What the local server did.
pub struct Outcome {
    pub target: Target,
    pub response: Result<Response, String>,
    pub duration: Duration,
}

impl Forwarder {
    pub fn new(other: &Target, routes: &[Route], secret: &Secret) -> anyhow::Result<Forwarder> {
        let mut clients = HashMap::new();
        let origins = routes.iter().filter_map(Route::origin).chain([other.origin.as_str()]);
        for origin in origins {
            let client = Client::builder(origin)
                .attempt_timeout(TIMEOUT)
                .max_response_bytes(MAX_RESPONSE_BYTES)
                .build()?;
            clients.insert(origin.to_owned(), client);
        }
        let (other, routes) = (other.clone(), routes.to_vec());
        Ok(Forwarder { other, routes, signer: Signer::new(secret, None), clients })
    }

    pub async fn send(&self, event: &Envelope) -> Outcome {
        let target = choose(&event.kind, &self.routes, &self.other);
        let begin = Instant::now();
        let response = match self.clients.get(&target.origin) {
            Some(client) => self.post(client, &target, event).await,
            None => Err("no client for this URL".to_owned()),
        };
        Outcome { target, response, duration: begin.elapsed() }
    }

    async fn post(
        &self,
        client: &Client,
        target: &Target,
        event: &Envelope,
    ) -> Result<Response, String> {
        let seconds = System::new().now().seconds();
        let body = event.text.as_bytes();
        let request = client
            .request(Method::POST, &target.path)
            .without_idempotency_key()
            .header("user-agent", concat!("restive/", env!("CARGO_PKG_VERSION")))
            .header("accept", "*/*")
            .header("restive-signature", &self.signer.timestamped(seconds, body))
            .header("webhook-id", &event.id)
            .header("webhook-timestamp", &seconds.to_string())
            .header("webhook-signature", &self.signer.standard(&event.id, seconds, body))
            .body("application/json", event.text.clone());
        request.send_once().await.map_err(|error| error.to_string())
    }
}
