//! A WebSocket to the server (RFC 6455), for a client that mainly listens: handshake, frames,
//! pings, and the close code.

use crate::client::{BoxError, Client, Error, Request};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BufMut as _, BytesMut};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// RFC 6455 1.3: proves that the server knows what it agrees to.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const PROTOCOL: &str = "restive.v1";
/// RFC 6455 5.5.
const MAX_CONTROL_BYTES: usize = 125;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 16 * 1024;

pub(super) struct Socket {
    io: TokioIo<Upgraded>,
    frames: Frames,
    /// Answers to pings. Kept here, so that a caller that stops waiting leaves no half frame.
    out: BytesMut,
}

/// What the server sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Text(String),
    /// Code and reason; 1005 if the frame had none.
    Close(u16, String),
    /// The connection ended without a close frame.
    End,
    /// A message is larger than the limit.
    TooLarge,
}

/// Opens a socket at this path and query.
pub(super) async fn open(request: Request, limit_bytes: usize) -> Result<Socket, Error> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| Error::Invalid(error.to_string()))?;
    let key = STANDARD.encode(nonce);
    let request = request
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key)
        .header("sec-websocket-protocol", PROTOCOL);
    let response = request.open().await?;
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        let why = format!("status {} instead of a WebSocket", response.status());
        return Err(Error::Unexpected(why));
    }
    if header("sec-websocket-accept") != Some(&*proof(&key)) {
        return Err(Error::Unexpected("a wrong Sec-WebSocket-Accept".to_owned()));
    }
    if header("sec-websocket-protocol").is_some_and(|protocol| protocol != PROTOCOL)
        || header("sec-websocket-extensions").is_some()
    {
        return Err(Error::Unexpected("a protocol or extension not asked for".to_owned()));
    }
    let upgraded = hyper::upgrade::on(response).await;
    let upgraded = upgraded.map_err(|error| Error::network(true, error))?;
    let (frames, out) = (Frames::new(limit_bytes), BytesMut::new());
    Ok(Socket { io: TokioIo::new(upgraded), frames, out })
}

/// The request for a socket of this client.
pub(super) fn request(client: &Client) -> Request {
    client.get("/ws")
}

