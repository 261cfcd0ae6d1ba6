//! Whether the formulas of a `convert` do what they should: tried with samples when the schema is
//! read, and with the records that exist when the server starts.

use super::lens::value_of;
use super::samples;
use super::shape::Shape;
use super::step::Convert;
use super::{Part, View};
use crate::record::Fields;
use crate::schema::{CONVERSION_UNITS, CollectionIx, Field};
use serde_json::Value;

/// The fault of the conversion of a field by the version that was taken back last. An old client
/// must send every stored value back unchanged. Some of the values that an old client may send need
/// a counterpart; requests with the others are refused.
pub(crate) fn conversion_fault(shape: &Shape, field: &str) -> Option<String> {
    let it = shape.stages.0.last()?.conversions().find(|it| it.new.name == field)?;
    it.lost_value().or_else(|| it.refused_values())
}

impl Convert {
    fn lost_value(&self) -> Option<String> {
        let mut failures = Vec::new();
        for (value, record) in samples_in_records(&self.new, &self.new_fields) {
            match self.lowered(&value, &record, &mut { CONVERSION_UNITS }) {
                // Older clients read null for what has no old value, if they may.
                Ok(_) if self.lossy => return None,
                Err(why) => failures.push(format!("`down` fails for {value}: {why}")),
                Ok(old) => failures.extend(self.loss(&value, &old, &record)),
            }
        }
        failures.into_iter().next()
    }

    /// How a stored value changes when an old client sends it back; none if it does not change.
    fn loss(&self, value: &Value, old: &Value, record: &Fields) -> Option<String> {
        let mut older = record.clone();
        older.retain(|name, _| self.old_fields.iter().any(|field| field.name == *name));
        older.insert(self.old.name.clone(), old.clone());
        let what = match self.raised(old, &older, &mut { CONVERSION_UNITS }) {
            _ if old.is_null() => "which says nothing of it".to_owned(),
            Ok(back) if back == *value => return None,
            Ok(back) => format!("and comes back as {back}"),
            Err(why) => format!("for which `up` fails: {why}"),
        };
        Some(format!(
            "this change loses data: {value} is {old} to older clients, {what}; correct the \
             formulas, narrow the limits of the field, or declare `lossy = true`"
        ))
    }

    fn refused_values(&self) -> Option<String> {
        let mut reasons = Vec::new();
        for (value, record) in samples_in_records(&self.old, &self.old_fields) {
            match self.raised(&value, &record, &mut { CONVERSION_UNITS }) {
                Ok(_) => return None,
                Err(why) => reasons.push(format!("{value}: {why}")),
            }
        }
        // Where no sample could be made, the records that exist are the test.
        let first = reasons.into_iter().next()?;
        Some(format!("`up` fails for all that older clients may send, such as {first}"))
    }
}

/// Samples of a field, each in a record with a value in every field, and in an empty record.
fn samples_in_records(field: &Field, fields: &[Field]) -> Vec<(Value, Fields)> {
    let not_null = |field: &Field| samples::of(field).into_iter().filter(|value| !value.is_null());
    let full = |field: &Field| Some((field.name.clone(), not_null(field).next()?));
    let mut found = Vec::new();
    for mut record in [fields.iter().filter_map(full).collect(), Fields::new()] {
        for value in not_null(field) {
            record.insert(field.name.clone(), value.clone());
            found.push((value, record.clone()));
        }
    }
    found
}

impl View {
    /// Whether a value of the collection is converted for this version.
    pub fn converts(&self, collection: CollectionIx) -> bool {
        self.lens(collection).is_some_and(|lens| lens.stages.converts())
    }

    /// The most that the formulas for a record, or for the parameters of an action, of so many
    /// bytes can cost, in one direction.
    pub fn formula_units(&self, part: Part, bytes: usize) -> u64 {
        let lens = self.lenses.get(&part).filter(|lens| lens.differs);
        lens.map_or(0, |lens| lens.stages.units(bytes))
    }

    /// Why a stored record would change if a client of this version sent back what it reads: the
    /// field and its new value. Ignores conversions that are declared `lossy`.
    pub fn unstable(&self, collection: CollectionIx, kept: &Fields) -> Option<String> {
        let lens = self.lens(collection).filter(|lens| lens.stages.converts())?;
        let places = lens.lines.iter().filter_map(|line| line.place.as_ref());
        let mut shown = kept.clone();
        lens.stages.down(&mut shown);
        let mut back = shown.clone();
        lens.stages.up(&mut back);
        places.filter(|place| place.converted && !place.lossy).find_map(|place| {
            let (was, is) = (value_of(kept, place.field()), value_of(&back, place.field()));
            (was != is && !was.is_null()).then(|| {
                format!(
                    "`{}` is {was}, and comes back from version {} as {is}",
                    place.path, self.date
                )
            })
        })
    }
}
