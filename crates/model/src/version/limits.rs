//! Limits of kept fields, told to a client of an older version: in its units where it has some, and
//! otherwise in words that are true of what it sent. Only looked at when a request is refused.

use super::convert::Conversion;
use super::expr::Expr;
use super::lens::{Lens, Lift, show_one, value_of};
use crate::problem::{Code, Violation};
use crate::record::Fields;
use crate::schema::Kind;
use serde_json::Value;

impl Lens {
    /// Says of a kept field that was made from what was sent why it cannot be kept. What is kept as
    /// it was sent breaks the very limit that the message names. The name stays the kept one.
    pub(super) fn retell(&self, violation: &mut Violation, sent: &Fields) {
        let lift = self.lifts.iter().find(|lift| lift.field.name == violation.field);
        let Some(lift) = lift.filter(|lift| !lift.expr.is_plain()) else { return };
        let name = &lift.field.name;
        let limit = match violation.code {
            Code::TooSmall => lift.field.min,
            Code::TooLarge => lift.field.max,
            _ => None,
        };
        if let Some(limit) = limit.and_then(|limit| self.limit(lift, violation.code, limit)) {
            let (code, bound) = limit;
            let side = if code == Code::TooLarge { "most" } else { "least" };
            violation.code = code;
            violation.message = format!("`{name}` must be at {side} {bound}.");
            return;
        }
        let part = if lift.is_part() { "A part of " } else { "" };
        let than = |what: &str, verb: &str| {
            format!("{part}`{name}` is {what} than newer versions of this service {verb} it.")
        };
        violation.message = match violation.code {
            Code::Required if lift.sent.iter().all(|name| value_of(sent, name).is_null()) => return,
            Code::Required => {
                format!("`{name}` lacks what newer versions of this service require.")
            }
            Code::TooLong => than("longer", "keep"),
            Code::TooShort => than("shorter", "take"),
            Code::TooLarge => than("larger", "keep"),
            Code::TooSmall => than("smaller", "take"),
            // Says nothing about limits, but not what was sent either.
            Code::Unsuitable => {
                let alone = lift.sent.len() == 1 && !lift.field.write_only;
                let echoed = lift.expr.sent_path().filter(|_| alone);
                if let Some((name, value)) = echoed.and_then(|name| sent.get_key_value(&name)) {
                    violation.blame(name, Some(value));
                }
                return;
            }
            _ => format!("`{name}` has a value that newer versions of this service do not take."),
        };
    }

    /// A limit as this version would say it, and what breaking it is there: a factor below zero
    /// turns the greatest value into the least.
    fn limit(&self, lift: &Lift, code: Code, limit: f64) -> Option<(Code, String)> {
        let shows = |expr: &Expr| expr.converted() == Some(&lift.field.name);
        let line = self.lines.iter().find(|line| shows(&line.expr))?;
        let (expr, falls) = unrounded(&line.expr)?;
        let is_most = (code == Code::TooLarge) != falls;
        let whole = limit.fract() == 0.0 && limit.abs() < i64::MAX as f64;
        let limit = if whole { Value::from(limit as i64) } else { Value::from(limit) };
        let bound = match show_one(&expr, &lift.field.name, &limit) {
            Value::String(instant) => instant,
            Value::Number(number) => match line.field.as_ref()?.kind {
                Kind::Integer if is_most => number.as_f64()?.floor().to_string(),
                Kind::Integer => number.as_f64()?.ceil().to_string(),
                _ => number.to_string(),
            },
            _ => return None,
        };
        Some((if is_most { Code::TooLarge } else { Code::TooSmall }, bound))
    }
}

impl Lift {
    /// Whether it is kept in pieces.
    pub(super) fn is_part(&self) -> bool {
        let mut found = false;
        self.expr.visit(&mut |expr| found |= matches!(expr, Expr::Part { .. }));
        found
    }
}

/// The expression without what stands for null and without whole numbers as an aim, and whether
/// greater values become smaller ones; none where values have another order or none.
fn unrounded(expr: &Expr) -> Option<(Expr, bool)> {
    let Expr::Convert { of, by, .. } = expr else {
        return matches!(expr, Expr::Kept(_)).then(|| (expr.clone(), false));
    };
    let (of, falls) = unrounded(of)?;
    match by {
        Conversion::Fill(_) => Some((of, falls)),
        Conversion::Over(scale) => {
            Some((of.lowered(Conversion::Over(scale.exact())), falls != scale.falls()))
        }
        _ if by.keeps_order() => Some((of.lowered(by.clone()), falls)),
        _ => None,
    }
}
