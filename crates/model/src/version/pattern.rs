//! Texts that a pattern takes: walks over its parts, each with other branches, letters and counts.
//! What a walk ignores, such as the ends of words, the caller's own check decides. Patterns may be
//! hostile, so all work has a limit.

use super::samples::Dice;
use regex_syntax::hir::{Class, Hir, HirKind, Repetition};
use std::collections::BTreeSet;

/// Texts of one pattern that are handed back: more would only repeat what these show.
const TEXTS: usize = 24;
/// Texts among which these are chosen; a separator may stand in the last of many branches.
const CHOSEN_FROM: usize = 400;
/// Bytes of one text. Longer ones are asked for by hardly any pattern.
const BYTES: usize = 16_384;
/// Parts visited for one pattern in all: counts inside of counts multiply.
const STEPS: usize = 1_000_000;
/// Walks by chance, beside one for each branch: branches may stand inside of branches.
const CHANCES: usize = 24;
/// Separators that are looked for.
const SEPARATORS: usize = 8;
/// Letters that are tried wherever a part takes them.
const LETTERS: [&str; 8] = ["a", "0", "1", "A", "x", "é", "-", "_"];

/// Texts for which `fits` holds, with separators inside where the pattern lets them. `least`: the
/// characters they must have.
pub(super) fn samples(
    pattern: &str,
    least: usize,
    separators: &[String],
    fits: impl Fn(&str) -> bool,
) -> Vec<String> {
    let Ok(hir) = regex_syntax::parse(pattern) else { return Vec::new() };
    let separators = &separators[..separators.len().min(SEPARATORS)];
    let mut wishes: Vec<String> = separators.to_vec();
    wishes.extend(separators.iter().map(|by| format!("a{by}b")));
    wishes.extend(LETTERS.map(str::to_owned));
    let wishes: Vec<Vec<char>> = wishes.iter().map(|wish| wish.chars().collect()).collect();
    let mut search = Search { hir: &hir, steps: STEPS, walks: 0, found: Found::new(fits) };
    // Without branches, all walks with the same letters are the same.
    let turns = match widest(&hir) {
        0 => 1,
        branches => branches + CHANCES,
    };
    for turn in 0..turns {
        for wish in &wishes {
            if search.steps == 0 || search.found.texts.len() >= CHOSEN_FROM {
                break;
            }
            search.look(turn, wish, least);
        }
    }
    let mut found = search.found;
    // Where the pattern is not held to both ends, anything may stand around it.
    let cores: Vec<String> = found.tried.iter().take(4).cloned().collect();
    for (core, by) in cores.iter().flat_map(|core| separators.iter().map(move |by| (core, by))) {
        found.take(format!("{core}{by}b"));
        found.take(format!("a{by}{core}"));
    }
    found.chosen(separators)
}

/// Texts that were made.
struct Found<F> {
    fits: F,
    /// All, each once; and those that fit.
    seen: BTreeSet<String>,
    tried: Vec<String>,
    texts: Vec<String>,
}

impl<F: Fn(&str) -> bool> Found<F> {
    fn new(fits: F) -> Found<F> {
        Found { fits, seen: BTreeSet::new(), tried: Vec::new(), texts: Vec::new() }
    }

    /// Whether the text fits.
    fn take(&mut self, text: String) -> bool {
        let fits = (self.fits)(&text);
        if self.seen.insert(text.clone()) {
            if fits {
                self.texts.push(text.clone());
            }
            self.tried.push(text);
        }
        fits
    }

    /// A plain one first, then those that have a separator, then others.
    fn chosen(self, separators: &[String]) -> Vec<String> {
        let has = |text: &String| separators.iter().any(|by| text.contains(by.as_str()));
        let (with, without): (Vec<_>, Vec<_>) = self.texts.into_iter().partition(has);
        let mut without = without.into_iter();
        let first = without.next();
        first.into_iter().chain(with).chain(without).take(TEXTS).collect()
    }
}

struct Search<'h, F> {
    hir: &'h Hir,
    /// What may still be visited.
    steps: usize,
    walks: u64,
    found: Found<F>,
}

