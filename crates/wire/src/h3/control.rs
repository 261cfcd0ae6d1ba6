//! The streams of a client that go one way: its control stream, the two of QPACK, and those nobody
//! knows. What they say changes little here; that they keep to the rules is looked at.

use std::rc::Rc;

use bytes::{Buf, Bytes};
use quinn::{RecvStream, VarInt};

use super::context::ConnectionContext;
use super::frames::{self, Code};

/// The most a frame of the control stream may hold of what is read at once. Settings are some ten
/// bytes each.
const MAX_FRAME_BYTES: u64 = 1024;
const READ_BYTES: usize = 4096;
/// The number of a stream has 62 bits, seven in each byte.
const NUMBER_BYTES: usize = 9;

/// Why a stream is read no further.
enum Stop {
    /// It ended, or the connection did.
    Ended,
    /// The client has broken the protocol.
    Broken(VarInt),
}

/// Reads one of them to its end.
pub(super) async fn read(context: Rc<ConnectionContext>, receiving: RecvStream) {
    let mut source = Source { receiving, held: Bytes::new() };
    let Ok(kind) = source.number().await else { return };
    let role = match kind {
        frames::CONTROL_STREAM => &context.roles.control,
        frames::ENCODER_STREAM => &context.roles.encoder,
        frames::DECODER_STREAM => &context.roles.decoder,
        // Only servers push.
        frames::PUSH_STREAM => return context.fail(Code::STREAM_CREATION_ERROR),
        _ => {
            let _ = source.receiving.stop(Code::STREAM_CREATION_ERROR);
            return;
        }
    };
    if role.replace(true) {
        return context.fail(Code::STREAM_CREATION_ERROR);
    }
    let stop = match kind {
        frames::CONTROL_STREAM => source.control().await,
        frames::ENCODER_STREAM => source.encoder().await,
        _ => source.decoder().await,
    };
    context.fail(match stop {
        Stop::Broken(code) => code,
        // They live as long as the connection. Where that has ended first this changes nothing.
        Stop::Ended => Code::CLOSED_CRITICAL_STREAM,
    });
}

struct Source {
    receiving: RecvStream,
    held: Bytes,
}

impl Source {
    /// Makes sure that there is a byte.
    async fn more(&mut self) -> Result<(), Stop> {
        while self.held.is_empty() {
            match self.receiving.read_chunk(READ_BYTES, true).await {
                Ok(Some(chunk)) => self.held = chunk.bytes,
                Ok(None) | Err(_) => return Err(Stop::Ended),
            }
        }
        Ok(())
    }

    async fn number(&mut self) -> Result<u64, Stop> {
        let mut bytes = [0; 8];
        for count in 1..=bytes.len() {
            self.more().await?;
            bytes[count - 1] = self.held.get_u8();
            if let Some((number, _)) = frames::number(&bytes[..count]) {
                return Ok(number);
            }
        }
        Err(Stop::Broken(Code::FRAME_ERROR))
    }

    async fn skip(&mut self, mut count: u64) -> Result<(), Stop> {
        while count > 0 {
            self.more().await?;
            let taken = self.held.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            self.held.advance(taken);
            count -= taken as u64;
        }
        Ok(())
    }

    async fn payload(&mut self, length: u64) -> Result<Vec<u8>, Stop> {
        if length > MAX_FRAME_BYTES {
            return Err(Stop::Broken(Code::EXCESSIVE_LOAD));
        }
        let mut payload = Vec::new();
        while (payload.len() as u64) < length {
            self.more().await?;
            let left = usize::try_from(length).unwrap_or(usize::MAX) - payload.len();
            let taken = self.held.len().min(left);
            payload.extend_from_slice(&self.held.split_to(taken));
        }
        Ok(payload)
    }

    async fn control(&mut self) -> Stop {
        match self.control_frames().await {
            Ok(never) => match never {},
            Err(stop) => stop,
        }
    }

