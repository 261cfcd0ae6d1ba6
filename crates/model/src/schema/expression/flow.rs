//! Facts about members at a place in an expression, from conditions such as `record.x != null &&
//! …`. A fact says that a member is there, and its type. Knows the forms of conditions; `check`
//! gives the types.

use super::check::Checker;
use super::shape::{Shape, Type};
use super::{event, function};
use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use std::collections::BTreeMap;

/// A variable and the members that lead on from it: `record`, `address`, `city`.
pub(super) type Path = Vec<String>;

pub(super) type Facts = BTreeMap<Path, Type>;

/// The path that an expression is, if it is one.
pub(super) fn path(node: &IdedExpr) -> Option<Path> {
    match &node.expr {
        Expr::Ident(name) => Some(vec![name.clone()]),
        Expr::Select(select) if !select.test => {
            let mut path = path(&select.operand)?;
            path.push(select.field.clone());
            Some(path)
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let [of, key] = call.args.as_slice() else { return None };
            let mut path = path(of)?;
            path.push(text(key)?.to_owned());
            Some(path)
        }
        _ => None,
    }
}

/// The text of a literal.
pub(super) fn text(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// As it is written in an expression.
pub(super) fn show(path: &[String]) -> String {
    let is_name = |word: &String| {
        word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !word.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut out = path.first().cloned().unwrap_or_default();
    for word in path.iter().skip(1) {
        match is_name(word) {
            true => out.extend([".", word]),
            false => out.push_str(&format!("['{word}']")),
        }
    }
    out
}

impl Checker<'_> {
    /// The facts that hold where the condition is known to be true, or false.
    pub(super) fn given(&mut self, condition: &IdedExpr, truth: bool, facts: &Facts) -> Facts {
        match &condition.expr {
            Expr::Call(call) => self.given_call(call, truth, facts),
            Expr::Select(select) if select.test && truth => {
                let mut found = facts.clone();
                if let Some(mut path) = path(&select.operand)
                    && let Some(kind) = self.declared(&select.operand, &select.field, facts)
                {
                    path.push(select.field.clone());
                    found.entry(path).or_insert(kind);
                }
                found
            }
            _ => facts.clone(),
        }
    }

    fn given_call(&mut self, call: &CallExpr, truth: bool, facts: &Facts) -> Facts {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_NOT, [of]) => self.given(of, !truth, facts),
            (operators::LOGICAL_AND, [left, right]) | (operators::LOGICAL_OR, [left, right]) => {
                let decides = call.func_name == operators::LOGICAL_AND;
                let first = self.given(left, truth, facts);
                if truth == decides {
                    return self.given(right, truth, &first);
                }
                // One of the two; not which, and not that the other is the contrary: it may
                // have had an error.
                let second = self.given(right, truth, facts);
                common(&first, &second)
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let holds = self.given(condition, true, facts);
                let fails = self.given(condition, false, facts);
                let is = |node: &IdedExpr, truth: bool| match &node.expr {
                    Expr::Literal(LiteralValue::Boolean(found)) => **found == truth,
                    _ => false,
                };
                match (is(yes, !truth), is(no, !truth)) {
                    (true, _) => self.given(no, truth, &fails),
                    (_, true) => self.given(yes, truth, &holds),
                    _ => {
                        let (yes, no) =
                            (self.given(yes, truth, &holds), self.given(no, truth, &fails));
                        common(&yes, &no)
                    }
                }
            }
            (operators::EQUALS, [left, right]) if truth => self.equal(left, right, facts),
            (operators::NOT_EQUALS, [left, right]) if !truth => self.equal(left, right, facts),
            (operators::NOT_EQUALS | operators::EQUALS, [left, right]) => {
                self.unequal(left, right, facts)
            }
            ("startsWith", [head]) if truth => {
                let mut found = facts.clone();
                if let (Some(target), Some(head)) = (&call.target, text(head)) {
                    self.event_is(target, |known| known.starts_with(head), &mut found);
                }
                found
            }
            (operators::IN, [item, container]) if truth => {
                self.given_within(item, container, facts)
            }
            _ => facts.clone(),
        }
    }

    fn equal(&mut self, left: &IdedExpr, right: &IdedExpr, facts: &Facts) -> Facts {
        let mut found = facts.clone();
        for (one, other) in [(left, right), (right, left)] {
            if let Some(kind) = text(other) {
                self.event_is(one, |known| known == kind, &mut found);
            }
            if let Some((path, shape)) = type_test(one, other) {
                if let Some(kind) = self.known(&path, facts) {
                    found.insert(path, tested(kind, shape));
                }
            } else if let Some(path) = path(one)
                && path_or_literal(other)
                && let Some(kind) = self.known(&path, facts)
                && let Some(as_other) = self.quiet(other, facts)
            {
                found.insert(path, narrowed(kind, &as_other));
            }
        }
        found
    }

    fn unequal(&mut self, left: &IdedExpr, right: &IdedExpr, facts: &Facts) -> Facts {
        let mut found = facts.clone();
        let is_null = |node: &IdedExpr| matches!(node.expr, Expr::Literal(LiteralValue::Null));
        for (one, other) in [(left, right), (right, left)] {
            if is_null(other)
                && let Some(path) = path(one)
                && let Some(kind) = self.known(&path, facts)
            {
                found.insert(path, kind.not_null());
            }
        }
        found
    }

    /// `event.type` says which object the event has.
    fn event_is(&self, node: &IdedExpr, passes: impl Fn(&str) -> bool, facts: &mut Facts) {
        if path(node).is_none_or(|path| path != ["event", "type"]) {
            return;
        }
        let objects = self.scope.objects(passes);
        if !objects.is_empty() {
            let path = ["event", "data", "object"].map(str::to_owned).to_vec();
            facts.insert(path, event::all(objects));
        }
    }

    fn given_within(&mut self, item: &IdedExpr, container: &IdedExpr, facts: &Facts) -> Facts {
        let mut found = facts.clone();
        if let Expr::List(list) = &container.expr
            && let Some(kinds) = list.elements.iter().map(text).collect::<Option<Vec<_>>>()
        {
            self.event_is(item, |known| kinds.contains(&known), &mut found);
        }
        let simple = match &container.expr {
            Expr::List(list) => list.elements.iter().all(path_or_literal),
            _ => path(container).is_some(),
        };
        let Some(kind) = simple.then(|| self.quiet(container, facts)).flatten() else {
            return found;
        };
        match (&kind.shape, path(container), text(item)) {
            (Shape::List(of), ..) => {
                if let Some(path) = path(item)
                    && let Some(kind) = self.known(&path, facts)
                {
                    found.insert(path, narrowed(kind, of));
                }
            }
            (Shape::Map, Some(mut path), Some(key)) => {
                path.push(key.to_owned());
                found.entry(path).or_insert(Type::any());
            }
            _ => {}
        }
        found
    }
}

