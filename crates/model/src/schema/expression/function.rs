//! The operators and functions that expressions may use, as tables: what they take and what they
//! give. Only those are in here whose behaviour in the CEL library was tried. Knows no syntax tree.

use super::shape::{Shape, Type};
use cel::common::ast::operators;

/// A set of shapes that an argument may have; null is in none but `Any`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Bool,
    Text,
    Number,
    Whole,
    /// A number that is no `int`, though it may be whole.
    Fraction,
    /// Text, list or object.
    Sized,
    /// A list of texts.
    Texts,
    /// A value with a number in it: numbers and texts.
    Numeric,
    /// A value that can be written as text.
    Printable,
    Any,
}

/// How a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// `f(x)`.
    Global,
    /// `x.f()`.
    Member,
    Both,
}

#[derive(Debug)]
pub(super) struct Function {
    pub name: &'static str,
    pub style: Style,
    /// The target of a member call is the first.
    pub takes: &'static [Class],
    pub gives: Shape,
    /// Whether it gives a list of that.
    pub list: bool,
}

/// All functions. `matches` takes a literal pattern, see `check`.
pub(super) const FUNCTIONS: &[Function] = &[
    function("size", Style::Both, &[Class::Sized], Shape::Int),
    function("contains", Style::Member, &[Class::Text, Class::Text], Shape::Bool),
    function("startsWith", Style::Member, &[Class::Text, Class::Text], Shape::Bool),
    function("endsWith", Style::Member, &[Class::Text, Class::Text], Shape::Bool),
    function("matches", Style::Both, &[Class::Text, Class::Text], Shape::Bool),
    function("int", Style::Global, &[Class::Numeric], Shape::Int),
    function("double", Style::Global, &[Class::Numeric], Shape::Double),
    function("string", Style::Global, &[Class::Printable], Shape::Text),
    function("type", Style::Global, &[Class::Any], Shape::Type),
];

/// Functions for the formulas of a `convert` only. None of them makes texts longer than `cost`
/// calculates.
pub(super) const FORMULAS: &[Function] = &[
    function("math.round", Style::Global, &[Class::Fraction], Shape::Double),
    function("math.floor", Style::Global, &[Class::Fraction], Shape::Double),
    function("math.ceil", Style::Global, &[Class::Fraction], Shape::Double),
    function("lowerAscii", Style::Member, &[Class::Text], Shape::Text),
    function("upperAscii", Style::Member, &[Class::Text], Shape::Text),
    function("trim", Style::Member, &[Class::Text], Shape::Text),
    function("substring", Style::Member, &[Class::Text, Class::Whole], Shape::Text),
    function("substring", Style::Member, &[Class::Text, Class::Whole, Class::Whole], Shape::Text),
    list("split", Style::Member, &[Class::Text, Class::Text], Shape::Text),
    function("join", Style::Member, &[Class::Texts, Class::Text], Shape::Text),
    function("from_millis", Style::Global, &[Class::Whole], Shape::Timestamp),
    function("to_millis", Style::Global, &[Class::Text], Shape::Int),
];

/// The name before the dot of functions that have one.
pub(super) const NAMESPACE: &str = "math";

/// Types that an expression can compare `type(x)` with, and the shapes of their values.
pub(super) const TYPE_NAMES: &[(&str, Shape)] = &[
    ("bool", Shape::Bool),
    ("double", Shape::Double),
    ("int", Shape::Int),
    ("list", Shape::Nothing),
    ("map", Shape::Map),
    ("null_type", Shape::Null),
    ("string", Shape::Text),
];

const fn function(
    name: &'static str,
    style: Style,
    takes: &'static [Class],
    gives: Shape,
) -> Function {
    Function { name, style, takes, gives, list: false }
}

const fn list(name: &'static str, style: Style, takes: &'static [Class], of: Shape) -> Function {
    Function { name, style, takes, gives: of, list: true }
}

impl Function {
    pub fn gives(&self) -> Type {
        let kind = Type::of(self.gives.clone());
        if self.list { Type::list(kind) } else { kind }
    }
}

/// The shape of values of the type with this name.
pub(super) fn named(name: &str) -> Option<Shape> {
    let (name, shape) = TYPE_NAMES.iter().find(|(known, _)| *known == name)?;
    Some(match *name {
        "list" => Shape::List(Box::new(Type::any())),
        _ => shape.clone(),
    })
}

impl Class {
    /// Whether it takes a value of this shape that is not null.
    pub fn takes(self, shape: &Shape) -> bool {
        match self {
            Class::Bool => *shape == Shape::Bool,
            Class::Text => shape.is_text(),
            Class::Number => shape.is_number(),
            Class::Whole => *shape == Shape::Int,
            Class::Fraction => *shape == Shape::Double,
            Class::Texts => matches!(shape, Shape::List(of) if !of.nullable && of.shape.is_text()),
            Class::Sized => shape.is_text() || shape.is_object() || matches!(shape, Shape::List(_)),
            Class::Numeric => shape.is_number() || shape.is_text(),
            Class::Printable => shape.is_number() || shape.is_text() || *shape == Shape::Bool,
            Class::Any => true,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Class::Bool => "a boolean",
            Class::Text => "a string",
            Class::Number => "a number",
            Class::Whole => "an integer",
            Class::Fraction => "a number with a fraction, as `double(…)` makes one",
            Class::Texts => "a list of strings",
            Class::Sized => "a string, a list or an object",
            Class::Numeric => "a number or a string",
            Class::Printable => "a boolean, a number or a string",
            Class::Any => "a value",
        }
    }
}

/// The result of an operator for two operands, neither of which is null. None if the library has no
/// such operation.
pub(super) fn binary(operator: &str, left: &Shape, right: &Shape) -> Option<Shape> {
    use Shape::{Bool, Double, Int, List, Nothing, Text};
    // The item of an empty list is never met, so anything can be done with it.
    if *left == Nothing || *right == Nothing {
        return Some(Nothing);
    }
    match operator {
        operators::ADD => match (left, right) {
            (Int, Int) => Some(Int),
            (Double, Double) => Some(Double),
            (one, two) if one.is_text() && two.is_text() => Some(Text),
            (List(one), List(two)) => Some(List(Box::new(one.join(two)))),
            _ => None,
        },
        operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE => match (left, right) {
            (Int, Int) => Some(Int),
            (Double, Double) => Some(Double),
            _ => None,
        },
        operators::MODULO => (*left == Int && *right == Int).then_some(Int),
        operator if is_order(operator) => {
            let ordered = left.is_number() && right.is_number()
                || left.is_text() && right.is_text() && left.meets(right)
                || *left == Bool && *right == Bool;
            ordered.then_some(Bool)
        }
        _ => None,
    }
}

/// Whether an operator asks which of two values comes first.
pub(super) fn is_order(operator: &str) -> bool {
    matches!(
        operator,
        operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS
    )
}

/// The operator as it is written.
pub(super) fn written(operator: &str) -> &str {
    match operator {
        operators::IN => "in",
        other => other.trim_matches('_'),
    }
}
