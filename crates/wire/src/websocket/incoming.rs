//! The reading side of one connection: takes bytes, returns messages, and checks every rule of RFC
//! 6455 5. A connection without a partly received message holds no buffer.

use std::borrow::Cow;
use std::mem;

use super::head::{self, Head, Opcode};
use super::message::{self, Message};
use super::{Deflate, ProtocolError, Received, close, deflate, mask};

/// The state of one connection, with the part of a message or frame that has arrived.
#[derive(Debug)]
pub struct Incoming {
    max_message_bytes: usize,
    inflates: bool,
    /// The client has closed, or has broken the protocol: nothing more is read.
    is_over: bool,
    /// The beginning of a frame's head.
    head: [u8; head::MAX_BYTES],
    head_bytes: u8,
    partial: Option<Box<Partial>>,
}

/// Exists only while a message or frame is partly received.
#[derive(Debug, Default)]
struct Partial {
    /// The incomplete message. Control frames may arrive in between.
    message: Option<Message>,
    frame: Option<Frame>,
    /// The received part of a control frame.
    control: Vec<u8>,
}

/// A frame whose payload is arriving.
#[derive(Debug)]
struct Frame {
    opcode: Opcode,
    is_last: bool,
    left: usize,
    mask: [u8; 4],
}

impl Incoming {
    /// The most bytes of a message. A compressed one may have a sixteenth more before it is
    /// inflated: incompressible data grows a little.
    pub fn new(max_message_bytes: usize, deflate: Option<Deflate>) -> Incoming {
        Incoming {
            max_message_bytes,
            inflates: deflate.is_some(),
            is_over: false,
            head: [0; head::MAX_BYTES],
            head_bytes: 0,
            partial: None,
        }
    }

