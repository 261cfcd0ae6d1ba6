//! Files that are no schema at all: nothing may panic, hang or exhaust the stack.

use crate::parse::parse;
use crate::schema::BOOKSHOP;

/// A collection with a past.
const PAST: &str = "[[mounts]]
path = '/v0'
version = '2024-01-01'
[[versions]]
date = '2026-01-01'
[[versions.changes]]
collection = 'toys'
rename = { from = 'label', to = 'name', beside = true }
[[versions.changes]]
collection = 'toys'
convert = { field = 'price', from = 'number',
  up = 'int(math.round(value * 100.0))', down = 'double(value) / 100.0' }
[[versions]]
date = '2025-01-01'
[[versions.changes]]
collection = 'toys'
convert = { field = 'one', from = 'string', up = 'value', down = 'value' }
[[versions.changes]]
collection = 'toys'
action = 'sell'
rename = { from = 'sum', to = 'total' }
[[versions]]
date = '2024-01-01'
[collections.toys]
fields = { name = 'string', price = 'integer', one = 'string', two = 'string' }
actions.sell.params = { total = 'integer' }
";

/// Bytes of a file are cut, doubled, swapped and replaced; none of it may panic.
#[test]
fn no_damaged_file_brings_the_reader_down() {
    assert_eq!(parse(PAST).err(), None);
    damage(BOOKSHOP, 400);
    damage(PAST, 1000);
}

fn damage(source: &str, times: usize) {
    let spare: Vec<char> = "=\"'[]{}.,#\n\\ü\u{0}09-ax\u{feff}".chars().collect();
    let whole: Vec<char> = source.chars().collect();
    // A small generator with a fixed seed: the same damage on every run.
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for _ in 0..times {
        let mut text = whole.clone();
        for _ in 0..=random(4) {
            let at = random(text.len());
            match random(4) {
                0 => drop(text.drain(at..(at + random(30)).min(text.len()))),
                1 => text.insert(at, spare[random(spare.len())]),
                2 => text[at] = spare[random(spare.len())],
                _ => {
                    let piece: Vec<char> = text[at..(at + random(200)).min(text.len())].to_vec();
                    let to = random(text.len());
                    text.splice(to..to, piece);
                }
            }
        }
        let text: String = text.into_iter().collect();
        if let Err(findings) = parse(&text) {
            assert!(!findings.is_empty());
            assert!(findings.iter().all(|finding| finding.line > 0 && finding.column > 0));
        }
    }
    for end in (0..source.len()).step_by(61) {
        let _ = parse(&source[..source.floor_char_boundary(end)]);
    }
}

#[test]
fn deeply_nested_or_odd_expressions_do_not_exhaust_the_stack() {
    let mut odd = vec!["a.".repeat(499) + "a", "1+".repeat(499) + "1", "a?b:".repeat(200) + "c"];
    odd.extend(["[".repeat(900), "{1:".repeat(300), "- ".repeat(490) + "1", "'\\".to_owned()]);
    odd.extend(["a&&".repeat(300) + "a", "x[0]".repeat(240), "\u{1F4A3}".repeat(200)]);
    odd.extend(["!-".repeat(450) + "1", "f(".repeat(450), "\"".to_owned(), "0x".to_owned()]);
    for text in odd {
        let quoted = serde_json::to_string(&text).unwrap();
        let rule = format!("[[collections.books.actions.x.rules]]\nmessage = 'm'\nwhen = {quoted}");
        let _ = parse(&rule);
    }
}