    async fn control_frames(&mut self) -> Result<std::convert::Infallible, Stop> {
        let (mut pushes, mut last) = (None, u64::MAX);
        let mut configured = false;
        loop {
            let (kind, length) = (self.number().await?, self.number().await?);
            if !configured && kind != frames::SETTINGS {
                return Err(Stop::Broken(Code::MISSING_SETTINGS));
            }
            match kind {
                frames::SETTINGS if configured => return Err(Stop::Broken(Code::FRAME_UNEXPECTED)),
                frames::SETTINGS => {
                    configured = true;
                    let payload = self.payload(length).await?;
                    settings(&payload).map_err(Stop::Broken)?;
                }
                // What a client says with it concerns pushes, of which there are none.
                frames::GOAWAY => {
                    let push = only(&self.payload(length).await?)?;
                    if push > last {
                        return Err(Stop::Broken(Code::ID_ERROR));
                    }
                    last = push;
                }
                frames::MAX_PUSH_ID => {
                    let most = only(&self.payload(length).await?)?;
                    if pushes.replace(most).is_some_and(|before| before > most) {
                        return Err(Stop::Broken(Code::ID_ERROR));
                    }
                }
                // There is none to be cancelled.
                frames::CANCEL_PUSH => {
                    only(&self.payload(length).await?)?;
                    return Err(Stop::Broken(Code::ID_ERROR));
                }
                kind if frames::is_known(kind) => {
                    return Err(Stop::Broken(Code::FRAME_UNEXPECTED));
                }
                _ => self.skip(length).await?,
            }
        }
    }

    /// Nothing may be put into a table that does not exist. That it has no room may be said.
    async fn encoder(&mut self) -> Stop {
        const NO_ROOM: u8 = 0b0010_0000;
        loop {
            if let Err(stop) = self.more().await {
                return stop;
            }
            if self.held.iter().any(|byte| *byte != NO_ROOM) {
                return Stop::Broken(Code::ENCODER_STREAM_ERROR);
            }
            self.held.clear();
        }
    }

    /// We put nothing into a table: there is nothing that a client could acknowledge. It may say
    /// that it reads a stream no further, which needs no answer (RFC 9204 4.4).
    async fn decoder(&mut self) -> Stop {
        match self.cancellations().await {
            Ok(never) => match never {},
            Err(stop) => stop,
        }
    }

    async fn cancellations(&mut self) -> Result<std::convert::Infallible, Stop> {
        const CANCELLATION: u8 = 0b0100_0000;
        const NUMBER: u8 = 0b0011_1111;
        const BROKEN: Stop = Stop::Broken(Code::DECODER_STREAM_ERROR);
        loop {
            self.more().await?;
            let first = self.held.get_u8();
            if first & !NUMBER != CANCELLATION {
                return Err(BROKEN);
            }
            let mut bytes_left = if first & NUMBER == NUMBER { NUMBER_BYTES } else { 0 };
            while bytes_left > 0 {
                self.more().await?;
                bytes_left = match self.held.get_u8() {
                    ..128 => 0,
                    _ if bytes_left == 1 => return Err(BROKEN),
                    _ => bytes_left - 1,
                };
            }
        }
    }
}

/// The one number that a frame consists of.
fn only(payload: &[u8]) -> Result<u64, Stop> {
    match frames::number(payload) {
        Some((number, taken)) if taken == payload.len() => Ok(number),
        _ => Err(Stop::Broken(Code::FRAME_ERROR)),
    }
}

/// None of what a client can set concerns us; but none may come twice, and none be of HTTP/2.
fn settings(mut payload: &[u8]) -> Result<(), VarInt> {
    let mut seen = Vec::new();
    while !payload.is_empty() {
        let (name, taken) = frames::number(payload).ok_or(Code::FRAME_ERROR)?;
        let (_, more) = frames::number(&payload[taken..]).ok_or(Code::FRAME_ERROR)?;
        payload = &payload[taken + more..];
        if matches!(name, 0x2..=0x5) || seen.contains(&name) {
            return Err(Code::SETTINGS_ERROR);
        }
        seen.push(name);
    }
    Ok(())
}
