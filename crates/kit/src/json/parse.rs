//! Reads a JSON document (RFC 8259) strictly. The depth is bounded, so that a document cannot
//! exhaust the stack.

use super::{JsonFault, Node};

/// Objects and arrays inside one another. 128: what common parsers accept.
pub(crate) const MAX_DEPTH: usize = 128;
/// Bytes that are compared at once: those of a common vector register.
const CHUNK: usize = 16;

pub(crate) fn parse(text: &str) -> Result<Node<'_>, JsonFault> {
    let mut reader = Reader { text, at: 0 };
    reader.skip_space();
    let node = reader.value(0)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.fault("something follows the document")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn fault(&self, reason: &'static str) -> JsonFault {
        JsonFault { at_byte: self.at, reason }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, JsonFault> {
        if depth > MAX_DEPTH {
            return Err(self.fault("objects and arrays are nested too deeply"));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Node::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(_) => Err(self.fault("no value begins with this character")),
            None => Err(self.fault("the document ends early")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>, JsonFault> {
        self.at += 1;
        let mut members = Vec::new();
        self.skip_space();
        if self.take(b'}') {
            return Ok(Node::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("a member must begin with its name"));
            }
            let name = self.string()?;
            self.skip_space();
            if !self.take(b':') {
                return Err(self.fault("a colon is missing"));
            }
            self.skip_space();
            members.push((name, self.value(depth + 1)?));
            self.skip_space();
            if self.take(b'}') {
                return Ok(Node::Object(members));
            }
            if !self.take(b',') {
                return Err(self.fault("a comma or } is missing"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node<'a>, JsonFault> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.take(b']') {
            return Ok(Node::Array(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.take(b']') {
                return Ok(Node::Array(items));
            }
            if !self.take(b',') {
                return Err(self.fault("a comma or ] is missing"));
            }
        }
    }

    /// Characters of a text that mean only themselves, many at a time.
    fn skip_plain(&mut self) {
        let is_plain = |byte: &u8| (*byte >= 0x20) & (*byte != b'"') & (*byte != b'\\');
        // Without a branch per byte, the compiler compares a whole chunk at once.
        let all_plain = |chunk: &&[u8]| chunk.iter().fold(true, |all, byte| all & is_plain(byte));
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.chunks_exact(CHUNK).take_while(all_plain).count() * CHUNK;
    }

    /// The text between two quotes.
    fn string(&mut self) -> Result<&'a str, JsonFault> {
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(&self.text[start..self.at - 1]);
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0..=0x1F) => return Err(self.fault("a control character is not escaped")),
                Some(_) => self.at += 1,
                None => return Err(self.fault("a text does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonFault> {
        let digits = match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 0,
            Some(b'u') => 4,
            _ => return Err(self.fault("an escape that JSON does not have")),
        };
        self.at += 1;
        for _ in 0..digits {
            if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                return Err(self.fault("\\u needs four hex digits"));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonFault> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.fault("a digit is missing")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Node<'a>, JsonFault> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(Node::Bare(&self.text[start..self.at]))
    }

    fn word(&mut self, word: &'static str) -> Result<Node<'a>, JsonFault> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fault("no value begins with this character"));
        }
        self.at += word.len();
        Ok(Node::Bare(word))
    }
}

/// A text without its escapes. None for half of a surrogate pair, which is no character.
pub(crate) fn unescape(raw: &str) -> Option<String> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let kind = *rest.as_bytes().get(at + 1)?;
        rest = &rest[at + 2..];
        match kind {
            b'u' => {
                let (unit, after) = unit(rest)?;
                rest = after;
                let code = match unit {
                    0xD800..=0xDBFF => {
                        let (low, after) = unit_after_escape(rest)?;
                        rest = after;
                        0x10000 + ((unit - 0xD800) << 10) + low.checked_sub(0xDC00)?
                    }
                    other => other,
                };
                out.push(char::from_u32(code)?);
            }
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{C}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            other => out.push(char::from(other)),
        }
    }
    out.push_str(rest);
    Some(out)
}

fn unit(text: &str) -> Option<(u32, &str)> {
    let unit = u32::from_str_radix(text.get(..4)?, 16).ok()?;
    Some((unit, &text[4..]))
}

fn unit_after_escape(text: &str) -> Option<(u32, &str)> {
    let (low, rest) = unit(text.strip_prefix("\\u")?)?;
    (0xDC00..=0xDFFF).contains(&low).then_some((low, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_parser_accepts_is_accepted_and_nothing_else() {
        for text in [
            "{}",
            "[]",
            " [1, -0.5e+10, true, null] ",
            r#"{"a":{"b":[{}]},"a":"\u00e9\n"}"#,
            "1",
            "\"\\ud83d\\ude00\"",
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "1.",
            "-",
            "+1",
            "nul",
            "\"a",
            "\"\t\"",
            "\"\\x\"",
            "\"\\u12\"",
            "{} {}",
            "{a:1}",
            "{\"a\" 1}",
            "'a'",
            "NaN",
            "1e5",
            "1E",
            "\u{FEFF}{}",
            "[1 2]",
            "\u{A0}1",
        ] {
            let theirs = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(parse(text).is_ok(), theirs, "{text}");
        }
    }

    #[test]
    fn a_text_is_read_alike_wherever_its_special_characters_are() {
        for length in 0..50 {
            for place in 0..=length {
                for special in ["\\n", "\\", "\"", "\n", "\u{1f}", " ", "é", "\u{7f}"] {
                    let (before, after) = ("a".repeat(place), "b".repeat(length - place));
                    let text = format!("\"{before}{special}{after}\"");
                    let expected = serde_json::from_str::<serde_json::Value>(&text).is_ok();
                    assert_eq!(parse(&text).is_ok(), expected, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn deep_documents_are_refused_and_not_followed() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse(&deep(MAX_DEPTH)).is_ok());
        let fault = parse(&deep(100_000)).unwrap_err();
        assert_eq!(fault.reason, "objects and arrays are nested too deeply");
    }

    #[cfg(any(feature = "receiver", feature = "inbox"))]
    #[test]
    fn members_are_found_by_name_unless_they_are_ambiguous() {
        let document = parse(r#"{"id":"a\u0062\ud83d\ude00","n":-7,"two":1,"two":2}"#).unwrap();
        assert_eq!(document.member("id").and_then(Node::text).as_deref(), Some("ab😀"));
        assert_eq!(document.member("n").and_then(Node::integer), Some(-7));
        assert_eq!(document.member("two"), None);
        assert_eq!(document.member("three"), None);
        assert_eq!(unescape(r"\ud83d"), None, "half a pair");
        assert_eq!(unescape(r"\ud83d\u0041"), None);
        assert_eq!(unescape(r"\/\\\b"), Some("/\\\u{8}".into()));
    }
}