    /// Takes the next event from the front of these bytes, and unmasks them in place. None: all
    /// bytes were taken, and more are needed. Bytes after a close frame or a fault are taken and
    /// ignored.
    pub fn next<'b>(
        &mut self,
        bytes: &mut &'b mut [u8],
    ) -> Result<Option<Received<'b>>, ProtocolError> {
        if self.is_over {
            *bytes = &mut [];
            return Ok(None);
        }
        let received = self.read(bytes);
        if matches!(received, Err(_) | Ok(Some(Received::Close(_)))) {
            self.is_over = true;
            self.partial = None;
        }
        received
    }

    /// Whether a message or frame is partly received: a client that disconnects now loses it.
    pub fn is_partial(&self) -> bool {
        self.head_bytes > 0 || self.partial.is_some()
    }

    /// The memory for the partly received message: never more than the largest message.
    pub fn held_bytes(&self) -> usize {
        let Some(partial) = &self.partial else { return 0 };
        partial.control.capacity() + partial.message.as_ref().map_or(0, Message::capacity)
    }

    fn read<'b>(
        &mut self,
        bytes: &mut &'b mut [u8],
    ) -> Result<Option<Received<'b>>, ProtocolError> {
        loop {
            if self.partial.as_ref().is_none_or(|partial| partial.frame.is_none()) {
                let Some(head) = self.take_head(bytes)? else { return Ok(None) };
                self.admit(&head)?;
                let is_whole =
                    head.opcode.is_control() || head.is_last && head.opcode != Opcode::Continuation;
                if is_whole && head.length <= bytes.len() {
                    let payload = take(bytes, head.length);
                    mask::apply(payload, head.mask);
                    return self.whole(&head, payload).map(Some);
                }
                self.begin(&head);
            }
            if let Some(received) = self.go_on(bytes)? {
                return Ok(Some(received));
            }
            if bytes.is_empty() {
                return Ok(None);
            }
        }
    }

    /// The head of the next frame. Stores it here if only a part has arrived.
    fn take_head(&mut self, bytes: &mut &mut [u8]) -> Result<Option<Head>, ProtocolError> {
        if self.head_bytes == 0
            && let Some(head) = Head::read(bytes)?
        {
            take(bytes, head.bytes);
            return Ok(Some(head));
        }
        while !bytes.is_empty() {
            self.head[usize::from(self.head_bytes)] = take(bytes, 1)[0];
            self.head_bytes += 1;
            if let Some(head) = Head::read(&self.head[..usize::from(self.head_bytes)])? {
                self.head_bytes = 0;
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    /// Checks the limit, and the rules that depend on earlier frames.
    fn admit(&self, head: &Head) -> Result<(), ProtocolError> {
        if head.opcode.is_control() {
            return Ok(());
        }
        let message = self.message();
        if message.is_none() && head.opcode == Opcode::Continuation {
            return Err(ProtocolError::protocol("There is no message to be continued."));
        }
        if message.is_some() && head.opcode != Opcode::Continuation {
            return Err(ProtocolError::protocol("The message before this one is not complete."));
        }
        if head.is_compressed && !self.inflates {
            return Err(ProtocolError::protocol("Compression was not agreed on."));
        }
        let length = message.map_or(0, Message::len).saturating_add(head.length);
        let is_compressed = head.is_compressed || message.is_some_and(Message::is_compressed);
        if length > self.max_bytes(is_compressed) { Err(ProtocolError::TOO_BIG) } else { Ok(()) }
    }

    fn max_bytes(&self, is_compressed: bool) -> usize {
        match is_compressed {
            true => deflate::max_compressed_bytes(self.max_message_bytes),
            false => self.max_message_bytes,
        }
    }

    fn message(&self) -> Option<&Message> {
        self.partial.as_ref().and_then(|partial| partial.message.as_ref())
    }

    fn whole<'b>(&self, head: &Head, payload: &'b [u8]) -> Result<Received<'b>, ProtocolError> {
        let is_text = head.opcode == Opcode::Text;
        match head.opcode.is_control() {
            true => control(head.opcode, Cow::Borrowed(payload)),
            false if head.is_compressed => {
                message::inflated(is_text, payload, self.max_message_bytes)
            }
            false => message::whole(is_text, payload),
        }
    }

    fn begin(&mut self, head: &Head) {
        let partial = self.partial.get_or_insert_default();
        if matches!(head.opcode, Opcode::Text | Opcode::Binary) {
            partial.message = Some(Message::new(head.opcode, head.is_compressed));
        }
        let Head { opcode, is_last, length, mask, .. } = *head;
        partial.frame = Some(Frame { opcode, is_last, left: length, mask });
    }

    /// Takes the available part of the payload.
    fn go_on<'b>(&mut self, bytes: &mut &mut [u8]) -> Result<Option<Received<'b>>, ProtocolError> {
        let is_compressed = self.message().is_some_and(Message::is_compressed);
        let max_bytes = self.max_bytes(is_compressed);
        let Some(Partial { message, frame: Some(frame), control: held }) =
            self.partial.as_deref_mut()
        else {
            return Ok(None);
        };
        let count = frame.left.min(bytes.len());
        let piece = take(bytes, count);
        mask::apply(piece, frame.mask);
        frame.mask = mask::behind(frame.mask, count);
        frame.left -= count;
        match message {
            Some(message) if !frame.opcode.is_control() => {
                let known = message.len() + count + frame.left;
                message.push(piece, if frame.is_last { known } else { max_bytes })?;
            }
            _ => held.extend_from_slice(piece),
        }
        if frame.left > 0 { Ok(None) } else { self.complete() }
    }

    /// Ends a frame, and its message if this was the last frame.
    fn complete<'b>(&mut self) -> Result<Option<Received<'b>>, ProtocolError> {
        let Some(mut partial) = self.partial.take() else { return Ok(None) };
        let Some(frame) = partial.frame.take() else { return Ok(None) };
        if frame.opcode.is_control() {
            let payload = mem::take(&mut partial.control);
            // The message continues if the control frame came in the middle of it.
            self.partial = partial.message.is_some().then_some(partial);
            return control(frame.opcode, Cow::Owned(payload)).map(Some);
        }
        match partial.message {
            Some(message) if frame.is_last => message.finish(self.max_message_bytes).map(Some),
            _ => {
                self.partial = Some(partial);
                Ok(None)
            }
        }
    }
}

fn control(opcode: Opcode, payload: Cow<'_, [u8]>) -> Result<Received<'_>, ProtocolError> {
    Ok(match opcode {
        Opcode::Close => Received::Close(close::read(payload)?),
        Opcode::Ping => Received::Ping(payload),
        _ => Received::Pong,
    })
}

/// Takes this many bytes from the front.
fn take<'b>(bytes: &mut &'b mut [u8], count: usize) -> &'b mut [u8] {
    let (taken, rest) = mem::take(bytes).split_at_mut(count);
    *bytes = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_an_idle_connection_is_small() {
        assert!(size_of::<Incoming>() <= 64, "{}", size_of::<Incoming>());
    }
}
