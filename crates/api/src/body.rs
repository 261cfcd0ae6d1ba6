//! Request bodies: reads them within the size limit and the timeout, decodes them and parses them
//! as a JSON object. One memory budget covers all bodies in use, and every account has a fair share
//! of it.

use crate::auth::Identity;
use crate::decode::{self, Coding};
use crate::trace::Trace;
use bytes::Bytes;
use model::problem::{Code, Problem};
use model::record::Fields;
use model::value;
use std::sync::Arc;
use wire::{Body, BodyFault, Budget, Exchange, Share};

/// Memory for the bodies of all requests in flight. 256 MiB: one account alone can have 128 bodies
/// of 1 MiB in flight, which is more than the writer commits in a second, and a server with 1 GB of
/// memory can afford it.
const BODIES_BYTES: usize = 256 * 1024 * 1024;
/// The budget is larger if necessary, so that it holds this many bodies of the largest size that
/// the schema allows.
const MIN_LARGEST_BODIES: usize = 8;
/// Minimum memory charged for a body while it arrives: a connection reads chunks of this size.
/// Bodies that arrive byte by byte therefore never take all request slots (`wire::Limits` has 4,096
/// of them, as many as fit into the budget).
const ARRIVING_BYTES: usize = 64 * 1024;
/// In place of an account number: no account has it.
const NOBODY: i64 = 0;
/// Seconds after which the client may try again.
const RETRY_AFTER: u64 = 1;

pub struct Bodies {
    /// Shares by account number.
    budget: Arc<Budget<i64>>,
    /// The largest body that the schema allows.
    max_bytes: usize,
}

impl Bodies {
    pub fn new(max_bytes: usize) -> Bodies {
        let budget = Budget::new(BODIES_BYTES.max(MIN_LARGEST_BODIES * max_bytes));
        Bodies { budget, max_bytes }
    }

    /// Reads a small body of a request without a key. All such bodies share what one account may
    /// use.
    pub async fn read_anonymous(
        &self,
        exchange: &mut Exchange,
        limit_bytes: usize,
        trace: &mut Trace,
    ) -> Result<Bytes, Problem> {
        if !matches!(decode::coding(&exchange.headers)?, Coding::Identity) {
            let message = "This route takes no compressed body.";
            return Err(Problem::new(Code::UnsupportedMediaType, message).param(decode::HEADER));
        }
        let read = read_within(&mut exchange.body, limit_bytes, &self.budget, NOBODY).await?;
        trace.body = Some(read.1);
        Ok(read.0)
    }

    /// Reads the whole body. Its memory is charged to the account until the response is written.
    /// Requests call `confirmed_body::read`, which then checks the caller again.
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
        // Checked before the body is read: a client that waits for `100 Continue` gets the error
        // first.
        let coding = decode::coding(&exchange.headers)?;
        let (bytes, mut share) =
            read_within(&mut exchange.body, limit_bytes, &self.budget, account).await?;
        let bytes = match coding {
            Coding::Identity => bytes,
            coding => {
                let decoded = decode::decode(coding, bytes, limit_bytes, &mut share);
                let bytes = decoded.map_err(|fault| match fault {
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
    // A body that declares too large a size gets its own error below. For any other body there must
    // be room before the server asks for it.
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
            Problem::new(Code::MalformedRequest, "The body's chunked encoding is invalid.")
        }
        BodyFault::ForbiddenTrailer => {
            let message = "A trailer field after the body would change the framing, routing or \
                           authorisation of the request; send it as a header.";
            Problem::new(Code::MalformedRequest, message)
        }
        BodyFault::NoRoom => no_room(),
    }
}

fn no_room() -> Problem {
    let message = "The request bodies of this account use all the memory that one account may \
                   use. Send fewer large bodies at a time.";
    Problem::new(Code::Overloaded, message).retry_after(RETRY_AFTER)
}

/// The JSON object in the body. The body of an action may be empty.
pub fn object(bytes: &[u8], may_be_empty: bool) -> Result<Fields, Problem> {
    if bytes.is_empty() {
        if may_be_empty {
            return Ok(Fields::new());
        }
        return Err(Problem::new(Code::MalformedJson, "The body is empty; send a JSON object."));
    }
    value::parse_object(bytes)
}
