//! A request on its way out, on HTTP/1.1: the head and a small body in one write, a larger body
//! next to its head, a streamed body piece by piece as fast as the server takes it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Method};
use tokio::io::AsyncWrite;

use super::call::Call;
use super::fault::OutgoingFault;
use super::transport::Transport;
use crate::body::Body;
use crate::fault::BodyFault;
use crate::h1::encode;

/// Copying so many bytes behind the head costs less than a second slice for the kernel.
const COPIED_BYTES: usize = 8 * 1024;
const LAST_CHUNK: &[u8] = b"0\r\n";

/// What is still to be sent of a request.
#[derive(Debug)]
pub(super) struct Upload {
    /// The head and what is copied behind it; sent up to `at`.
    out: Vec<u8>,
    at: usize,
    /// Behind `out`.
    piece: Bytes,
    /// Behind `piece`: the end of a chunk.
    tail: &'static [u8],
    /// What the next pieces come from.
    source: Option<Source>,
    /// The body waits for 100.
    awaits_continue: bool,
    /// Bytes that the system took.
    sent: u64,
    state: State,
}

#[derive(Debug)]
struct Source {
    body: Body,
    /// None for a chunked body.
    left: Option<u64>,
    /// Part of it was taken.
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Sent to its last byte.
    Sent,
    /// The server takes no more of it. It may still have answered.
    Refused,
}

/// What an upload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing: it is over.
    Nothing,
    /// The server, which has to take bytes.
    Server,
    /// The body of the request.
    Body,
    /// The server's word that the body is wanted.
    Continue,
}

impl Upload {
    /// Encodes the request. `out` is an empty buffer whose memory is used.
    pub(super) fn new(call: &mut Call<'_>, mut out: Vec<u8>) -> Result<Upload, OutgoingFault> {
        if call.body.is_spent() {
            return Err(OutgoingFault::RequestBody(BodyFault::Incomplete));
        }
        let whole = call.body.whole().cloned();
        let declared = call.body.declared_bytes();
        let awaits_continue = whole.is_none() && expects_continue(&call.headers);
        head(&mut out, call, declared, awaits_continue);
        let mut upload = Upload {
            out,
            at: 0,
            piece: Bytes::new(),
            tail: b"",
            source: None,
            awaits_continue,
            sent: 0,
            state: State::Open,
        };
        match whole {
            Some(bytes) => upload.add(bytes),
            None => {
                let body = std::mem::replace(&mut call.body, Body::spent());
                upload.source = Some(Source { body, left: declared, begun: false });
            }
        }
        Ok(upload)
    }

    /// Gives the body back that was not begun, and the memory of the buffer.
    pub(super) fn end(&mut self, call: &mut Call<'_>) -> Vec<u8> {
        if let Some(source) = self.source.take_if(|source| !source.begun) {
            call.body = source.body;
        }
        std::mem::take(&mut self.out)
    }

