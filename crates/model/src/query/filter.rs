//! Filters: `field=value`, `field=a,b` (any of), `field=null`, `min_field=`, `max_field=`. A value
//! in double quotes is taken literally, so a text may contain a comma or be the word null.

use super::{Filter, MAX_VALUES, Test};
use crate::record::Scalar;
use crate::schema::{Collection, Field, Kind};
use crate::spelling;
use crate::time::{self, Timestamp};

/// The meaning of a parameter name: the field, its kind, and the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Equal,
    Min,
    Max,
}

/// `None`: the name is no filter of this collection. `Some(Err)`: it is, but the value is unusable.
pub fn parse(collection: &Collection, name: &str, text: &str) -> Option<Result<Filter, String>> {
    let (field, bound) = match kind(collection, name) {
        Some(_) => (name, Bound::Equal),
        None => match (name.strip_prefix("min_"), name.strip_prefix("max_")) {
            (Some(field), _) => (field, Bound::Min),
            (_, Some(field)) => (field, Bound::Max),
            _ => return None,
        },
    };
    let kind = kind(collection, field)?;
    if bound != Bound::Equal && !ordered(&kind) {
        return None;
    }
    let wildcards = collection.field(field).is_some_and(|field| field.wildcards);
    let test = match bound {
        Bound::Equal if wildcards => like(&kind, text),
        Bound::Equal => any_of(&kind, text).and_then(|test| known(collection, field, test)),
        Bound::Min => bound_value(&kind, text).map(Test::Min),
        Bound::Max => bound_value(&kind, text).map(Test::Max),
    };
    Some(test.map(|test| Filter { field: field.to_owned(), test }))
}

/// Whether the name would filter by a field that newer versions keep in another form.
pub fn converted(collection: &Collection, name: &str) -> bool {
    let bounded = || name.strip_prefix("min_").or_else(|| name.strip_prefix("max_"));
    let converted = |name: &str| collection.known(name).is_some_and(|field| field.converted);
    converted(name) || bounded().is_some_and(converted)
}

/// Every filter parameter of a collection, for messages and for OpenAPI.
pub fn names(collection: &Collection) -> Vec<(String, Kind)> {
    let declared = collection.fields.iter().filter(|field| filterable(field));
    let timestamps = collection.timestamps().iter().map(|name| (*name, Kind::Timestamp));
    let fields = [("id", id_kind(collection))]
        .into_iter()
        .chain(timestamps)
        .map(|(name, kind)| (name.to_owned(), kind))
        .chain(declared.map(|field| (field.name.clone(), field.kind.clone())));
    let mut names = Vec::new();
    for (name, kind) in fields {
        names.push((name.clone(), kind.clone()));
        if ordered(&kind) {
            names.push((format!("min_{name}"), kind.clone()));
            names.push((format!("max_{name}"), kind));
        }
    }
    names
}

/// The kind of a filterable field; `None` if it is not one.
fn kind(collection: &Collection, name: &str) -> Option<Kind> {
    match name {
        "id" => Some(id_kind(collection)),
        _ if collection.timestamps().contains(&name) => Some(Kind::Timestamp),
        _ => {
            let field = collection.field(name).filter(|field| filterable(field))?;
            Some(field.kind.clone())
        }
    }
}

fn filterable(field: &Field) -> bool {
    field.filterable() && !field.write_only && !field.removed
}

fn id_kind(collection: &Collection) -> Kind {
    if collection.feed.is_some() { Kind::Integer } else { Kind::String }
}

/// Ranges make sense for these.
fn ordered(kind: &Kind) -> bool {
    matches!(kind, Kind::Integer | Kind::Number | Kind::Timestamp | Kind::Date)
}

fn any_of(kind: &Kind, text: &str) -> Result<Test, String> {
    let values = split(text)?;
    if values.len() > MAX_VALUES {
        return Err(format!("takes at most {MAX_VALUES} values"));
    }
    let scalars = values.iter().map(|(value, quoted)| match value.as_str() {
        "null" if !quoted => Ok(Scalar::Null),
        _ => scalar(kind, value),
    });
    Ok(Test::AnyOf(scalars.collect::<Result<_, _>>()?))
}

/// Names of events, or patterns of them. Anything else would find nothing, in silence.
fn like(kind: &Kind, text: &str) -> Result<Test, String> {
    let part = |b: u8| b.is_ascii_alphanumeric() || b"._*".contains(&b);
    let mut values = text.split(',');
    if !values.all(|value| !value.is_empty() && value.bytes().all(part)) {
        return Err("must be event types or patterns such as order.*".to_owned());
    }
    if !text.contains('*') {
        return any_of(kind, text);
    }
    let values: Vec<String> = text.split(',').map(str::to_owned).collect();
    if values.len() > MAX_VALUES {
        return Err(format!("takes at most {MAX_VALUES} values"));
    }
    Ok(Test::Like(values))
}

