//! Full-text search. The words of a record are in a `tsvector` beside it, written in its own
//! commit: a search never lags. The words are found here and not by the database, by the rules of
//! the other engine (letters and digits, without case and diacritics), so that both find the same.

use super::layout::SearchField;
use model::query::Query;
use model::record::Fields;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Words of one query that count.
const WORDS: usize = 64;
/// Bytes of one word: the database takes 2046, with its mark.
const WORD_BYTES: usize = 2000;
/// Bytes of all words of one record: the database takes 1 MiB with their places. What comes after
/// them is not found.
const RECORD_BYTES: usize = 512 << 10;
/// The database counts places up to this one, and this many of one word.
const PLACES: usize = 16_383;
const PLACES_OF_WORD: usize = 255;

/// The words of a text: runs of letters and digits.
fn words(text: &str) -> Vec<String> {
    let (mut found, mut word) = (Vec::new(), String::new());
    for character in text.nfd() {
        if is_combining_mark(character) {
            continue;
        }
        if character.is_alphanumeric() {
            word.extend(character.to_lowercase().map(folded));
        } else if !word.is_empty() {
            found.push(std::mem::take(&mut word));
        }
    }
    if !word.is_empty() {
        found.push(word);
    }
    for word in &mut found {
        word.truncate(word.floor_char_boundary(WORD_BYTES));
    }
    found
}

/// Small letters that are another form of a small letter, and share its capital letter.
fn folded(small: char) -> char {
    match small {
        'ς' => 'σ',
        'ſ' => 's',
        'µ' => 'μ',
        other => other,
    }
}

/// Words of a removed field have its place before them: only versions that have it look for them.
fn marked(place: usize, field: &SearchField, word: &str) -> String {
    match field.removed {
        true => format!("{place}~{word}"),
        false => word.to_owned(),
    }
}

/// The words of a record, as text that the database reads as a `tsvector`.
pub fn vector(searched: &[SearchField], fields: &Fields) -> String {
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let (mut next, mut bytes) = (1, 0);
    for (place, field) in searched.iter().enumerate() {
        let Some(text) = text_of(fields, &field.name) else { continue };
        for word in words(&text) {
            bytes += word.len() + 8;
            if bytes > RECORD_BYTES {
                return encoded(&places);
            }
            let found = places.entry(marked(place, field, &word)).or_default();
            if next <= PLACES && found.len() < PLACES_OF_WORD {
                found.push(next);
            }
            next += 1;
        }
        // Words of two fields are not next to each other.
        next += 1;
    }
    encoded(&places)
}

fn encoded(places: &BTreeMap<String, Vec<usize>>) -> String {
    let mut out = String::new();
    for (word, places) in places {
        if !out.is_empty() {
            out.push(' ');
        }
        // Letters, digits and the mark: nothing to escape.
        let _ = write!(out, "'{word}'");
        for (n, place) in places.iter().enumerate() {
            let _ = write!(out, "{}{place}", if n == 0 { ':' } else { ',' });
        }
    }
    out
}

fn text_of(fields: &Fields, name: &str) -> Option<String> {
    match fields.get(name)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The `tsquery` of a search: every word in some of the fields. A word of the query that has
/// several words in it stands for these in a row. None where there are no such fields.
pub fn expression(searched: &[SearchField], query: &Query) -> Option<String> {
    let looked_into = |field: &SearchField| !field.removed || query.revealed.contains(&field.name);
    let plain = searched.iter().enumerate().find(|(_, field)| !field.removed);
    let removed = searched.iter().enumerate().filter(|(_, field)| field.removed);
    let fields: Vec<(usize, &SearchField)> =
        plain.into_iter().chain(removed).filter(|(_, field)| looked_into(field)).collect();
    if fields.is_empty() {
        return None;
    }
    let mut parts = Vec::new();
    for word in query.words.iter().take(WORDS) {
        let phrase = words(word);
        if phrase.is_empty() {
            continue;
        }
        let of = |(place, field): &(usize, &SearchField)| {
            let words = phrase.iter().map(|word| format!("'{}'", marked(*place, field, word)));
            words.collect::<Vec<_>>().join(" <-> ")
        };
        let some: Vec<String> = fields.iter().map(of).map(|one| format!("({one})")).collect();
        parts.push(format!("({})", some.join(" | ")));
    }
    Some(parts.join(" & "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_without_case_and_diacritics() {
        for (text, expected) in [
            ("Título 7", "titulo 7"),
            ("foo-bar baz@example.com", "foo bar baz example com"),
            ("1.5 -2", "1 5 2"),
            ("", ""),
            ("日本 ÅNGSTRÖM", "日本 angstrom"),
            ("a\0b", "a b"),
            ("ΟΔΌΣ οδός ẛſ", "οδοσ οδοσ ss"),
        ] {
            assert_eq!(words(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_vector_has_places_and_fields_are_apart() {
        let field = |name: &str, removed| SearchField { name: name.to_owned(), removed };
        let searched = [field("title", false), field("old", true)];
        let value = serde_json::json!({"title": "Sand sand", "old": "It's"});
        let Value::Object(fields) = value else { panic!() };
        assert_eq!(vector(&searched, &fields), "'1~it':4 '1~s':5 'sand':1,2");
    }
}
