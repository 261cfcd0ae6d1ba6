//! What becomes of one value when its field got another type, other values or another idea of
//! "nothing". Each conversion goes one way; `None` says that the value has no counterpart there.

use super::scale::Scale;
use crate::schema::{Field, Kind, Limits};
use crate::time::Timestamp;
use crate::validate::{self, MAX_INTEGER};
use crate::value::plain_number;
use serde_json::Value;
use std::sync::Arc;

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
    /// A number in another unit.
    Times(Scale),
    /// Back.
    Over(Scale),
    /// These values become those; all others stay.
    Table(Vec<(Value, Value)>),
    /// These values become those; others have no counterpart.
    Only(Vec<(Value, Value)>),
    /// Values of this kind stay; others have no counterpart.
    OfKind(Kind),
    /// The other ones: what the old kind cannot say.
    NotOfKind(Kind),
    /// Values that a field of a version between takes stay; others have no counterpart there.
    Takes(Declared),
    /// Null becomes this value.
    Fill(Value),
}

/// A field with its limits.
#[derive(Clone, Debug)]
pub(super) struct Declared(Arc<Field>);

impl Declared {
    pub fn new(field: &Field) -> Declared {
        Declared(Arc::new(field.clone()))
    }

    pub fn unlimited(&self) -> Declared {
        let mut field = self.field().clone();
        Limits::default().set(&mut field);
        Declared::new(&field)
    }

    pub fn field(&self) -> &Field {
        &self.0
    }
}

