//! The answer on its way out: a small one leaves in one write from the worker's own memory, a large
//! one beside its head, a stream piece by piece as fast as the client reads.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::{Buf, Bytes};
use http::header::CONTENT_LENGTH;
use http::{StatusCode, Version};
use tokio::io::AsyncWrite;

use super::connection::{Connection, Ending, Next};
use super::encode::{self, After, Length};
use super::inflow::Progress;
use super::link::Phase;
use crate::exchange::Response;
use crate::payload::{Chunks, Payload};

/// Copying so many bytes behind the head costs less than a second slice for the kernel.
const COPIED_BYTES: usize = 4 * 1024;
const LAST_CHUNK: &[u8] = b"0\r\n";

/// What of the request decides about its answer.
#[derive(Clone, Copy)]
pub(super) struct Outgoing {
    pub(super) is_head: bool,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
}

/// The client is gone, or has been too slow for too long.
struct Gone;

impl Connection {
    /// Writes the answer.
    pub(super) async fn answer(&mut self, mut response: Response, outgoing: Outgoing) -> Next {
        let length = length(&mut response, outgoing);
        let status = response.status;
        let bodiless = outgoing.is_head || has_no_body(status);
        let switching = status == StatusCode::SWITCHING_PROTOCOLS;
        let keep = outgoing.keep_alive && length != Length::Close;
        let after = match keep && !self.link.worker.draining.get() {
            _ if switching => After::Upgrade,
            false => After::Close,
            true if outgoing.version == Version::HTTP_10 => After::KeepOld,
            true => After::Keep,
        };
        let Response { headers, body, .. } = response;
        let worker = self.link.worker.clone();
        let mut out = worker.scratch.take();
        out.clear();
        out.append(&mut self.interim);
        encode::head(&mut out, status, &headers, length, after, &mut worker.date.borrow_mut());
        worker.spare(headers);
        let written = match body {
            Payload::Whole(_) if bodiless => self.write(out, Bytes::new()).await,
            Payload::Whole(bytes) => self.write(out, bytes).await,
            Payload::Stream(_) if bodiless => self.write(out, Bytes::new()).await,
            Payload::Stream(chunks) => Box::pin(self.stream(out, chunks, length)).await,
            Payload::TakeOver(run) => match self.write(out, Bytes::new()).await {
                Ok(()) if !outgoing.is_head => return Next::TakenOver(run),
                other => other,
            },
        };
        match (written, after) {
            (Err(Gone), _) => Next::End(Ending::Drop),
            (Ok(()), After::Keep | After::KeepOld) => Next::Request,
            (Ok(()), After::Close | After::Upgrade) => Next::End(Ending::Linger),
        }
    }

