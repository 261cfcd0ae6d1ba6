//! A file as it is sent: its media type, its ETag, its bytes and their compressed form.

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;

/// A file of the console.
#[derive(Clone, Debug)]
pub struct Asset {
    pub content_type: &'static str,
    /// Changes with the bytes; with quotes.
    pub etag: String,
    pub body: Bytes,
    /// `None` if compression saves nothing.
    pub gzip: Option<Bytes>,
}

impl Asset {
    pub fn new(name: &str, body: Bytes) -> Asset {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let etag = format!("\"{:016x}\"", hasher.finish());
        let gzip = compressed(&body).filter(|gzip| gzip.len() < body.len()).map(Bytes::from);
        Asset { content_type: content_type(name), etag, body, gzip }
    }
}

fn compressed(body: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

/// By the ending of the name.
fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("md") => "text/markdown; charset=utf-8",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
