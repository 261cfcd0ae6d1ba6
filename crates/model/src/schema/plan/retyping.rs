//! A field of another type: which conversion stands between the two. Each that there is gets tried,
//! on files with that field and the change alone: what `check` takes loses nothing.

use super::lines::{Owner, declaration, key, later, map};
use super::{Class, Edit, compare};
use crate::schema::parse::parse;
use crate::schema::{Field, Kind, Limits, Schema};
use serde_json::Value;

/// Values that a whole number may have and still be mapped one by one.
const COUNTED: f64 = 20.0;

/// The lines that declare another type, and what they leave open.
pub(super) struct Retyped {
    pub lines: String,
    pub left: Vec<Edit>,
}

/// None where nothing converts the one type into the other without loss. What leaves nothing open
/// goes before all others, and what needs no change of limits before what does.
pub(super) fn retyped(owner: Owner<'_>, was: &Field, is: &Field) -> Option<Retyped> {
    // No record is there in every account that a value could be converted into.
    if is.reference.is_some() {
        return None;
    }
    let filled = match (was.required, is.required) {
        (false, true) => Some(owner.filled("required", is)?),
        (true, false) => Some(owner.filled("optional", is)?),
        _ => None,
    };
    let mut found: Option<Retyped> = None;
    for by in conversions(was, is) {
        let retype = owner.retype(&asked(was, is), &by);
        let unlimited = owner.limits(&is.name, &Limits::default());
        for limits in [None, Some(unlimited)] {
            let steps = filled.iter().chain(&limits).chain([&retype]).cloned().collect::<Vec<_>>();
            let Some(left) = left(owner, was, is, &steps) else { continue };
            let mut lines = steps.into_iter();
            let first = lines.next().unwrap_or_default();
            let lines = lines.fold(first, |all, step| all + &later(&step));
            if left.is_empty() {
                return Some(Retyped { lines, left });
            }
            if found.as_ref().is_none_or(|found| left.len() < found.left.len()) {
                found = Some(Retyped { lines, left });
            }
        }
    }
    found
}

/// The old field; a list cannot be asked by, so it says itself that it can.
fn asked(was: &Field, is: &Field) -> Field {
    let asked = matches!(is.kind, Kind::Array(_));
    let (filter, sort) = (asked && was.filter, asked && was.sort);
    Field { filter, sort, ..was.clone() }
}

/// All that might do; values that stand for one another in the order of the declarations last.
fn conversions(was: &Field, is: &Field) -> Vec<String> {
    let mut found: Vec<String> = match (&was.kind, &is.kind) {
        (Kind::Array(_), _) | (_, Kind::Array(_)) => vec!["by = \"list\"".to_owned()],
        (Kind::String, _) | (_, Kind::String) => vec!["by = \"text\"".to_owned()],
        (Kind::Timestamp, _) | (_, Kind::Timestamp) => {
            ["milliseconds", "seconds"].map(|by| format!("by = \"{by}\"")).to_vec()
        }
        _ => vec!["factor = 1".to_owned()],
    };
    if let (Some(old), Some(new)) = (few(was), few(is))
        && old.len() <= new.len()
    {
        let pairs: Vec<(Value, Value)> = old.into_iter().zip(new).collect();
        found.push(map(&pairs));
    }
    found
}

/// All values of a field that has few.
fn few(field: &Field) -> Option<Vec<Value>> {
    match (&field.kind, field.min, field.max) {
        (Kind::Boolean, ..) => Some(vec![Value::from(false), Value::from(true)]),
        (Kind::String, ..) if !field.choices.is_empty() => {
            Some(field.choices.iter().map(|choice| Value::from(choice.as_str())).collect())
        }
        (Kind::Integer, Some(min), Some(max)) if max - min < COUNTED => {
            Some((min.ceil() as i64..=max.floor() as i64).map(Value::from).collect())
        }
        _ => None,
    }
}

/// What a file with these changes, newest first, leaves open; none if it is not taken.
fn left(owner: Owner<'_>, was: &Field, is: &Field, steps: &[String]) -> Option<Vec<Edit>> {
    let date = |place: usize| format!("2000-01-0{}", place + 1);
    let mut past = String::new();
    for (place, step) in steps.iter().enumerate() {
        let date = date(steps.len() - place);
        past.push_str(&format!("[[versions]]\ndate = \"{date}\"\n{step}"));
    }
    past.push_str(&format!("[[versions]]\ndate = \"{}\"\n", date(0)));
    let head = format!("[service]\nversion = \"{}\"\n", date(0));
    // What else is said of the two is compared by itself.
    let unique = was.unique && is.unique;
    let old = file(&head, owner, &Field { unique, ..asked(was, is) })?;
    let (filter, sort) = (false, false);
    let new = file(&past, owner, &Field { unique, filter, sort, ..is.clone() })?;
    let mut left = compare(&old, &new);
    left.retain(|edit| edit.class != Class::Safe);
    Some(left)
}

/// A schema with one field, or one parameter.
fn file(head: &str, owner: Owner<'_>, field: &Field) -> Option<Schema> {
    let collection = key(owner.collection);
    let of = match owner.action {
        Some(action) => format!("actions.{}.params", key(action)),
        None => "fields".to_owned(),
    };
    let unique = match field.unique {
        true => "unique = true, ",
        false => "",
    };
    let said = declaration(field, false).replacen("{ ", &format!("{{ {unique}"), 1);
    let name = key(&field.name);
    parse(&format!("{head}[collections.{collection}.{of}]\n{name} = {said}\n")).ok()
}
