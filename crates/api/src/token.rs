//! Channel tokens: short-lived credentials for clients that cannot send an API key, above all
//! browsers. A token contains its own permissions and is signed; the server stores nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use model::Timestamp;
use model::caller::{Access, Caller, Grant};
use model::problem::{Code, Problem, UnknownNames, Violation};
use model::record::Fields;
use model::schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;
use subtle::ConstantTimeEq;

pub const PREFIX: &str = "ct_";
/// The parameter that names the user of a connection opened with a key.
pub const USER: &str = "user";
pub const MAX_USER_CHARS: usize = 200;
/// Maximum length of a token; a longer text is not one of ours.
const MAX_CHARS: usize = 8 << 10;
pub const MAX_ITEMS: usize = 50;
/// Maximum number of records, and of parents, that a token is limited to. 20 ids of 64 characters:
/// with the longest of its other lists, the token still fits into `MAX_CHARS`.
pub const MAX_IDS: usize = 20;
pub const MAX_ID_CHARS: usize = 64;
/// The fields of a request for a token.
const MEMBERS: [&str; 6] = ["user", "types", "publish", "resources", "parents", "expires_in"];
/// Lifetime of a token in seconds.
pub const LIFE: std::ops::RangeInclusive<i64> = 5..=86_400;
pub const USUAL_LIFE: i64 = 3_600;

/// The content of a token. Field names are short because tokens appear in URLs. A token with a
/// field that this release does not know is refused: it could be a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    #[serde(rename = "s")]
    pub scope: i64,
    #[serde(rename = "a")]
    pub account: String,
    #[serde(rename = "k")]
    pub key: String,
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Event types that it may receive; empty: all.
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Feeds it may write to, by their live names.
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<String>,
    /// Records that it is limited to, and records to whose children it is limited; both empty: all.
    #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(rename = "n", default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
    /// Scopes of the key that created it, if the key is restricted.
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<String>>,
    /// Milliseconds.
    #[serde(rename = "x")]
    pub expires: i64,
}

impl Claims {
    /// Parses the body of a request for a token. Reports all violations at once.
    pub fn read(
        schema: &Schema,
        caller: &Caller,
        fields: Fields,
        now: Timestamp,
    ) -> Result<Claims, Problem> {
        let (mut faults, mut unknown) = (Vec::new(), UnknownNames::default());
        let mut life = USUAL_LIFE;
        let scopes = caller.grants.as_ref().map(|grants| grants.iter().map(scope).collect());
        let mut claims = Claims {
            scope: caller.scope.0,
            account: caller.account.clone(),
            key: caller.key.clone(),
            user: None,
            types: Vec::new(),
            publish: Vec::new(),
            resources: Vec::new(),
            parents: Vec::new(),
            scopes,
            expires: 0,
        };
        for (name, value) in &fields {
            match (name.as_str(), value) {
                // A limit that is null would limit nothing.
                ("types" | "resources" | "parents", Value::Null) => {
                    let message = format!("`{name}` must not be null; omit it for no limit.");
                    faults.push(Violation::new(name, Code::WrongType, message));
                }
                (name, Value::Null) if MEMBERS.contains(&name) => {}
                ("user", Value::String(user)) if is_name(user) => claims.user = Some(user.clone()),
                ("user", value) => {
                    let message = bad_user("").message.clone();
                    faults.push(Violation::new(name, Code::InvalidFormat, message).value(value));
                }
                ("types", value) => match types(schema, value) {
                    Ok(types) => claims.types = types,
                    Err(message) => faults.push(Violation::new(name, Code::NotInEnum, message)),
                },
                ("publish", value) => match feeds(schema, caller, value) {
                    Ok(publish) => claims.publish = publish,
                    Err(message) => faults.push(Violation::new(name, Code::NotInEnum, message)),
                },
                ("resources" | "parents", value) => match ids(value) {
                    Ok(ids) if name == "parents" => claims.parents = ids,
                    Ok(ids) => claims.resources = ids,
                    Err(message) => faults.push(Violation::new(name, Code::InvalidFormat, message)),
                },
                ("expires_in", value) => match whole(value).filter(|s| LIFE.contains(s)) {
                    Some(seconds) => life = seconds,
                    None => {
                        let (from, to) = (LIFE.start(), LIFE.end());
                        let message = format!("`expires_in` must be {from} to {to} seconds.");
                        let fault = Violation::new(name, Code::WrongType, message);
                        faults.push(fault.value(value));
                    }
                },
                (other, _) => unknown.add(&mut faults, other, |shown| {
                    let known = MEMBERS.join(", ");
                    format!("Unknown field `{shown}`; a token has: {known}.")
                }),
            }
        }
        claims.expires = now.0 + life * 1000;
        match faults.is_empty() {
            true => Ok(claims),
            false => Err(Problem::of(Code::ValidationFailed, faults)),
        }
    }

