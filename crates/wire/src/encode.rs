//! A response as HTTP/1.1 bytes, for the answers wire writes past the HTTP library: refusals on a
//! connection that is about to close.

use std::time::SystemTime;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE};

use crate::exchange::Response;

/// The complete answer, with `Connection: close`.
pub(crate) fn closing(response: &Response) -> Vec<u8> {
    let status = response.status;
    let mut bytes = Vec::with_capacity(256 + response.body.len());
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
    bytes.extend_from_slice(b"\r\n");
    for (name, value) in &response.headers {
        if *name != CONNECTION && *name != CONTENT_LENGTH && *name != DATE {
            line(&mut bytes, name.as_str(), value.as_bytes());
        }
    }
    line(&mut bytes, "content-length", response.body.len().to_string().as_bytes());
    line(&mut bytes, "connection", b"close");
    line(&mut bytes, "date", httpdate::fmt_http_date(SystemTime::now()).as_bytes());
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&response.body);
    bytes
}

fn line(bytes: &mut Vec<u8>, name: &str, value: &[u8]) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(b": ");
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
}
