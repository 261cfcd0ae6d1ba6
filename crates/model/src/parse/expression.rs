//! CEL texts of the file, compiled with their places. `typing` checks their types when all
//! collections and versions are read.

use super::reader::{Report, Text};
use crate::schema::Diagnostic;
use crate::schema::expression::Expression;

/// Most characters before the text in a string of the file: three quotes, a line break, `=`.
const QUOTES: usize = 6;

/// Compiles one text; complains at its place.
pub(super) fn compile(report: &mut Report<'_>, text: Text<'_>) -> Option<Expression> {
    let origin = origin(report.source(), text);
    match Expression::compile(text.value) {
        Ok(mut expression) => {
            let Diagnostic { line, column, .. } = Diagnostic::at(report.source(), origin.0, "");
            expression.place = Some((line, column));
            expression.origin = origin;
            Some(expression)
        }
        Err(complaint) => {
            report.say(place(origin, complaint.at), complaint.message);
            None
        }
    }
}

/// The offset of something in an expression; where the string has escapes, of the string.
pub(super) fn place((start, exact): (usize, bool), at: usize) -> usize {
    if exact { start + at } else { start }
}

/// Where the text begins, and whether the file has it as it is, without escapes.
fn origin(source: &str, text: Text<'_>) -> (usize, bool) {
    let found = (1..=QUOTES)
        .map(|quotes| text.at + quotes)
        .find(|start| source.get(*start..).is_some_and(|rest| rest.starts_with(text.value)));
    found.filter(|_| !text.value.is_empty()).map_or((text.at, false), |start| (start, true))
}
