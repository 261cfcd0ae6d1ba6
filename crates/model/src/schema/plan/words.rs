//! What the newest file says of fields, parameters and values, in the words of the old version:
//! names as they were, values of an `enum` as they were. Where the values of a field became others
//! in any further way, words cannot tell whether the same is meant; then it says so.

use super::history::plain;
use crate::schema::rule::Template;
use crate::schema::{Assignment, Operation, Path, Retyping, Version};
use crate::version::{Part, changes_of};
use regex::{Captures, Regex};
use serde_json::Value;
use std::sync::LazyLock;

/// What lies between the newest version and the old one; nothing for the old file itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Words<'a> {
    pub newer: &'a [Version],
    pub record: Part,
    /// The parameters, where somebody asks.
    pub request: Option<Part>,
}

/// An expression or a value in the words of the old version.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Said {
    pub text: String,
    /// What it depends on, where that has other values than it had.
    pub moved: Option<Moved>,
    /// Whether it is a field or a parameter and nothing more.
    bare: bool,
}

/// A field whose values are others now, and how they became so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Moved {
    pub field: String,
    ways: Vec<String>,
}

/// How what was said compares with what is.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict<'a> {
    Same,
    Differs,
    /// The same words about this field, whose values are others now.
    SameWords(&'a str),
    /// Other words about a field whose values are others, too.
    Unclear(&'a str),
}

impl Said {
    pub fn compare<'a>(&'a self, is: &'a Said) -> Verdict<'a> {
        match (self.text == is.text, &is.moved) {
            (true, None) => Verdict::Same,
            (false, None) => Verdict::Differs,
            (true, Some(moved)) => Verdict::SameWords(&moved.field),
            (false, Some(moved)) => Verdict::Unclear(&moved.field),
        }
    }
}

/// `record.title`, `request.details.amount`, with what they are compared with where that is null,
/// a text or a list of such: `record.kind == 'a'`, `record.kind in ['a', 'b']`.
static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const CONSTANT: &str = r#"(?:null|"[^"]*"|'[^']*')"#;
    let operand = format!(r"{CONSTANT}|\[\s*{CONSTANT}(?:\s*,\s*{CONSTANT})*\s*\]");
    let path = r"\b(record|request)\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)";
    Regex::new(&format!(r"{path}(?:\s*(==|!=|\bin\b)\s*({operand}))?")).ok()
});

static QUOTED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""([^"]*)"|'([^']*)'"#).ok());

impl Words<'_> {
    /// An expression without what only people see in it.
    pub fn expression(self, text: &str) -> Said {
        let mut moved = None;
        let mut bare = false;
        let named = |found: &Captures<'_>| {
            bare = found[0].len() == text.trim().len() && found.get(3).is_none();
            let part = if &found[1] == "record" { Some(self.record) } else { self.request };
            // In one kind of quotes.
            let mut operand = found.get(4).and_then(|text| lower_words(text.as_str(), &[], &[]));
            let (path, ways) = self.lower(part, &found[2], &mut operand);
            if moved.is_none() && !ways.is_empty() {
                moved = Some(Moved { field: found[2].to_owned(), ways });
            }
            let compared = found.get(3).map_or("", |sign| sign.as_str());
            format!("{}.{path} {compared} {}", &found[1], operand.unwrap_or_default())
        };
        let lowered = match NAMED.as_ref() {
            Some(regex) => regex.replace_all(text, named).into_owned(),
            None => text.to_owned(),
        };
        Said { text: without_spaces(&lowered), moved, bare }
    }

    /// The field that is set, and to what.
    pub fn assignment(self, assignment: &Assignment) -> (String, Said) {
        let mut value = match &assignment.value {
            Template::Computed(expression) => self.expression(&expression.text),
            Template::Fixed(value) => {
                let text = plain(Some(value)).unwrap_or_default().to_string();
                Said { text, moved: None, bare: false }
            }
        };
        // A text may be a word of an `enum`, and null means the same everywhere.
        let word = matches!(assignment.value, Template::Fixed(Value::String(_) | Value::Null))
            || value.text == "null";
        let mut operand = word.then(|| value.text.clone());
        let (path, ways) = self.lower(Some(self.record), &assignment.field, &mut operand);
        value.text = operand.unwrap_or(value.text);
        let passed = value.bare && value.moved.as_ref().is_some_and(|from| from.ways == ways);
        if passed {
            value.moved = None;
        } else if !ways.is_empty() {
            value.moved = Some(Moved { field: assignment.field.clone(), ways });
        }
        (path, value)
    }

    /// What a field of the record was called.
    pub fn field(self, name: &str) -> String {
        self.lower(Some(self.record), name, &mut None).0
    }

    /// The old path of a newest one, and in which ways its values became others. What it is
    /// compared with is told in old words as long as that can be.
    fn lower(
        self,
        part: Option<Part>,
        path: &str,
        operand: &mut Option<String>,
    ) -> (String, Vec<String>) {
        let (mut path, mut ways) = (Path::parse(path), Vec::new());
        for version in self.newer.iter().filter(|_| part.is_some()) {
            let changes = changes_of(version, part.unwrap_or_default());
            for change in changes {
                if let Some(found) = older(&change.operation, &path) {
                    path = found;
                    break;
                }
                if let Some(way) = way(&change.operation, &path, operand) {
                    ways.push(way);
                    break;
                }
            }
        }
        (path.to_string(), ways)
    }
}

