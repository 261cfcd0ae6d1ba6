//! Reads JSON strictly: a text that two readers could understand differently is refused. Duplicate
//! keys, excessive nesting and trailing text are errors that name their place.

use crate::problem::{Code, Problem};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// The fields of a record or a body, parsed.
pub type Fields = Map<String, Value>;

/// Deeper JSON than any sensible record; keeps every recursion over a value short.
pub const MAX_DEPTH: usize = 32;

// Marks the visitor's own errors, to distinguish them from the parser's.
const DUPLICATE: &str = "duplicate key ";
const DEEP: &str = "nested deeper than ";

/// Reads a JSON object.
pub fn parse_object(bytes: &[u8]) -> Result<Fields, Problem> {
    match parse(bytes)? {
        Value::Object(fields) => Ok(fields),
        other => {
            let message = format!("The body must be a JSON object, not {}.", kind_of(&other));
            Err(Problem::new(Code::BodyNotObject, message))
        }
    }
}

pub fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let message = format!("The body is not UTF-8: byte {} is invalid.", error.valid_up_to());
        Problem::new(Code::MalformedJson, message)
    })?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { depth: 0 }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(explain)?;
    Ok(value)
}

/// How a JSON type is called in messages.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The one form of a number: whole ones without a point, as far as integers go. None for a value
/// that is not finite.
pub fn plain_number(float: f64) -> Option<Number> {
    // Both are powers of two, which floats have.
    const SIGNED: f64 = (1u64 << 63) as f64;
    const UNSIGNED: f64 = SIGNED * 2.0;
    match float.fract() == 0.0 {
        true if (-SIGNED..SIGNED).contains(&float) => Some(Number::from(float as i64)),
        true if (SIGNED..UNSIGNED).contains(&float) => Some(Number::from(float as u64)),
        _ => Number::from_f64(float),
    }
}

fn explain(error: serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    // serde_json appends the place; report it once, in one form.
    let what = text.split(" at line ").next().unwrap_or(&text);
    let code = if what.starts_with(DUPLICATE) {
        Code::DuplicateKey
    } else if what.starts_with(DEEP) || what.starts_with("recursion limit") {
        Code::TooDeep
    } else {
        Code::MalformedJson
    };
    Problem::new(
        code,
        format!("The body is not acceptable JSON: {what} (line {line}, column {column})."),
    )
    .extra("line", line)
    .extra("column", column)
}

/// Builds a `Value` while it watches depth and keys.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Strict, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format!("{DEEP}{MAX_DEPTH} levels")));
        }
        Ok(Strict { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(deeper)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(deeper)?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("{DUPLICATE}`{key}`")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// RFC 7396: null removes, objects merge, everything else replaces.
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(&key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ambiguous_or_hostile_json_is_refused_with_its_place() {
        let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
        let very_deep = "[".repeat(100_000);
        for (input, code) in [
            (r#"{"a":1,"a":2}"#, Code::DuplicateKey),
            (r#"{"a":{"b":1,"b":1}}"#, Code::DuplicateKey),
            (deep.as_str(), Code::TooDeep),
            (very_deep.as_str(), Code::TooDeep),
            (r#"{"a":"#, Code::MalformedJson),
            (r#"{"a":NaN}"#, Code::MalformedJson),
            (r#"{"a":1e999}"#, Code::MalformedJson),
            (r#"{"a":"\ud800"}"#, Code::MalformedJson),
            (r#"{"a":1} x"#, Code::MalformedJson),
            ("", Code::MalformedJson),
            ("[1]", Code::BodyNotObject),
            ("null", Code::BodyNotObject),
        ] {
            let problem = parse_object(input.as_bytes()).unwrap_err();
            assert_eq!(problem.code, code, "{input:.40}: {}", problem.message);
        }
        assert_eq!(parse_object(b"\xff{}").unwrap_err().code, Code::MalformedJson);
        let problem = parse_object(b"{\"a\":1,\n  \"a\":2}").unwrap_err();
        assert_eq!(problem.extra["line"], 2);
    }

    #[test]
    fn merge_patch_follows_the_examples_of_rfc_7396() {
        for (target, patch, expected) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
        ] {
            let mut result = target.clone();
            merge(&mut result, patch.clone());
            assert_eq!(result, expected, "{target} + {patch}");
        }
    }
}
