//! Compresses responses that gain from it, while they are sent. Event streams are never compressed,
//! and what waits for the next piece is flushed: a client sees what its server has sent.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use brotli::CompressorWriter;
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
/// Responses that are compressed at a time. 256: each has up to 400 KiB for it, 100 MiB together.
/// More are sent as they are.
const MAX_STREAMS: usize = 256;
/// The fastest level of gzip, as nginx has it: the next ones cost much more than they save.
const LEVEL: Compression = Compression::fast();
/// The quality of Brotli. 1: its output is a sixth to a quarter smaller than gzip's, and takes as
/// long for small texts and twice as long for large ones. From 2 on it takes longer than a better
/// level of gzip for the same size. There is no zstd: in Rust it is slower than both and cannot be
/// flushed, and browsers that take it take Brotli.
const QUALITY: u32 = 1;
/// The window of Brotli, as a power of two. 256 KiB: most texts fit in, and a stream holds it.
const WINDOW: u32 = 18;
/// What Brotli writes at a time.
const BUFFER_BYTES: usize = 4096;

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

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Brotli,
    Gzip,
}

impl Coding {
    fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }
}

/// The coding that a client likes best (RFC 9110 12.5.3); of equals Brotli, which is smaller. None
/// if it takes none, or likes the text as it is better.
pub(crate) fn accepted(headers: &HeaderMap) -> Option<Coding> {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let (mut brotli, mut gzip, mut identity, mut others) = (None, None, None, 0.0);
    for coding in values.flat_map(|text| text.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let quality = parts.find_map(quality).unwrap_or(1.0);
        match name {
            _ if name.eq_ignore_ascii_case("br") => brotli = Some(quality),
            _ if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                gzip = Some(quality);
            }
            _ if name.eq_ignore_ascii_case("identity") => identity = Some(quality),
            "*" => others = quality,
            _ => {}
        }
    }
    let (brotli, gzip) = (brotli.unwrap_or(others), gzip.unwrap_or(others));
    let (coding, best) =
        if brotli >= gzip { (Coding::Brotli, brotli) } else { (Coding::Gzip, gzip) };
    (best > 0.0 && identity.is_none_or(|identity| best >= identity)).then_some(coding)
}

/// The weight in a parameter `q=…`. One that is not valid counts as none: the client gets the text
/// as it is.
fn quality(parameter: &str) -> Option<f32> {
    let (name, value) = parameter.split_once('=')?;
    let is_weight = name.trim().eq_ignore_ascii_case("q");
    let weight = || value.trim().parse().ok().filter(|weight| (0.0..=1.0).contains(weight));
    is_weight.then(|| weight().unwrap_or(0.0))
}

