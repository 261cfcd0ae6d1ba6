//! The request to erase what events show of a resource. Its record names the number of events.
//! Counting may take long, so most of them are counted before the write reaches the writer.

use super::Failure;
use model::write::Change;
use model::{Code, Problem, Violation, Write};
use serde_json::{Value, json};

/// The resource to erase.
pub fn resource(write: &Write) -> &str {
    match &write.change {
        Change::Create { fields } => {
            fields.get("resource").and_then(Value::as_str).unwrap_or_default()
        }
        _ => "",
    }
}

/// Notes what was counted before the write reached the writer. Replaces what a client sent in the
/// field.
pub fn note_count(write: &mut Write, count: i64, upto: i64) {
    if let Change::Create { fields } = &mut write.change {
        fields.insert("events".into(), json!({"count": count, "upto": upto}));
    }
}

fn noted(write: &Write, name: &str) -> i64 {
    let Change::Create { fields } = &write.change else { return 0 };
    fields.get("events").and_then(|noted| noted.get(name)?.as_i64()).unwrap_or(0)
}

/// The events that are not counted yet: the resource, and the sequence after which they follow.
pub fn uncounted(write: &Write) -> (&str, i64) {
    (resource(write), noted(write, "upto"))
}

/// The erasure as it is stored: with the number of events that it is about, of which `newer` came
/// after `note_count`.
pub fn counted(write: &Write, newer: i64) -> Result<Write, Failure> {
    let mut counted = write.clone();
    let Change::Create { fields } = &mut counted.change else { return Ok(counted) };
    let count = noted(write, "count") + newer;
    if count == 0 {
        let message = "No event is about this `resource`.";
        let violation = Violation::new("resource", Code::BadReference, message);
        let violation = violation.value(&Value::String(resource(write).to_owned()));
        return Err(Failure::Refused(Problem::of(Code::ValidationFailed, vec![violation])));
    }
    fields.insert("events".into(), count.into());
    Ok(counted)
}
