//! JSON without a library: just enough to read the members of an event that a receiver needs, and
//! to write a body in the layouts of other serialisers. Texts and numbers stay as they were
//! written. Knows no event.

mod layout;
mod parse;

pub(crate) use layout::{Escapes, Layout, Spacing};
pub(crate) use parse::parse;

/// A value that borrows the document. Texts keep their escapes and have no quotes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    /// Members in their order, by name.
    Object(Vec<(&'a str, Node<'a>)>),
    Array(Vec<Node<'a>>),
    Text(&'a str),
    /// A number, `true`, `false` or `null`.
    Bare(&'a str),
}

/// Why a document cannot be used. The text says where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonFault {
    pub at_byte: usize,
    pub reason: &'static str,
}

#[cfg(any(feature = "receiver", feature = "inbox"))]
impl<'a> Node<'a> {
    /// A member of an object. None if it is missing, or there more than once: two readers could
    /// take different ones.
    pub(crate) fn member(&self, name: &str) -> Option<&Node<'a>> {
        let Node::Object(members) = self else { return None };
        let mut found = members.iter().filter(|(own, _)| *own == name);
        let first = found.next()?;
        found.next().is_none().then_some(&first.1)
    }

    /// A text without its escapes.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Node::Text(raw) => parse::unescape(raw),
            _ => None,
        }
    }

    /// A whole number.
    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Node::Bare(raw) => raw.parse().ok(),
            _ => None,
        }
    }
}