    /// The memory of the buffer, once all is sent.
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        out
    }

    /// Whether all of it was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.state == State::Sent
    }

    pub(super) fn is_over(&self) -> bool {
        self.state != State::Open
    }

    /// Bytes that the system took.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// The body is wanted, or was waited for long enough.
    pub(super) fn go_on(&mut self) {
        self.awaits_continue = false;
    }

    /// Sends as much as the server takes and the body has.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Transport,
    ) -> Result<Waiting, OutgoingFault> {
        while self.state == State::Open {
            // Before the write, so that the head and a piece that is here leave together.
            let body_waits = self.poll_source(cx).map_err(OutgoingFault::RequestBody)?;
            match self.poll_send(cx, stream) {
                Poll::Pending => return Ok(Waiting::Server),
                Poll::Ready(Err(_)) => self.refuse(),
                Poll::Ready(Ok(())) if self.source.is_none() => self.state = State::Sent,
                Poll::Ready(Ok(())) if self.awaits_continue => return Ok(Waiting::Continue),
                Poll::Ready(Ok(())) if body_waits => return Ok(Waiting::Body),
                Poll::Ready(Ok(())) => {}
            }
        }
        Ok(Waiting::Nothing)
    }

    /// Gives up what was not sent.
    fn refuse(&mut self) {
        self.state = State::Refused;
        self.piece = Bytes::new();
        self.source = self.source.take().filter(|source| !source.begun);
    }

    /// Takes the next piece of the body, if the last one has left. Whether the body has to be
    /// waited for.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Result<bool, BodyFault> {
        let Some(source) = &mut self.source else { return Ok(false) };
        // Only the first piece is added to bytes that have not left: the head.
        let is_full = !self.piece.is_empty()
            || !self.tail.is_empty()
            || (source.begun && self.at < self.out.len());
        if is_full || self.awaits_continue {
            return Ok(false);
        }
        let piece = match source.body.poll_chunk(cx) {
            Poll::Pending => return Ok(true),
            Poll::Ready(piece) => piece?,
        };
        source.begun = true;
        match (piece, &mut source.left) {
            (Some(piece), Some(left)) => {
                // More than was declared is as wrong as less.
                *left = left.checked_sub(piece.len() as u64).ok_or(BodyFault::Malformed)?;
                self.add(piece);
            }
            (Some(piece), None) if piece.is_empty() => {}
            (Some(piece), None) => {
                self.compact();
                encode::chunk_size(&mut self.out, piece.len());
                self.add(piece);
                match self.piece.is_empty() {
                    true => self.out.extend_from_slice(b"\r\n"),
                    false => self.tail = b"\r\n",
                }
            }
            (None, Some(0)) => self.source = None,
            (None, Some(_)) => return Err(BodyFault::Incomplete),
            (None, None) => {
                let trailers = source.body.trailers().unwrap_or_default();
                self.compact();
                self.out.extend_from_slice(LAST_CHUNK);
                encode::fields(&mut self.out, &trailers);
                self.source = None;
            }
        }
        Ok(false)
    }

    /// Puts a piece behind what is there.
    fn add(&mut self, piece: Bytes) {
        if piece.len() > COPIED_BYTES {
            self.piece = piece;
            return;
        }
        self.compact();
        self.out.extend_from_slice(&piece);
    }

    /// Forgets what was sent, if that is all.
    fn compact(&mut self) {
        if self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, stream: &mut Transport) -> Poll<io::Result<()>> {
        loop {
            let first = &self.out[self.at..];
            let written = if self.piece.is_empty() && self.tail.is_empty() {
                if first.is_empty() {
                    break;
                }
                Pin::new(&mut *stream).poll_write(cx, first)
            } else {
                let slices = [first, &self.piece, self.tail].map(IoSlice::new);
                Pin::new(&mut *stream).poll_write_vectored(cx, &slices)
            };
            let Poll::Ready(written) = written else { return Poll::Pending };
            let count = written?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(count);
        }
        match stream.needs_flush() {
            true => Pin::new(stream).poll_flush(cx),
            false => Poll::Ready(Ok(())),
        }
    }

    fn advance(&mut self, mut count: usize) {
        self.sent += count as u64;
        let taken = count.min(self.out.len() - self.at);
        self.at += taken;
        count -= taken;
        let taken = count.min(self.piece.len());
        self.piece.advance(taken);
        count -= taken;
        self.tail = &self.tail[count.min(self.tail.len())..];
        if self.piece.is_empty() {
            // An empty slice would keep the memory.
            self.piece = Bytes::new();
        }
    }
}

/// Appends the head with its empty line. `declared` is the length of the body, if it is known.
fn head(out: &mut Vec<u8>, call: &Call<'_>, declared: Option<u64>, awaits_continue: bool) {
    let path = call.path.as_ref().unwrap_or(&call.target.path);
    out.extend_from_slice(call.method.as_str().as_bytes());
    out.push(b' ');
    if !path.as_str().starts_with(['/', '*']) {
        out.push(b'/');
    }
    out.extend_from_slice(path.as_str().as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    // First, as some servers want it.
    let host = call.host.as_ref().unwrap_or(&call.target.host_header);
    encode::line(out, &HOST, host.as_bytes());
    let (mut upgrades, mut has_te) = (false, false);
    for (name, value) in &call.headers {
        if is_written_here(name) || (*name == EXPECT && !awaits_continue) {
            continue;
        }
        upgrades |= *name == UPGRADE;
        has_te |= *name == TE;
        encode::line(out, name, value.as_bytes());
    }
    match declared {
        Some(0) if !has_usual_body(&call.method) => {}
        Some(bytes) => {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        None => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    // RFC 9110 7.6.1: both are about this connection, and have to be named as such.
    match (upgrades, has_te) {
        (false, false) => {}
        (true, false) => out.extend_from_slice(b"connection: upgrade\r\n"),
        (false, true) => out.extend_from_slice(b"connection: te\r\n"),
        (true, true) => out.extend_from_slice(b"connection: te, upgrade\r\n"),
    }
    out.extend_from_slice(b"\r\n");
}

fn is_written_here(name: &http::HeaderName) -> bool {
    [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(name)
}

/// RFC 9110 8.6: these say that their body is empty.
pub(super) fn has_usual_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

pub(super) fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
