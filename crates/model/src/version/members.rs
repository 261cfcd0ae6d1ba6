//! Members of free objects that are fields by now: what a client of an older version may put there.
//! Told by the contract of the version alone; requests are held to the fields themselves.

use super::convert::Conversion;
use super::expr::Expr;
use super::lens::Lens;
use crate::schema::{Field, Kind};
use serde_json::Value;
use std::collections::BTreeMap;

impl Lens {
    /// By object of this version: its members that may not hold just anything, each as a field that
    /// takes what it may. None of them must be there.
    pub fn members(&self) -> BTreeMap<String, Vec<Field>> {
        let mut found: BTreeMap<String, Vec<Field>> = BTreeMap::new();
        let mut add = |expr: &Expr, mut field: Field| {
            let Some((object, member)) = member(expr, &mut field) else { return };
            member.clone_into(&mut field.name);
            // What is said of the field as such is not said of the member.
            (field.required, field.default, field.deprecated) = (false, None, None);
            (field.write_only, field.read_only) = (false, false);
            let known = found.entry(object.to_owned()).or_default();
            if known.iter().all(|other| other.name != field.name) {
                known.push(field);
            }
        };
        self.lifts.iter().for_each(|lift| add(&lift.expr, lift.field.clone()));
        // On the way into another object it was a field, which had to take it.
        for lift in &self.lifts {
            lift.expr.visit(&mut |part| {
                if let Expr::Convert { by: Conversion::Takes(declared), .. } = part {
                    add(part, declared.field().clone());
                }
            });
        }
        found
    }
}

/// The object that was sent and the member of it that becomes a field. The field is then one that
/// takes what may be sent.
fn member<'a>(expr: &'a Expr, field: &mut Field) -> Option<(&'a str, &'a str)> {
    match expr {
        Expr::Member { of, name } => Some((object(of, name)?, name)),
        Expr::With { of, .. } => member(of, field),
        Expr::Convert { of, by, .. } => {
            unconvert(field, by);
            member(of, field)
        }
        _ => None,
    }
}

/// The object that was sent, whatever becomes of its other members.
fn object<'a>(expr: &'a Expr, member: &str) -> Option<&'a str> {
    match expr {
        Expr::Sent(name) => Some(name),
        Expr::With { of, name, .. } if name != member => object(of, member),
        Expr::Convert { of, by, .. } if by.fills() => object(of, member),
        _ => None,
    }
}

/// The field before a conversion.
fn unconvert(field: &mut Field, by: &Conversion) {
    match by {
        Conversion::Fill(_) => {}
        Conversion::Takes(declared) => *field = declared.field().clone(),
        Conversion::Table(pairs) if !field.choices.is_empty() => {
            let is_old = |word: &String| pairs.iter().any(|(old, _)| old == word);
            let stay = field.choices.iter().filter(|word| !is_old(word)).cloned();
            let raised = |(old, new): &(Value, Value)| {
                let known = field.choices.iter().any(|word| new == word);
                old.as_str().filter(|_| known).map(str::to_owned)
            };
            field.choices = stay.chain(pairs.iter().filter_map(raised)).collect();
        }
        Conversion::Only(pairs) if pairs.iter().all(|(old, _)| old.is_string()) => {
            let words = pairs.iter().filter_map(|(old, _)| old.as_str());
            *field = Field { choices: words.map(str::to_owned).collect(), ..text() };
        }
        // Limits have other units there, or none.
        _ => *field = Field::new("", field.kind.clone()),
    }
}

fn text() -> Field {
    Field::new("", Kind::String)
}
