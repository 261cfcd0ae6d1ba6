//! Text for terminals: JSON with line breaks, without characters that control the terminal.

use std::fmt::Write as _;
use std::io::IsTerminal;

/// Whether output to this stream is coloured (no-color.org).
pub fn is_coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Escapes control characters as JSON does. Clients of the API choose ids and payloads: an escape
/// sequence in them must not reach the terminal of the operator.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || changes_direction(c) {
            true => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            false => out.push(c),
        }
    }
    out
}

/// Characters that make a terminal show a line in another order than it is.
fn changes_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Breaks compact JSON into lines. Fields keep their order and numbers their digits, which parsing
/// and serialising it again would not guarantee.
pub fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped, mut opened) = (0_usize, false, false, false);
    for c in json.chars() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            out.push(c);
            continue;
        }
        let closes = matches!(c, '}' | ']');
        // An empty object or array stays on its line.
        if opened && !closes {
            depth += 1;
            line(&mut out, depth);
        }
        if closes && !opened {
            depth = depth.saturating_sub(1);
            line(&mut out, depth);
        }
        opened = matches!(c, '{' | '[');
        quoted = c == '"';
        out.push(c);
        match c {
            ',' => line(&mut out, depth),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn json_is_broken_into_lines_without_changing_it() {
        let text = r#"{"z":1.50,"a":[],"o":{},"l":[1,{"k":"a\"},{\\"}],"n":null}"#;
        let lines = r#"{
  "z": 1.50,
  "a": [],
  "o": {},
  "l": [
    1,
    {
      "k": "a\"},{\\"
    }
  ],
  "n": null
}"#;
        assert_eq!(indented(text), lines);
        let whole: Value = json!({"a": [[], [[1]], {"b": {"c": "\\"}}], "d": "}"});
        let again: Value = serde_json::from_str(&indented(&whole.to_string())).unwrap();
        assert_eq!(again, whole);
    }

    #[test]
    fn output_cannot_control_the_terminal() {
        let hostile = "a\u{1b}[2J\u{9b}b\r\n\u{7f}";
        assert_eq!(printable(hostile), "a\\u001b[2J\\u009bb\\u000d\\u000a\\u007f");
        assert_eq!(printable("Dürer 日本"), "Dürer 日本");
    }
}