/// Compresses a response that gains from it, if its client takes that.
pub(crate) fn apply(
    response: &mut Response,
    accepts: Option<Coding>,
    is_head: bool,
    all: &Compressing,
) {
    let Response { status, headers, body, .. } = response;
    // The response to HEAD has the fields of the one to GET (RFC 9110 9.3.2): its body is that of
    // the GET, or is empty and has been measured by the server.
    let measured = || headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    let length_bytes = match body.length_bytes() {
        None | Some(0) if is_head => measured(),
        length_bytes => length_bytes,
    };
    if !is_compressible(*status, headers, length_bytes) {
        return;
    }
    let vary = headers.get_all(VARY).iter().filter_map(|value| value.to_str().ok());
    if !vary.flat_map(|text| text.split(',')).any(is_accept_encoding) {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
    let Some(coding) = accepts.filter(|_| !is_head) else { return };
    let Some(place) = all.begin() else { return };
    let compressed = match std::mem::take(body) {
        Payload::Whole(bytes) if bytes.len() <= AT_ONCE_BYTES => match at_once(&bytes, coding) {
            Some(smaller) => Payload::Whole(smaller),
            None => {
                *body = Payload::Whole(bytes);
                return;
            }
        },
        Payload::Whole(bytes) => Compressed::payload(Box::new(Whole(bytes)), coding, place),
        Payload::Stream(chunks) => Compressed::payload(chunks, coding, place),
        other @ (Payload::TakeOver(_) | Payload::Later(_)) => {
            *body = other;
            return;
        }
    };
    *body = compressed;
    headers.remove(CONTENT_LENGTH);
    // Of the body that is not sent.
    headers.remove(ACCEPT_RANGES);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    weaken(headers);
}

fn is_accept_encoding(name: &str) -> bool {
    matches!(name.trim(), "*") || name.trim().eq_ignore_ascii_case(ACCEPT_ENCODING.as_str())
}

fn is_compressible(status: StatusCode, headers: &HeaderMap, length_bytes: Option<u64>) -> bool {
    let is_small = length_bytes.is_some_and(|bytes| bytes < MIN_BYTES);
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
fn at_once(bytes: &Bytes, coding: Coding) -> Option<Bytes> {
    let mut encoder = Encoder::new(coding, Vec::with_capacity(bytes.len() / 2));
    encoder.write(bytes).ok()?;
    encoder.finish().ok()?;
    let smaller = encoder.take();
    (smaller.len() < bytes.len()).then(|| smaller.into())
}

/// The state of a coding, and what has come out of it.
enum Encoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    /// All of it is out.
    Ended(Vec<u8>),
}

impl Encoder {
    fn new(coding: Coding, out: Vec<u8>) -> Encoder {
        match coding {
            Coding::Gzip => Encoder::Gzip(Box::new(GzEncoder::new(out, LEVEL))),
            Coding::Brotli => {
                let writer = CompressorWriter::new(out, BUFFER_BYTES, QUALITY, WINDOW);
                Encoder::Brotli(Box::new(writer))
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Brotli(encoder) => encoder.write_all(bytes),
            Encoder::Ended(_) => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// All that was written so far can be read by the client after it.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Brotli(encoder) => encoder.flush(),
            Encoder::Ended(_) => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let out = match std::mem::replace(self, Encoder::Ended(Vec::new())) {
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Brotli(encoder) => encoder.into_inner(),
            Encoder::Ended(out) => out,
        };
        *self = Encoder::Ended(out);
        Ok(())
    }

    fn len(&self) -> usize {
        match self {
            Encoder::Gzip(encoder) => encoder.get_ref().len(),
            Encoder::Brotli(encoder) => encoder.get_ref().len(),
            Encoder::Ended(out) => out.len(),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
            Encoder::Ended(out) => out,
        })
    }
}

/// A body that is compressed while it is sent.
struct Compressed {
    chunks: Box<dyn Chunks>,
    /// Of the last piece, what is not compressed yet: an encoder that is given much at once
    /// allocates much.
    rest: Bytes,
    encoder: Encoder,
    /// Something was written since the last flush.
    is_held: bool,
    is_over: bool,
    _place: Place,
}

impl Compressed {
    fn payload(chunks: Box<dyn Chunks>, coding: Coding, place: Place) -> Payload {
        let encoder = Encoder::new(coding, Vec::new());
        let (is_held, is_over) = (false, false);
        let rest = Bytes::new();
        let body = Compressed { chunks, rest, encoder, is_held, is_over, _place: place };
        Payload::Stream(Box::new(body))
    }

    fn take(&mut self) -> Option<Bytes> {
        let out = self.encoder.take();
        (!out.is_empty()).then(|| out.into())
    }
}

impl Chunks for Compressed {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let mut taken = 0;
        while !self.is_over {
            if !self.rest.is_empty() {
                let piece = self.rest.split_to(self.rest.len().min(AT_ONCE_BYTES));
                taken += piece.len();
                self.is_held = true;
                self.encoder.write(&piece).map_err(|_| Cut)?;
                if self.encoder.len() >= PIECE_BYTES {
                    return Poll::Ready(self.take().map(Ok));
                }
                if taken >= TURN_BYTES {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            match self.chunks.poll_chunk(cx) {
                Poll::Ready(Some(Ok(piece))) => self.rest = piece,
                Poll::Ready(Some(Err(cut))) => return Poll::Ready(Some(Err(cut))),
                Poll::Ready(None) => {
                    self.encoder.finish().map_err(|_| Cut)?;
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
    fn a_client_gets_the_coding_that_it_likes_best() {
        use Coding::{Brotli, Gzip};
        for (value, expected) in [
            ("gzip", Some(Gzip)),
            ("X-GZIP", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("br;q=0.5, GZIP;q=0.8", Some(Gzip)),
            ("br;q=0.5, gzip;q=0.5", Some(Brotli)),
            ("br; Q=0.1", Some(Brotli)),
            ("gzip;q=0", None),
            ("br;q=0, gzip;q=0.001", Some(Gzip)),
            ("*", Some(Brotli)),
            ("*, br;q=0.0", Some(Gzip)),
            ("*;q=0.5, gzip", Some(Gzip)),
            ("*;q=0, gzip;q=0", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
            ("gzip;q=x", None),
            ("gzip;q=2", None),
            ("gzip;q=nan", None),
            ("zstd, deflate", None),
            ("identity", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(accepted(&headers), expected, "{value}");
        }
        assert_eq!(accepted(&HeaderMap::new()), None);
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
