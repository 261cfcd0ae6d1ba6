//! Identifiers of generated code: the same name for the same schema each time, none of them twice,
//! and none that the language or the generated file already uses.

use std::collections::HashSet;

/// Names that are in use in one scope of the file.
pub struct Scope {
    taken: HashSet<String>,
}

impl Scope {
    pub fn new(taken: &[&str]) -> Scope {
        Scope { taken: taken.iter().map(|name| (*name).to_owned()).collect() }
    }

    /// The name, with as many suffixes as it takes to be new.
    pub fn name(&mut self, wanted: &str, suffix: &str) -> String {
        let mut name = wanted.to_owned();
        while self.taken.contains(&name) {
            name.push_str(suffix);
        }
        self.taken.insert(name.clone());
        name
    }

    /// The base of several names that end differently: all of them are new.
    pub fn base(&mut self, wanted: &str, endings: &[String], suffix: &str) -> String {
        let mut base = wanted.to_owned();
        while endings.iter().any(|ending| self.taken.contains(&format!("{base}{ending}"))) {
            base.push_str(suffix);
        }
        self.taken.extend(endings.iter().map(|ending| format!("{base}{ending}")));
        base
    }

    /// The name of a class, which is new with `Async` before it as well.
    pub fn class(&mut self, wanted: &str, suffix: &str) -> String {
        let mut name = wanted.to_owned();
        while self.taken.contains(&name) || self.taken.contains(&format!("Async{name}")) {
            name.push_str(suffix);
        }
        self.taken.extend([name.clone(), format!("Async{name}")]);
        name
    }
}

/// `payment_intent`, `payment-intent` and `payment.intent` become `PaymentIntent`; everything that
/// is not an ASCII letter or digit separates words.
pub fn pascal(text: &str) -> String {
    let mut name = String::new();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}

/// The same with `prefix` before a name that would begin with a digit, or be empty.
pub fn type_name(text: &str, prefix: &str) -> String {
    let name = pascal(text);
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => name,
        false => format!("{prefix}{name}"),
    }
}

/// `payment-intents` becomes `paymentIntents`.
pub fn camel(text: &str) -> String {
    let name = pascal(text);
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

/// `payment-intents` becomes `payment_intents`.
pub fn snake(text: &str) -> String {
    text.replace(['-', '.'], "_")
}

/// Text for a comment of one line: without line ends and other control characters.
pub fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Control characters, line separators, and marks that change the direction of the text after
/// them, with which a comment could look like code.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A string literal that TypeScript, Python and Rust read alike, with an escape in each one's form
/// for characters that a reader of the file would not see.
pub fn literal(text: &str, escape: impl Fn(u32) -> String) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if is_hidden(c) => out.push_str(&escape(u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_identifiers() {
        for (text, in_pascal, in_camel, in_snake) in [
            ("payment-intents", "PaymentIntents", "paymentIntents", "payment_intents"),
            ("order.paid", "OrderPaid", "orderPaid", "order_paid"),
            ("a1-b2", "A1B2", "a1B2", "a1_b2"),
        ] {
            assert_eq!([pascal(text), camel(text), snake(text)], [in_pascal, in_camel, in_snake]);
        }
        assert_eq!(type_name("Bücher & Co", "Service"), "BCherCo");
        assert_eq!(type_name("2nd", "Service"), "Service2nd");
        assert_eq!(type_name("Ü", "Service"), "Service");
    }

    #[test]
    fn names_are_new_and_stay_the_same() {
        let mut scope = Scope::new(&["Client"]);
        assert_eq!(scope.name("Client", "Record"), "ClientRecord");
        assert_eq!(scope.name("Client", "Record"), "ClientRecordRecord");
        let endings = ["".to_owned(), "Create".to_owned()];
        assert_eq!(scope.base("Book", &endings, "Record"), "Book");
        assert_eq!(scope.base("BookCreate", &endings, "Record"), "BookCreateRecord");
    }

    #[test]
    fn text_from_the_schema_cannot_end_a_comment_line_or_a_literal() {
        assert_eq!(one_line("a\n b\u{2028}c\u{202e}d\r\n"), "a b c d");
        let escape = |code: u32| format!("\\u{{{code:x}}}");
        assert_eq!(literal("a\"b\\c\nd\u{0}é", escape), "\"a\\\"b\\\\c\\nd\\u{0}é\"");
    }
}