impl<F: Fn(&str) -> bool> Search<'_, F> {
    /// With the least of everything, and with more of it; longer ones where none is long enough.
    fn look(&mut self, turn: usize, wish: &[char], least: usize) {
        let mut shortest = None;
        let mut fitting = false;
        for more in [0, 1, 3] {
            let Some(text) = self.walk(turn, wish, more, 0) else { return };
            shortest.get_or_insert(text.chars().count());
            fitting |= self.found.take(text);
        }
        let missing = least.saturating_sub(shortest.unwrap_or(0));
        if fitting || missing == 0 {
            return;
        }
        // What is repeated may be one character or several.
        for width in 1..=8 {
            let Some(text) = self.walk(turn, wish, 0, missing.div_ceil(width)) else { continue };
            if self.found.take(text) {
                return;
            }
        }
    }

    fn walk(&mut self, turn: usize, wish: &[char], more: usize, spare: usize) -> Option<String> {
        self.walks += 1;
        let dice = Dice(self.walks);
        let steps = &mut self.steps;
        let text = String::new();
        let mut walk = Walk { turn, wish, met: 0, dice, more, spare, steps, text };
        walk.visit(self.hir)?;
        Some(walk.text)
    }
}

/// One way through the pattern.
struct Walk<'a> {
    /// The branch that is taken; by chance where there are fewer.
    turn: usize,
    /// Letters that are taken one after the other wherever they fit.
    wish: &'a [char],
    met: usize,
    dice: Dice,
    /// How much more often than needed each part stands, and all of them together.
    more: usize,
    spare: usize,
    steps: &'a mut usize,
    text: String,
}

impl Walk<'_> {
    /// None: too long, too much, or nothing fits.
    fn visit(&mut self, hir: &Hir) -> Option<()> {
        *self.steps = self.steps.checked_sub(1)?;
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => {}
            HirKind::Literal(literal) => self.text.push_str(str::from_utf8(&literal.0).ok()?),
            HirKind::Class(class) => {
                let wanted = self.wish[self.met % self.wish.len()];
                self.met += 1;
                let letter = if has(class, wanted) { Some(wanted) } else { any(class) };
                self.text.push(letter?);
            }
            HirKind::Repetition(repetition) => self.repeat(repetition)?,
            HirKind::Capture(capture) => self.visit(&capture.sub)?,
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.visit(part))?,
            HirKind::Alternation(branches) => {
                let chance = self.dice.below(branches.len());
                self.visit(branches.get(self.turn).unwrap_or(&branches[chance]))?;
            }
        }
        (self.text.len() <= BYTES).then_some(())
    }

    fn repeat(&mut self, repetition: &Repetition) -> Option<()> {
        let least = repetition.min as usize;
        let most = repetition.max.map_or(usize::MAX, |max| max as usize);
        let mut count = least.saturating_add(self.more).min(most);
        let spare = self.spare.min(most - count);
        self.spare -= spare;
        count += spare;
        (0..count).try_for_each(|_| self.visit(&repetition.sub))
    }
}

/// Branches of the choice that has most; few enough to walk through each.
fn widest(hir: &Hir) -> usize {
    const BRANCHES: usize = 200;
    let within = |parts: &[Hir]| parts.iter().map(widest).max().unwrap_or(0);
    let branches = match hir.kind() {
        HirKind::Repetition(repetition) => widest(&repetition.sub),
        HirKind::Capture(capture) => widest(&capture.sub),
        HirKind::Concat(parts) => within(parts),
        HirKind::Alternation(parts) => within(parts).max(parts.len()),
        _ => 0,
    };
    branches.min(BRANCHES)
}

fn has(class: &Class, letter: char) -> bool {
    match class {
        Class::Unicode(class) => {
            let ranges = class.ranges();
            let place = ranges.partition_point(|range| range.end() < letter);
            ranges.get(place).is_some_and(|range| range.start() <= letter)
        }
        Class::Bytes(class) => {
            let mut ranges = class.ranges().iter();
            u8::try_from(letter)
                .is_ok_and(|byte| ranges.any(|range| (range.start()..=range.end()).contains(&byte)))
        }
    }
}