/// `type(path) == name`.
fn type_test(call: &IdedExpr, name: &IdedExpr) -> Option<(Path, Shape)> {
    let (Expr::Call(call), Expr::Ident(name)) = (&call.expr, &name.expr) else { return None };
    let ([of], None, "type") = (call.args.as_slice(), &call.target, call.func_name.as_str()) else {
        return None;
    };
    Some((path(of)?, function::named(name)?))
}

/// An expression that is cheap to type: conditions are typed more than once.
fn path_or_literal(node: &IdedExpr) -> bool {
    matches!(node.expr, Expr::Literal(_)) || path(node).is_some()
}

/// The type of a value that equals one of another type.
fn narrowed(kind: Type, equals: &Type) -> Type {
    if equals.shape == Shape::Null {
        return Type::null();
    }
    let nullable = kind.nullable && equals.nullable;
    let shape = match (kind.shape, &equals.shape) {
        (Shape::Any, shape) if shape.is_text() => Shape::Text,
        (Shape::Any, Shape::Bool) => Shape::Bool,
        (shape, _) => shape,
    };
    Type { shape, nullable }
}

/// The type of a value for which `type(x)` returns this. A declared type stays: `string` is the
/// type of timestamps, too.
fn tested(kind: Type, shape: Shape) -> Type {
    match (&kind.shape, &shape) {
        (_, Shape::Null) => Type::null(),
        (Shape::Any, _) | (Shape::Number, Shape::Int | Shape::Double) => Type::of(shape),
        _ => kind.not_null(),
    }
}

/// The facts that hold in both cases.
fn common(one: &Facts, other: &Facts) -> Facts {
    let both = one.iter().filter_map(|(path, kind)| Some((path, kind.join(other.get(path)?))));
    both.map(|(path, kind)| (path.clone(), kind)).collect()
}
