//! Request bodies: read to a limit, in time, whole, and as a JSON object. The memory of all bodies
//! that are read or worked on has one budget, in which every account has a fair share.

use crate::auth::Identity;
use crate::decode::{self, Coding};
use crate::trace::Trace;
use bytes::Bytes;
use model::problem::{Code, Problem};
use model::record::Fields;
use model::value;
use std::sync::Arc;
use wire::{Body, BodyFault, Budget, Exchange, Share};

/// Memory for the bodies of all requests in flight. 256 MiB: one account alone may have 128 of
/// 1 MiB on their way, which is more than the writer takes in a second, and a server of 1 GB stands
/// it.
const BODIES_BYTES: usize = 256 * 1024 * 1024;
/// But room for so many of the largest bodies that a schema allows.
const LEAST_BODIES: usize = 8;
/// What a body counts at the least while it is on its way: a connection reads pieces of this size.
/// Bodies that come byte by byte so never take all places for requests (`wire::Limits`
/// has 4,096 of them, as many as fit into the budget).
const ARRIVING_BYTES: usize = 64 * 1024;
/// Seconds after which there may be room again.
const RETRY_AFTER: u64 = 1;

pub struct Bodies {
    /// By account number.
    budget: Arc<Budget<i64>>,
    /// The largest body that the schema allows.
    max_bytes: usize,
}

impl Bodies {
    pub fn new(max_bytes: usize) -> Bodies {
        let budget = Budget::new(BODIES_BYTES.max(LEAST_BODIES * max_bytes));
        Bodies { budget, max_bytes }
    }

    /// Reads the whole body, which counts for the account until the response is written.
    pub async fn read(
        &self,
        exchange: &mut Exchange,
        identity: &Identity,
        trace: &mut Trace,
    ) -> Result<Bytes, Problem> {
        let limit_bytes = self.max_bytes;
        let account = identity.caller.scope.account_number();
        if !exchange.body.charge_to(account) {
            return Err(no_room());
        }
        // Told before it is sent, where the client waits for that.
        let coding = decode::coding(&exchange.headers)?;
        let (bytes, mut share) =
            read_within(&mut exchange.body, limit_bytes, &self.budget, account).await?;
        let bytes = match coding {
            Coding::Identity => bytes,
            coding => {
                let undone = decode::undo(coding, bytes, limit_bytes, &mut share);
                let bytes = undone.map_err(|fault| match fault {
                    decode::Fault::Body(fault) => explain(fault, limit_bytes),
                    decode::Fault::Malformed => decode::malformed(coding),
                })?;
                share.shrink(share.amount().saturating_sub(bytes.len()));
                bytes
            }
        };
        trace.body = Some(share);
        Ok(bytes)
    }
}

async fn read_within(
    body: &mut Body,
    limit_bytes: usize,
    bodies: &Arc<Budget<i64>>,
    account: i64,
) -> Result<(Bytes, Share<i64>), Problem> {
    let declared = body.declared_bytes().and_then(|bytes| usize::try_from(bytes).ok());
    let at_once = if body.is_here() { declared.unwrap_or(0) } else { ARRIVING_BYTES };
    // A body that is too large is told so; for another there must be room before it is invited.
    let wanted = declared.filter(|bytes| *bytes <= limit_bytes).unwrap_or(0);
    if !bodies.has_room(account, wanted.max(at_once)) {
        return Err(no_room());
    }
    let mut share = bodies.take(account, at_once).ok_or_else(no_room)?;
    let bytes = body.read_within(limit_bytes, &mut share).await;
    let bytes = bytes.map_err(|fault| explain(fault, limit_bytes))?;
    share.shrink(share.amount().saturating_sub(bytes.len()));
    Ok((bytes, share))
}

fn explain(fault: BodyFault, limit_bytes: usize) -> Problem {
    match fault {
        BodyFault::TooLarge => {
            let message = format!("The body is larger than {limit_bytes} bytes.");
            Problem::new(Code::BodyTooLarge, message).extra("limit_bytes", limit_bytes)
        }
        BodyFault::Timeout => {
            Problem::new(Code::RequestTimeout, "The body did not arrive in time.")
        }
        BodyFault::Incomplete => {
            Problem::new(Code::BodyIncomplete, "The body ended before its declared length.")
        }
        BodyFault::Malformed => {
            Problem::new(Code::MalformedRequest, "The body's chunked encoding is broken.")
        }
        BodyFault::ForbiddenTrailer => {
            let message = "A trailer field behind the body frames, routes or authorises the \
                           request; send it as a header.";
            Problem::new(Code::MalformedRequest, message)
        }
        BodyFault::NoRoom => no_room(),
    }
}

fn no_room() -> Problem {
    let message = "The requests of this account that are being sent hold as much memory as they \
                   may. Send fewer large bodies at a time.";
    Problem::new(Code::Overloaded, message).retry_after(RETRY_AFTER)
}

/// The JSON object in the body. An action may do without one.
pub fn object(bytes: &[u8], may_be_empty: bool) -> Result<Fields, Problem> {
    if bytes.is_empty() {
        if may_be_empty {
            return Ok(Fields::new());
        }
        return Err(Problem::new(Code::MalformedJson, "The body is empty; send a JSON object."));
    }
    value::parse_object(bytes)
}
