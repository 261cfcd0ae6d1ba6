//! Texts out of a known list: the values of an enum, the states, the event types, the names of
//! fields. A comparison of one with a text that is not in its list never holds, so it is refused
//! where it is written. Knows no collection: `scope` and `event` make the lists.

use super::check::Checker;
use super::flow;
use super::shape::{Shape, Type};
use crate::schema::parse::hint;
use cel::common::ast::{Expr, IdedExpr};
use std::sync::Arc;

/// Values that a message lists; of longer lists it names the nearest one only.
const LISTED: usize = 12;
/// Characters of an unknown text that a message repeats.
const SHOWN_CHARS: usize = 60;

/// A list of texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// What one of them is called in messages: "event type", "value of `status`".
    pub noun: String,
    pub all: Vec<String>,
}

impl Words {
    /// The type of a text that is one of these.
    pub fn kind<'w>(noun: &str, all: impl IntoIterator<Item = &'w str>) -> Type {
        let mut list: Vec<String> = Vec::new();
        for word in all {
            if !list.iter().any(|known| known == word) {
                list.push(word.to_owned());
            }
        }
        Type::of(Shape::Words(Arc::new(Words { noun: noun.to_owned(), all: list })))
    }

    pub fn has(&self, word: &str) -> bool {
        self.all.iter().any(|known| known == word)
    }

    /// The words of either list.
    pub fn union(&self, other: &Words) -> Words {
        let noun = if self.noun == other.noun { self.noun.as_str() } else { "value of either" };
        let more = other.all.iter().filter(|word| !self.has(word));
        let all = self.all.iter().chain(more).cloned().collect();
        Words { noun: noun.to_owned(), all }
    }

    fn unknown(&self, word: &str) -> String {
        let near = hint(word, self.all.iter().map(String::as_str));
        let listed = match self.all.len() {
            1..=LISTED => format!("; there are: {}", self.all.join(", ")),
            _ => String::new(),
        };
        format!("`{}` is no {}{near}{listed}", shown(word), self.noun)
    }
}

fn shown(word: &str) -> String {
    word.chars().take(SHOWN_CHARS).collect()
}

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
