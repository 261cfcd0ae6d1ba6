//! CEL texts of the file: compiled here, and held to the names they may use, because a rule with a
//! misspelt field would otherwise never fire and nobody would know. Knows fields and parameters,
//! not which action or rule a text belongs to.

use super::naming;
use super::reader::{Report, Text};
use crate::schema::rule::{Expression, Scene};
use crate::schema::{Field, Kind};
use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use core::net::Ipv4Addr;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Longest expression; keeps the parser's recursion and every evaluation short.
const EXPRESSION_CHARS: usize = 1000;

/// Deepest nesting of brackets: the parser of the CEL library recurses on each.
const EXPRESSION_DEPTH: usize = 20;

/// Longest run of `!` or `-`, on which it recurses too.
const OPERATOR_RUN: usize = 8;

/// Types that CEL lets one name as values, as in `type(request.x) == int`.
const TYPE_NAMES: &[&str] =
    &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// What an expression may name.
pub(super) struct Names<'a> {
    /// Members of `record`: assigned and declared fields.
    pub record: Vec<&'a str>,
    pub fields: &'a [Field],
    /// Members of `request`: the action's parameters. None where nobody asks: then there is no
    /// `client` either.
    pub params: Option<&'a [Field]>,
}

/// Compiles and checks one text; complains at its place.
pub(super) fn compile(
    report: &mut Report<'_>,
    text: Text<'_>,
    names: &Names<'_>,
) -> Option<Expression> {
    if let Err(message) = within_limits(text.value) {
        report.say(text.at, message);
        return None;
    }
    let expression = match Expression::compile(text.value) {
        Ok(expression) => expression,
        Err(error) => {
            // The library draws the place under the text on further lines; one line is enough here.
            let reason = error.lines().next().unwrap_or("it cannot be parsed");
            report.say(text.at, format!("not a CEL expression: {reason}"));
            return None;
        }
    };
    let faults = unknown_names(&expression, names);
    let ok = faults.is_empty();
    for fault in faults {
        report.say(text.at, fault);
    }
    ok.then_some(expression)
}

fn within_limits(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("the expression is empty".to_owned());
    }
    if text.chars().count() > EXPRESSION_CHARS {
        return Err(format!("an expression has at most {EXPRESSION_CHARS} characters"));
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
        if depth > EXPRESSION_DEPTH || run > OPERATOR_RUN {
            return Err(format!(
                "an expression nests at most {EXPRESSION_DEPTH} deep; split it into several rules"
            ));
        }
    }
    Ok(())
}

/// Every name in the expression that means nothing here.
fn unknown_names(expression: &Expression, names: &Names<'_>) -> BTreeSet<String> {
    let used = Used::of(expression.syntax());
    let params = names.params.unwrap_or_default();
    let params: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
    let (roots, listed): (&[&str], &str) = match names.params {
        Some(_) => (&["record", "request", "client", "now"], "`record`, `request`, `client`"),
        None => (&["record", "request", "now"], "`record`, `request`"),
    };
    let mut faults = BTreeSet::new();
    for name in used.variables.difference(&used.bound) {
        if !roots.contains(name) && !TYPE_NAMES.contains(name) {
            let hint = naming::hint(name, roots.iter().copied());
            faults.insert(format!(
                "unknown name `{name}` in the expression{hint}; it can use {listed} and `now`"
            ));
        }
    }
    for (root, member) in &used.members {
        let (known, what) = match *root {
            "record" => (&names.record, "field"),
            "request" => (&params, "parameter"),
            _ => continue,
        };
        if !known.contains(member) {
            let hint = naming::hint(member, known.iter().copied());
            faults.insert(format!("`{root}.{member}` names no {what} declared here{hint}"));
        }
    }
    if faults.is_empty() {
        faults.extend(unknown_function(expression, names));
    }
    faults
}

/// A trial on sample values: the library tells of unknown functions only when it runs into them.
fn unknown_function(expression: &Expression, names: &Names<'_>) -> Option<String> {
    let sample = |fields: &[Field]| -> Map<String, Value> {
        fields.iter().map(|field| (field.name.clone(), sample_value(&field.kind))).collect()
    };
    let mut record = sample(names.fields);
    for name in &names.record {
        record.entry((*name).to_owned()).or_insert_with(|| json!("x"));
    }
    let scene = Scene {
        record: &record,
        request: &sample(names.params.unwrap_or_default()),
        client: Some(Ipv4Addr::LOCALHOST.into()),
        now: "2026-01-01T00:00:00.000Z".into(),
    };
    let error = expression.evaluate(&scene).err()?;
    let name = error.strip_prefix("Undeclared reference to ")?;
    Some(format!("the expression calls {name}, which does not exist"))
}

fn sample_value(kind: &Kind) -> Value {
    match kind {
        Kind::Integer => json!(1),
        Kind::Number => json!(1.5),
        Kind::Boolean => json!(true),
        Kind::Object => json!({}),
        Kind::Array(items) => json!([sample_value(items)]),
        Kind::Timestamp => json!("2026-01-01T00:00:00.000Z"),
        Kind::Date => json!("2026-01-01"),
        Kind::String => json!("x"),
    }
}

/// The names an expression uses.
#[derive(Default)]
struct Used<'e> {
    variables: BTreeSet<&'e str>,
    /// Variables that macros such as `all` and `exists` bind.
    bound: BTreeSet<&'e str>,
    /// `record.x` and `request.x`.
    members: BTreeSet<(&'e str, &'e str)>,
}

impl<'e> Used<'e> {
    fn of(root: &'e IdedExpr) -> Used<'e> {
        let mut used = Used::default();
        let mut waiting = vec![root];
        while let Some(next) = waiting.pop() {
            used.look(&next.expr, &mut waiting);
        }
        used
    }

    fn look(&mut self, expr: &'e Expr, waiting: &mut Vec<&'e IdedExpr>) {
        match expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => {
                if !name.starts_with('@') {
                    self.variables.insert(name);
                }
            }
            Expr::Select(select) => {
                if let Expr::Ident(root) = &select.operand.expr {
                    self.members.insert((root, &select.field));
                }
                waiting.push(&select.operand);
            }
            Expr::Call(call) => {
                waiting.extend(call.target.as_deref());
                waiting.extend(&call.args);
            }
            Expr::List(list) => waiting.extend(&list.elements),
            Expr::Map(map) => Used::entries(&map.entries, waiting),
            Expr::Struct(object) => Used::entries(&object.entries, waiting),
            Expr::Comprehension(each) => {
                self.bound.insert(&each.iter_var);
                self.bound.extend(each.iter_var2.as_deref());
                self.bound.insert(&each.accu_var);
                waiting.extend([
                    &each.iter_range,
                    &each.accu_init,
                    &each.loop_cond,
                    &each.loop_step,
                    &each.result,
                ]);
            }
        }
    }

    fn entries(entries: &'e [cel::common::ast::IdedEntryExpr], waiting: &mut Vec<&'e IdedExpr>) {
        for entry in entries {
            match &entry.expr {
                EntryExpr::StructField(field) => waiting.push(&field.value),
                EntryExpr::MapEntry(pair) => waiting.extend([&pair.key, &pair.value]),
            }
        }
    }
}
