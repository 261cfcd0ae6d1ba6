//! Minimal HTTP/1.1 for a load generator: the end of a response, its status and its body. The
//! servers are ours and on loopback, so only responses with a Content-Length are supported.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// For single exchanges outside measurements.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);
/// A list of 100 records is about 40 KB; a larger response is an error.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Status and size of one response at the start of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub head_bytes: usize,
    pub body_bytes: usize,
}

impl Head {
    /// None until the whole head has arrived.
    pub fn parse(buffer: &[u8]) -> Result<Option<Self>> {
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = &buffer[..end];
        let status = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
        let status = status.and_then(|digits| digits.parse().ok()).context("no status")?;
        let body_bytes = match header(head, b"content-length") {
            Some(value) => value.parse().context("Content-Length is not a number")?,
            None if matches!(status, 204 | 304) => 0,
            None => bail!("an answer without Content-Length: {}", String::from_utf8_lossy(head)),
        };
        // HEAD is never used here, so only these two have a length without a body.
        let body_bytes = if matches!(status, 204 | 304) { 0 } else { body_bytes };
        if body_bytes > MAX_ANSWER_BYTES {
            bail!("an answer of {body_bytes} bytes");
        }
        Ok(Some(Self { status, head_bytes: end + 4, body_bytes }))
    }

    pub fn total_bytes(&self) -> usize {
        self.head_bytes + self.body_bytes
    }
}

/// A header's value; the name in lower case.
pub fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a str> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        let text = std::str::from_utf8(value).ok()?;
        found.eq_ignore_ascii_case(name).then(|| text.trim())
    })
}

/// Percent-encodes all characters that are not unreserved.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// A complete response of a single exchange.
pub struct Answer {
    pub status: u16,
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

/// One keep-alive connection for the exchanges around the measurements.
pub struct Client {
    stream: TcpStream,
}

impl Client {
    pub fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connect {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(EXCHANGE_LIMIT))?;
        stream.set_write_timeout(Some(EXCHANGE_LIMIT))?;
        Ok(Self { stream })
    }

    pub fn send(&mut self, request: &[u8]) -> Result<Answer> {
        self.stream.write_all(request)?;
        let mut buffer = Vec::with_capacity(16 << 10);
        let mut chunk = [0; 16 << 10];
        loop {
            let count = self.stream.read(&mut chunk).context("no answer in time")?;
            if count == 0 {
                bail!("the server closed the connection: {}", String::from_utf8_lossy(&buffer));
            }
            buffer.extend_from_slice(&chunk[..count]);
            match Head::parse(&buffer)? {
                Some(head) if buffer.len() >= head.total_bytes() => {
                    let body = buffer.split_off(head.head_bytes);
                    return Ok(Answer { status: head.status, head: buffer, body });
                }
                _ => {}
            }
        }
    }

    /// The same; any other status than the expected one is an error.
    pub fn expect(&mut self, status: u16, request: &[u8]) -> Result<Answer> {
        let answer = self.send(request)?;
        if answer.status != status {
            let body = String::from_utf8_lossy(&answer.body);
            bail!("expected {status}, got {}: {body}", answer.status);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_response_is_parsed() {
        let answer = b"HTTP/1.1 201 Created\r\nETag: \"1\"\r\nContent-LENGTH: 2\r\n\r\n{}rest";
        let head = Head::parse(answer).unwrap().unwrap();
        assert_eq!((head.status, head.body_bytes), (201, 2));
        assert_eq!(&answer[..head.total_bytes()][head.head_bytes..], b"{}");
        assert_eq!(header(answer, b"etag"), Some("\"1\""));
        assert_eq!(header(answer, b"location"), None);
    }

    #[test]
    fn not_modified_has_no_body_whatever_its_length_says() {
        let answer = b"HTTP/1.1 304 Not Modified\r\ncontent-length: 900\r\n\r\n";
        assert_eq!(Head::parse(answer).unwrap().unwrap().total_bytes(), answer.len());
    }

    #[test]
    fn an_incomplete_response_waits_and_an_invalid_one_is_an_error() {
        assert_eq!(Head::parse(b"HTTP/1.1 200 OK\r\nContent-Le").unwrap(), None);
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(Head::parse(b"nonsense\r\n\r\n").is_err());
    }
}
