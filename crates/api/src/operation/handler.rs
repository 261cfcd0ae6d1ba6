//! The protocol with action handlers: how a call is signed, and which answers are taken. It is
//! documented in docs/handlers.md; an answer that is not documented there is refused. Knows neither
//! connections nor records.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use model::problem::{Code, Declared, Problem};
use model::record::Fields;
use model::schema::Handler;
use model::value;
use model::write::Callout;
use serde_json::Value;
use sha2::Sha256;
use wire::outgoing::Reply;

/// Members of every error body, which `extra` may not replace.
const MEMBERS: &[&str] =
    &["type", "code", "message", "param", "value", "doc_url", "request_id", "errors"];

/// Adds what the file declares for the handler, and the headers of Standard Webhooks.
pub(super) fn add_headers(
    headers: &mut HeaderMap,
    handler: &Handler,
    (id, seconds): (&str, i64),
    body: &[u8],
) -> Result<(), Problem> {
    let unset = || failed(502, "is not configured: an environment variable has no value");
    for (name, setting) in &handler.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unset())?;
        let mut value =
            HeaderValue::from_str(setting.value().ok_or_else(unset)?).map_err(|_| unset())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let Some(secret) = &handler.secret else { return Ok(()) };
    // Signed or not sent: a handler that expects a signature must not get used to none.
    let signature = secret.value().and_then(|secret| sign(secret, id, seconds, body));
    let signature = signature.ok_or_else(unset)?;
    for (name, value) in [
        ("webhook-id", id),
        ("webhook-timestamp", &seconds.to_string()),
        ("webhook-signature", &signature),
    ] {
        let value = HeaderValue::from_str(value).map_err(|_| unset())?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(())
}

/// `v1,<base64>` of the id, the time and the body.
fn sign(secret: &str, id: &str, seconds: i64, body: &[u8]) -> Option<String> {
    let key = STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    for part in [id.as_bytes(), b".", seconds.to_string().as_bytes(), b".", body] {
        mac.update(part);
    }
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

/// `{"change": {…}}`, `{}` or no body with 2xx applies; `{"error": {…}}` with 2xx or 4xx refuses.
/// No body counts only where the response proves that there is none.
pub(super) fn understand(reply: &Reply) -> Result<Callout, Problem> {
    let (status, body) = (reply.status, &reply.body[..]);
    if !(status.is_success() || status.is_client_error()) {
        return Err(failed(502, &format!("answered {}", status.as_u16())));
    }
    // 205 asks the client to reset its form, and 206 holds a part of a body: neither is a yes.
    if matches!(status, StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT) {
        return Err(invalid(&format!("{} is not a documented status", status.as_u16())));
    }
    let declares_body = |value: &HeaderValue| value.as_bytes().trim_ascii() != b"0";
    // RFC 9112 6.1: 204 has no Transfer-Encoding. What follows it may be a refusal.
    if status == StatusCode::NO_CONTENT
        && (reply.headers.get_all(CONTENT_LENGTH).iter().any(declares_body)
            || reply.headers.contains_key(TRANSFER_ENCODING))
    {
        return Err(invalid("204 with a body"));
    }
    check_format(&reply.headers, body)?;
    let mut answer = if body.is_empty() && status.is_success() {
        if status != StatusCode::NO_CONTENT && !is_framed(&reply.headers) {
            let what = "an empty body without `Content-Length: 0` may have been cut short";
            return Err(invalid(&format!("{} with {what}", status.as_u16())));
        }
        Fields::new()
    } else {
        value::parse_object(body)
            .map_err(|_| invalid(&format!("{} with no JSON object", status.as_u16())))?
    };
    let (change, error) = (answer.remove("change"), answer.remove("error"));
    if let Some(name) = answer.keys().next() {
        return Err(invalid(&format!("{} is no member of an answer", shown(name))));
    }
    match (change, error) {
        (None, Some(Value::Object(error))) => refusal(status, error).map(Callout::Refuse),
        (_, _) if status.is_client_error() => {
            Err(invalid(&format!("{} without an object `error` alone", status.as_u16())))
        }
        (Some(Value::Object(change)), None) => Ok(Callout::Change(change)),
        (None, None) => Ok(Callout::Change(Fields::new())),
        (Some(_), Some(_)) => Err(invalid("it has both `change` and `error`")),
        (Some(_), None) => Err(invalid("`change` is no object")),
        (None, Some(_)) => Err(invalid("`error` is no object")),
    }
}

/// A body that says that it is something else than JSON is not read as JSON. One that says nothing
/// is: short handlers seldom set the header.
fn check_format(headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    if body.is_empty() {
        return Ok(());
    }
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    for coding in headers.get_all(CONTENT_ENCODING).iter().map(text) {
        if !coding.eq_ignore_ascii_case("identity") {
            let what = format!("a body with Content-Encoding {}; send it as it is", shown(&coding));
            return Err(invalid(&what));
        }
    }
    for kind in headers.get_all(CONTENT_TYPE).iter().map(text) {
        let name = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_json = name == "application/json"
            || name.starts_with("application/") && name.ends_with("+json");
        if !is_json {
            let what = format!("a body with Content-Type {}, not application/json", shown(&kind));
            return Err(invalid(&what));
        }
    }
    Ok(())
}

/// Whether the response says where its body ends. The client has checked that the body ended there;
/// without it, the end of the connection ends the body, and a crash looks the same.
fn is_framed(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        // Another coding before it would have to be undone, which the client does not do.
        (Some(coding), None) => coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
        (None, _) => headers.contains_key(CONTENT_LENGTH),
    }
}

