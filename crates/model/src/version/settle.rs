//! What was sent comes back as it was sent, also where it is put together with what is kept.
//!
//! Numbers in another unit come back as they were sent. Each step up finds a number that the step
//! down shows as it was, but several may add up to another last digit: so whoever keeps one looks
//! what would be shown of it, tries the numbers beside it, and refuses it if none is shown as sent,
//! unless the change says that the nearest will do.

use super::convert::Conversion;
use super::expr::{Expr, Parsed, Rest};
use super::lens::{Lens, Lift, Line, value_of};
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
    /// Numbers in another unit that were made of what was sent, beside what is kept already.
    pub(super) fn settle(&self, raised: &mut Fields, sent: &Fields, kept: Option<&Fields>) {
        for lift in self.lifts.iter().filter(|lift| !lift.multiplied.is_empty()) {
            let name = &lift.field.name;
            let Some(value) = raised.get(name).filter(|value| !validate::is_marked(value)) else {
                continue;
            };
            let value = value.clone();
            let all = std::iter::once(value.clone()).chain(near(&lift.field.kind, &value));
            let same = |shown: &Fields| {
                lift.multiplied.iter().all(|place| {
                    let (was, is) = (at(place, sent), at(place, shown));
                    !was.is_number() || plain(&was) == is
                })
            };
            let found = self.first_shown(lift, after(kept, raised), all, same);
            let settled = found.unwrap_or_else(|| match lift.nearest {
                true => value,
                false => validate::marked(value),
            });
            raised.insert(name.clone(), settled);
        }
    }

    /// Texts of several parts, of which some have changed. The others stay as they are kept, or
    /// else as they are shown, where that stands for what is not kept.
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
            let same = |shown: &Fields, texts_alone: bool| {
                lift.joined.iter().all(|place| match (at(place, wanted), at(place, shown)) {
                    (Value::String(wanted), shown) => shown == wanted,
                    (Value::Null, shown) => texts_alone || shown.is_null(),
                    _ => true,
                })
            };
            // A part that is left out may stand for something.
            let found = [false, true].into_iter().find_map(|texts_alone| {
                let both = [kept.clone(), shown.clone()];
                let both = both.into_iter().filter(|value| !validate::is_marked(value));
                let record = after(Some(current), raised);
                self.first_shown(lift, record, both, |shown| same(shown, texts_alone))
            });
            let unsayable =
                || if validate::is_marked(&kept) { kept } else { validate::marked(kept) };
            let settled = found.unwrap_or_else(unsayable);
            raised.insert(name.clone(), settled);
        }
    }

    /// The first of several values of a kept field with which the fields that make it are shown
    /// as they should be.
    fn first_shown(
        &self,
        lift: &Lift,
        mut record: Fields,
        values: impl IntoIterator<Item = Value>,
        same: impl Fn(&Fields) -> bool,
    ) -> Option<Value> {
        let lines = self.lines.iter().filter(|line| lift.sent.contains(&line.name));
        let lines: Vec<_> = lines.collect();
        values.into_iter().find(|value| {
            record.insert(lift.field.name.clone(), value.clone());
            let kept = Parsed { sent: None, kept: Some(&record) };
            let show = |line: &&Line| (line.name.clone(), line.expr.eval(&kept).into_owned());
            same(&lines.iter().map(show).collect())
        })
    }
}

/// A kept record after a change.
pub(super) fn after(kept: Option<&Fields>, raised: &Fields) -> Fields {
    let mut after = kept.cloned().unwrap_or_default();
    after.extend(raised.iter().map(|(name, value)| (name.clone(), value.clone())));
    after
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
