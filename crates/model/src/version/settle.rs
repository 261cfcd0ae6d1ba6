//! What was sent comes back as it was sent, also where it is put together with what is kept.
//!
//! Numbers in another unit come back as they were sent. Each step up finds a number that the step
//! down shows as it was, but several may add up to another last digit: so whoever keeps one looks
//! what would be shown of it, tries the numbers beside it, and refuses it if none is shown as sent,
//! unless the change says that the nearest will do.

use super::convert::Conversion;
use super::expr::{Expr, Parsed, Rest};
use super::lens::{Lens, Lift, value_of};
use super::scale::{SLACK, Scale, beside};
use crate::record::Fields;
use crate::schema::Kind;
use crate::validate;
use serde_json::Value;

impl Expr {
    /// What was sent, and is multiplied.
    pub(super) fn multiplied(&self) -> Vec<Expr> {
        let mut found = Vec::new();
        self.visit(&mut |part| {
            if let Expr::Convert { of, by: Conversion::Times(_), .. } = part {
                of.visit(&mut |part| {
                    if part.is_place() && !found.contains(part) {
                        found.push(part.clone());
                    }
                });
            }
        });
        found
    }

    /// What it is multiplied by, the newest first.
    pub(super) fn scales(&self) -> Vec<&Scale> {
        let mut found = Vec::new();
        self.visit(&mut |part| {
            if let Expr::Convert { by: Conversion::Times(scale), .. } = part {
                found.push(scale);
            }
        });
        found
    }
}

impl Lens {
    /// Looks at what was made of what was sent, beside what is kept already.
    pub(super) fn settle(&self, raised: &mut Fields, sent: &Fields, kept: Option<&Fields>) {
        for lift in self.lifts.iter().filter(|lift| !lift.multiplied.is_empty()) {
            let name = &lift.field.name;
            let Some(value) = raised.get(name).filter(|value| !validate::is_marked(value)) else {
                continue;
            };
            let value = value.clone();
            let mut record = kept.cloned().unwrap_or_default();
            record.extend(raised.iter().map(|(name, value)| (name.clone(), value.clone())));
            let all = std::iter::once(value.clone()).chain(near(&lift.field.kind, &value));
            let settled = all.into_iter().find(|value| {
                record.insert(name.clone(), value.clone());
                self.shows(lift, &record, sent)
            });
            let settled = settled.unwrap_or_else(|| match lift.nearest {
                true => value,
                false => validate::marked(value),
            });
            raised.insert(name.clone(), settled);
        }
    }

    /// Whether the numbers that became this field are shown as they were sent.
    fn shows(&self, lift: &Lift, record: &Fields, sent: &Fields) -> bool {
        let shown = self.shown_of(lift, record);
        lift.multiplied.iter().all(|place| {
            let (was, is) = (at(place, sent), at(place, &shown));
            !was.is_number() || plain(&was) == is
        })
    }

    /// What the fields that make this one show of a record.
    fn shown_of(&self, lift: &Lift, record: &Fields) -> Fields {
        let kept = Parsed { sent: None, kept: Some(record) };
        let lines = self.lines.iter().filter(|line| lift.sent.contains(&line.name));
        lines.map(|line| (line.name.clone(), line.expr.eval(&kept).into_owned())).collect()
    }

    /// Texts of several parts, of which some have changed. The others stay as they are kept, or
    /// else as they are shown, where that stands for what is not kept: so that all of them are
    /// shown as they were sent.
    pub(super) fn rejoin(
        &self,
        raised: &mut Fields,
        (was, is): (&Parsed<'_>, &Parsed<'_>),
        (wanted, current): (&Fields, &Fields),
    ) {
        for lift in self.lifts.iter().filter(|lift| !lift.joined.is_empty()) {
            let name = &lift.field.name;
            let Some(kept) = raised.get(name).filter(|value| !validate::is_taken(value)) else {
                continue;
            };
            let kept = kept.clone();
            let shown = lift.expr.changed(was, is, value_of(current, name), Rest::Shown);
            let mut record = current.clone();
            record.extend(raised.iter().map(|(name, value)| (name.clone(), value.clone())));
            let mut fits = |value: &Value, texts_alone: bool| {
                record.insert(name.clone(), value.clone());
                let shown = self.shown_of(lift, &record);
                let same = |place: &Expr| match (at(place, wanted), at(place, &shown)) {
                    (Value::String(wanted), shown) => shown == wanted,
                    (Value::Null, shown) => texts_alone || shown.is_null(),
                    _ => true,
                };
                !validate::is_marked(value) && lift.joined.iter().all(same)
            };
            // A part that is left out may stand for something.
            let choice = [(&kept, false), (&shown, false), (&kept, true), (&shown, true)];
            let found = choice.into_iter().find(|(value, texts_alone)| fits(value, *texts_alone));
            let found = found.map(|(value, _)| value.clone());
            let unsayable =
                || if validate::is_marked(&kept) { kept } else { validate::marked(kept) };
            let settled = found.unwrap_or_else(unsayable);
            raised.insert(name.clone(), settled);
        }
    }
}

/// Numbers next to this one, or lists of one next to that in this list.
fn near(kind: &Kind, value: &Value) -> Vec<Value> {
    match (kind, value) {
        (Kind::Array(item), Value::Array(items)) if items.len() == 1 => {
            near(item, &items[0]).into_iter().map(|one| Value::Array(vec![one])).collect()
        }
        (kind, Value::Number(number)) => {
            beside(kind, number, SLACK).into_iter().map(Value::Number).collect()
        }
        _ => Vec::new(),
    }
}

/// What is in a place of what was sent or shown.
fn at(place: &Expr, sent: &Fields) -> Value {
    place.eval(&Parsed { sent: Some(sent), kept: None }).into_owned()
}

fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(validate::plain(number)),
        other => other.clone(),
    }
}
