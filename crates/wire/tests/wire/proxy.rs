//! A service that passes requests on to a raw backend, as small as one can be: what the upstream
//! client and the server do together.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, StatusCode};
use wire::outgoing::{Call, CallTimeouts, Client, OutgoingFault, Target};
use wire::{Answer, EarlyHints, Exchange, Fault, Limits, Payload, Response, Service};

use crate::server::{PATIENCE, Server};

pub struct Proxy {
    pub client: Client,
    pub target: Target,
    pub timeouts: CallTimeouts,
    /// Interim responses, faults and the ends of tunnels.
    pub seen: mpsc::Sender<String>,
}

impl Proxy {
    /// A server that passes everything on to this URL.
    pub fn to(url: &str) -> Server {
        Proxy::to_target(Target::parse(url).unwrap(), CallTimeouts::default())
    }

    pub fn to_target(target: Target, timeouts: CallTimeouts) -> Server {
        Server::serving(Limits::default(), EarlyHints::Always, |_, seen| {
            Arc::new(Proxy { client: Client::new(), target, timeouts, seen })
        })
    }

    async fn pass_on(&self, mut exchange: Exchange) -> Response {
        let hints = exchange.hints.clone();
        let mut interim = |status: StatusCode, headers: HeaderMap| {
            let _ = self.seen.send(format!("interim {}", status.as_u16()));
            if status == StatusCode::EARLY_HINTS {
                hints.send(headers);
            }
        };
        let mut call = Call::new(exchange.method, &self.target);
        call.path = exchange.uri.path_and_query().cloned();
        call.host = exchange.headers.remove(HOST);
        call.headers = exchange.headers;
        call.body = exchange.body;
        call.timeouts = self.timeouts;
        call.interim = Some(&mut interim);
        match self.client.open(&mut call).await {
            Ok(opened) => {
                let mut headers = opened.headers;
                headers.remove(CONNECTION);
                headers.remove(TRANSFER_ENCODING);
                let body = match opened.tunnel {
                    None => opened.flow.into_payload(),
                    Some(tunnel) => {
                        let seen = self.seen.clone();
                        Payload::take_over(move |raw| async move {
                            let relayed = tunnel.relay(raw, PATIENCE).await;
                            let _ = seen.send(format!("{relayed:?}"));
                        })
                    }
                };
                if opened.status != StatusCode::SWITCHING_PROTOCOLS {
                    headers.remove(UPGRADE);
                }
                Response { status: opened.status, headers, body, ..Response::default() }
            }
            Err(fault) => {
                let _ = self.seen.send(format!("{} {fault}", fault.class()));
                let status = match fault {
                    OutgoingFault::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
                    _ => StatusCode::BAD_GATEWAY,
                };
                Response::new(status, fault.class())
            }
        }
    }
}

impl Service for Proxy {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        Box::pin(self.pass_on(exchange))
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

/// Short timeouts for calls that must end.
pub fn impatient() -> CallTimeouts {
    let short = Duration::from_millis(200);
    CallTimeouts {
        connect: short,
        tls: short,
        send: short,
        head: short,
        stall: short,
        deadline: None,
    }
}
