//! Content codings of request bodies: decodes gzip and zstd, refuses others. Decoded bytes count
//! against the body limit and the memory share of the account, chunk by chunk, so that a
//! decompression bomb is refused as soon as it exceeds the limit.

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use model::problem::{Code, Problem};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{ErrorKind, Read as _};
use wire::{BodyFault, Share};

pub const HEADER: &str = "Content-Encoding";
/// Sent to a client that used another coding.
pub const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, zstd");
/// Bytes decoded before their memory is charged. 128 KiB: the largest zstd block, and small
/// compared with the usual limit of 1 MiB.
const PIECE_BYTES: usize = 128 * 1024;
/// Largest zstd window, which the decoder must keep in memory. 8 MiB: RFC 9659 forbids encoders for
/// HTTP to need more.
const MAX_WINDOW_BYTES: u64 = 8 * 1024 * 1024;
/// Maximum zstd frames in one body. 100: encoders write one, and even an empty frame costs some
/// time.
const MAX_FRAMES: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Identity,
    Gzip,
    Zstd,
}

/// Why a body cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// The decoded body exceeds the limit, or there is no memory for it.
    Body(BodyFault),
    /// The bytes are not valid in the coding that the header names.
    Malformed,
}

/// The coding of a body. Several codings at once are refused: no client needs them, and each would
/// need a limit of its own.
pub fn coding(headers: &HeaderMap) -> Result<Coding, Problem> {
    let mut found = Coding::Identity;
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = value.to_str().map_err(|_| unsupported("(unreadable)"))?;
        for name in text.split(',').map(str::trim) {
            let coding = match name.to_ascii_lowercase().as_str() {
                "identity" => continue,
                "gzip" | "x-gzip" => Coding::Gzip,
                "zstd" => Coding::Zstd,
                _ => return Err(unsupported(text)),
            };
            if found != Coding::Identity {
                return Err(unsupported(text));
            }
            found = coding;
        }
    }
    Ok(found)
}

fn unsupported(text: &str) -> Problem {
    let shown: String = text.chars().take(80).collect();
    let message = format!(
        "The content coding `{shown}` is not supported; send gzip or zstd, or omit the \
         header."
    );
    Problem::new(Code::UnsupportedMediaType, message).param(HEADER)
}

pub fn malformed(coding: Coding) -> Problem {
    let name = if coding == Coding::Gzip { "gzip" } else { "zstd" };
    let message = format!("The body is not valid or complete {name}, which `{HEADER}` names.");
    Problem::new(Code::MalformedRequest, message).param(HEADER)
}

/// The decoded body. `share` is the memory charged for the encoded body; decoded bytes are charged
/// in addition.
pub fn decode(
    coding: Coding,
    sent: Bytes,
    limit_bytes: usize,
    share: &mut Share<i64>,
) -> Result<Bytes, Fault> {
    // Some clients name a coding although they send no body.
    if sent.is_empty() {
        return Ok(sent);
    }
    let mut out = Output { bytes: Vec::new(), limit_bytes, share };
    match coding {
        Coding::Identity => return Ok(sent),
        Coding::Gzip => gunzip(&sent, &mut out)?,
        Coding::Zstd => unzstd(&sent, &mut out)?,
    }
    Ok(out.bytes.into())
}

/// The bytes decoded so far.
struct Output<'a> {
    bytes: Vec<u8>,
    limit_bytes: usize,
    share: &'a mut Share<i64>,
}

impl Output<'_> {
    /// Charges memory for more bytes.
    fn reserve(&mut self, bytes: usize) -> Result<(), Fault> {
        match self.share.grow(bytes) {
            true => Ok(()),
            false => Err(Fault::Body(BodyFault::NoRoom)),
        }
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), Fault> {
        if piece.len() > self.limit_bytes - self.bytes.len() {
            return Err(Fault::Body(BodyFault::TooLarge));
        }
        self.reserve(piece.len())?;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

fn gunzip(sent: &[u8], out: &mut Output<'_>) -> Result<(), Fault> {
    let mut decoder = MultiGzDecoder::new(sent);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => out.take(&piece[..count])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Fault::Malformed),
        }
    }
}

/// Decodes frame after frame and skips skippable frames.
fn unzstd(mut sent: &[u8], out: &mut Output<'_>) -> Result<(), Fault> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW_BYTES);
    for _ in 0..MAX_FRAMES {
        match decoder.init(&mut sent) {
            Ok(()) => frame(&mut decoder, &mut sent, out)?,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                sent = sent.get(length..).ok_or(Fault::Malformed)?;
            }
            Err(_) => return Err(Fault::Malformed),
        }
        if sent.is_empty() {
            return Ok(());
        }
    }
    Err(Fault::Malformed)
}

fn frame(decoder: &mut FrameDecoder, sent: &mut &[u8], out: &mut Output<'_>) -> Result<(), Fault> {
    // The content size is 0 if the frame does not declare it.
    let room = out.limit_bytes - out.bytes.len();
    let declared = decoder.content_size();
    if declared > room as u64 {
        return Err(Fault::Body(BodyFault::TooLarge));
    }
    // Blocks that the decoder keeps in its window are not in the output yet, but use memory: charge
    // them.
    let mut decoded = 0;
    loop {
        let piece = BlockDecodingStrategy::UptoBytes(PIECE_BYTES);
        let finished = decoder.decode_blocks(&mut *sent, piece).map_err(|_| Fault::Malformed)?;
        if finished {
            break;
        }
        decoded += PIECE_BYTES;
        if decoded > room {
            return Err(Fault::Body(BodyFault::TooLarge));
        }
        out.reserve(PIECE_BYTES)?;
    }
    out.share.shrink(decoded);
    // The window is at least as large as the frame or the limit, so the whole frame is available
    // now.
    let content = decoder.collect().unwrap_or_default();
    if declared > 0 && declared != content.len() as u64 {
        return Err(Fault::Malformed);
    }
    out.take(&content)?;
    let sums = (decoder.get_checksum_from_data(), decoder.get_calculated_checksum());
    match sums {
        (Some(declared), calculated) if calculated != Some(declared) => Err(Fault::Malformed),
        _ => Ok(()),
    }
}
