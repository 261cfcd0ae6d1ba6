//! The head of a request: finds its end line by line as bytes arrive, then reads it once. The
//! grammar is httparse's; what httparse lets pass and we do not (bare line feeds, more than a few
//! empty lines, fragments) is refused here, the meaning of the headers in `admission`.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use memchr::{memchr, memchr_iter};

use super::admission::{Admission, Framing};
use crate::fault::Fault;
use crate::host::is_host;
use crate::limits::{Limits, METHOD_BYTES};

/// Method, two spaces, version: what a request line has beside its target.
const LINE_SLACK_BYTES: usize = 64;
/// Empty lines before a request: RFC 9112 2.2 asks to take at least one. More is a flood.
const MAX_EMPTY_LINES: usize = 4;
/// So many headers are held on the stack; more cost an allocation for each request.
const STACK_HEADERS: usize = 100;

const BARE_LF: Fault = Fault::Malformed("Lines must end with CR LF, not with a bare LF.");
const NOT_A_HOST: Fault =
    Fault::Malformed("The host in the request target is not a valid host and port.");
const NOT_A_PATH: Fault = Fault::Malformed("The request target must be a path.");

/// A request's head, admitted.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    /// A browser loads a page.
    pub(crate) navigates: bool,
}

/// How far the search for the end of a head has come. Positions count from the first byte given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    /// Where the head begins, behind empty lines.
    pub(crate) start: usize,
    empty_lines: usize,
    /// Where the line being read begins.
    line: usize,
    lines: usize,
    /// Where the headers begin; 0 until the request line is complete.
    headers: usize,
    seen: usize,
    /// The bytes there were at the last look at a half head.
    looked: usize,
}

impl Scan {
    /// The end of the head in `data`, which begins with the bytes given before.
    pub(crate) fn find(&mut self, data: &[u8], limits: &Limits) -> Result<Option<usize>, Fault> {
        let base = self.seen;
        for offset in memchr_iter(b'\n', &data[base..]) {
            let end = base + offset;
            if end == 0 || data[end - 1] != b'\r' {
                return Err(BARE_LF);
            }
            let empty = end - self.line == 1;
            self.line = end + 1;
            if empty && self.lines > 0 {
                self.check(self.headers_end(), limits)?;
                return Ok(Some(self.line));
            }
            if empty {
                self.empty_lines += 1;
                self.start = self.line;
                if self.empty_lines > MAX_EMPTY_LINES {
                    return Err(Fault::Malformed("Too many empty lines before a request."));
                }
                continue;
            }
            self.lines += 1;
            if self.lines == 1 {
                self.headers = self.line;
                self.check_line(self.line - self.start, limits)?;
            }
            if self.lines - 1 > limits.max_headers {
                return Err(Fault::HeadTooLarge);
            }
        }
        self.seen = data.len();
        self.check(data.len(), limits)?;
        self.look(data)?;
        Ok(None)
    }

    /// Whether bytes of a head are there, and not only empty lines.
    pub(crate) fn begun(&self) -> bool {
        self.seen > self.start
    }

    fn headers_end(&self) -> usize {
        // Without the empty line.
        self.line - 2
    }

    fn check_line(&self, line_bytes: usize, limits: &Limits) -> Result<(), Fault> {
        let too_long = line_bytes > limits.url_bytes + LINE_SLACK_BYTES;
        if too_long { Err(Fault::UrlTooLong) } else { Ok(()) }
    }

    fn check(&self, end: usize, limits: &Limits) -> Result<(), Fault> {
        if self.headers == 0 {
            return self.check_line(end - self.start, limits);
        }
        let too_large = end - self.headers > limits.header_bytes;
        if too_large { Err(Fault::HeadTooLarge) } else { Ok(()) }
    }

    /// Reads half a head, to tell at once what can become no request. Only when twice the bytes
    /// have arrived since the last look: a head sent byte by byte must not be read each time.
    fn look(&mut self, data: &[u8]) -> Result<(), Fault> {
        let half = &data[self.start..];
        if half.is_empty() || half.len() < self.looked * 2 {
            return Ok(());
        }
        self.looked = half.len();
        let mut headers = [const { MaybeUninit::uninit() }; STACK_HEADERS];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(half, &mut headers) {
            Ok(_) | Err(httparse::Error::TooManyHeaders) => Ok(()),
            // Which version it is shows at the end of the line.
            Err(httparse::Error::Version)
                if memchr(b'\n', half).is_none() || minor_at(half).is_some() =>
            {
                Ok(())
            }
            Err(error) => Err(blame(error, half)),
        }
    }
}

/// Reads a complete head; target and values are slices of its bytes. `headers` is an empty map
/// whose memory is used again.
pub(crate) fn read(bytes: &Bytes, limits: &Limits, headers: HeaderMap) -> Result<Head, Fault> {
    if limits.max_headers <= STACK_HEADERS {
        let mut room = [const { MaybeUninit::uninit() }; STACK_HEADERS];
        read_into(bytes, limits, headers, &mut room)
    } else {
        let mut room = vec![MaybeUninit::uninit(); limits.max_headers];
        read_into(bytes, limits, headers, &mut room)
    }
}