/// Where the path was before the change, if that is all it did.
fn older(operation: &Operation, path: &Path) -> Option<Path> {
    match operation {
        Operation::Rename { from, to, .. } if *to == path.field => {
            Some(Path { field: from.clone(), member: path.member.clone() })
        }
        Operation::Move { from, to, .. } if to == path => Some(from.clone()),
        _ => None,
    }
}

/// What the change did to the values of the path; nothing to those that it is compared with, or
/// nothing at all: none.
fn way(operation: &Operation, path: &Path, operand: &mut Option<String>) -> Option<String> {
    let null = operand.as_deref() == Some("null");
    match operation {
        // A number that may have fractions now, or may not, is as large as it was.
        Operation::Retype { by: Retyping::Factor { times: 1.0, .. }, .. } => None,
        Operation::Retype { field, by, .. } if *field == path.field && !null => {
            Some(format!("{by:?}"))
        }
        // New values beside the old ones change nothing of what was said without naming any.
        Operation::EnumMap { values, .. } if values.is_empty() && operand.is_none() => None,
        Operation::EnumMap { field, values, down } if *field == path.field => {
            let lowered = operand.as_ref().and_then(|text| lower_words(text, values, down));
            let all = lowered.is_none().then(|| format!("{values:?} {down:?}"));
            *operand = lowered.or_else(|| operand.take());
            all
        }
        Operation::Split { to, .. } if to.contains(&path.field) => Some(format!("{operation:?}")),
        Operation::Merge { to, .. } if *to == path.field => Some(format!("{operation:?}")),
        Operation::Move { to, .. } if to.member.is_none() && to.field == path.field => {
            Some(format!("{operation:?}"))
        }
        _ => None,
    }
}

type Pairs = [(String, String)];

/// Each new word in quotes as the old one; none where one has no counterpart of its own.
fn lower_words(text: &str, values: &Pairs, down: &Pairs) -> Option<String> {
    let mut clear = true;
    let lowered = |found: &Captures<'_>| {
        let word = found.get(1).or(found.get(2)).map_or("", |word| word.as_str());
        let old = lower_word(word, values, down);
        clear &= old.is_some();
        Value::from(old.unwrap_or(word)).to_string()
    };
    let lowered = QUOTED.as_ref()?.replace_all(text, lowered).into_owned();
    clear.then_some(lowered)
}

fn lower_word<'a>(word: &'a str, values: &'a Pairs, down: &Pairs) -> Option<&'a str> {
    let mut were = values.iter().filter(|(_, new)| new == word).map(|(old, _)| old.as_str());
    match (were.next(), were.next()) {
        (Some(old), None) => Some(old),
        // Several old words became this one.
        (Some(_), Some(_)) => None,
        // Only old clients know it, or only new ones.
        _ if values.iter().any(|(old, _)| old == word) => None,
        _ if down.iter().any(|(new, _)| new == word) => None,
        _ => Some(word),
    }
}

/// Without the spaces that are in no quotes.
fn without_spaces(text: &str) -> String {
    let mut quote = None;
    let keep = |c: &char| {
        match (quote, *c) {
            (None, '"' | '\'') => quote = Some(*c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        quote.is_some() || !c.is_whitespace()
    };
    text.chars().filter(keep).collect()
}
