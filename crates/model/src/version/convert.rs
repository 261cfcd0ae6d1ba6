//! What becomes of one value when its field got another type, other values or another idea of
//! "nothing". Each conversion goes one way; `None` says that the value has no counterpart there.

use crate::schema::Kind;
use crate::time::Timestamp;
use crate::validate::MAX_INTEGER;
use serde_json::{Number, Value};

/// Seconds of the years 1 to 9999: what an ISO 8601 text can say.
pub(super) const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_200_000;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Conversion {
    /// A number or truth value as its text.
    ToText,
    /// Back; only the very text that `ToText` writes.
    FromText(Kind),
    /// Ticks of so many milliseconds to an instant.
    ToInstant(i64),
    ToTicks(i64),
    /// One value to the list of it.
    ToList,
    /// A list to its first item.
    FromList,
    /// Times a factor, into this kind.
    Times(f64, Kind),
    /// Divided by a factor, into this kind; to the nearest whole number where it is an integer.
    Over(f64, Kind),
    /// These values become those; all others stay.
    Table(Vec<(Value, Value)>),
    /// These values become those; others have no counterpart.
    Only(Vec<(Value, Value)>),
    /// Null becomes this value.
    Fill(Value),
    /// This value becomes null.
    Empty(Value),
}

impl Conversion {
    pub fn apply(&self, value: &Value) -> Option<Value> {
        match self {
            Conversion::Fill(fill) if value.is_null() => return Some(fill.clone()),
            _ if value.is_null() => return Some(Value::Null),
            _ => {}
        }
        match self {
            Conversion::ToText => match value {
                Value::Number(_) | Value::Bool(_) => Some(Value::String(value.to_string())),
                _ => None,
            },
            Conversion::FromText(kind) => from_text(kind, value.as_str()?),
            Conversion::ToInstant(tick) => {
                let ticks = value.as_i64()?;
                let fits = SECONDS.contains(&(ticks.checked_mul(*tick)?.div_euclid(1000)));
                fits.then(|| Value::String(Timestamp(ticks * tick).to_iso()))
            }
            Conversion::ToTicks(tick) => {
                Some(Value::from(Timestamp::parse(value.as_str()?)?.0.div_euclid(*tick)))
            }
            Conversion::ToList => Some(Value::Array(vec![value.clone()])),
            Conversion::FromList => Some(value.as_array()?.first().cloned().unwrap_or_default()),
            Conversion::Times(factor, kind) => {
                let product = number(value.as_f64()? * factor, kind, false)?;
                // More digits than a float holds would not come back.
                let back = number(product.as_f64()? / factor, &Kind::Number, false)?;
                (back.as_f64() == value.as_f64()).then_some(product)
            }
            // Whole numbers divide into the very float that the digits of the quotient stand for.
            Conversion::Over(factor, Kind::Number) if value.is_i64() && factor.fract() == 0.0 => {
                let quotient = value.as_f64()? / factor;
                match quotient.fract() == 0.0 {
                    true => number(quotient, &Kind::Number, true),
                    false => Number::from_f64(quotient).map(Value::Number),
                }
            }
            Conversion::Over(factor, kind) => number(value.as_f64()? / factor, kind, true),
            Conversion::Table(pairs) => Some(look_up(pairs, value).unwrap_or(value).clone()),
            Conversion::Only(pairs) => look_up(pairs, value).cloned(),
            Conversion::Empty(fill) if value == fill => Some(Value::Null),
            Conversion::Fill(_) | Conversion::Empty(_) => Some(value.clone()),
        }
    }

    /// Whether null becomes a value.
    pub fn fills(&self) -> bool {
        matches!(self, Conversion::Fill(_))
    }

    /// Whether every value has a counterpart.
    pub fn finds_all(&self) -> bool {
        match self {
            Conversion::ToText | Conversion::ToTicks(_) | Conversion::ToList => true,
            Conversion::Table(_) | Conversion::Fill(_) => true,
            Conversion::Times(..) | Conversion::Over(..) => true,
            Conversion::FromText(_) | Conversion::ToInstant(_) | Conversion::FromList => false,
            Conversion::Only(_) | Conversion::Empty(_) => false,
        }
    }