    pub fn grants(&self) -> Option<Vec<Grant>> {
        let scopes = self.scopes.as_ref()?;
        Some(scopes.iter().filter_map(|scope| Grant::parse(scope)).collect())
    }
}

/// A whole number, with or without a decimal point.
fn whole(value: &Value) -> Option<i64> {
    let float = || value.as_f64().filter(|number| number.fract() == 0.0).map(|n| n as i64);
    value.as_i64().or_else(float)
}

fn scope(grant: &Grant) -> String {
    let access = if grant.access == Access::Read { "read" } else { "write" };
    format!("{}:{access}", grant.collection.as_deref().unwrap_or("*"))
}

fn texts(value: &Value) -> Result<Vec<&str>, String> {
    let items = value.as_array().filter(|items| items.len() <= MAX_ITEMS);
    let texts = items.and_then(|items| items.iter().map(Value::as_str).collect());
    texts.ok_or_else(|| format!("This must be an array of at most {MAX_ITEMS} strings."))
}

fn ids(value: &Value) -> Result<Vec<String>, String> {
    let is_id = |id: &&str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        (1..=MAX_ID_CHARS).contains(&id.len()) && id.bytes().all(letter)
    };
    match texts(value) {
        // An empty list would mean all records, but a client that sends an empty list means none.
        Ok(texts) if (1..=MAX_IDS).contains(&texts.len()) && texts.iter().all(is_id) => {
            Ok(texts.into_iter().map(str::to_owned).collect())
        }
        _ => Err(format!(
            "This must be an array of 1 to {MAX_IDS} ids, each with 1 to {MAX_ID_CHARS} letters, \
             digits, `_` and `-`. Omit the field for all records."
        )),
    }
}

fn types(schema: &Schema, value: &Value) -> Result<Vec<String>, String> {
    let texts = texts(value)?;
    // An empty list would mean all types, but a client that sends an empty list does not mean that.
    if texts.is_empty() {
        return Err("Name at least one type, or omit the field for all types.".to_owned());
    }
    if texts.iter().any(|text| text.trim().is_empty()) {
        return Err("A type cannot be blank.".to_owned());
    }
    live::types(schema, "types", texts.into_iter()).map_err(|problem| problem.message.clone())
}

fn feeds(schema: &Schema, caller: &Caller, value: &Value) -> Result<Vec<String>, String> {
    let mut feeds = Vec::new();
    for name in texts(value)? {
        let known = schema
            .feeds()
            .find(|(_, c)| c.feed.as_ref().is_some_and(|feed| feed.live_name == name));
        match known {
            Some((_, collection)) if caller.may(&collection.name, Access::Write) => {
                feeds.push(name.to_owned());
            }
            Some((_, collection)) => {
                return Err(format!("This key lacks the scope `{}:write`.", collection.name));
            }
            None => {
                let shown: String = name.chars().take(100).collect();
                return Err(format!("`{shown}` is not the live name of a feed."));
            }
        }
    }
    Ok(feeds)
}

