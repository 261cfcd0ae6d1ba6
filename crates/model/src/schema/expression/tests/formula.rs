//! The formulas of `convert`: their types, their functions and what they may cost.

use super::*;
use crate::record::Fields;
use crate::schema::{Field, Kind};

fn formula(text: &str) -> Formula {
    Formula::new(Expression::compile(text).unwrap())
}

/// The complaints about a formula between fields of these types, or the value it makes.
fn outcome(text: &str, from: &Kind, value: Value, to: &Kind) -> Result<Value, String> {
    let fields = [Field::new("unit", Kind::String), Field::new("total", Kind::Number)];
    let formula = formula(text);
    let (given, made) = (Field::new("x", from.clone()), Field::new("x", to.clone()));
    let complaints = formula.check(&given, &fields, &made, false);
    if let Some(first) = complaints.first() {
        return Err(first.message.clone());
    }
    let record = Fields::from_iter([("unit".to_owned(), json!("kg"))]);
    let mut left = CONVERSION_UNITS;
    formula.apply((from, &value), (&fields, &record), &mut left).map_err(|fault| fault.reason)
}

#[test]
fn every_function_makes_the_type_that_is_declared() {
    let list = Kind::Array(Box::new(Kind::String));
    for (text, from, value, to, expected) in [
        ("int(math.round(value * 100.0))", &Kind::Number, json!(0.29), &Kind::Integer, json!(29)),
        // A whole number of a `number` field is a double, too.
        ("int(math.floor(value))", &Kind::Number, json!(3), &Kind::Integer, json!(3)),
        ("int(math.ceil(value))", &Kind::Number, json!(3.2), &Kind::Integer, json!(4)),
        ("value.lowerAscii()", &Kind::String, json!("AÄ"), &Kind::String, json!("aÄ")),
        ("value.upperAscii()", &Kind::String, json!("a"), &Kind::String, json!("A")),
        ("value.trim()", &Kind::String, json!(" a "), &Kind::String, json!("a")),
        ("value.substring(1)", &Kind::String, json!("äbc"), &Kind::String, json!("bc")),
        (
            "value.substring(0, 10)",
            &Kind::Timestamp,
            json!("2026-01-02T00:00:00.000Z"),
            &Kind::Date,
            json!("2026-01-02"),
        ),
        ("value.split(',')", &Kind::String, json!("a,b"), &list, json!(["a", "b"])),
        ("value.join(',')", &list, json!(["a", "b"]), &Kind::String, json!("a,b")),
        (
            "from_millis(value)",
            &Kind::Integer,
            json!(0),
            &Kind::Timestamp,
            json!("1970-01-01T00:00:00.000Z"),
        ),
        (
            "to_millis(value)",
            &Kind::Timestamp,
            json!("1970-01-01T00:00:00.001Z"),
            &Kind::Integer,
            json!(1),
        ),
        (
            "record.unit == 'kg' ? value * 1000 : value",
            &Kind::Integer,
            json!(2),
            &Kind::Integer,
            json!(2000),
        ),
        ("has(record.total) ? 1 : value", &Kind::Integer, json!(2), &Kind::Integer, json!(2)),
    ] {
        assert_eq!(outcome(text, from, value, to), Ok(expected), "{text}");
    }
}

#[test]
fn a_formula_of_the_wrong_type_is_refused() {
    let list = Kind::Array(Box::new(Kind::String));
    for (text, from, to, expected) in [
        ("value * 100.0", &Kind::Number, &Kind::Integer, "write `int(…)`"),
        ("value + 1", &Kind::Number, &Kind::Number, "does not mix"),
        ("math.round(value)", &Kind::Integer, &Kind::Number, "takes a number with a fraction"),
        ("math.sqrt(value)", &Kind::Number, &Kind::Number, "'math.sqrt', which does not exist"),
        ("math", &Kind::Number, &Kind::Number, "unknown name `math`"),
        ("value.join(',')", &Kind::String, &Kind::String, "takes a list of strings"),
        ("value.split(1)", &Kind::String, &list, "takes a string"),
        ("value.substring()", &Kind::String, &Kind::String, "takes 2 values"),
        ("value", &Kind::String, &list, "is a string, and `x` is of type array"),
        ("[record.unit]", &Kind::String, &list, "is a list, and `x` is of type array"),
        ("record.unit", &Kind::String, &Kind::String, "can be null"),
        ("null", &Kind::String, &Kind::String, "can be null"),
        ("record.size", &Kind::String, &Kind::String, "names no field declared here"),
        ("now", &Kind::String, &Kind::Timestamp, "it can use `value` and `record`"),
    ] {
        let found = outcome(text, from, json!(null), to).unwrap_err();
        assert!(found.contains(expected), "{text}: {found}");
    }
    // Rules and filters have their own functions only.
    refused("record.name.trim() == 'a'", 16, "'trim', which does not exist");
}

#[test]
fn a_formula_over_large_values_is_refused_before_it_runs() {
    let list = Kind::Array(Box::new(Kind::String));
    let items = |count: usize, length: usize| json!(vec!["x".repeat(length); count]);
    let joined = |value: Value| outcome("value.join(', ')", &list, value, &Kind::String);
    assert!(joined(items(100, 1_000)).is_ok());
    assert!(joined(items(1_000, 100_000)).unwrap_err().contains("too expensive"));
    let text = "value.split('').map(c, c + '!').join('')";
    let each = |value: String| outcome(text, &Kind::String, json!(value), &Kind::String);
    assert_eq!(each("ab".to_owned()), Ok(json!("a!b!")));
    assert!(each("x".repeat(100_000)).unwrap_err().contains("too expensive"));
    // As every expression, a formula is bounded before it is parsed.
    assert!(Expression::compile(&"(".repeat(30)).unwrap_err().message.contains("nests"));
}
