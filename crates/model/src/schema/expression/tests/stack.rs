//! Neither parsing nor evaluating takes more of the stack than a thread has.

use super::super::*;
use serde_json::json;

/// What threads of the standard library and of tokio have.
const STACK_BYTES: usize = 2 << 20;

/// An expression with `n` levels of each kind that recurses.
fn nested(n: usize) -> Vec<String> {
    let around = |open: &str, inner: &str, close: &str| {
        let brackets = n.min(limit::DEPTH / open.matches(['(', '[', '{', '?']).count().max(1));
        open.repeat(brackets) + inner + &close.repeat(brackets)
    };
    vec![
        around("(", "1", ")"),
        around("[", "1", "]"),
        around("{'a':", "1", "}"),
        around("size([", "1", "])"),
        around("!(", "true", ")"),
        around("true?(", "1", "):1"),
        around("[1].map(x,", "1", ")"),
        around("[1].all(x,", "true", ")"),
        around("1+(", "1", ")"),
        "1+".repeat(n) + "1",
        "true==".repeat(n) + "true",
        "record".to_owned() + &".a".repeat(n),
        "'a'".to_owned() + &".size()".repeat(n),
        "false?1:".repeat(n.min(limit::DEPTH)) + "1",
        "true&&".repeat(n) + "true",
        "has(record.a) && ".repeat(n) + "true",
    ]
}

#[test]
fn no_expression_that_is_accepted_exhausts_the_stack() {
    let evaluated = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {
        let record = json!({ "a": 1 });
        let record = record.as_object().unwrap();
        let inputs = Inputs { record, request: &Map::new(), client: None, now: String::new() };
        let mut evaluated = 0;
        for n in [1, 5, 9, 10, 20, 30, 31, 32, 60, 100] {
            for text in nested(n).iter().filter(|text| text.len() <= limit::CHARS) {
                if let Ok(expression) = Expression::compile(text) {
                    let _ = expression.evaluate(&inputs);
                    let _ = expression.check(&super::scope());
                    evaluated += 1;
                }
            }
        }
        evaluated
    });
    let evaluated = evaluated.unwrap().join().unwrap();
    assert!(evaluated > 90, "{evaluated}: the limits refuse everything");
}
