//! Reads the responses to polls: an array of records, and the position after it. Knows the form in
//! which restive servers answer polls.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderName};
use http::{HeaderValue, StatusCode};
use serde_json::value::RawValue;
use wire::{Payload, Response};

use super::blocks::Position;
use super::polls::RING_BYTES;
use super::reopen::Reopened;
use crate::error::Failure;

/// Asks a restive server to return a long poll that it would hold, and says for how many
/// milliseconds it would have held it.
pub(crate) const HOLD: HeaderName = HeaderName::from_static("restive-hold");
pub(crate) const STREAM_POSITION: HeaderName = HeaderName::from_static("x-stream-position");
/// The position of the request is not one of this log.
const GAP: HeaderName = HeaderName::from_static("x-stream-gap");

/// The response to a poll.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// The array as it came.
    body: Bytes,
    /// The ids of its records, and where they are in the body.
    records: Vec<(u64, Range<usize>)>,
    /// After all of them.
    pub(super) position: Position,
    /// It has more bytes than are kept, and its records were not read.
    pub(super) is_too_large: bool,
}

/// What the backend said to the shared poll.
#[derive(Debug)]
pub(super) enum Answered {
    Batch(Batch),
    /// It will not answer it: its clients must ask themselves.
    Refused,
    /// It may answer later.
    Failed,
}

impl Batch {
    /// None if it is not an array of records with ids in ascending order.
    pub(super) fn read(body: Bytes, position: Position) -> Option<Batch> {
        let texts: Vec<&RawValue> = serde_json::from_slice(&body).ok()?;
        let begin = body.as_ptr() as usize;
        let mut records = Vec::with_capacity(texts.len());
        for text in texts {
            let fields: HashMap<String, &RawValue> = serde_json::from_str(text.get()).ok()?;
            let id = fields.get("id")?.get().parse::<u64>().ok()?;
            let is_next = records.last().is_none_or(|(last, _)| *last < id);
            if !is_next || id > position.number {
                return None;
            }
            let from = (text.get().as_ptr() as usize).checked_sub(begin)?;
            records.push((id, from..from + text.get().len()));
        }
        Some(Batch { body, records, position, is_too_large: false })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// The array of the records after this number, if there are some.
    pub(super) fn after(&self, number: u64) -> Option<Bytes> {
        let had = self.records.partition_point(|(id, _)| *id <= number);
        let (_, first) = self.records.get(had)?;
        if had == 0 {
            return Some(self.body.clone());
        }
        // From the first record to the end of the array.
        let rest = &self.body[first.start..];
        let mut body = BytesMut::with_capacity(rest.len() + 1);
        body.extend_from_slice(b"[");
        body.extend_from_slice(rest);
        Some(body.freeze())
    }
}

/// Reads the response to the shared poll.
pub(super) async fn read_response(outcome: Result<Reopened, Failure>) -> Answered {
    let Ok(Reopened { response, is_restive }) = outcome else { return Answered::Failed };
    let Response { status, headers, body, .. } = response;
    let is_later = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if is_later {
        return Answered::Failed;
    }
    let is_plain = !headers.contains_key(GAP) && !headers.contains_key(CONTENT_ENCODING);
    let position = position(&headers).filter(|_| is_plain && is_restive);
    let Some(position) = position.filter(|_| status == StatusCode::OK) else {
        return Answered::Refused;
    };
    match read_body(body).await {
        Read::Whole(body) => match Batch::read(body, position) {
            Some(batch) => Answered::Batch(batch),
            None => Answered::Refused,
        },
        Read::TooLarge => {
            let (body, records) = (Bytes::new(), Vec::new());
            Answered::Batch(Batch { body, records, position, is_too_large: true })
        }
        Read::Cut => Answered::Failed,
    }
}

pub(crate) fn position(headers: &HeaderMap) -> Option<Position> {
    Position::parse(headers.get(STREAM_POSITION)?.to_str().ok()?)
}

/// For how long a poll would have been held, if it was returned for that.
pub(crate) fn held_ms(headers: &HeaderMap) -> Option<u64> {
    headers.get(HOLD).map(HeaderValue::to_str)?.ok()?.parse().ok()
}

pub(crate) enum Read {
    Whole(Bytes),
    TooLarge,
    Cut,
}

/// Reads a body that is kept.
pub(crate) async fn read_body(payload: Payload) -> Read {
    let mut chunks = match payload {
        Payload::Whole(bytes) if bytes.len() <= RING_BYTES => {
            // A copy: a part of the buffer of the connection would keep all of it.
            return Read::Whole(Bytes::copy_from_slice(&bytes));
        }
        Payload::Whole(_) => return Read::TooLarge,
        Payload::Stream(chunks) => chunks,
        Payload::TakeOver(_) | Payload::Later(_) => return Read::Cut,
    };
    let mut body = BytesMut::new();
    loop {
        match poll_fn(|cx| chunks.poll_chunk(cx)).await {
            None => return Read::Whole(body.freeze()),
            Some(Ok(piece)) if body.len() + piece.len() <= RING_BYTES => {
                body.extend_from_slice(&piece);
            }
            Some(Ok(_)) => return Read::TooLarge,
            Some(Err(_)) => return Read::Cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &'static str) -> Option<Batch> {
        Batch::read(Bytes::from_static(body.as_bytes()), Position { epoch: 1, number: 9 })
    }

    #[test]
    fn records_are_passed_on_byte_for_byte() {
        let batch = read("[{\"id\":3, \"a\":[{\"id\":7}]},{\"b\":\"],\",\"id\":5}]").unwrap();
        let after = |number| batch.after(number).map(|body| String::from_utf8(body.to_vec()));
        let text = |text: &str| Some(Ok(text.to_owned()));
        assert_eq!(after(2), text("[{\"id\":3, \"a\":[{\"id\":7}]},{\"b\":\"],\",\"id\":5}]"));
        assert_eq!(after(3), text("[{\"b\":\"],\",\"id\":5}]"));
        assert_eq!(after(5), None);
        assert!(read("[]").unwrap().is_empty());
    }

    #[test]
    fn what_is_not_understood_is_not_shared() {
        for body in [
            "",
            "{}",
            "[1]",
            "[{}]",
            "[{\"id\":\"3\"}]",
            "[{\"id\":-3}]",
            "[{\"id\":3},{\"id\":3}]",
            "[{\"id\":4},{\"id\":3}]",
            "[{\"id\":10}]",
            "[{\"id\":3}",
        ] {
            assert!(read(body).is_none(), "{body}");
        }
    }
}
