//! Comparisons with literals. A comparison of a value out of a known list with a text that is not
//! in the list is never true, so `check` refuses it where it is written. So is a comparison of a
//! time, a date or an address with a text in another form: it is never equal, and text order is
//! time order only between texts in the stored form.

use super::check::Checker;
use super::flow;
use super::shape::{Shape, Type};
use super::words::shown;
use crate::time::{Timestamp, is_date};
use cel::common::ast::{Expr, IdedExpr, operators};
use core::net::IpAddr;

impl Checker<'_> {
    /// Complains about a literal that no value of this type equals.
    pub(super) fn is_known(&mut self, literal: &IdedExpr, kind: &Type) -> Option<()> {
        if kind.shape.has_form()
            && let Expr::Call(call) = &literal.expr
            && let (operators::CONDITIONAL, [_, yes, no]) = (&*call.func_name, &call.args[..])
        {
            let (yes, no) = (self.is_known(yes, kind), self.is_known(no, kind));
            return yes.and(no);
        }
        if let Some(message) = flow::text(literal).and_then(|text| other_form(text, &kind.shape)) {
            return self.say(literal, message);
        }
        match (flow::text(literal), &kind.shape) {
            (Some(word), Shape::Words(words)) if !words.has(word) => {
                let message = words.unknown(word);
                self.say(literal, message)
            }
            _ => Some(()),
        }
    }

    /// Complains about literals on one side, or items of literal lists, that no value on the other
    /// side equals.
    pub(super) fn can_equal(
        &mut self,
        (left, one): (&IdedExpr, &Type),
        (right, two): (&IdedExpr, &Type),
        facts: &flow::Facts,
    ) -> Option<()> {
        self.is_known(left, two)?;
        self.is_known(right, one)?;
        match (&left.expr, &right.expr, &one.shape, &two.shape) {
            (Expr::List(first), Expr::List(second), ..) => {
                for (left, right) in first.elements.iter().zip(&second.elements) {
                    let (one, two) = (self.quiet(left, facts)?, self.quiet(right, facts)?);
                    self.can_equal((left, &one), (right, &two), facts)?;
                }
                Some(())
            }
            (Expr::List(_), _, _, Shape::List(item)) => self.are_known(left, item),
            (_, Expr::List(_), Shape::List(item), _) => self.are_known(right, item),
            _ => Some(()),
        }
    }

    /// Complains about items of a literal list that no value of this type equals.
    pub(super) fn are_known(&mut self, list: &IdedExpr, kind: &Type) -> Option<()> {
        let Expr::List(list) = &list.expr else { return Some(()) };
        let found = list.elements.iter().map(|item| self.is_known(item, kind));
        // Each of them is looked at, so that each is reported.
        found.collect::<Vec<_>>().into_iter().collect()
    }

    /// Reports a comparison that orders two texts differently from the values that they represent.
    pub(super) fn is_ordered(
        &mut self,
        (operator, node): (&str, &IdedExpr),
        (left, one): (&IdedExpr, &Type),
        (right, two): (&IdedExpr, &Type),
    ) -> Option<()> {
        if one.shape == Shape::Address || two.shape == Shape::Address {
            let message = format!(
                "`{operator}` would compare addresses as texts, in which '10.0.0.9' is after \
                 '10.0.0.10'; use `==`, `in` or `startsWith('10.')`"
            );
            return self.say(node, message);
        }
        self.is_known(left, two)?;
        self.is_known(right, one)
    }

    /// Complains about a part that no text of the target's list has.
    pub(super) fn is_part(
        &mut self,
        function: &str,
        (target, part): (&IdedExpr, &IdedExpr),
        facts: &flow::Facts,
    ) -> Option<()> {
        let has: fn(&str, &str) -> bool = match function {
            "startsWith" => |word, part| word.starts_with(part),
            "endsWith" => |word, part| word.ends_with(part),
            "contains" => |word, part| word.contains(part),
            _ => return Some(()),
        };
        let (Some(text), Some(kind)) = (flow::text(part), self.quiet(target, facts)) else {
            return Some(());
        };
        match &kind.shape {
            Shape::Words(words) if !words.all.iter().any(|word| has(word, text)) => {
                let message =
                    format!("{function}('{}') is true for no {}", shown(text), words.noun);
                self.say(part, message)
            }
            _ => Some(()),
        }
    }
}

/// Why no value of this shape equals the text, if it has a form that the text has not.
fn other_form(text: &str, shape: &Shape) -> Option<String> {
    let (spelled, example) = match shape {
        Shape::Timestamp => {
            (Timestamp::parse(text).map(Timestamp::to_iso), "'2026-01-31T08:30:00.000Z'")
        }
        Shape::Date => (is_date(text).then(|| text.to_owned()), "'2026-01-31'"),
        Shape::Address => {
            let address = text.parse::<IpAddr>().ok();
            let spelled = address.map(|address| address.to_canonical().to_string());
            (spelled, "'192.0.2.7' or '2001:db8::7', or use `startsWith('10.')` for a network")
        }
        _ => return None,
    };
    let text = shown(text);
    match spelled {
        Some(spelled) if spelled == text => None,
        Some(spelled) => {
            Some(format!("`{text}` is never {shape} as it is kept; write '{spelled}'"))
        }
        None => Some(format!("`{text}` is not {shape}; write one such as {example}")),
    }
}
