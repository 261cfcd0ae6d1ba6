//! A field of another type: which conversion stands between the two. Each that there is gets tried,
//! on files with that field and the change alone: what `check` takes loses nothing.

use super::lines::{Owner, declaration, key, later, map};
use super::{Class, Edit, plan};
use crate::schema::parse::parse;
use crate::schema::{Field, Kind, Schema};
use serde_json::Value;

/// Values that a whole number may have and still be mapped one by one.
const COUNTED: f64 = 20.0;

/// The lines that declare another type, and what they leave open.
pub(super) struct Retyped {
    pub lines: String,
    pub left: Vec<Edit>,
}

/// None where nothing converts the one type into the other without loss. One that leaves nothing
/// open goes before all others.
pub(super) fn retyped(owner: Owner<'_>, was: &Field, is: &Field) -> Option<Retyped> {
    // No record is there in every account that a value could be converted into.
    if is.reference.is_some() {
        return None;
    }
    let mut found: Option<Retyped> = None;
    for by in conversions(was, is) {
        let Some(tried) = tried(owner, was, is, &by) else { continue };
        if tried.left.is_empty() {
            found = Some(tried);
            break;
        }
        found = found.or(Some(tried));
    }
    let found = found?;
    let operation = match (was.required, is.required) {
        (false, true) => "required",
        (true, false) => "optional",
        _ => return Some(found),
    };
    let lines = format!("{}{}", owner.filled(operation, is)?, later(&found.lines));
    Some(Retyped { lines, ..found })
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

/// What a file with this change leaves open; none if it is not taken.
fn tried(owner: Owner<'_>, was: &Field, is: &Field, by: &str) -> Option<Retyped> {
    // A list cannot be asked by, so the old field says itself that it can.
    let asked = matches!(is.kind, Kind::Array(_));
    let (filter, sort) = (asked && was.filter, asked && was.sort);
    let old = &Field { filter, sort, ..was.clone() };
    let lines = owner.retype(old, by);
    // Whether it must be there is for another change.
    let default = is.default.clone().filter(|_| !was.required);
    let is = &Field { required: was.required, default, ..is.clone() };
    let head = "[service]\nversion = \"2000-01-02\"\n";
    let past = format!(
        "[[versions]]\ndate = \"2000-01-02\"\n{lines}[[versions]]\ndate = \"2000-01-01\"\n"
    );
    let old = file(&head.replace("02", "01"), owner, old)?;
    let new = file(&format!("{past}{head}"), owner, is)?;
    let mut left = plan(&old, &new);
    left.retain(|edit| edit.class != Class::Safe);
    Some(Retyped { lines, left })
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
