//! Live channels for the cases: an event stream or a WebSocket, and frames on it.

use anyhow::{Context, Result, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::client::Account;

/// The smallest buffer that the system grants: bytes in the client's buffer are not the server's.
const RECEIVE_BYTES: u32 = 4_096;
/// The headers of a WebSocket handshake.
pub const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c3Rvcm0gc3Rvcm0gc3Rvcg==\r\n";

/// Opens a channel. Drops the greeting that follows the head of the response.
pub async fn open(
    account: &Account,
    target: &str,
    headers: &str,
    narrow: bool,
) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if narrow {
        socket.set_recv_buffer_size(RECEIVE_BYTES)?;
    }
    let mut stream = socket.connect(account.address.parse()?).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&account.get_with(target, headers)).await?;
    let mut head = Vec::with_capacity(1024);
    while memmem::find(&head, b"\r\n\r\n").is_none() {
        let count = stream.read_buf(&mut head).await.context("no answer")?;
        ensure!(count > 0, "the channel was closed: {}", String::from_utf8_lossy(&head));
    }
    let opened = head.starts_with(b"HTTP/1.1 200") || head.starts_with(b"HTTP/1.1 101");
    ensure!(opened, "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}

/// A text frame, masked with zeros.
pub fn frame(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut frame = vec![0x81];
    match u8::try_from(bytes.len()) {
        Ok(length @ ..126) => frame.push(0x80 | length),
        _ => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(bytes);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length_in_one_byte_or_three() {
        assert_eq!(frame("hi"), [0x81, 0x82, 0, 0, 0, 0, b'h', b'i']);
        let long = frame(&"x".repeat(300));
        assert_eq!((&long[..4], long.len()), (&[0x81, 0xfe, 1, 44][..], 308));
    }
}