fn read_into<'b>(
    bytes: &'b Bytes,
    limits: &Limits,
    mut headers: HeaderMap,
    room: &mut [MaybeUninit<httparse::Header<'b>>],
) -> Result<Head, Fault> {
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, room) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(Fault::Malformed("The request is not valid HTTP/1.1.")),
        Err(error) => {
            let later = (error == httparse::Error::Version).then(|| minor_at(bytes)).flatten();
            let Some(place) = later else { return Err(blame(error, bytes)) };
            // RFC 9110 2.5: a later minor version is served as the latest that is known.
            let mut known = bytes.to_vec();
            known[place] = b'1';
            return read(&known.into(), limits, headers);
        }
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(Fault::Malformed("The request line is not valid."));
    };
    if target.len() > limits.url_bytes {
        return Err(Fault::UrlTooLong);
    }
    if method == "CONNECT" {
        return Err(Fault::Tunnel);
    }
    let method = match Method::from_bytes(method.as_bytes()) {
        Ok(known) if method.len() <= METHOD_BYTES => known,
        _ => return Err(Fault::Malformed("The request method is not valid.")),
    };
    let mut admission = Admission::default();
    for header in request.headers.iter() {
        admission.header(header.name, header.value)?;
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(header.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Fault::Malformed("A header line is not valid."));
        };
        headers.append(name, value);
    }
    let old_version = minor == 0;
    let framing = admission.framing(old_version)?;
    Ok(Head {
        uri: origin_form(bytes.slice_ref(target.as_bytes()), &method, &mut headers)?,
        method,
        version: if old_version { Version::HTTP_10 } else { Version::HTTP_11 },
        headers,
        framing,
        keep_alive: !admission.close && (!old_version || admission.keep_alive),
        expects_continue: admission.expects_continue && !old_version,
        navigates: admission.navigates,
    })
}

/// The request target as path and query. The authority of an absolute form replaces what `Host`
/// says (RFC 9112 3.2.2).
fn origin_form(target: Bytes, method: &Method, headers: &mut HeaderMap) -> Result<Uri, Fault> {
    if memchr(b'#', &target).is_some() {
        return Err(Fault::Malformed("The request target must not carry a fragment."));
    }
    if target[..] == b"*"[..] && method == Method::OPTIONS {
        return Ok(Uri::from_static("*"));
    }
    if target.starts_with(b"/") {
        return PathAndQuery::from_maybe_shared(target).map(Uri::from).map_err(|_| NOT_A_PATH);
    }
    let uri = Uri::from_maybe_shared(target).map_err(|_| NOT_A_PATH)?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(NOT_A_PATH);
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(authority).ok().filter(|host| is_host(host.as_bytes()));
    headers.insert(HOST, host.ok_or(NOT_A_HOST)?);
    uri.into_parts().path_and_query.map(Uri::from).ok_or(NOT_A_PATH)
}

/// What to say of a head that the grammar refuses. Off the usual way, so it may look again.
fn blame(error: httparse::Error, head: &[u8]) -> Fault {
    let line = memchr(b'\n', head).map_or(head, |end| &head[..end]);
    Fault::Malformed(match error {
        httparse::Error::TooManyHeaders => return Fault::HeadTooLarge,
        httparse::Error::Version if of_other_version(line) => return Fault::UnknownVersion,
        httparse::Error::Version | httparse::Error::Token => "The request line is not valid.",
        httparse::Error::HeaderName if folded(head) => {
            "A header must not continue on a further line."
        }
        httparse::Error::HeaderName => "A header name is not valid.",
        httparse::Error::HeaderValue => "A header value is not valid.",
        _ => "The request is not valid HTTP/1.1.",
    })
}

fn folded(head: &[u8]) -> bool {
    memchr_iter(b'\n', head).any(|end| matches!(head.get(end + 1), Some(b' ' | b'\t')))
}

/// A request line that is well formed but for the number of its version.
fn of_other_version(line: &[u8]) -> bool {
    let mut words = line.trim_ascii_end().split(|byte| *byte == b' ').skip(2);
    let version = words.next().and_then(|version| version.strip_prefix(b"HTTP/"));
    let is_number = |version: &[u8]| {
        matches!(version, [major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit())
            // As HTTP/2 and HTTP/3 are called, though never in a request line.
            || matches!(version, [major] if major.is_ascii_digit())
    };
    version.is_some_and(is_number) && words.next().is_none()
}

/// Where the digit stands of a minor version of HTTP/1 that is later than 1.1.
fn minor_at(head: &[u8]) -> Option<usize> {
    let line = &head[..memchr(b'\n', head)?];
    let (&digit, line) = line.strip_suffix(b"\r")?.split_last()?;
    (matches!(digit, b'2'..=b'9') && line.ends_with(b" HTTP/1.")).then_some(line.len())
}
