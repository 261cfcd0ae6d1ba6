//! Texts out of a known list: the values of an enum, the states, the event types, the names of
//! fields. Knows no collection: `scope` and `event` make the lists.

use super::shape::{Shape, Type};
use crate::spelling::hint;
use std::sync::Arc;

/// Values that a message lists; of longer lists it names the nearest one only.
const LISTED: usize = 12;
/// Characters of an unknown text that a message repeats.
const SHOWN_CHARS: usize = 60;

/// A list of texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// The word for one of them in messages: "event type", "value of `status`".
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

    pub fn unknown(&self, word: &str) -> String {
        let near = hint(word, self.all.iter().map(String::as_str));
        let listed = match self.all.len() {
            1..=LISTED => format!("; there are: {}", self.all.join(", ")),
            _ => String::new(),
        };
        format!("`{}` is no {}{near}{listed}", shown(word), self.noun)
    }
}

pub fn shown(word: &str) -> String {
    word.chars().take(SHOWN_CHARS).collect()
}
