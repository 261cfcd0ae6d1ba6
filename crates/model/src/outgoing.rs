//! Headers and secrets of requests that the service sends to other servers: webhook endpoints and
//! handlers of actions. Knows no schema.

/// How long an old secret still signs by default: one day to distribute the new one.
pub const OVERLAP_SECONDS: i64 = 86_400;
/// All own headers together, as Svix has it.
pub(crate) const MAX_HEADERS_BYTES: usize = 4096;
/// Headers that are the transport's, the signature's or the clouds'.
const FORBIDDEN_HEADERS: &[&str] = &[
    "host",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-connection",
    "proxy-authorization",
    "expect",
    "user-agent",
    "cache-control",
    "pragma",
    "cookie",
    "set-cookie",
    "date",
    "forwarded",
    "via",
];
const FORBIDDEN_PREFIXES: &[&str] = &[
    "content-",
    "restive-",
    "webhook-",
    "svix-",
    "x-hub-",
    "x-amz-",
    "x-goog-",
    "x-ms-",
    "x-forwarded-",
];
const SECRET_PREFIX: &str = "whsec_";

/// Why a header cannot be one of the endpoint's, or handler's, own.
pub(crate) fn check_header_name(name: &str) -> Result<(), String> {
    let shown: String = name.chars().take(60).collect();
    let lower = name.to_ascii_lowercase();
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!("`{shown}` is no header name"));
    }
    if FORBIDDEN_HEADERS.contains(&lower.as_str())
        || FORBIDDEN_PREFIXES.iter().any(|prefix| lower.starts_with(prefix))
    {
        return Err(format!("`{shown}` is set by the service or the network; choose another"));
    }
    Ok(())
}

pub(crate) fn check_header_value(name: &str, text: &str) -> Result<(), String> {
    if text.bytes().all(|b| (b' '..=b'~').contains(&b)) && text.trim() == text {
        return Ok(());
    }
    let shown: String = name.chars().take(60).collect();
    Err(format!("the value of `{shown}` must be printable ASCII without spaces around"))
}

/// `whsec_` and the base64 of 24 to 64 bytes, as every library takes it.
pub(crate) fn check_secret(secret: &str) -> Result<(), &'static str> {
    use base64::Engine as _;
    let encoded = secret.strip_prefix(SECRET_PREFIX).ok_or("must begin with `whsec_`")?;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .map_err(|_| "must be standard base64 after `whsec_`")?;
    match bytes.len() {
        24..=64 => Ok(()),
        _ => Err("must hold 24 to 64 bytes"),
    }
}

/// A secret of 24 random bytes: no padding, which some libraries mangle.
pub fn make_secret(random: [u8; 24]) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(random);
    format!("{SECRET_PREFIX}{encoded}")
}