fn refusal(status: StatusCode, mut error: Fields) -> Result<Problem, Problem> {
    let mut text = |name: &str, snake: bool| match error.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) if !snake || is_snake(&text) => Ok(Some(text)),
        Some(_) if snake => Err(invalid(&format!("`error.{name}` is no text in snake_case"))),
        Some(_) => Err(invalid(&format!("`error.{name}` is no text"))),
    };
    let message = text("message", false)?.ok_or_else(|| invalid("`error.message` is missing"))?;
    let (kind, code) = (text("type", true)?, text("code", true)?);
    let param = text("param", false)?;
    let usual = if status.is_client_error() { status.as_u16() } else { 422 };
    let status = match error.remove("status") {
        None => usual,
        Some(stated) => {
            let stated = stated.as_u64().filter(|stated| (400..500).contains(stated));
            let stated = stated.and_then(|stated| u16::try_from(stated).ok());
            stated.ok_or_else(|| invalid("`error.status` is not from 400 to 499"))?
        }
    };
    let extra = match error.remove("extra") {
        None => Fields::new(),
        Some(Value::Object(extra)) => extra,
        Some(_) => return Err(invalid("`error.extra` is no object")),
    };
    if let Some(name) = extra.keys().find(|name| MEMBERS.contains(&name.as_str())) {
        return Err(invalid(&format!("`error.extra.{name}` is a member of every error")));
    }
    if let Some(name) = error.keys().next() {
        return Err(invalid(&format!("{} is no member of `error`", shown(name))));
    }
    let mut problem = Problem::new(Code::GuardFailed, message);
    (problem.param, problem.extra) = (param, extra);
    problem.declared = Some(Declared {
        status,
        kind: kind.unwrap_or_else(|| "invalid_request_error".to_owned()),
        code: code.unwrap_or_else(|| "action_refused".to_owned()),
    });
    Ok(problem)
}

fn is_snake(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=100).contains(&text.len()) && text.bytes().all(plain)
}

fn shown(name: &str) -> String {
    let short: String = name.chars().take(60).collect();
    format!("`{short}`")
}

/// An answer that is none of the documented ones.
fn invalid(what: &str) -> Problem {
    let message = format!(
        "The action's handler gave an answer that cannot be used: {what}. Nothing was changed."
    );
    Problem::new(Code::HandlerInvalid, message.clone()).cause(message)
}

pub(super) fn failed(status: u16, what: &str) -> Problem {
    let message = format!("The action's handler {what}; nothing was changed.");
    let mut problem = Problem::new(Code::ActionHandlerFailed, message);
    let code = Code::ActionHandlerFailed.name().to_owned();
    problem.declared = Some(Declared { status, kind: "api_error".to_owned(), code });
    problem
}
