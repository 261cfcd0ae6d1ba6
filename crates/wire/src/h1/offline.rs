//! The codec's reading without sockets, services or clocks, for fuzzing and for tests that compare
//! it with others: the same scan, parser, admission and decoders that a connection drives.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, Version};

use super::head::{self, Scan};
use super::inflow::{Decoder, Step};
use crate::fault::{BodyFault, Fault};
use crate::limits::Limits;
use crate::worker::Buffer;

/// What became of one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Read(Box<Seen>),
    Refused(Fault),
    /// Admitted, and then its body was malformed or cut short.
    BadBody(Box<Seen>, BodyFault),
    /// The bytes ended within a head.
    Incomplete,
}

/// A request as a service would see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    pub keep_alive: bool,
    pub body: Vec<u8>,
    pub trailers: Option<HeaderMap>,
}

/// Reads requests from bytes that arrive in these pieces, until one ends the connection.
pub fn read<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, limits: &Limits) -> Vec<Verdict> {
    let mut reading =
        Reading { buffer: Buffer::new(0, &Rc::default()), pieces: pieces.into_iter(), limits };
    let mut verdicts = Vec::new();
    while let Some(verdict) = reading.next() {
        let goes_on = matches!(&verdict, Verdict::Read(seen) if seen.keep_alive);
        verdicts.push(verdict);
        if !goes_on {
            break;
        }
    }
    verdicts
}

struct Reading<'l, P> {
    buffer: Box<Buffer>,
    pieces: P,
    limits: &'l Limits,
}

impl<'p, P: Iterator<Item = &'p [u8]>> Reading<'_, P> {
    fn next(&mut self) -> Option<Verdict> {
        let mut scan = Scan::default();
        let end = loop {
            // As a connection: nothing is looked at before there is something.
            match self.buffer.data() {
                [] => {}
                data => match scan.find(data, self.limits) {
                    Ok(Some(end)) => break end,
                    Ok(None) => {}
                    Err(fault) => return Some(Verdict::Refused(fault)),
                },
            }
            if !self.arrive() {
                return scan.begun().then_some(Verdict::Incomplete);
            }
        };
        let bytes = &self.buffer.data()[scan.start..end];
        let head = match head::read(&Bytes::copy_from_slice(bytes), self.limits, HeaderMap::new()) {
            Ok(head) => head,
            Err(fault) => return Some(Verdict::Refused(fault)),
        };
        self.buffer.consume(end);
        let mut seen = Box::new(Seen {
            method: head.method,
            uri: head.uri,
            version: head.version,
            headers: head.headers,
            keep_alive: head.keep_alive,
            body: Vec::new(),
            trailers: None,
        });
        let mut decoder = Decoder::new(head.framing);
        let fault = loop {
            match decoder.step(&mut self.buffer) {
                Step::Piece(piece) => seen.body.extend_from_slice(&piece),
                Step::End(trailers) => {
                    seen.trailers = trailers;
                    return Some(Verdict::Read(seen));
                }
                Step::Broken(fault) => break fault,
                Step::More if self.arrive() => {}
                Step::More => break BodyFault::Incomplete,
            }
        };
        Some(Verdict::BadBody(seen, fault))
    }

    /// Takes the next piece; false at the end.
    fn arrive(&mut self) -> bool {
        let Some(mut piece) = self.pieces.next() else { return false };
        while !piece.is_empty() {
            let room = self.buffer.room();
            let count = room.len().min(piece.len());
            room[..count].copy_from_slice(&piece[..count]);
            self.buffer.filled(count);
            piece = &piece[count..];
        }
        true
    }
}
