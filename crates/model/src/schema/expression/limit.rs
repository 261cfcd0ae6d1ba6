//! How large an expression may be. The parser and the evaluator of the CEL library recurse, so both
//! the text and the parsed expression are bounded before either runs. Knows no types.

use super::children;
use cel::common::ast::IdedExpr;

/// Longest expression; keeps the parser's recursion and every evaluation short.
pub(super) const CHARS: usize = 1000;

/// Deepest nesting of brackets: the parser of the CEL library recurses on each.
pub(super) const DEPTH: usize = 20;

/// Longest run of `!` or `-`, on which it recurses too.
const OPERATOR_RUN: usize = 8;

/// Most levels of a parsed expression: each operator, call and member adds one to those below it. A
/// level takes 40 KiB of the stack if the library is built without optimisation, and expressions
/// are evaluated on threads with 2 MiB.
pub(super) const LEVELS: usize = 32;

pub(super) const TOO_DEEP: &str = "an expression has at most 32 levels of operators, calls and \
                                   members in each other; split it into several rules";

pub(super) fn check_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("the expression is empty".to_owned());
    }
    if text.chars().count() > CHARS {
        return Err(format!("an expression has at most {CHARS} characters"));
    }
    let (mut depth, mut run) = (0usize, 0usize);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' | '?' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if matches!(c, '!' | '-') {
            run += 1;
        } else if !c.is_whitespace() {
            run = 0;
        }
        if depth > DEPTH || run > OPERATOR_RUN {
            return Err(format!(
                "an expression nests at most {DEPTH} deep; split it into several rules"
            ));
        }
    }
    Ok(())
}

/// Levels of a parsed expression. A loop, since the expression may be too deep to recurse into.
pub(super) fn depth(root: &IdedExpr) -> usize {
    let mut deepest = 0;
    let mut waiting = vec![(root, 1)];
    while let Some((node, level)) = waiting.pop() {
        deepest = deepest.max(level);
        waiting.extend(children(&node.expr).into_iter().map(|child| (child, level + 1)));
    }
    deepest
}
