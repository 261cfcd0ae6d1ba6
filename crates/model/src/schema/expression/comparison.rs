//! Comparisons with literals. A comparison of a value out of a known list with a text that is not
//! in the list is never true, so `check` refuses it where it is written.

use super::check::Checker;
use super::flow;
use super::shape::{Shape, Type};
use super::words::shown;
use cel::common::ast::{Expr, IdedExpr};

impl Checker<'_> {
    /// Complains about a literal that no value of this type equals.
    pub(super) fn is_known(&mut self, literal: &IdedExpr, kind: &Type) -> Option<()> {
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