    /// Writes a head with a body that is there. The head stands in the worker's memory, which goes
    /// back before any wait.
    async fn write(&mut self, mut out: Vec<u8>, mut body: Bytes) -> Result<(), Gone> {
        if body.len() <= COPIED_BYTES {
            out.extend_from_slice(&body);
            body = Bytes::new();
        }
        let written = match body.is_empty() {
            true => self.stream.try_write(&out),
            false => self.stream.try_write_vectored(&[IoSlice::new(&out), IoSlice::new(&body)]),
        };
        let written = match written {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.link.worker.scratch.set(out);
                return Err(Gone);
            }
        };
        if written == out.len() + body.len() {
            self.link.worker.scratch.set(out);
            return Ok(());
        }
        let rest = Bytes::copy_from_slice(&out[written.min(out.len())..]);
        body.advance(written.saturating_sub(out.len()));
        self.link.worker.scratch.set(out);
        self.write_rest([rest, body, Bytes::new()]).await
    }

    /// Writes what the client did not take at once.
    async fn write_rest(&mut self, mut parts: [Bytes; 3]) -> Result<(), Gone> {
        self.link.enter(Phase::Writing);
        let written = poll_fn(|cx| {
            while parts.iter().any(|part| !part.is_empty()) {
                if self.link.overdue() {
                    return Poll::Ready(Err(Gone));
                }
                // A client that sends before it reads must get rid of what it sends.
                while self.poll_feed(cx) == Progress::Fed {}
                let slices = [&parts[0], &parts[1], &parts[2]].map(|part| IoSlice::new(part));
                let stream = Pin::new(&mut self.stream);
                let mut count =
                    ready!(stream.poll_write_vectored(cx, &slices)).map_err(|_| Gone)?;
                for part in &mut parts {
                    let taken = count.min(part.len());
                    part.advance(taken);
                    count -= taken;
                }
                self.link.enter(Phase::Writing);
            }
            Poll::Ready(Ok(()))
        })
        .await;
        self.link.enter(Phase::Answering);
        written
    }

    /// Writes a body that is made while it is sent. `out` holds the head, which waits for the first
    /// piece if that is there.
    async fn stream(
        &mut self,
        mut out: Vec<u8>,
        mut chunks: Box<dyn Chunks>,
        length: Length,
    ) -> Result<(), Gone> {
        let mut left = match length {
            Length::Bytes(bytes) => bytes,
            _ => u64::MAX,
        };
        loop {
            let piece = poll_fn(|cx| {
                loop {
                    if let Poll::Ready(piece) = chunks.poll_chunk(cx) {
                        return Poll::Ready(Some(piece));
                    }
                    if !out.is_empty() {
                        return Poll::Ready(None);
                    }
                    if self.poll_feed(cx) != Progress::Fed {
                        return Poll::Pending;
                    }
                }
            });
            let (piece, tail): (Bytes, &'static [u8]) = match piece.await {
                None => (Bytes::new(), b""),
                Some(Some(Ok(piece))) if piece.is_empty() => continue,
                Some(Some(Ok(piece))) => {
                    // More than was declared is as wrong as less.
                    left = left.checked_sub(piece.len() as u64).ok_or(Gone)?;
                    let tail: &[u8] = match length {
                        Length::Chunked => {
                            encode::chunk_size(&mut out, piece.len());
                            b"\r\n"
                        }
                        _ => b"",
                    };
                    (piece, tail)
                }
                Some(None) if length == Length::Chunked => {
                    out.extend_from_slice(LAST_CHUNK);
                    encode::fields(&mut out, &chunks.trailers().unwrap_or_default());
                    return self.write_rest([out.into(), Bytes::new(), Bytes::new()]).await;
                }
                Some(None) if matches!(length, Length::Bytes(_)) && left > 0 => return Err(Gone),
                Some(None) => {
                    return self.write_rest([out.into(), Bytes::new(), Bytes::new()]).await;
                }
                Some(Some(Err(_))) => {
                    tracing::debug!("the source of an answer broke off");
                    return Err(Gone);
                }
            };
            let start = Bytes::from(std::mem::take(&mut out));
            self.write_rest([start, piece, Bytes::from_static(tail)]).await?;
        }
    }
}

fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// How the end of this answer is told.
fn length(response: &mut Response, outgoing: Outgoing) -> Length {
    let status = response.status;
    if status == StatusCode::NOT_MODIFIED {
        return Length::None;
    }
    if has_no_body(status) {
        // RFC 9110 8.6: these must not even say how long nothing is.
        response.headers.remove(CONTENT_LENGTH);
        return Length::None;
    }
    match response.body.length_bytes() {
        // Whoever passes on the answer of another knows only what that one said.
        Some(0) if outgoing.is_head && response.headers.contains_key(CONTENT_LENGTH) => {
            Length::None
        }
        Some(bytes) => Length::Bytes(bytes),
        None if outgoing.is_head => Length::None,
        None if matches!(response.body, Payload::TakeOver(_)) => Length::Close,
        None if outgoing.version == Version::HTTP_10 => Length::Close,
        None => Length::Chunked,
    }
}
