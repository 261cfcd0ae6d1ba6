//! The index for the search in the browser: the sections of all pages with their text. It is
//! fetched once, when somebody begins to search.

use super::markdown::Section;
use serde_json::{Value, json};

/// A longer section is found by its first part only.
const MAX_TEXT_CHARS: usize = 4000;

/// The entries of one page: place, heading, text.
pub fn entries(path: &str, title: &str, sections: &[Section]) -> Vec<Value> {
    let entry = |section: &Section| {
        let place = match section.level {
            1 => path.to_owned(),
            _ => format!("{path}#{}", section.id),
        };
        let heading = match section.level {
            1 => title.to_owned(),
            _ => format!("{title}: {}", section.title),
        };
        let words = section.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = words.chars().take(MAX_TEXT_CHARS).collect();
        json!([place, heading, text])
    };
    sections.iter().map(entry).collect()
}
