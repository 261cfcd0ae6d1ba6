//! Samples for a version between that takes few values. Hardly any sample of an older field gets
//! there by chance, and one that is refused on the way proves nothing: so they are made from what
//! that version takes, as the older one shows it, and then changed a little.

use super::convert::Conversion;
use super::expr::Expr;
use super::lens::Lens;
use super::proof::Trial;
use super::samples::{self, Hints};
use super::{Part, View};
use crate::record::Fields;
use crate::schema::{Field, Kind};
use crate::time::Timestamp;
use crate::validate;
use serde_json::{Value, json};
use std::sync::Arc;

/// Fields of versions between that are looked at, and values of each.
const FIELDS: usize = 20;
const VALUES: usize = 20;

impl Trial<'_> {
    /// What old clients may send in these fields that gets through all of `newer`, perhaps.
    pub fn reaching(&self, group: &[String], newer: &[Arc<View>], hints: &Hints) -> Vec<Fields> {
        let mut found = Vec::new();
        for field in self.narrow(group).into_iter().take(FIELDS) {
            let is = |known: &Field| known.name == field.name && limits(known) == limits(field);
            let has = |view: &&Arc<View>| fields(view, self.part).iter().any(is);
            let Some(view) = newer.iter().find(has) else { continue };
            let values = samples::of(field, hints).into_iter().filter(|value| !value.is_null());
            for value in values.take(VALUES) {
                let sent = Fields::from_iter([(field.name.clone(), value)]);
                let kept =
                    lens(view, self.part).map_or_else(|| sent.clone(), |lens| lens.up(&sent));
                let mut shown = self.lens.down(&kept);
                shown.retain(|name, value| group.contains(name) && !value.is_null());
                let changed = self.changed(&shown, group, hints);
                found.extend(changed.into_iter().chain([shown]));
            }
        }
        found.retain(|sample| self.takes(sample, group));
        found
    }

    /// The fields with limits that lie between what is sent here and what is kept.
    fn narrow(&self, group: &[String]) -> Vec<&Field> {
        let mut found: Vec<&Field> = Vec::new();
        for lift in self.lifts_of(group) {
            lift.expr.visit(&mut |part| {
                if let Expr::Convert { by: Conversion::Takes(declared), .. } = part {
                    let field = declared.field();
                    let plain = limits(&Field::new(&field.name, field.kind.clone()));
                    if limits(field) != plain {
                        found.push(field);
                    }
                }
            });
        }
        found
    }

    /// Whether the version allows it.
    fn takes(&self, sample: &Fields, group: &[String]) -> bool {
        let fits =
            |field: &Field, value: &Value| validate::value(field, &mut value.clone()).is_ok();
        let mut fields = self.fields.iter().filter(|field| group.contains(&field.name));
        fields.all(|field| match sample.get(&field.name) {
            Some(value) => fits(field, value),
            None => !field.required,
        })
    }

    /// Each with one field that says a little more or less, and texts that are parted elsewhere.
    fn changed(&self, sample: &Fields, group: &[String], hints: &Hints) -> Vec<Fields> {
        let mut found = Vec::new();
        for (name, value) in sample {
            let Some(field) = self.fields.iter().find(|field| field.name == *name) else {
                continue;
            };
            for other in beside(&field.kind, value, hints) {
                let mut changed = sample.clone();
                changed.insert(name.clone(), other);
                found.push(changed);
            }
        }
        let text = |name: &String| sample.get(name).and_then(Value::as_str);
        for pair in group.windows(2) {
            let (Some(one), Some(two)) = (text(&pair[0]), text(&pair[1])) else { continue };
            for by in &hints.separators {
                let joined = format!("{one}{by}{two}");
                for (at, _) in joined.match_indices(by.as_str()) {
                    let mut changed = sample.clone();
                    changed.insert(pair[0].clone(), joined[..at].into());
                    changed.insert(pair[1].clone(), joined[at + by.len()..].into());
                    found.push(changed);
                }
            }
        }
        found
    }
}

/// Values that may be taken for this one.
fn beside(kind: &Kind, value: &Value, hints: &Hints) -> Vec<Value> {
    match (kind, value) {
        (Kind::Timestamp, Value::String(text)) => {
            let instant = Timestamp::parse(text);
            let later = instant.map(|instant| Timestamp(instant.0 + 1).to_iso());
            later.into_iter().map(Value::String).collect()
        }
        (_, Value::String(text)) => {
            let forms = ["0{}", "{}.0", "{} ", " {}"].map(|form| form.replace("{}", text));
            let separators = hints.separators.iter();
            let parts = separators.flat_map(|by| [format!("{text}{by}"), format!("{text}{by}b")]);
            forms.into_iter().chain(parts).map(Value::String).collect()
        }
        (Kind::Number, Value::Number(number)) => {
            let float = number.as_f64().unwrap_or_default();
            [float.next_up(), float + 0.5].map(Value::from).to_vec()
        }
        (_, Value::Number(number)) => number
            .as_i64()
            .and_then(|whole| whole.checked_add(1))
            .map(Value::from)
            .into_iter()
            .collect(),
        (_, Value::Array(items)) => {
            let with =
                |item: Option<&Value>| Value::Array(items.iter().chain(item).cloned().collect());
            vec![with(items.first()), with(Some(&json!("w"))), json!([])]
        }
        (_, Value::Object(members)) => {
            let mut more = members.clone();
            more.insert("other".to_owned(), json!(true));
            vec![Value::Object(more)]
        }
        _ => Vec::new(),
    }
}

/// What a field takes, as a text to compare.
fn limits(field: &Field) -> String {
    let pattern = field.pattern.as_ref().map(|pattern| pattern.0.as_str());
    let lengths = (field.min_length, field.max_length);
    format!("{:?}", (&field.kind, &field.choices, (field.min, field.max), lengths, pattern))
}

fn fields(view: &View, (collection, action): Part) -> &[Field] {
    let collection = &view.schema.collections[collection];
    match action {
        Some(action) => &collection.actions[action].params,
        None => &collection.fields,
    }
}

fn lens(view: &View, (collection, action): Part) -> Option<&Lens> {
    match action {
        Some(action) => view.form(collection, action),
        None => view.lens(collection),
    }
}