/// Signs tokens and verifies them.
pub struct Tokens {
    key: [u8; 32],
}

impl Tokens {
    /// Uses a separate key, derived from the secret of the database.
    pub fn new(secret: &[u8; 32]) -> Tokens {
        Tokens { key: mac(secret, b"channel tokens") }
    }

    pub fn seal(&self, claims: &Claims) -> String {
        let payload = serde_json::to_vec(claims).unwrap_or_default();
        let mac = mac(&self.key, &payload);
        let (payload, mac) = (URL_SAFE_NO_PAD.encode(payload), URL_SAFE_NO_PAD.encode(mac));
        format!("{PREFIX}{payload}.{mac}")
    }

    /// Signs a token, unless its lists make it longer than `open` accepts.
    pub fn make(&self, claims: &Claims) -> Result<String, Problem> {
        let made = self.seal(claims);
        if made.len() <= MAX_CHARS {
            return Ok(made);
        }
        let message = format!(
            "The token would have {} characters, more than {MAX_CHARS}. Name fewer types, \
             resources and parents.",
            made.len()
        );
        let lists = [("types", &claims.types), ("resources", &claims.resources)];
        let longest = lists.into_iter().chain([("parents", &claims.parents)]);
        let longest = longest.max_by_key(|(_, list)| list.iter().map(String::len).sum::<usize>());
        let field = longest.map_or("types", |(name, _)| name);
        Err(Problem::of(
            Code::ValidationFailed,
            vec![Violation::new(field, Code::TooLong, message)],
        ))
    }

    /// The content of a token, if its signature is valid and it has not expired.
    pub fn open(&self, text: &str, now: Timestamp) -> Result<Claims, Problem> {
        if text.starts_with("sk_") {
            return Err(invalid("An API key must not be sent in a URL; use a channel token."));
        }
        let claims = self.read(text).ok_or_else(|| {
            invalid("The channel token is not valid. Get one with POST /v1/channel-tokens.")
        })?;
        if claims.expires <= now.0 {
            return Err(invalid("The channel token has expired."));
        }
        Ok(claims)
    }

    fn read(&self, text: &str) -> Option<Claims> {
        let text = text.strip_prefix(PREFIX).filter(|text| text.len() <= MAX_CHARS)?;
        let (payload, sent) = text.split_once('.')?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let sent = URL_SAFE_NO_PAD.decode(sent).ok()?;
        if !bool::from(mac(&self.key, &payload).as_slice().ct_eq(&sent)) {
            return None;
        }
        serde_json::from_slice(&payload).ok()
    }
}

fn mac(key: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(bytes);
    mac.finalize().into_bytes().into()
}

fn invalid(message: &str) -> Problem {
    Problem::new(Code::InvalidApiKey, message).param("access_token")
}

/// Whether a text is a valid user name.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_USER_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

