//! What became of a call: the answer or the fault, and how long each part of the way took. Filled
//! in as the call goes on, so that a call cut short can still say what it knew.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::fault::{OutgoingFault, Stage};

/// What became of a call.
#[derive(Debug)]
pub struct Report {
    pub result: Result<Reply, OutgoingFault>,
    /// After a fault: what had come of an answer whose head was whole.
    pub partial: Option<Box<Reply>>,
    pub timing: Timing,
    /// The address talked to, or the one tried last.
    pub remote: Option<SocketAddr>,
    /// Whether the connection had carried a request before.
    pub reused: bool,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body went on beyond what is here.
    pub truncated: bool,
}

/// How long each part took; `None` for those that were not reached or not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The lookup of the name, with its wait for a turn.
    pub resolve: Option<Duration>,
    pub connect: Option<Duration>,
    pub tls: Option<Duration>,
    /// From the start of the call to the whole head of the answer.
    pub first_byte: Option<Duration>,
    /// From the start of the call to its end.
    pub total: Duration,
}

/// How far a call has come.
pub(super) struct Trace {
    pub(super) started: Instant,
    pub(super) stage: Stage,
    pub(super) timing: Timing,
    pub(super) remote: Option<SocketAddr>,
    pub(super) reused: bool,
    pub(super) body: BytesMut,
    head: Option<(StatusCode, HeaderMap)>,
}

impl Trace {
    pub(super) fn start() -> Trace {
        Trace {
            started: Instant::now(),
            stage: Stage::Resolve,
            timing: Timing::default(),
            remote: None,
            reused: false,
            body: BytesMut::new(),
            head: None,
        }
    }

    /// The head of the response is here.
    pub(super) fn head(&mut self) {
        self.stage = Stage::Body;
        self.timing.total = self.started.elapsed();
        self.timing.first_byte = Some(self.timing.total);
    }

    pub(super) fn head_came(&mut self, status: StatusCode, headers: HeaderMap) {
        self.head = Some((status, headers));
    }

    /// The end, as of `now`: whether the body was cut short, or what went wrong.
    pub(super) fn finish(mut self, result: Result<bool, OutgoingFault>, now: Instant) -> Report {
        self.timing.total = now.saturating_duration_since(self.started);
        let body = self.body.freeze();
        let reply = |truncated| {
            let (status, headers) = self.head?;
            Some(Reply { status, headers, body, truncated })
        };
        let (result, partial) = match result {
            Ok(truncated) => match reply(truncated) {
                Some(reply) => (Ok(reply), None),
                // No exchange ends well without a head.
                None => (Err(OutgoingFault::Protocol("no response".into())), None),
            },
            Err(fault) => (Err(fault), reply(true).map(Box::new)),
        };
        let Trace { timing, remote, reused, .. } = self;
        Report { result, partial, timing, remote, reused }
    }
}