    /// Whether some values of the one type have no counterpart in the other.
    pub fn leaves_out(&self) -> bool {
        matches!(self, Conversion::FromText(_) | Conversion::ToInstant(_) | Conversion::Only(_))
    }

    /// Whether several values may become one.
    pub fn rounds(&self) -> bool {
        matches!(self, Conversion::ToTicks(_) | Conversion::Over(..))
    }

    /// Whether greater values become greater ones, so that ranges and orders can be translated.
    pub fn keeps_order(&self) -> bool {
        match self {
            Conversion::ToInstant(_) | Conversion::ToTicks(_) => true,
            Conversion::Times(factor, _) | Conversion::Over(factor, _) => *factor > 0.0,
            _ => false,
        }
    }
}

fn look_up<'a>(pairs: &'a [(Value, Value)], value: &Value) -> Option<&'a Value> {
    pairs.iter().find(|(from, _)| from == value).map(|(_, to)| to)
}

fn from_text(kind: &Kind, text: &str) -> Option<Value> {
    let value = match kind {
        Kind::Integer => {
            Value::from(text.parse::<i64>().ok().filter(|whole| whole.abs() <= MAX_INTEGER)?)
        }
        Kind::Number => match text.parse::<i64>() {
            Ok(whole) => Value::from(whole),
            Err(_) => Value::Number(Number::from_f64(text.parse().ok()?)?),
        },
        Kind::Boolean => Value::Bool(text.parse().ok()?),
        _ => return None,
    };
    // "007" would come back as "7": what is not read back as it was written is not read.
    let written = value.to_string();
    (written == text).then_some(value)
}

/// A product in the kept form of its kind. Fifteen digits are what a float holds exactly; the rest
/// is noise of the calculation.
fn number(exact: f64, kind: &Kind, rounds: bool) -> Option<Value> {
    let whole = exact.round();
    // The common case, without the detour over a text.
    let clean = if exact == whole { exact } else { format!("{exact:.14e}").parse().ok()? };
    let whole = clean.round();
    let small = whole.abs() <= MAX_INTEGER as f64;
    match kind {
        Kind::Integer if (clean == whole || rounds) && small => Some(Value::from(whole as i64)),
        Kind::Integer => None,
        _ if clean == whole && small => Some(Value::from(whole as i64)),
        _ => Number::from_f64(clean).map(Value::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_become_what_the_other_type_can_say() {
        use Conversion::*;
        for (conversion, from, to) in [
            (ToText, json!(12.5), Some(json!("12.5"))),
            (ToText, json!(true), Some(json!("true"))),
            (ToText, json!(null), Some(json!(null))),
            (FromText(Kind::Integer), json!("42"), Some(json!(42))),
            (FromText(Kind::Integer), json!("007"), None),
            (FromText(Kind::Number), json!("1.50"), None),
            (FromText(Kind::Boolean), json!("yes"), None),
            (ToInstant(1000), json!(0), Some(json!("1970-01-01T00:00:00.000Z"))),
            (ToInstant(1000), json!(i64::MAX), None),
            (ToTicks(1), json!("1970-01-01T00:00:01.500Z"), Some(json!(1500))),
            (ToTicks(1000), json!("1969-12-31T23:59:59.500Z"), Some(json!(-1))),
            (ToList, json!("a"), Some(json!(["a"]))),
            (FromList, json!([]), Some(json!(null))),
            (Times(100.0, Kind::Integer), json!(0.29), Some(json!(29))),
            (Times(100.0, Kind::Integer), json!(0.295), None),
            (Over(100.0, Kind::Number), json!(29), Some(json!(0.29))),
            (Over(100.0, Kind::Integer), json!(150), Some(json!(2))),
            (Times(3.0, Kind::Number), json!(0.1), Some(json!(0.3))),
            (Fill(json!(1)), json!(null), Some(json!(1))),
            (Empty(json!(1)), json!(1), Some(json!(null))),
            (Table(vec![(json!("a"), json!("b"))]), json!("c"), Some(json!("c"))),
        ] {
            assert_eq!(conversion.apply(&from), to, "{conversion:?} {from}");
        }
    }
}
