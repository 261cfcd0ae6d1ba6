//! Files of a folder. A path never leaves the folder, hidden files are not served, and a folder is
//! served by its `index.html`.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LAST_MODIFIED, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::task::spawn_blocking;
use wire::{Payload, Response, Sender};

use crate::error::Failure;

/// Larger files are sent in pieces.
const WHOLE_BYTES: u64 = 256 * 1024;
const PIECE_BYTES: usize = 64 * 1024;

/// A file that was found.
struct Found {
    file: File,
    metadata: Metadata,
    kind: &'static str,
}

/// Where a request leads.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The path of the request.
    pub(crate) path: &'a str,
    /// The part of it below the folder.
    pub(crate) below: &'a str,
    pub(crate) query: Option<&'a str>,
}

/// Answers a GET or HEAD request with a file.
pub(crate) async fn respond(
    folder: &Path,
    method: &Method,
    place: Place<'_>,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let message = "Files can only be read: use GET or HEAD.";
        let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        let mut response = failure.response("");
        response.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let relative = relative(place.below).ok_or_else(not_found)?;
    // `/docs` of the route `/docs/*` is the folder itself, without its slash.
    let (folder, is_folder) = (folder.to_owned(), place.path.ends_with('/'));
    let found = spawn_blocking(move || find(&folder, &relative, is_folder)).await;
    match found {
        Ok(Ok(Some(found))) => Ok(send(found, headers).await),
        Ok(Ok(None)) => Ok(redirect(place)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Err(not_found()),
        Ok(Err(error)) => {
            tracing::warn!(%error, path = place.path, "a file cannot be read");
            Err(not_found())
        }
        Err(_) => Err(Failure::wire(wire::Fault::Internal)),
    }
}

fn not_found() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "route_not_found", "There is no file at this path.")
}

/// The path below the folder; none if it could leave it or names a hidden file.
fn relative(path: &str) -> Option<PathBuf> {
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    if decoded.contains(['\0', '\\']) {
        return None;
    }
    let relative = PathBuf::from(decoded.trim_start_matches('/'));
    let is_plain = |component: Component<'_>| match component {
        Component::Normal(name) => !name.as_encoded_bytes().starts_with(b"."),
        _ => false,
    };
    relative.components().all(is_plain).then_some(relative)
}

/// The file, or none for a folder whose path does not end with `/`.
fn find(folder: &Path, relative: &Path, is_folder: bool) -> io::Result<Option<Found>> {
    let root = folder.canonicalize()?;
    let mut path = root.join(relative).canonicalize()?;
    if path.is_dir() {
        if !is_folder {
            return Ok(None);
        }
        path = path.join("index.html").canonicalize()?;
    } else if is_folder {
        return Err(io::ErrorKind::NotFound.into());
    }
    // A symbolic link may lead out of the folder.
    if !path.starts_with(&root) {
        return Err(io::ErrorKind::NotFound.into());
    }
    // Before it is opened: opening a named pipe waits for its writer.
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let file = File::open(&path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok(Some(Found { file, metadata, kind: content_type(&path) })),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// To the same path with a slash: relative links of the page need it.
fn redirect(place: Place<'_>) -> Response {
    let mut response = Response::new(StatusCode::PERMANENT_REDIRECT, Bytes::new());
    // A path that begins with two slashes would be another host.
    let mut target = format!("/{}/", place.path.trim_start_matches('/'));
    if let Some(query) = place.query {
        target.push('?');
        target.push_str(query);
    }
    if let Ok(target) = HeaderValue::from_str(&target) {
        response.headers.insert(LOCATION, target);
    }
    response
}

async fn send(found: Found, asked: &HeaderMap) -> Response {
    let Found { file, metadata, kind } = found;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    let age = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let tag = format!("\"{:x}-{:x}\"", age.as_nanos(), metadata.len());
    let known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|text| text.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.trim_start_matches("W/") == tag
    });
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(modified)) {
        headers.insert(LAST_MODIFIED, date);
    }
    let (status, body) = match is_known {
        true => (StatusCode::NOT_MODIFIED, Payload::default()),
        false => (StatusCode::OK, content(file, metadata.len()).await),
    };
    Response { status, headers, body, ..Response::default() }
}

async fn content(file: File, length: u64) -> Payload {
    if length <= WHOLE_BYTES {
        let read = spawn_blocking(move || {
            let mut bytes = Vec::with_capacity(length as usize);
            file.take(length).read_to_end(&mut bytes).map(|_| bytes)
        });
        if let Ok(Ok(bytes)) = read.await
            && bytes.len() as u64 == length
        {
            return bytes.into();
        }
        // The file changed or cannot be read: the client must not take a part for the whole.
        let (sender, payload) = Payload::channel(Some(length), 1);
        drop(sender);
        return payload;
    }
    let (sender, payload) = Payload::channel(Some(length), 2);
    tokio::task::spawn_local(pieces(file, length, sender));
    payload
}

/// Reads ahead by at most two pieces. Ends without `finish` if the file is shorter than it was.
async fn pieces(mut file: File, mut left: u64, sender: Sender) {
    while left > 0 {
        let want = PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES));
        let read = spawn_blocking(move || {
            let mut piece = vec![0; want];
            let count = file.read(&mut piece)?;
            piece.truncate(count);
            io::Result::Ok((file, piece))
        });
        let Ok(Ok((same, piece))) = read.await else { return };
        if piece.is_empty() {
            return;
        }
        file = same;
        left -= piece.len() as u64;
        if sender.send(piece).await.is_err() {
            return;
        }
    }
    let _ = sender.finish(None).await;
}

fn content_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "txt" | "md" => "text/plain; charset=utf-8",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "webmanifest" => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_leaves_the_folder_or_names_a_hidden_file() {
        for (path, expected) in [
            ("/", Some("")),
            ("/a/b.html", Some("a/b.html")),
            ("/a%20b", Some("a b")),
            ("/../etc/passwd", None),
            ("/a/%2e%2e/b", None),
            ("/.env", None),
            ("/.git/config", None),
            ("/a%00", None),
            ("/a\\..\\b", None),
            ("//etc/passwd", Some("etc/passwd")),
            ("/%2fetc/passwd", Some("etc/passwd")),
        ] {
            assert_eq!(relative(path), expected.map(PathBuf::from), "{path}");
        }
    }
}
