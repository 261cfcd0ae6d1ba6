//! What a list of an older version asks for, in the words of the newest: names and values of
//! filters, and names of sort keys.

use super::convert::Conversion;
use super::expr::{Expr, Parsed};
use super::lens::{Lens, Line};
use crate::problem::{Code, Problem, Violation};
use crate::query::{Filter, Query, Test};
use crate::record::{Fields, Scalar, to_scalar};
use crate::schema::{Field, Kind};
use crate::time::Timestamp;
use serde_json::Value;

/// Whether lists can be sorted by what the expression makes. Words sort as the newest ones do.
pub(super) fn sorts(expr: &Expr) -> bool {
    match expr {
        Expr::Kept(_) => true,
        Expr::Convert { of, by, .. } => (by.keeps_order() || is_wording(by)) && sorts(of),
        _ => false,
    }
}

fn is_wording(by: &Conversion) -> bool {
    matches!(by, Conversion::Table(_) | Conversion::Fill(_) | Conversion::Empty(_))
}

/// Whether bounds can be translated. What stands for null is counted as it is kept.
fn ranges(expr: &Expr) -> bool {
    match expr {
        Expr::Kept(_) => true,
        Expr::Convert { of, by: Conversion::Fill(_) | Conversion::Empty(_), .. } => ranges(of),
        Expr::Convert { of, by, .. } => by.keeps_order() && ranges(of),
        _ => false,
    }
}

impl Lens {
    /// Turns names and values of filters and sort keys into those of the newest version.
    pub fn query(&self, query: &mut Query) -> Result<(), Problem> {
        let mut filters = Vec::with_capacity(query.filters.len());
        let mut violations = Vec::new();
        for filter in query.filters.drain(..) {
            match self.declared(&filter.field) {
                None => filters.push(filter),
                Some((line, field)) => match self.filter(line, field, &filter.test) {
                    Ok(raised) => filters.extend(raised),
                    Err(violation) => violations.push(violation),
                },
            }
        }
        query.filters = filters;
        for key in &mut query.sort {
            let Some((line, _)) = self.declared(&key.field) else { continue };
            match line.expr.converted().filter(|_| sorts(&line.expr)) {
                Some(kept) => key.field = kept.to_owned(),
                None => violations.push(refusal("sort", format!("cannot be by `{}`", key.field))),
            }
        }
        match violations.is_empty() {
            true => Ok(()),
            false => Err(Problem::of(Code::InvalidParameter, violations)),
        }
    }

    fn declared(&self, name: &str) -> Option<(&Line, &Field)> {
        let line = self.lines.iter().find(|line| line.name == name)?;
        Some((line, line.field.as_ref()?))
    }

    fn filter(&self, line: &Line, field: &Field, test: &Test) -> Result<Vec<Filter>, Violation> {
        let cannot = || refusal(&field.name, "cannot be filtered by in this version".to_owned());
        let kept = line.expr.converted().ok_or_else(cannot)?;
        let lift = self.lifts.iter().find(|lift| lift.field.name == kept).ok_or_else(cannot)?;
        let made = |test| Filter { field: kept.to_owned(), test };
        let bound = |scalar: &Scalar, name: &str| {
            let none = "has no counterpart in the newest version".to_owned();
            match ranges(&line.expr) {
                true => bound(&lift.expr, field, scalar).ok_or_else(|| refusal(name, none)),
                false => Err(refusal(name, "cannot be used in this version".to_owned())),
            }
        };
        let (least, most) = (format!("min_{}", field.name), format!("max_{}", field.name));
        let tick = tick(&line.expr);
        Ok(match test {
            Test::AnyOf(values) => match (values.as_slice(), tick) {
                // All instants of a second are shown as that second.
                ([Scalar::Integer(ticks)], Some(tick)) => {
                    let first = bound(&Scalar::Integer(*ticks), &field.name)?;
                    let last = later(&first, tick);
                    vec![made(Test::Min(first)), made(Test::Max(last))]
                }
                _ => {
                    let scalars = values.iter().map(|value| value_of(&field.kind, value));
                    let kept_values = scalars
                        .flat_map(|value| origins(line, kept, &lift.field, &lift.expr, &value));
                    vec![made(Test::AnyOf(kept_values.collect()))]
                }
            },
            Test::Min(value) => vec![made(Test::Min(bound(value, &least)?))],
            Test::Max(value) => {
                let last = bound(value, &most)?;
                vec![made(Test::Max(tick.map_or(last.clone(), |tick| later(&last, tick))))]
            }
            Test::Like(_) => vec![made(test.clone())],
        })
    }
}

