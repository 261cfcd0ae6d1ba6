//! The limit of fan-out: a server that holds the same connections and, for each message, writes the
//! given bytes to one socket after the other, without waiting. The difference to this is the cost
//! of everything that a server adds (a log, subscriptions, positions, slow readers).

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};

use crate::http::header;

const LISTENER: Token = Token(0);
const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hi\n\n";
const SOCKET: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\n\r\n";
const TAKEN: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";

/// A client that has not sent its request yet, or a publisher.
struct Caller {
    stream: TcpStream,
    said: Vec<u8>,
}

/// The state of a client after its request.
enum Next {
    Waits,
    Follows,
    Gone,
}

/// Serves until it is killed.
pub fn run() -> Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    println!("listening on http://{}", listener.local_addr()?);
    let mut callers = HashMap::new();
    let mut followers = Vec::new();
    let mut next = LISTENER.0;
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, poll.registry(), &mut callers, &mut next)?;
                continue;
            }
            let Some(caller) = callers.get_mut(&event.token()) else { continue };
            match hear(caller, &mut followers)? {
                Next::Waits => {}
                Next::Gone => drop(callers.remove(&event.token())),
                Next::Follows => {
                    let mut caller = callers.remove(&event.token()).context("a caller is lost")?;
                    // Only the loop writes to it, so no events are needed.
                    poll.registry().deregister(&mut caller.stream)?;
                    followers.push(caller.stream);
                }
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    registry: &Registry,
    callers: &mut HashMap<Token, Caller>,
    next: &mut usize,
) -> Result<()> {
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nodelay(true)?;
                *next += 1;
                registry.register(&mut stream, Token(*next), Interest::READABLE)?;
                callers.insert(Token(*next), Caller { stream, said: Vec::new() });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn hear(caller: &mut Caller, followers: &mut Vec<TcpStream>) -> Result<Next> {
    let mut chunk = [0; 4096];
    loop {
        match caller.stream.read(&mut chunk) {
            Ok(0) => return Ok(Next::Gone),
            Ok(count) => caller.said.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return Ok(Next::Gone),
        }
    }
    let Some(end) = caller.said.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(Next::Waits);
    };
    let head = &caller.said[..end];
    if head.starts_with(b"GET ") {
        let answer = if header(head, b"upgrade").is_some() { SOCKET } else { STREAM };
        caller.stream.write_all(answer)?;
        return Ok(Next::Follows);
    }
    let length: usize = header(head, b"content-length").context("no length")?.parse()?;
    let whole = end + 4 + length;
    if caller.said.len() >= whole {
        tell(followers, &caller.said[end + 4..whole]);
        caller.said.drain(..whole);
        caller.stream.write_all(TAKEN)?;
    }
    Ok(Next::Waits)
}

/// A subscriber that does not accept all bytes is dropped: the load makes sure that there is room.
fn tell(followers: &mut Vec<TcpStream>, message: &[u8]) {
    followers.retain_mut(|stream| stream.write(message).is_ok_and(|count| count == message.len()));
}
