//! The types of expressions: what is known of a value before evaluation. Knows nothing of syntax.

use super::words::Words;
use std::fmt;
use std::sync::Arc;

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    pub shape: Shape,
    /// Whether it can also be null.
    pub nullable: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// No value at all: the item of an empty list, or an expression that is never evaluated.
    Nothing,
    /// Null and nothing else.
    Null,
    Bool,
    Int,
    Double,
    /// An `int` or a `double`; which of them is known when there is a value.
    Number,
    Text,
    /// One of the texts of a list.
    Words(Arc<Words>),
    /// A text in the form of a timestamp, or of a date.
    Timestamp,
    Date,
    /// An IP address as text.
    Address,
    List(Box<Type>),
    /// An object whose members are known.
    Object(Arc<Object>),
    /// An object of which nothing is known but that its keys are texts.
    Map,
    /// The result of `type(x)`.
    Type,
    /// Anything.
    Any,
}

/// An object with known members.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The word for a member in messages: "field", "parameter", "member".
    pub noun: &'static str,
    pub members: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub name: String,
    pub kind: Type,
    /// Whether the object has it always; otherwise it may be absent.
    pub always: bool,
}

impl Type {
    pub fn of(shape: Shape) -> Type {
        Type { shape, nullable: false }
    }

    pub fn null() -> Type {
        Type { shape: Shape::Null, nullable: true }
    }

    pub fn any() -> Type {
        Type { shape: Shape::Any, nullable: true }
    }

    pub fn or_null(self) -> Type {
        Type { nullable: true, ..self }
    }

    /// The type without null. Null itself becomes nothing.
    pub fn not_null(self) -> Type {
        let shape = if self.shape == Shape::Null { Shape::Nothing } else { self.shape };
        Type::of(shape)
    }

    pub fn list(item: Type) -> Type {
        Type::of(Shape::List(Box::new(item)))
    }

    pub fn object(noun: &'static str, members: Vec<Member>) -> Type {
        Type::of(Shape::Object(Arc::new(Object { noun, members })))
    }

    /// The type of a value that has one type or the other.
    pub fn join(&self, other: &Type) -> Type {
        let nullable = self.nullable || other.nullable;
        Type { shape: self.shape.join(&other.shape), nullable }
    }

    /// Whether the two can be equal. A comparison with null is never wrong: whether a field can be
    /// null changes with the schema.
    pub fn meets(&self, other: &Type) -> bool {
        let null = |kind: &Type| kind.shape == Shape::Null;
        null(self) || null(other) || self.shape.meets(&other.shape)
    }
}

impl Shape {
    pub fn is_text(&self) -> bool {
        matches!(self, Shape::Text | Shape::Words(_)) || self.has_form()
    }

    /// Whether it is a text that always has the form of its type.
    pub(super) fn has_form(&self) -> bool {
        matches!(self, Shape::Timestamp | Shape::Date | Shape::Address)
    }

    pub fn is_number(&self) -> bool {
        matches!(self, Shape::Int | Shape::Double | Shape::Number)
    }

    pub fn is_object(&self) -> bool {
        matches!(self, Shape::Object(_) | Shape::Map)
    }

    fn join(&self, other: &Shape) -> Shape {
        match (self, other) {
            (Shape::Nothing | Shape::Null, shape) | (shape, Shape::Nothing | Shape::Null) => {
                shape.clone()
            }
            (one, two) if one == two => one.clone(),
            (Shape::Words(one), Shape::Words(two)) => Shape::Words(Arc::new(one.union(two))),
            (one, two) if one.is_text() && two.is_text() => Shape::Text,
            (one, two) if one.is_number() && two.is_number() => Shape::Number,
            (one, two) if one.is_object() && two.is_object() => Shape::Map,
            (Shape::List(one), Shape::List(two)) => Shape::List(Box::new(one.join(two))),
            _ => Shape::Any,
        }
    }

    pub(super) fn meets(&self, other: &Shape) -> bool {
        match (self, other) {
            (Shape::Any | Shape::Nothing, _) | (_, Shape::Any | Shape::Nothing) => true,
            (Shape::List(one), Shape::List(two)) => one.meets(two),
            (Shape::Words(one), Shape::Words(two)) => one.all.iter().any(|word| two.has(word)),
            // A text in one form is never one in another.
            (one, two) if one.has_form() && two.has_form() => one == two,
            (one, two) => {
                one == two
                    || one.is_text() && two.is_text()
                    || one.is_number() && two.is_number()
                    || one.is_object() && two.is_object()
            }
        }
    }
}

impl Object {
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

impl Member {
    pub fn new(name: &str, kind: Type) -> Member {
        Member { name: name.to_owned(), kind, always: true }
    }
}

/// With its article, as messages need it.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Nothing => "no value",
            Shape::Null => "null",
            Shape::Bool => "a boolean",
            Shape::Int => "an integer",
            Shape::Double | Shape::Number => "a number",
            Shape::Text | Shape::Words(_) => "a string",
            Shape::Timestamp => "a timestamp",
            Shape::Date => "a date",
            Shape::Address => "an address",
            Shape::List(_) => "a list",
            Shape::Object(_) | Shape::Map => "an object",
            Shape::Type => "a type",
            Shape::Any => "of unknown type",
        })
    }
}
