//! A record as it is stored and served: the canonical JSON text of the newest version, and the data
//! that the service needs without parsing it. Fields are in schema order, nested keys are sorted.

pub use crate::value::Fields;

use crate::schema::{Collection, Kind};
use crate::time::Timestamp;
use serde_json::Value;

/// A record as a store returns it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub id: String,
    /// Row number: the commit sequence of its creation. Orders records that were created alike.
    pub number: i64,
    /// Commit sequence of its last change: the version in the ETag.
    pub version: i64,
    pub updated: Timestamp,
    /// Public fields, canonical JSON text, served by copy.
    pub body: String,
    /// Write-only and removed fields, canonical JSON object; not served in the newest version.
    pub hidden: Option<String>,
}

impl Record {
    /// All fields, public and hidden.
    pub fn fields(&self) -> Fields {
        let mut fields = parse_object(&self.body);
        if let Some(hidden) = &self.hidden {
            fields.extend(parse_object(hidden));
        }
        fields
    }
}

/// Stored text is our own and was valid when written; a damaged row reads as empty, not as a panic.
pub fn parse_object(text: &str) -> Fields {
    serde_json::from_str(text).unwrap_or_default()
}

/// The public text of a record: every public field in schema order, missing ones as null.
pub fn encode(collection: &Collection, fields: &Fields) -> String {
    let mut out = String::with_capacity(64 + fields.len() * 24);
    out.push('{');
    for name in collection.public_names() {
        if out.len() > 1 {
            out.push(',');
        }
        push_text(&mut out, name);
        out.push(':');
        match fields.get(name) {
            Some(value) => push_json(&mut out, value),
            None => out.push_str("null"),
        }
    }
    out.push('}');
    out
}

/// The hidden part of a record, if the collection declares any write-only or removed field.
pub fn encode_hidden(collection: &Collection, fields: &Fields) -> Option<String> {
    let hidden: Fields = collection
        .fields
        .iter()
        .filter(|field| field.write_only || field.removed)
        .filter_map(|field| Some((field.name.clone(), fields.get(&field.name)?.clone())))
        .collect();
    (!hidden.is_empty()).then(|| Value::Object(hidden).to_string())
}

/// Writes JSON; a `Value` always can be.
pub fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::String(text) => push_text(out, text),
        other => out.push_str(&other.to_string()),
    }
}

/// Writes a JSON string. Most texts have nothing to escape and are copied.
pub fn push_text(out: &mut String, text: &str) {
    let plain = |b: u8| b >= 0x20 && b != b'"' && b != b'\\';
    // Without an early exit the compiler checks many bytes at once.
    if text.bytes().fold(true, |all, byte| all & plain(byte)) {
        out.push('"');
        out.push_str(text);
        out.push('"');
        return;
    }
    out.push_str(&Value::String(text.to_owned()).to_string());
}

/// A scalar of a typed column.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Null,
    Integer(i64),
    Number(f64),
    Text(String),
}

/// The value of a field in its typed column.
pub fn to_scalar(kind: &Kind, value: &Value) -> Scalar {
    match (kind, value) {
        (_, Value::Null) => Scalar::Null,
        (Kind::Boolean, Value::Bool(flag)) => Scalar::Integer(i64::from(*flag)),
        (Kind::Integer, value) => value.as_i64().map_or(Scalar::Null, Scalar::Integer),
        (Kind::Number, value) => value.as_f64().map_or(Scalar::Null, Scalar::Number),
        (Kind::Timestamp, Value::String(text)) => {
            Timestamp::parse(text).map_or(Scalar::Null, |instant| Scalar::Integer(instant.0))
        }
        (_, Value::String(text)) => Scalar::Text(text.clone()),
        (_, other) => Scalar::Text(other.to_string()),
    }
}
