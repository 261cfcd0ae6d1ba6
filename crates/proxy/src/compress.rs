//! Compresses responses that gain from it, while they are sent. Event streams are never compressed,
//! and what waits for the next piece is flushed: a client sees what its server has sent.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, HeaderName, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use wire::{Chunks, Cut, Payload, Response};

/// Smaller bodies fit into a packet or two with their heads: there is nothing to gain.
const MIN_BYTES: u64 = 1024;
/// Bodies up to this size are compressed at once, which takes a millisecond.
const AT_ONCE_BYTES: usize = 64 * 1024;
/// What is collected before it is sent, unless the source has to be waited for.
const PIECE_BYTES: usize = 16 * 1024;
/// What is compressed before other connections have their turn: some milliseconds.
const TURN_BYTES: usize = 256 * 1024;
/// Responses that are compressed at a time. 256: each has some 300 KiB for it, 75 MiB together.
/// More are sent as they are.
const MAX_STREAMS: usize = 256;
/// The fastest level, as nginx has it: the next ones cost much more than they save.
const LEVEL: Compression = Compression::fast();

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const DIGEST: HeaderName = HeaderName::from_static("digest");

/// The responses that are being compressed.
#[derive(Clone, Default)]
pub(crate) struct Compressing(Arc<AtomicUsize>);

/// The place of one response.
struct Place(Arc<AtomicUsize>);

impl Compressing {
    fn begin(&self) -> Option<Place> {
        let more = |count| (count < MAX_STREAMS).then_some(count + 1);
        let begun = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.is_ok().then(|| Place(self.0.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a client takes gzip (RFC 9110 12.5.3).
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut best = None;
    for coding in values.flat_map(|text| text.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        let is_wanted = quality.unwrap_or(1.0) > 0.0;
        match name.as_str() {
            "gzip" | "x-gzip" => return is_wanted,
            "*" => best = Some(is_wanted),
            _ => {}
        }
    }
    best.unwrap_or(false)
}

/// Compresses a response that gains from it, if its client takes that.
pub(crate) fn apply(response: &mut Response, accepts: bool, is_head: bool, all: &Compressing) {
    let Response { status, headers, body, .. } = response;
    if !is_compressible(*status, headers, body) {
        return;
    }
    let vary = headers.get_all(VARY).iter().filter_map(|value| value.to_str().ok());
    if !vary.flat_map(|text| text.split(',')).any(is_accept_encoding) {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if !accepts || is_head {
        return;
    }
    let Some(place) = all.begin() else { return };
    let compressed = match std::mem::take(body) {
        Payload::Whole(bytes) if bytes.len() <= AT_ONCE_BYTES => match at_once(&bytes) {
            Some(smaller) => Payload::Whole(smaller),
            None => {
                *body = Payload::Whole(bytes);
                return;
            }
        },
        Payload::Whole(bytes) => Compressed::payload(Box::new(Whole(bytes)), place),
        Payload::Stream(chunks) => Compressed::payload(chunks, place),
        other @ (Payload::TakeOver(_) | Payload::Later(_)) => {
            *body = other;
            return;
        }
    };
    *body = compressed;
    headers.remove(CONTENT_LENGTH);
    // Of the body that is not sent.
    headers.remove(ACCEPT_RANGES);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    weaken(headers);
}

fn is_accept_encoding(name: &str) -> bool {
    matches!(name.trim(), "*") || name.trim().eq_ignore_ascii_case(ACCEPT_ENCODING.as_str())
}

fn is_compressible(status: StatusCode, headers: &HeaderMap, body: &Payload) -> bool {
    let is_small = body.length_bytes().is_some_and(|bytes| bytes < MIN_BYTES);
    // They speak of the bytes as they are.
    let bound = [CONTENT_ENCODING, CONTENT_RANGE, CONTENT_DIGEST, DIGEST];
    status == StatusCode::OK
        && !is_small
        && !bound.iter().any(|name| headers.contains_key(name))
        && is_text(headers)
        && !is_transform_forbidden(headers)
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "text/event-stream" => false,
        "application/json"
        | "application/javascript"
        | "application/xml"
        | "application/wasm"
        | "application/x-ndjson"
        | "image/svg+xml"
        | "image/x-icon" => true,
        kind => kind.starts_with("text/") || kind.ends_with("+json") || kind.ends_with("+xml"),
    }
}

fn is_transform_forbidden(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives = values.flat_map(|text| text.split(','));
    directives.any(|directive| directive.trim().eq_ignore_ascii_case("no-transform"))
}

/// The bytes are not those that the server has tagged (RFC 9110 8.8.1).
fn weaken(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")) else {
        return;
    };
    if let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()) {
        headers.insert(ETAG, weak);
    }
}

/// None if it does not become smaller.
fn at_once(bytes: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), LEVEL);
    encoder.write_all(bytes).ok()?;
    let smaller = encoder.finish().ok()?;
    (smaller.len() < bytes.len()).then(|| smaller.into())
}

/// A body that is compressed while it is sent.
struct Compressed {
    chunks: Box<dyn Chunks>,
    encoder: GzEncoder<Vec<u8>>,
    /// Something was written since the last flush.
    is_held: bool,
    is_over: bool,
    _place: Place,
}

impl Compressed {
    fn payload(chunks: Box<dyn Chunks>, place: Place) -> Payload {
        let encoder = GzEncoder::new(Vec::new(), LEVEL);
        let (is_held, is_over) = (false, false);
        Payload::Stream(Box::new(Compressed { chunks, encoder, is_held, is_over, _place: place }))
    }

    fn take(&mut self) -> Option<Bytes> {
        let out = std::mem::take(self.encoder.get_mut());
        (!out.is_empty()).then(|| out.into())
    }
}

impl Chunks for Compressed {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let mut taken = 0;
        while !self.is_over {
            match self.chunks.poll_chunk(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    taken += piece.len();
                    self.is_held |= !piece.is_empty();
                    self.encoder.write_all(&piece).map_err(|_| Cut)?;
                    if self.encoder.get_ref().len() >= PIECE_BYTES {
                        return Poll::Ready(self.take().map(Ok));
                    }
                    if taken >= TURN_BYTES {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Some(Err(cut))) => return Poll::Ready(Some(Err(cut))),
                Poll::Ready(None) => {
                    self.encoder.try_finish().map_err(|_| Cut)?;
                    self.is_over = true;
                }
                Poll::Pending if self.is_held => {
                    self.is_held = false;
                    self.encoder.flush().map_err(|_| Cut)?;
                    // Something comes out of every flush.
                    return match self.take() {
                        Some(out) => Poll::Ready(Some(Ok(out))),
                        None => Poll::Pending,
                    };
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(self.take().map(Ok))
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.chunks.trailers()
    }
}

/// A large body that is here, in pieces.
struct Whole(Bytes);

impl Chunks for Whole {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let piece = self.0.split_to(self.0.len().min(AT_ONCE_BYTES));
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_whether_it_takes_gzip() {
        for (value, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("*", true),
            ("*, gzip;q=0.0", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(accepts_gzip(&headers), expected, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn only_so_many_responses_are_compressed_at_a_time() {
        let all = Compressing::default();
        let places: Vec<Place> = (0..MAX_STREAMS).filter_map(|_| all.begin()).collect();
        assert_eq!(places.len(), MAX_STREAMS);
        assert!(all.begin().is_none());
        drop(places);
        assert!(all.begin().is_some());
    }
}