fn refusal(name: &str, what: String) -> Violation {
    Violation::new(name, Code::InvalidParameter, format!("`{name}` {what}."))
}

/// Milliseconds of one tick, where the expression counts instants in longer ones; of the longest,
/// where it does so more than once.
fn tick(expr: &Expr) -> Option<i64> {
    let mut found = None;
    expr.visit(&mut |part| {
        if let Expr::Convert { by: Conversion::ToTicks(tick), .. } = part {
            found = found.max(Some(*tick).filter(|tick| *tick > 1));
        }
    });
    found
}

/// The last instant of the tick that begins here.
fn later(first: &Scalar, tick: i64) -> Scalar {
    match first {
        Scalar::Integer(instant) => Scalar::Integer(instant + tick - 1),
        other => other.clone(),
    }
}

/// The kept values that are shown as this one: what it becomes, and others that look like it.
fn origins(line: &Line, kept: &str, field: &Field, up: &Expr, value: &Value) -> Vec<Scalar> {
    let choices = field.choices.iter().map(|choice| Value::from(choice.as_str()));
    let mut candidates = vec![raise(up, &line.name, value), Value::Null];
    candidates.extend(choices);
    let mut found = Vec::new();
    for candidate in candidates {
        let scalar = to_scalar(&field.kind, &candidate);
        if line.show_one(kept, &candidate) == *value && !found.contains(&scalar) {
            found.push(scalar);
        }
    }
    found
}

fn raise(up: &Expr, name: &str, value: &Value) -> Value {
    let sent: Fields = std::iter::once((name.to_owned(), value.clone())).collect();
    up.eval(&Parsed { sent: Some(&sent), kept: None }).into_owned()
}

/// A bound need not be a value that can be kept: half a cent is a bound between two prices.
fn bound(up: &Expr, field: &Field, scalar: &Scalar) -> Option<Scalar> {
    let value = raise(&loosened(up), &field.name, &value_of(&field.kind, scalar));
    match &value {
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Some(Scalar::Integer(whole)),
            None => number.as_f64().map(Scalar::Number),
        },
        Value::String(text) => match Timestamp::parse(text) {
            Some(instant) => Some(Scalar::Integer(instant.0)),
            None => Some(Scalar::Text(text.clone())),
        },
        _ => None,
    }
}

/// The expression without whole numbers as an aim.
fn loosened(expr: &Expr) -> Expr {
    match expr {
        Expr::Convert { of, by, marks } => {
            let by = match by {
                Conversion::Times(factor, _) => Conversion::Times(*factor, Kind::Number),
                other => other.clone(),
            };
            Expr::Convert { of: Box::new(loosened(of)), by, marks: *marks }
        }
        other => other.clone(),
    }
}

/// A value of the version from what its filter was read as.
fn value_of(kind: &Kind, scalar: &Scalar) -> Value {
    match (kind, scalar) {
        (_, Scalar::Null) => Value::Null,
        (Kind::Boolean, Scalar::Integer(flag)) => Value::Bool(*flag != 0),
        (Kind::Timestamp, Scalar::Integer(instant)) => Value::String(Timestamp(*instant).to_iso()),
        (_, Scalar::Integer(whole)) => Value::from(*whole),
        (_, Scalar::Number(number)) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Value::from(*number as i64)
        }
        (_, Scalar::Number(number)) => Value::from(*number),
        (_, Scalar::Text(text)) => Value::from(text.as_str()),
    }
}
