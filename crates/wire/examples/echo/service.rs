//! A WebSocket that says everything back: what the judge of the codec speaks with, and the smallest
//! whole use of it. While nothing happens a connection holds no buffer; what arrives is read into
//! one of its thread's.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use wire::websocket::{self, Deflate, Incoming, Options, ProtocolError, Received};
use wire::{Answer, Exchange, Fault, Payload, Raw, Response, Service};

/// The judge's largest message.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
const BUFFER_BYTES: usize = 64 << 10;
/// How long a client may take to close its side after we closed ours.
const FAREWELL: Duration = Duration::from_secs(5);

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

pub struct Echo;

impl Service for Echo {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        Box::pin(async move { answer(&exchange) })
    }

    fn refuse(&self, fault: Fault) -> Response {
        Response::new(fault.status(), fault.message())
    }
}

fn answer(exchange: &Exchange) -> Response {
    let Exchange { method, version, headers, .. } = exchange;
    let options = Options { protocols: &["echo"], compress: true };
    match websocket::accept(method, *version, headers, &options) {
        Ok(accepted) => {
            let run = move |raw| async move {
                // A client that is gone needs no farewell.
                let _ = echo(raw, accepted.deflate).await;
            };
            let status = StatusCode::SWITCHING_PROTOCOLS;
            let headers = accepted.headers;
            Response { headers, ..Response::new(status, Payload::take_over(run)) }
        }
        Err(refused) => {
            Response { headers: refused.headers, ..Response::new(refused.status, refused.reason) }
        }
    }
}

/// What is to be sent, and whether that is the end.
struct Reply {
    frames: Vec<Bytes>,
    is_last: bool,
}

async fn echo(mut raw: Raw, deflate: Option<Deflate>) -> io::Result<()> {
    let mut incoming = Incoming::new(MAX_MESSAGE_BYTES, deflate);
    loop {
        let reply = poll_fn(|cx| poll_reply(&mut raw, &mut incoming, deflate, cx)).await?;
        for frame in &reply.frames {
            raw.write_all(frame).await?;
        }
        raw.flush().await?;
        if reply.is_last {
            break;
        }
    }
    // Closing while the client still sends would take back the close frame it has not read.
    raw.shutdown().await?;
    let rest = async { while raw.read(&mut [0; 512]).await.is_ok_and(|count| count > 0) {} };
    let _ = tokio::time::timeout(FAREWELL, rest).await;
    Ok(())
}

/// Reads once, into borrowed memory, and says what that asks for.
fn poll_reply(
    raw: &mut Raw,
    incoming: &mut Incoming,
    deflate: Option<Deflate>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Reply>> {
    ready!(raw.poll_readable(cx))?;
    let mut buffer = BUFFER.take();
    buffer.resize(BUFFER_BYTES, 0);
    let mut arriving = ReadBuf::new(&mut buffer);
    let read = Pin::new(raw).poll_read(cx, &mut arriving);
    let reply = read.map_ok(|()| match arriving.filled_mut() {
        [] => Reply { frames: Vec::new(), is_last: true },
        bytes => reply(bytes, incoming, deflate),
    });
    BUFFER.set(buffer);
    reply
}

fn reply(mut bytes: &mut [u8], incoming: &mut Incoming, deflate: Option<Deflate>) -> Reply {
    let mut frames = Vec::new();
    let mut is_last = false;
    while let Some(received) = incoming.next(&mut bytes).transpose() {
        is_last |= matches!(received, Err(_) | Ok(Received::Close(_)));
        frames.extend(frame(received, deflate));
    }
    Reply { frames, is_last }
}

fn frame(received: Result<Received<'_>, ProtocolError>, deflate: Option<Deflate>) -> Option<Bytes> {
    Some(match received {
        Ok(Received::Text(text)) => deflate
            .and_then(|deflate| websocket::deflated(&text, &deflate))
            .unwrap_or_else(|| websocket::text(&text)),
        Ok(Received::Binary(bytes)) => deflate
            .and_then(|deflate| websocket::deflated_binary(&bytes, &deflate))
            .unwrap_or_else(|| websocket::binary(&bytes)),
        Ok(Received::Ping(bytes)) => websocket::pong(&bytes),
        Ok(Received::Pong) => return None,
        Ok(Received::Close(said)) => {
            let code = said.map_or(websocket::code::NO_CODE, |(code, _)| code);
            websocket::close(code, "")
        }
        Err(ProtocolError { code, reason }) => websocket::close(code, reason),
    })
}
