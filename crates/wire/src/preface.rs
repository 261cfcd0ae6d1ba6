//! How a connection of HTTP/2 begins, for those that may speak it from the first byte on.

/// What a client of HTTP/2 sends first (RFC 9113 3.4). No request of HTTP/1.x can begin like it.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// From where on it is nothing else: `PRI * HTTP/2`, which HTTP/1.x refuses without waiting for the
/// rest. Less may become any request with a P.
const PREFACE_HEAD_BYTES: usize = 12;

/// Whether bytes are the beginning of HTTP/2. Not all of it need be here: the next reader waits for
/// the rest.
pub(crate) fn is_http2(data: &[u8]) -> bool {
    let length = data.len().min(PREFACE.len());
    length >= PREFACE_HEAD_BYTES && data[..length] == PREFACE[..length]
}