pub fn bad_user(name: &str) -> Problem {
    let shown: String = name.chars().take(100).collect();
    let message = format!("`user` must have 1 to {MAX_USER_CHARS} printable characters.");
    Problem::new(Code::InvalidParameter, message).param(USER).value(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::parse;
    use model::schema::BOOKSHOP;
    use serde_json::json;

    fn claims() -> Claims {
        Claims {
            scope: 6,
            account: "acct_1".into(),
            key: "key_1".into(),
            user: Some("ann".into()),
            types: vec!["message".into()],
            publish: Vec::new(),
            resources: vec!["order_1".into()],
            parents: Vec::new(),
            scopes: Some(vec!["messages:read".into()]),
            expires: 5_000,
        }
    }

    #[test]
    fn a_token_returns_its_claims_until_it_expires() {
        let tokens = Tokens::new(&[7; 32]);
        let text = tokens.seal(&claims());
        assert_eq!(tokens.open(&text, Timestamp(4_999)).unwrap(), claims());
        assert!(tokens.open(&text, Timestamp(5_000)).unwrap_err().message.contains("expired"));
        assert!(!claims().grants().unwrap().is_empty());
    }

    #[test]
    fn forged_tokens_and_tokens_of_other_databases_are_refused() {
        let tokens = Tokens::new(&[7; 32]);
        let text = tokens.seal(&claims());
        let foreign = Tokens::new(&[8; 32]).seal(&claims());
        let forged = text.replacen("ct_e", "ct_f", 1);
        let cut = &text[..text.len() - 2];
        for bad in [foreign.as_str(), &forged, cut, "ct_", "ct_.", "ct_a.b", "", "sk_test_1"] {
            let problem = tokens.open(bad, Timestamp(0)).unwrap_err();
            assert_eq!(problem.code, Code::InvalidApiKey, "{bad}");
        }
    }

    /// The claims of a body, or the names of its invalid fields.
    fn read(scopes: Option<&[&str]>, body: Value) -> Result<Claims, Vec<String>> {
        let schema = parse::parse(BOOKSHOP).unwrap();
        let grants = scopes.map(|all| all.iter().filter_map(|one| Grant::parse(one)).collect());
        let caller = Caller {
            scope: model::Scope(6),
            account: "acct_1".into(),
            key: "key_1".into(),
            grants,
            admin: None,
            rate_limit: None,
        };
        let fields = body.as_object().unwrap().clone();
        Claims::read(&schema, &caller, fields, Timestamp(1_000)).map_err(|problem| {
            problem.violations.iter().map(|violation| violation.field.clone()).collect()
        })
    }

    #[test]
    fn a_token_has_the_requested_permissions() {
        let made = read(None, json!({})).unwrap();
        assert_eq!((made.user, made.types, made.publish), (None, vec![], vec![]));
        assert_eq!(made.expires, 1_000 + USUAL_LIFE * 1_000);
        let body = json!({
            "user": "ann", "types": ["order.*", "typing"], "publish": ["message"],
            "expires_in": 60.0,
        });
        let made = read(Some(&["messages:write"]), body).unwrap();
        assert_eq!((made.user.as_deref(), made.expires), (Some("ann"), 61_000));
        assert_eq!((made.types.len(), made.publish.len()), (2, 1));
        assert_eq!(made.scopes.unwrap(), ["messages:write"]);
    }

    #[test]
    fn every_invalid_field_of_a_token_request_is_reported() {
        let body = json!({
            "user": "", "types": ["orders.*"], "publish": ["book"], "expires_in": 4, "x": 1,
        });
        let mut faults = read(None, body).unwrap_err();
        faults.sort();
        assert_eq!(faults, ["expires_in", "publish", "types", "user", "x"]);
        // A blank type must not become an empty list, which means all types.
        for types in [json!([" "]), json!([""]), json!("order.*"), json!([1])] {
            assert_eq!(read(None, json!({ "types": types })).unwrap_err(), ["types"]);
        }
        for seconds in [json!(60.5), json!("60"), json!(86_401), json!(-5)] {
            assert_eq!(read(None, json!({ "expires_in": seconds })).unwrap_err(), ["expires_in"]);
        }
        let publish = json!({ "publish": ["message"] });
        assert_eq!(read(Some(&["messages:read"]), publish).unwrap_err(), ["publish"]);
    }

    #[test]
    fn a_user_name_is_printable_and_bounded() {
        for good in ["ann", "Ann Müller", "🦀", &"x".repeat(MAX_USER_CHARS)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a\nb", "\u{7f}", "\u{85}", &"ü".repeat(MAX_USER_CHARS + 1)] {
            assert!(!is_name(bad), "{bad}");
        }
        let problem = bad_user(&"x".repeat(5000));
        assert_eq!((problem.code, problem.param.as_deref()), (Code::InvalidParameter, Some(USER)));
        assert_eq!(problem.value.as_ref().unwrap().as_str().unwrap().len(), 100);
    }
}
