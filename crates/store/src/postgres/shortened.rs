//! Long texts in indexes. The database takes 2,704 bytes of one row into an index, and a field
//! takes far longer texts. So an index has the beginning of a long text and the SHA-256 of the
//! whole, and so has every condition and order that an index serves. The column has the whole text.
//!
//! Between both is a NUL, which no value has: two texts have the same form only if they are equal,
//! and a position in a list says which order it is of. Texts with the same beginning are in the
//! order of their hashes.
//!
//! Whoever changes the form gives the indexes other names (`layout::indexes`), so that they are
//! made again.

use super::param::encoded;
use model::record::Scalar;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// Characters of a short text, and of the beginning of a long one: an index has room for eight
/// texts of four bytes each.
const KEPT: usize = 60;

/// The form of a column. Two characters that stand for one (`param`) are not cut apart: the
/// beginning ends before them, and is filled up.
pub fn sql(column: &str) -> String {
    format!(
        "(CASE WHEN char_length({column}) <= {KEPT} THEN {column} ELSE \
         rpad(split_part(left({column}, {KEPT}), chr(1), 1), {KEPT}, ' ') || repeat(chr(1), 2) || \
         encode(sha256(decode(replace({column}, chr(92), repeat(chr(92), 2)), 'escape')), 'hex') \
         END)"
    )
}

/// The form of a value.
pub fn of(value: &Scalar) -> Scalar {
    match value {
        Scalar::Text(text) => Scalar::Text(of_text(text)),
        other => other.clone(),
    }
}

fn of_text(text: &str) -> String {
    let stored = encoded(Cow::Borrowed(text));
    let Some((end, _)) = stored.char_indices().nth(KEPT) else { return text.to_owned() };
    let beginning = stored[..end].split('\u{1}').next().unwrap_or_default();
    let hash = Sha256::digest(stored.as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{beginning:KEPT$}\0{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_as_different_as_texts_and_in_the_order_of_their_beginnings() {
        let beginning = "b".repeat(KEPT);
        let mut texts: Vec<String> = ["", "a", "é", "\u{1}"].map(String::from).into();
        for long in ["c", "d", "\u{1}", "\\", "𠀀"] {
            texts.push(format!("{beginning}{long}"));
            texts.push(long.repeat(KEPT));
            texts.push(long.repeat(KEPT + 1));
        }
        let forms: Vec<String> = texts.iter().map(|text| of_text(text)).collect();
        for (text, form) in texts.iter().zip(&forms) {
            match encoded(text.into()).chars().count() > KEPT {
                true => assert_eq!(form.chars().position(|c| c == '\0'), Some(KEPT), "{text:?}"),
                false => assert_eq!(form, text),
            }
        }
        let mut different = forms.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), texts.len());
        assert!(of_text(&"a".repeat(99)) < of_text(&"b".repeat(70)));
    }
}
