//! The format of filter values as regular expressions: the grammar of `model::query` once more.
//! Uses only constructs that mean the same in every dialect.

use model::query::MAX_VALUES;
use model::schema::Kind;
use serde_json::{Map, Value, json};

/// Text in double quotes, with `\` before a quote or another `\`; or any other text without a
/// comma.
const TEXT: &str = r#""(?:[^"\\\u0000]|\\[^\u0000])*"|[^",\u0000][^,\u0000]*|"#;
const INTEGER: &str = "[+-]?[0-9]{1,18}";
/// Well within the range of a 64-bit float, so that every match is finite.
const NUMBER: &str = r"[+-]?[0-9]{1,22}(?:\.[0-9]{1,22})?(?:[eE][+-]?[0-9]{1,2})?";
const BOOLEAN: &str = "true|false";

/// A time of day with its offset from UTC. Up to nanoseconds are accepted, milliseconds are stored.
const TIME: &str = concat!(
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?",
    r"(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])"
);

/// The component for the values of a filter. A bound has one value; an equality has one or more,
/// separated by commas, and accepts `null`.
pub fn component(kind: &Kind, bound: bool) -> &'static str {
    match (kind, bound) {
        (Kind::Integer, false) => "IntegerFilter",
        (Kind::Integer, true) => "IntegerBound",
        (Kind::Number, false) => "NumberFilter",
        (Kind::Number, true) => "NumberBound",
        (Kind::Timestamp, false) => "TimestampFilter",
        (Kind::Timestamp, true) => "TimestampBound",
        (Kind::Date, false) => "DateFilter",
        (Kind::Date, true) => "DateBound",
        (Kind::Boolean, _) => "BooleanFilter",
        (Kind::String | Kind::Object | Kind::Array(_), _) => "TextFilter",
    }
}

pub fn schemas() -> Map<String, Value> {
    let date = date();
    let instant = format!("(?:{date})(?:{TIME})?");
    let mut all = Map::new();
    for (name, what, value) in [
        ("Integer", "an integer", INTEGER),
        ("Number", "a number", NUMBER),
        ("Timestamp", "an ISO 8601 timestamp, or a date for its midnight in UTC", &instant),
        ("Date", "a date such as 2026-01-31", &date),
    ] {
        all.insert(format!("{name}Filter"), any_of(what, &format!("null|{value}")));
        all.insert(format!("{name}Bound"), one(what, value));
    }
    all.insert("BooleanFilter".into(), any_of("true or false", &format!("null|{BOOLEAN}")));
    all.insert("TextFilter".into(), any_of(TEXT_RULE, TEXT));
    all
}

const TEXT_RULE: &str = "a text; one that contains a comma, starts with a quote or is the word \
    null must be in double quotes";

fn any_of(what: &str, value: &str) -> Value {
    let more = MAX_VALUES - 1;
    json!({
        "type": "string",
        "description": format!(
            "Each value is {what}. Several, up to {MAX_VALUES}, are separated by commas and \
             mean any of them; `null` finds records without a value."
        ),
        "pattern": format!("^(?:{value})(?:,(?:{value})){{0,{more}}}$"),
    })
}

fn one(what: &str, value: &str) -> Value {
    json!({
        "type": "string",
        "description": format!("One value: {what}. The bound itself is included."),
        "pattern": format!("^(?:{value})$"),
    })
}

/// The pattern of a timestamp in a request body.
pub fn timestamp() -> String {
    format!("^(?:{}){TIME}$", date())
}

/// A date that exists. The first and last years of the calendar are excluded: with an offset they
/// would be outside the range that can be stored.
fn date() -> String {
    let year = "(?:0[1-9]|[1-8][0-9]|9[0-8])[0-9]{2}";
    let leap_year = "(?:0[1-9]|[1-8][0-9]|9[0-8])(?:0[48]|[2468][048]|[13579][26])";
    let leap_century = "(?:0[48]|[2468][048]|[13579][26])00";
    let long_month = "(?:0[13578]|1[02])-(?:29|3[01])";
    let short_month = "(?:0[469]|11)-(?:29|30)";
    let any_month = "(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])";
    format!(
        "{year}-(?:{any_month}|{short_month}|{long_month})|(?:{leap_year}|{leap_century})-02-29"
    )
}
