//! Writes a document in the layout of a serialiser: spacing, order of members, escapes, newline at
//! the end. The characters of a text stay the same; only their spelling changes.

use std::fmt::Write as _;

use super::Node;
use super::parse::unescape;

/// Of one text. Indented, a deep document grows a thousandfold; an ordinary one three times.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Of the texts in all layouts together: 16 MiB, which are written and hashed in some 50 ms. The
/// most likely layouts come first.
const MAX_TEXTS_BYTES: usize = 16 << 20;

/// How a serialiser writes documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub spacing: Spacing,
    pub sorted: bool,
    pub escapes: Escapes,
    pub newline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// `{"a":1,"b":2}`: JSON.stringify, serde_json.
    Compact,
    /// `{"a": 1, "b": 2}`: Python's json.dumps.
    Spaced,
    /// One member per line, indented by this many spaces.
    Pretty(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escapes {
    /// Only what must be escaped.
    Least,
    /// `\u00e9` for every character beyond ASCII: Python, PHP.
    Ascii,
    /// `\/` and `\u00e9`: PHP's json_encode.
    AsciiAndSlashes,
    /// `\u003c`, `\u003e` and `\u0026` for the marks of HTML: Go's encoding/json.
    Html,
}

impl Layout {
    /// The layouts of common serialisers. Most likely ones first.
    fn all() -> impl Iterator<Item = Layout> {
        use Escapes::{Ascii, AsciiAndSlashes, Html, Least};
        use Spacing::{Compact, Pretty, Spaced};
        let newlines = [false, true].into_iter();
        newlines.flat_map(|newline| {
            [false, true].into_iter().flat_map(move |sorted| {
                [Compact, Spaced, Pretty(2), Pretty(4)].into_iter().flat_map(move |spacing| {
                    [Least, Ascii, AsciiAndSlashes, Html].into_iter().map(move |escapes| Layout {
                        spacing,
                        sorted,
                        escapes,
                        newline,
                    })
                })
            })
        })
    }

    /// A document in all layouts, as far as the limits allow: nobody has to be trusted to send one.
    pub(crate) fn texts(node: &Node<'_>) -> impl Iterator<Item = (Layout, String)> {
        let mut left = MAX_TEXTS_BYTES;
        Layout::all().filter_map(move |layout| {
            let limit = left.min(MAX_TEXT_BYTES);
            let text = layout.write(node, limit);
            left -= text.as_ref().map_or(limit, String::len);
            Some((layout, text?))
        })
    }

    /// None if the text has more bytes than this.
    fn write(&self, node: &Node<'_>, max_bytes: usize) -> Option<String> {
        let mut out = String::new();
        self.node(&mut out, node, 0, max_bytes);
        if self.newline {
            out.push('\n');
        }
        (out.len() <= max_bytes).then_some(out)
    }

    fn node(&self, out: &mut String, node: &Node<'_>, depth: usize, max_bytes: usize) {
        match node {
            Node::Bare(raw) => out.push_str(raw),
            Node::Text(raw) => self.text(out, raw),
            Node::Array(items) => {
                self.items(out, (depth, max_bytes), ['[', ']'], items, |out, item| {
                    self.node(out, item, depth + 1, max_bytes);
                });
            }
            Node::Object(members) => {
                let mut members: Vec<&(&str, Node<'_>)> = members.iter().collect();
                if self.sorted {
                    members.sort_by_key(|(name, _)| *name);
                }
                self.items(out, (depth, max_bytes), ['{', '}'], &members, |out, (name, value)| {
                    self.text(out, name);
                    out.push_str(if self.spacing == Spacing::Compact { ":" } else { ": " });
                    self.node(out, value, depth + 1, max_bytes);
                });
            }
        }
    }

    fn items<T>(
        &self,
        out: &mut String,
        (depth, max_bytes): (usize, usize),
        [open, close]: [char; 2],
        items: &[T],
        mut write: impl FnMut(&mut String, &T),
    ) {
        out.push(open);
        for (place, item) in items.iter().enumerate() {
            if out.len() > max_bytes {
                return;
            }
            match (self.spacing, place) {
                (Spacing::Pretty(_), 0) => {}
                (Spacing::Spaced, 1..) => out.push_str(", "),
                (_, 1..) => out.push(','),
                (_, 0) => {}
            }
            self.indent(out, depth + 1);
            write(out, item);
        }
        if !items.is_empty() {
            self.indent(out, depth);
        }
        out.push(close);
    }

    fn indent(&self, out: &mut String, depth: usize) {
        if let Spacing::Pretty(width) = self.spacing {
            out.push('\n');
            (0..depth * width).for_each(|_| out.push(' '));
        }
    }

    fn text(&self, out: &mut String, raw: &str) {
        let Some(text) = unescape(raw) else {
            // Half of a surrogate pair: no serialiser agrees on it.
            let _ = write!(out, "\"{raw}\"");
            return;
        };
        out.push('"');
        for letter in text.chars() {
            self.letter(out, letter);
        }
        out.push('"');
    }

    fn letter(&self, out: &mut String, letter: char) {
        let ascii = matches!(self.escapes, Escapes::Ascii | Escapes::AsciiAndSlashes);
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '/' if self.escapes == Escapes::AsciiAndSlashes => out.push_str("\\/"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if self.escapes == Escapes::Html => {
                push_units(out, letter);
            }
            '\0'..='\u{1F}' => push_units(out, letter),
            _ if ascii && !letter.is_ascii() => push_units(out, letter),
            _ => out.push(letter),
        }
    }
}

fn push_units(out: &mut String, letter: char) {
    for unit in letter.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    fn check(layout: Layout, expected: &str) {
        let node = parse(r#"{"b":"é/<","a":[1,{}],"c":[]}"#).unwrap();
        assert_eq!(layout.write(&node, 1_000).as_deref(), Some(expected));
    }

    #[test]
    fn documents_are_written_as_common_serialisers_write_them() {
        let plain = Layout {
            spacing: Spacing::Compact,
            sorted: false,
            escapes: Escapes::Least,
            newline: false,
        };
        check(plain, r#"{"b":"é/<","a":[1,{}],"c":[]}"#);
        let python = Layout { spacing: Spacing::Spaced, escapes: Escapes::Ascii, ..plain };
        check(python, r#"{"b": "\u00e9/<", "a": [1, {}], "c": []}"#);
        let php = Layout { escapes: Escapes::AsciiAndSlashes, ..plain };
        check(php, r#"{"b":"\u00e9\/<","a":[1,{}],"c":[]}"#);
        let go = Layout { sorted: true, escapes: Escapes::Html, newline: true, ..plain };
        check(go, "{\"a\":[1,{}],\"b\":\"é/\\u003c\",\"c\":[]}\n");
        let pretty = Layout { spacing: Spacing::Pretty(2), ..plain };
        let lines = "{\n  \"b\": \"é/<\",\n  \"a\": [\n    1,\n    {}\n  ],\n  \"c\": []\n}";
        check(pretty, lines);
    }

    #[test]
    fn every_layout_has_the_same_value() {
        let text = r#"{"z":"\ud83d\ude00\u0001\n","a":{"n":1.50,"t":[true,null]}}"#;
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        for layout in Layout::all() {
            let written = layout.write(&parse(text).unwrap(), 1_000).unwrap();
            let read: serde_json::Value = serde_json::from_str(&written).unwrap();
            assert_eq!(read, value, "{layout:?}");
        }
    }

    #[test]
    fn a_document_that_grows_is_written_as_far_as_the_limits_allow() {
        // With an indent of 4 it has 35 MB; all layouts together have 600 MB.
        let (depth, items) = (120, 70_000);
        let text = format!("{}{}1{}", "[".repeat(depth), "1,".repeat(items), "]".repeat(depth));
        let node = parse(&text).unwrap();
        let texts: Vec<_> = Layout::texts(&node).collect();
        assert_eq!(texts[0].1, text);
        assert!(texts.iter().all(|(_, text)| text.len() <= MAX_TEXT_BYTES));
        assert!(texts.iter().map(|(_, text)| text.len()).sum::<usize>() <= MAX_TEXTS_BYTES);
        let layout = Layout {
            spacing: Spacing::Pretty(4),
            sorted: false,
            escapes: Escapes::Least,
            newline: false,
        };
        let mut out = String::new();
        layout.node(&mut out, &node, 0, 100_000);
        assert!(out.len() < 200_000, "{} bytes are written", out.len());
        // An ordinary document is written in every layout.
        let items = vec![r#"{"id":"order_1","lines":[{"sku":"a","n":1}]}"#; 1_000].join(",");
        assert_eq!(Layout::texts(&parse(&format!("[{items}]")).unwrap()).count(), 64);
    }
}
