//! Which heads of HTTP/2 and HTTP/3 are let in, and how they look to the service: as an HTTP/1.1
//! request for the same thing would. What breaks the protocol was refused before (connection
//! fields, upper case, wrong pseudo fields), by the h2 crate or by `h3/message`; what only another
//! server in the chain might read differently is refused here. No I/O.

use http::header::{CONNECTION, COOKIE, EXPECT, HOST, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri};

use crate::fault::Fault;
use crate::fields::{declared_length, is_trimmed};
use crate::host::is_host;
use crate::limits::{Limits, METHOD_BYTES};

const NO_HOST: Fault = Fault::Malformed("A request must name exactly one host.");
const NOT_A_PATH: Fault = Fault::Malformed("The request target must be a path.");

/// A request's head, admitted.
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) declared_bytes: Option<u64>,
    pub(crate) expects_continue: bool,
    /// An extended CONNECT: the stream becomes a channel, or nothing does.
    pub(crate) upgrade: bool,
}

/// `protocol` is what an extended CONNECT asks for.
pub(crate) fn admit(parts: Parts, protocol: Option<&[u8]>, limits: &Limits) -> Result<Head, Fault> {
    let Parts { method, uri, mut headers, .. } = parts;
    check_size(&uri, &headers, limits)?;
    if method.as_str().len() > METHOD_BYTES {
        return Err(Fault::Malformed("The request method is not valid."));
    }
    let upgrade = method == Method::CONNECT;
    if upgrade && protocol != Some(b"websocket") {
        return Err(Fault::Tunnel);
    }
    if !headers.values().all(is_trimmed) {
        return Err(Fault::Malformed("A header value begins or ends with a space."));
    }
    set_host(&uri, &mut headers)?;
    join_cookies(&mut headers)?;
    let declared_bytes = declared_length(&headers)?;
    let uri = origin_form(uri, &method)?;
    if upgrade {
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    Ok(Head {
        // RFC 8441 5: what is CONNECT here is GET on HTTP/1.1, the service knows one of them.
        method: if upgrade { Method::GET } else { method },
        uri,
        expects_continue: headers
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue")),
        headers,
        declared_bytes,
        upgrade,
    })
}

/// The same sums as on HTTP/1.1: each field as its line there.
fn check_size(uri: &Uri, headers: &HeaderMap, limits: &Limits) -> Result<(), Fault> {
    if uri.path_and_query().is_some_and(|target| target.as_str().len() > limits.url_bytes) {
        return Err(Fault::UrlTooLong);
    }
    let lines = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    // Cookies in crumbs are one line there.
    let crumbs = headers.get_all(COOKIE).iter().count().saturating_sub(1);
    let count = headers.len() - crumbs;
    if count > limits.max_headers || lines.sum::<usize>() > limits.header_bytes {
        return Err(Fault::HeadTooLarge);
    }
    Ok(())
}

/// One `Host`, from the field, from `:authority`, or from both if they agree.
fn set_host(uri: &Uri, headers: &mut HeaderMap) -> Result<(), Fault> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next(), uri.authority()) {
        (Some(host), None, None) => host.clone(),
        (None, None, Some(authority)) => {
            HeaderValue::from_str(authority.as_str()).map_err(|_| NO_HOST)?
        }
        (Some(host), None, Some(authority)) => {
            if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) {
                let what = "The :authority of the request and its Host header differ.";
                return Err(Fault::Malformed(what));
            }
            host.clone()
        }
        _ => return Err(NO_HOST),
    };
    if !is_host(host.as_bytes()) {
        return Err(Fault::Malformed("The host of the request is not valid."));
    }
    headers.insert(HOST, host);
    Ok(())
}

/// Clients split cookies so that they compress better (RFC 9113 8.2.3); nobody else knows that.
fn join_cookies(headers: &mut HeaderMap) -> Result<(), Fault> {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return Ok(());
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
        .map_err(|_| Fault::Malformed("A header value is not valid."))?;
    headers.insert(COOKIE, joined);
    Ok(())
}

fn origin_form(uri: Uri, method: &Method) -> Result<Uri, Fault> {
    if !matches!(uri.scheme_str(), None | Some("http" | "https")) {
        return Err(Fault::Malformed("The :scheme of the request must be http or https."));
    }
    let target = uri.into_parts().path_and_query.ok_or(NOT_A_PATH)?;
    match target.as_str().as_bytes() {
        [b'/', ..] => Ok(Uri::from(target)),
        [b'*'] if method == Method::OPTIONS => Ok(Uri::from_static("*")),
        _ => Err(NOT_A_PATH),
    }
}
