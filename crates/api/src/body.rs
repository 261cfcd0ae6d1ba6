//! Request bodies: read to a limit, in time, whole, and as a JSON object.

use bytes::Bytes;
use model::problem::{Code, Problem};
use model::record::Fields;
use model::value;
use wire::{Body, BodyFault};

/// Reads the whole body.
pub async fn read(body: &mut Body, limit_bytes: usize) -> Result<Bytes, Problem> {
    body.read(limit_bytes).await.map_err(|fault| match fault {
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
    })
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
