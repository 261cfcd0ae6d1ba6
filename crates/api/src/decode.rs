//! Content codings of request bodies: gzip and zstd are undone, others refused. What comes out
//! counts against the limit of bodies and the memory of its account, piece by piece, so that a
//! small body which becomes a very large one is refused as soon as it is too large.

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
/// What a client that has sent another coding is told.
pub const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, zstd");
/// How much is undone before its memory is counted. 128 KiB: a block of zstd has at most that, and
/// it is small next to the usual limit of 1 MiB.
const PIECE_BYTES: usize = 128 * 1024;
/// How far back a zstd frame may refer, which a decoder must keep. 8 MiB: RFC 9659 tells encoders
/// for HTTP to need no more.
const MAX_WINDOW_BYTES: u64 = 8 * 1024 * 1024;
/// Frames of zstd in one body. 100: encoders write one, and each costs some time even if it is
/// empty.
const MAX_FRAMES: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Identity,
    Gzip,
    Zstd,
}

/// Why a body cannot be undone.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is larger than a body may be, or there is no room for it.
    Body(BodyFault),
    /// It is not in the coding that its header names.
    Malformed,
}

/// The coding of a body. Several at once are refused: nobody needs that, and each would have to be
/// bounded by itself.
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
        "The body's content coding is `{shown}`; send one of gzip and zstd, or leave the header \
         out."
    );
    Problem::new(Code::UnsupportedMediaType, message).param(HEADER)
}

pub fn malformed(coding: Coding) -> Problem {
    let name = if coding == Coding::Gzip { "gzip" } else { "zstd" };
    let message = format!("The body is not {name}, or not all of it, as `{HEADER}` says.");
    Problem::new(Code::MalformedRequest, message).param(HEADER)
}

/// The body as it was before it was coded. `share` is the memory that is counted for it; what is
/// undone is counted beside what was sent.
pub fn undo(
    coding: Coding,
    sent: Bytes,
    limit_bytes: usize,
    share: &mut Share<i64>,
) -> Result<Bytes, Fault> {
    // Clients name the coding of a body that they have not, too.
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

/// What was undone so far.
struct Output<'a> {
    bytes: Vec<u8>,
    limit_bytes: usize,
    share: &'a mut Share<i64>,
}

impl Output<'_> {
    /// Counts memory for so much more.
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

/// Frame after frame; those that may be skipped are.
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
    // 0 where the frame does not say.
    let room = out.limit_bytes - out.bytes.len();
    if decoder.content_size() > room as u64 {
        return Err(Fault::Body(BodyFault::TooLarge));
    }
    // What the decoder keeps of its window does not come out yet, but is there: it is counted.
    let mut undone = 0;
    loop {
        let piece = BlockDecodingStrategy::UptoBytes(PIECE_BYTES);
        let finished = decoder.decode_blocks(&mut *sent, piece).map_err(|_| Fault::Malformed)?;
        if finished {
            break;
        }
        undone += PIECE_BYTES;
        if undone > room {
            return Err(Fault::Body(BodyFault::TooLarge));
        }
        out.reserve(PIECE_BYTES)?;
    }
    out.share.shrink(undone);
    // The window is no smaller than the frame, or than the limit: all of it is there at once.
    out.take(&decoder.collect().unwrap_or_default())?;
    let sums = (decoder.get_checksum_from_data(), decoder.get_calculated_checksum());
    match sums {
        (Some(said), calculated) if calculated != Some(said) => Err(Fault::Malformed),
        _ => Ok(()),
    }
}