fn proof(key: &str) -> String {
    let text = format!("{key}{GUID}");
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

impl Socket {
    /// The next message. The caller may stop waiting at any time without losing one. Pings are
    /// answered.
    pub(super) async fn next(&mut self) -> Result<Message, BoxError> {
        loop {
            while !self.out.is_empty() {
                self.io.write_buf(&mut self.out).await?;
            }
            match self.frames.next()? {
                Some(Frame::Text(text)) => return Ok(Message::Text(text)),
                Some(Frame::Close(code, reason)) => return Ok(Message::Close(code, reason)),
                Some(Frame::Ping(data)) => frame(0xA, &data, mask()?, &mut self.out),
                Some(Frame::Other) => {}
                Some(Frame::TooLarge) => return Ok(Message::TooLarge),
                None => {
                    self.frames.buffer.reserve(PIECE_BYTES);
                    if self.io.read_buf(&mut self.frames.buffer).await? == 0 {
                        return Ok(Message::End);
                    }
                }
            }
        }
    }
}

fn mask() -> Result<[u8; 4], BoxError> {
    let mut mask = [0; 4];
    getrandom::fill(&mut mask)?;
    Ok(mask)
}

/// Writes a frame of a client: masked, with at most 125 bytes.
fn frame(opcode: u8, data: &[u8], mask: [u8; 4], out: &mut BytesMut) {
    let data = &data[..data.len().min(MAX_CONTROL_BYTES)];
    out.put_u8(0x80 | opcode);
    out.put_u8(0x80 | u8::try_from(data.len()).unwrap_or_default());
    out.put_slice(&mask);
    out.extend(data.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Text(String),
    Ping(Vec<u8>),
    Close(u16, String),
    Other,
    TooLarge,
}

/// The frames of a server, from bytes in parts of any size.
struct Frames {
    limit_bytes: usize,
    buffer: BytesMut,
    /// The fragments of a text so far.
    text: Option<Vec<u8>>,
}

impl Frames {
    fn new(limit_bytes: usize) -> Frames {
        Frames { limit_bytes, buffer: BytesMut::new(), text: None }
    }

    /// The next complete frame. An error breaks the connection.
    fn next(&mut self) -> Result<Option<Frame>, BoxError> {
        let Some((head, length)) = head(&self.buffer)? else { return Ok(None) };
        let (opcode, last) = (self.buffer[0] & 0xF, self.buffer[0] & 0x80 != 0);
        let held = self.text.as_ref().map_or(0, Vec::len);
        if opcode >= 8 && (length > MAX_CONTROL_BYTES || !last) {
            return Err("a control frame that is too long, or fragmented".into());
        }
        if length > self.limit_bytes.saturating_sub(held) {
            return Ok(Some(Frame::TooLarge));
        }
        if self.buffer.len() < head + length {
            return Ok(None);
        }
        self.buffer.advance(head);
        let data = self.buffer.split_to(length);
        match (opcode, self.text.take()) {
            (0, Some(mut text)) => {
                text.extend_from_slice(&data);
                self.fragment(text, last)
            }
            (1, None) => self.fragment(data.to_vec(), last),
            (8, _) => close(&data).map(Some),
            (9, text) => {
                self.text = text;
                Ok(Some(Frame::Ping(data.to_vec())))
            }
            (10, text) => {
                self.text = text;
                Ok(Some(Frame::Other))
            }
            _ => Err(format!("a frame with opcode {opcode} in the wrong place").into()),
        }
    }

    fn fragment(&mut self, text: Vec<u8>, last: bool) -> Result<Option<Frame>, BoxError> {
        match last {
            true => Ok(Some(Frame::Text(String::from_utf8(text)?))),
            false => {
                self.text = Some(text);
                Ok(Some(Frame::Other))
            }
        }
    }
}

/// The length of a frame's head and of its data, once the head is complete.
fn head(bytes: &[u8]) -> Result<Option<(usize, usize)>, BoxError> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 || second & 0x80 != 0 {
        return Err("a frame with a reserved bit or a mask".into());
    }
    let length = match second & 0x7F {
        126 => rest.first_chunk().map(|two| (4, u64::from(u16::from_be_bytes(*two)))),
        127 => rest.first_chunk().map(|eight| (10, u64::from_be_bytes(*eight))),
        short => Some((2, u64::from(short))),
    };
    // A length that does not fit is over every limit.
    Ok(length.map(|(head, length)| (head, usize::try_from(length).unwrap_or(usize::MAX))))
}

fn close(data: &[u8]) -> Result<Frame, BoxError> {
    let Some((code, reason)) = data.split_first_chunk() else {
        return Ok(Frame::Close(1005, String::new()));
    };
    let reason = String::from_utf8_lossy(reason).into_owned();
    Ok(Frame::Close(u16::from_be_bytes(*code), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], size: usize) -> Result<Vec<Frame>, String> {
        let mut frames = Frames::new(1000);
        let mut found = Vec::new();
        for part in bytes.chunks(size) {
            frames.buffer.extend_from_slice(part);
            while let Some(frame) = frames.next().map_err(|error| error.to_string())? {
                if frame == Frame::TooLarge {
                    return Err("too large".to_owned());
                }
                found.push(frame);
            }
        }
        Ok(found)
    }

    #[test]
    fn the_proof_is_that_of_the_rfc() {
        assert_eq!(proof("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn frames_are_the_same_however_the_bytes_are_cut() {
        let mut bytes = vec![0x81, 2, b'h', b'i'];
        bytes.extend([0x81, 126, 0, 200]);
        bytes.extend([b'x'; 200]);
        bytes.extend([0x01, 1, 0xC3, 0x89, 1, b'p', 0x80, 1, 0xBC, 0x8A, 0]);
        bytes.extend([0x88, 9, 0x10, 0x69]);
        bytes.extend(b"expired");
        let expected = [
            Frame::Text("hi".into()),
            Frame::Text("x".repeat(200)),
            Frame::Other,
            Frame::Ping(b"p".to_vec()),
            Frame::Text("ü".into()),
            Frame::Other,
            Frame::Close(4201, "expired".into()),
        ];
        for size in 1..bytes.len() {
            assert_eq!(read(&bytes, size).unwrap(), expected, "in parts of {size}");
        }
        assert_eq!(read(&[0x88, 0], 2).unwrap(), [Frame::Close(1005, String::new())]);
    }

    #[test]
    fn frames_that_break_the_protocol_or_a_limit_are_errors() {
        for (bytes, told) in [
            (&[0xC1, 0][..], "reserved bit"),
            (&[0x81, 0x80, 0, 0, 0, 0], "mask"),
            (&[0x80, 0], "wrong place"),
            (&[0x82, 0], "wrong place"),
            (&[0x01, 0, 0x01, 0], "wrong place"),
            (&[0x09, 0], "fragmented"),
            (&[0x89, 126, 0, 200], "too long"),
            (&[0x81, 126, 0x03, 0xE9], "too large"),
            (&[0x81, 127, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], "too large"),
            (&[0x81, 1, 0xC3], "utf-8"),
        ] {
            let error = read(bytes, 100).unwrap_err();
            assert!(error.contains(told), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn a_pong_is_masked() {
        let mut out = BytesMut::new();
        frame(0xA, b"ab", [1, 2, 3, 4], &mut out);
        assert_eq!(&out[..], [0x8A, 0x82, 1, 2, 3, 4, b'a' ^ 1, b'b' ^ 2]);
    }
}
