//! Negotiates compression: offers of `permessage-deflate` (RFC 7692 7.1) in the grammar of
//! `Sec-WebSocket-Extensions` (RFC 6455 9.1). Accepts the first offer that the server can meet, and
//! skips offers with unknown or wrong parameters.

use http::header::SEC_WEBSOCKET_EXTENSIONS;
use http::{HeaderMap, HeaderValue};

use super::Deflate;

/// The header does not follow the grammar. Unlike an offer that the server cannot meet, this ends
/// the handshake (RFC 6455 9.1).
#[derive(Debug)]
pub(super) struct Malformed;

/// The agreed compression, and the header of the response.
pub(super) fn agree(
    headers: &HeaderMap,
    compress: bool,
) -> Result<Option<(Deflate, HeaderValue)>, Malformed> {
    let mut agreed = None;
    for value in headers.get_all(SEC_WEBSOCKET_EXTENSIONS) {
        let mut rest = Rest(value.to_str().map_err(|_| Malformed)?);
        while let Some(offer) = rest.offer()? {
            if agreed.is_none() && compress && offer.name == "permessage-deflate" {
                agreed = meet(&offer);
            }
        }
    }
    Ok(agreed.map(|offered| (offered.terms(), offered.answer())))
}

struct Offer<'h> {
    name: &'h str,
    parameters: Vec<(&'h str, Option<&'h str>)>,
}

/// An offer that the server can meet. None: the offer does not name the parameter.
#[derive(Default)]
struct Offered {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// A client may name it without a number: then the server may set one.
    client_max_window_bits: Option<Option<u8>>,
}

fn meet(offer: &Offer<'_>) -> Option<Offered> {
    let mut offered = Offered::default();
    for (name, value) in &offer.parameters {
        let is_new = match (*name, value) {
            ("server_no_context_takeover", None) => {
                !std::mem::replace(&mut offered.server_no_context_takeover, true)
            }
            ("client_no_context_takeover", None) => {
                !std::mem::replace(&mut offered.client_no_context_takeover, true)
            }
            // Without a header, zlib cannot use a window of 8 bits.
            ("server_max_window_bits", Some(value)) => {
                let bits = window_bits(value).filter(|bits| *bits > 8)?;
                offered.server_max_window_bits.replace(bits).is_none()
            }
            ("client_max_window_bits", value) => {
                let bits = match value {
                    Some(value) => Some(window_bits(value)?),
                    None => None,
                };
                offered.client_max_window_bits.replace(bits).is_none()
            }
            _ => return None,
        };
        if !is_new {
            return None;
        }
    }
    Some(offered)
}

/// A number from 8 to 15 without a leading zero.
fn window_bits(value: &str) -> Option<u8> {
    match value {
        "8" => Some(8),
        "9" => Some(9),
        _ => value.parse().ok().filter(|bits| value.len() == 2 && matches!(bits, 10..=15)),
    }
}

impl Offered {
    fn terms(&self) -> Deflate {
        Deflate {
            server_window_bits: self.server_max_window_bits.unwrap_or(15),
            client_window_bits: self.client_max_window_bits.flatten().unwrap_or(15),
        }
    }

    /// Repeats the parameters that were offered with a number. Always says that each message starts
    /// with an empty context, which a server may say even if it was not offered.
    fn answer(&self) -> HeaderValue {
        let mut answer = String::from(
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        );
        let numbers = [
            ("server_max_window_bits", self.server_max_window_bits),
            ("client_max_window_bits", self.client_max_window_bits.flatten()),
        ];
        for (name, bits) in numbers {
            if let Some(bits) = bits {
                answer.push_str(&format!("; {name}={bits}"));
            }
        }
        HeaderValue::try_from(answer).expect("letters, digits and punctuation")
    }
}

/// The unread rest of one header.
struct Rest<'h>(&'h str);

impl<'h> Rest<'h> {
    fn offer(&mut self) -> Result<Option<Offer<'h>>, Malformed> {
        // A list may have empty elements (RFC 9110 5.6.1).
        while self.skip(',') {}
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut offer = Offer { name: self.token()?, parameters: Vec::new() };
        while self.skip(';') {
            let name = self.token()?;
            let value = if self.skip('=') { Some(self.value()?) } else { None };
            offer.parameters.push((name, value));
        }
        if self.0.is_empty() || self.0.starts_with(',') { Ok(Some(offer)) } else { Err(Malformed) }
    }

    /// Takes this character, and the blanks around it.
    fn skip(&mut self, what: char) -> bool {
        self.0 = self.0.trim_start_matches([' ', '\t']);
        let Some(rest) = self.0.strip_prefix(what) else { return false };
        self.0 = rest.trim_start_matches([' ', '\t']);
        true
    }

    fn token(&mut self) -> Result<&'h str, Malformed> {
        let end = self.0.bytes().position(|byte| !is_token(byte)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        if token.is_empty() { Err(Malformed) } else { Ok(token) }
    }

    /// A token, plain or in quotes. No character of a token needs a backslash.
    fn value(&mut self) -> Result<&'h str, Malformed> {
        let Some(rest) = self.0.strip_prefix('"') else { return self.token() };
        self.0 = rest;
        let token = self.token()?;
        self.0 = self.0.strip_prefix('"').ok_or(Malformed)?;
        Ok(token)
    }
}

/// RFC 9110 5.6.2.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