/// The only values that a record can have: a request for another one has misspelt it.
pub fn choices<'a>(collection: &'a Collection, name: &str) -> Option<&'a [String]> {
    let field = collection.field(name)?;
    Some(field.choices.as_slice()).filter(|choices| !choices.is_empty())
}

fn known(collection: &Collection, name: &str, test: Test) -> Result<Test, String> {
    let Some(choices) = choices(collection, name) else { return Ok(test) };
    // Fields of the service's own collections always have a value.
    let may_be_null = collection.builtin.is_none();
    let chosen = |value: &&Scalar| match value {
        Scalar::Text(text) => choices.contains(text),
        Scalar::Null => may_be_null,
        _ => false,
    };
    let Test::AnyOf(values) = &test else { return Ok(test) };
    let Some(unknown) = values.iter().find(|value| !chosen(value)) else { return Ok(test) };
    let shown: String = match unknown {
        Scalar::Text(text) => text.chars().take(100).collect(),
        _ => "null".to_owned(),
    };
    let hint = spelling::hint(&shown, choices.iter().map(String::as_str));
    Err(format!("cannot be `{shown}`{hint}; it must be one of: {}", choices.join(", ")))
}

fn bound_value(kind: &Kind, text: &str) -> Result<Scalar, String> {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    scalar(kind, quoted.unwrap_or(text))
}

fn scalar(kind: &Kind, text: &str) -> Result<Scalar, String> {
    if text.contains('\0') {
        return Err("contains a NUL character".to_owned());
    }
    match kind {
        Kind::Integer => match text.parse::<i64>() {
            Ok(integer) => Ok(Scalar::Integer(integer)),
            Err(_) => Err("must be an integer".to_owned()),
        },
        Kind::Number => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Scalar::Number(number)),
            _ => Err("must be a number".to_owned()),
        },
        Kind::Boolean => match text {
            "true" => Ok(Scalar::Integer(1)),
            "false" => Ok(Scalar::Integer(0)),
            _ => Err("must be true or false".to_owned()),
        },
        Kind::Timestamp => {
            // A query string turns the + of an offset into a space: take it back.
            let restored = text.replace(' ', "+");
            let midnight = || Timestamp::parse(&format!("{text}T00:00:00Z"));
            match Timestamp::parse(&restored).or_else(midnight) {
                Some(instant) => Ok(Scalar::Integer(instant.0)),
                None => Err("must be a timestamp such as 2026-01-31T12:00:00Z".to_owned()),
            }
        }
        Kind::Date if !time::is_date(text) => Err("must be a date such as 2026-01-31".to_owned()),
        _ => Ok(Scalar::Text(text.to_owned())),
    }
}

/// Splits at commas outside double quotes; says of each value whether it was quoted.
fn split(text: &str) -> Result<Vec<(String, bool)>, String> {
    let mut values = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        let mut value = String::new();
        let quoted = chars.peek() == Some(&'"');
        if quoted {
            chars.next();
            loop {
                match chars.next() {
                    Some('"') => break,
                    Some('\\') => value.extend(chars.next()),
                    Some(other) => value.push(other),
                    None => return Err("has an opening quote without a closing one".to_owned()),
                }
            }
            if !matches!(chars.peek(), None | Some(',')) {
                return Err("has text after a closing quote".to_owned());
            }
        } else {
            while let Some(other) = chars.next_if(|c| *c != ',') {
                value.push(other);
            }
        }
        values.push((value, quoted));
        if chars.next().is_none() {
            return Ok(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_split_at_commas_outside_quotes() {
        let plain =
            |texts: &[&str]| texts.iter().map(|t| ((*t).to_owned(), false)).collect::<Vec<_>>();
        assert_eq!(split("a,b").unwrap(), plain(&["a", "b"]));
        assert_eq!(split("").unwrap(), plain(&[""]));
        assert_eq!(split("a,").unwrap(), plain(&["a", ""]));
        assert_eq!(split(r#""a,b",null"#).unwrap(), [("a,b".into(), true), ("null".into(), false)]);
        assert_eq!(split(r#""say \"hi\"""#).unwrap(), [(r#"say "hi""#.into(), true)]);
        assert!(split("\"open").is_err() && split("\"a\"b").is_err());
    }

    #[test]
    fn timestamps_may_be_dates_and_may_have_lost_their_plus() {
        let noon = Timestamp::parse("2026-01-31T12:00:00Z").unwrap().0;
        assert_eq!(
            scalar(&Kind::Timestamp, "2026-01-31T14:00:00 02:00"),
            Ok(Scalar::Integer(noon))
        );
        let midnight = noon - 12 * 3_600_000;
        assert_eq!(scalar(&Kind::Timestamp, "2026-01-31"), Ok(Scalar::Integer(midnight)));
        assert!(scalar(&Kind::Timestamp, "soon").is_err());
    }
}