impl PartialEq for Declared {
    fn eq(&self, other: &Declared) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
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
                let instant = Timestamp(value.as_i64()?.checked_mul(*tick)?);
                let fits = (Timestamp::MIN.0..=Timestamp::MAX.0).contains(&instant.0);
                fits.then(|| Value::String(instant.to_iso()))
            }
            Conversion::ToTicks(tick) => {
                Some(Value::from(Timestamp::parse(value.as_str()?)?.0.div_euclid(*tick)))
            }
            Conversion::ToList => Some(Value::Array(vec![value.clone()])),
            Conversion::FromList => Some(value.as_array()?.first().cloned().unwrap_or_default()),
            Conversion::Times(scale) => scale.up(value.as_number()?).map(Value::Number),
            Conversion::Over(scale) => scale.down(value.as_number()?).map(Value::Number),
            Conversion::Table(pairs) => Some(look_up(pairs, value).unwrap_or(value).clone()),
            Conversion::Only(pairs) => look_up(pairs, value).cloned(),
            Conversion::OfKind(kind) => validate::of_kind(kind, value.clone()),
            Conversion::Takes(Declared(field)) => {
                let mut value = value.clone();
                validate::value(field, &mut value).is_ok().then_some(value)
            }
            Conversion::NotOfKind(kind) => match validate::of_kind(kind, value.clone()) {
                Some(_) => None,
                None => Some(value.clone()),
            },
            Conversion::Fill(_) => Some(value.clone()),
        }
    }

    /// Whether null becomes a value.
    pub fn fills(&self) -> bool {
        matches!(self, Conversion::Fill(_))
    }

    /// What becomes of this value, as far as it can be told.
    pub fn taken_back(&self, value: &Value) -> Option<Value> {
        match self {
            _ if self.keeps_values() => Some(value.clone()),
            Conversion::ToList => Conversion::FromList.apply(value),
            Conversion::FromText(_) => Conversion::ToText.apply(value),
            Conversion::Table(pairs) => {
                let known = pairs.iter().find(|(_, new)| new == value);
                Some(known.map_or(value, |(old, _)| old).clone())
            }
            Conversion::Only(pairs) => {
                pairs.iter().find(|(_, new)| new == value).map(|(old, _)| old.clone())
            }
            _ => None,
        }
    }

    /// Whether a value that it takes stays what it is.
    pub fn keeps_values(&self) -> bool {
        matches!(self, Conversion::Fill(_) | Conversion::OfKind(_) | Conversion::Takes(_))
    }

    /// Whether what becomes of a value depends on it.
    pub fn looks_into(&self) -> bool {
        !matches!(self, Conversion::Fill(_) | Conversion::ToList)
    }

    /// Whether every value has a counterpart.
    pub fn finds_all(&self) -> bool {
        match self {
            Conversion::ToText | Conversion::ToTicks(_) | Conversion::ToList => true,
            Conversion::Table(_) | Conversion::Fill(_) => true,
            Conversion::Times(..) | Conversion::Over(..) => true,
            Conversion::FromText(_) | Conversion::ToInstant(_) | Conversion::FromList => false,
            Conversion::Only(_) => false,
            Conversion::OfKind(_) | Conversion::NotOfKind(_) | Conversion::Takes(_) => false,
        }
    }

    /// Whether some values of the one type have no counterpart in the other.
    pub fn leaves_out(&self) -> bool {
        use Conversion::{FromText, NotOfKind, OfKind, Only, Takes, ToInstant};
        matches!(self, FromText(_) | ToInstant(_) | Only(_) | OfKind(_) | NotOfKind(_) | Takes(_))
    }

    /// Whether several values may become one.
    pub fn rounds(&self) -> bool {
        matches!(self, Conversion::ToTicks(_) | Conversion::Over(..))
    }

    /// Whether many values become one, as all within a second do.
    pub fn joins(&self) -> bool {
        match self {
            Conversion::ToTicks(_) => true,
            Conversion::Over(scale) => scale.rounds(),
            _ => false,
        }
    }

    /// Whether greater values become greater ones, so that ranges and orders can be translated.
    pub fn keeps_order(&self) -> bool {
        match self {
            Conversion::ToInstant(_) | Conversion::ToTicks(_) => true,
            Conversion::Times(scale) | Conversion::Over(scale) => !scale.falls(),
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
        Kind::Number => match (text.parse::<i64>(), text.parse::<u64>()) {
            (Ok(whole), _) => Value::from(whole),
            (_, Ok(whole)) => Value::from(whole),
            _ => Value::Number(plain_number(text.parse().ok()?)?),
        },
        Kind::Boolean => Value::Bool(text.parse().ok()?),
        _ => return None,
    };
    // "007" would come back as "7": what is not read back as it was written is not read.
    let written = value.to_string();
    (written == text).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_become_what_the_other_type_can_say() {
        use Conversion::*;
        let times = |factor, old, new| Times(Scale::new(factor, old, new).unwrap());
        let over = |factor, old, new| Over(Scale::new(factor, old, new).unwrap());
        for (conversion, from, to) in [
            (ToText, json!(12.5), Some(json!("12.5"))),
            (ToText, json!(true), Some(json!("true"))),
            (ToText, json!(null), Some(json!(null))),
            (FromText(Kind::Integer), json!("42"), Some(json!(42))),
            (FromText(Kind::Integer), json!("007"), None),
            (FromText(Kind::Number), json!("1.50"), None),
            (FromText(Kind::Number), json!("1.0"), None),
            (FromText(Kind::Number), json!("1e18"), None),
            (FromText(Kind::Number), json!("1e+21"), Some(json!(1e21))),
            (
                FromText(Kind::Number),
                json!("12345678901234567890"),
                Some(json!(12345678901234567890u64)),
            ),
            (ToInstant(1000), json!(253_402_207_200i64), Some(json!("9999-12-30T22:00:00.000Z"))),
            (FromText(Kind::Boolean), json!("yes"), None),
            (ToInstant(1000), json!(0), Some(json!("1970-01-01T00:00:00.000Z"))),
            (ToInstant(1000), json!(i64::MAX), None),
            (ToTicks(1), json!("1970-01-01T00:00:01.500Z"), Some(json!(1500))),
            (ToTicks(1000), json!("1969-12-31T23:59:59.500Z"), Some(json!(-1))),
            (ToList, json!("a"), Some(json!(["a"]))),
            (FromList, json!([]), Some(json!(null))),
            (times(100.0, Kind::Number, Kind::Integer), json!(0.29), Some(json!(29))),
            (times(100.0, Kind::Number, Kind::Integer), json!(0.295), None),
            (over(100.0, Kind::Number, Kind::Integer), json!(29), Some(json!(0.29))),
            (over(100.0, Kind::Integer, Kind::Integer), json!(150), Some(json!(2))),
            (times(3.0, Kind::Number, Kind::Number), json!(0.1), Some(json!(0.3))),
            (OfKind(Kind::Integer), json!(3), Some(json!(3))),
            (OfKind(Kind::Integer), json!("3"), None),
            (OfKind(Kind::String), json!({"a": 1}), None),
            (NotOfKind(Kind::String), json!("a"), None),
            (NotOfKind(Kind::String), json!(1), Some(json!(1))),
            (OfKind(Kind::Array(Box::new(Kind::String))), json!(["a", 1]), None),
            (Fill(json!(1)), json!(null), Some(json!(1))),
            (Table(vec![(json!("a"), json!("b"))]), json!("c"), Some(json!("c"))),
        ] {
            assert_eq!(conversion.apply(&from), to, "{conversion:?} {from}");
        }
    }
}