/// Some letter of the class, a common one where it has one. NUL is in no text.
fn any(class: &Class) -> Option<char> {
    let common = "a0Ax-_. é日".chars().find(|letter| has(class, *letter));
    common.or_else(|| match class {
        Class::Unicode(class) => {
            let firsts = class.ranges().iter().flat_map(|range| [range.start(), range.end()]);
            firsts.into_iter().find(|letter| *letter != '\0')
        }
        Class::Bytes(class) => {
            let firsts = class.ranges().iter().flat_map(|range| [range.start(), range.end()]);
            firsts.into_iter().find(|byte| byte.is_ascii() && *byte != 0).map(char::from)
        }
    })
}

#[cfg(test)]
mod tests {
    fn samples(pattern: &str, least: usize, most: usize) -> Vec<String> {
        let regex = regex::Regex::new(pattern).unwrap();
        super::samples(pattern, least, &[" ".to_owned()], |text| {
            (least..=most).contains(&text.chars().count()) && regex.is_match(text)
        })
    }

    #[test]
    fn ordinary_patterns_are_met() {
        for pattern in [
            "^[0-9Xx-]{10,17}$",
            r"^97[89]-?\d{1,5}-?\d{1,7}-?\d{1,6}-?\d$",
            "^[a-z]{3}$",
            r"^\d+\.\d{2}$",
            "^[^ ]+$",
            "^a?b*$",
            "^(a|b)$",
            "^(a|b)+$",
            "^[a-z0-9]+(?:-[a-z0-9]+)*$",
            r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$",
            "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
            r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$",
            r"^\+?[1-9]\d{1,14}$",
            "^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$",
            r"\bword\b",
            "(?i)^(yes|no)$",
            r"^\p{Lu}\p{Ll}+$",
            r"^\p{Greek}+$",
            r"^[\p{L}\p{N} .'-]{1,80}$",
            "^(?:[0-9]{1,3}\\.){3}[0-9]{1,3}$",
            r"^https?://[^\s/$.?#]\S*$",
            "^$",
            "",
            r"^[^\x00-\x7F]+$",
            "^(?P<year>[0-9]{4})$",
            r"(?s)^.+\z",
            "^[A-Z]{2}[0-9]{2}(?:[ ]?[0-9]{4}){4}(?:[ ]?[0-9]{1,2})?$",
        ] {
            assert!(!samples(pattern, 0, 100).is_empty(), "{pattern}");
        }
    }

    #[test]
    fn lengths_are_met_by_longer_repetitions() {
        for (pattern, least, most) in [
            ("^[a-z]+$", 20, 100),
            ("^[a-z]+$", 20, 20),
            ("^[a-z]+-[a-z]+$", 20, 22),
            ("^([a-z]{2}-)+$", 21, 21),
            (r"^(\+)?[0-9]{7,}$", 12, 13),
            ("^(?:[0-9]{3} )*[0-9]{3}$", 30, 31),
            ("^[a-z]*$", 2_000, 2_000),
        ] {
            assert!(!samples(pattern, least, most).is_empty(), "{pattern} {least} {most}");
        }
    }

    #[test]
    fn every_branch_is_met_and_separators_stand_wherever_they_may() {
        let names: Vec<String> = (0..60).map(|n| format!("name{n}")).collect();
        let last = format!("^({}|two words)$", names.join("|"));
        for (pattern, wanted) in [
            ("^(foo bar|baz)$", "foo bar"),
            ("^(x|y(u|v(w| z)))$", "yv z"),
            (&last, "two words"),
            ("^(?:a|b[a-z ])$", "b "),
            ("^[a-z ]{3}$", "a b"),
            ("[0-9]", "0 b"),
        ] {
            let found = samples(pattern, 0, 100);
            assert!(found.iter().any(|text| text == wanted), "{pattern}: {found:?}");
        }
    }

    #[test]
    fn hostile_patterns_end() {
        for pattern in ["^(((a?){50}){50}){50}$", "^((|){900}){900}$", "^(.{0,99}.{0,99}){9}$"] {
            assert!(regex_syntax::parse(pattern).is_ok(), "{pattern}");
            let found = super::samples(pattern, 1_000_000, &[" ".to_owned()], |_| false);
            assert!(found.is_empty(), "{pattern}");
        }
    }
}
