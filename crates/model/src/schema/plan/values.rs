//! What a field or a parameter takes, before and after an edit: its words, its limits, and whether
//! it must be there.

use super::Work;
use super::history::plain;
use super::lines::Owner;
use crate::schema::{Field, Limits};
use crate::validate;
use serde_json::Value;

/// What a limit does to requests that were fine.
enum Limit {
    Same,
    Looser,
    Tighter,
}

/// `least`: a greater value is tighter.
fn limit<T: PartialOrd>(old: Option<T>, new: Option<T>, least: bool) -> Limit {
    match (old, new) {
        (None, None) => Limit::Same,
        (None, Some(_)) => Limit::Tighter,
        (Some(_), None) => Limit::Looser,
        (Some(old), Some(new)) if old == new => Limit::Same,
        (Some(old), Some(new)) if (new > old) == least => Limit::Tighter,
        _ => Limit::Looser,
    }
}

impl Work<'_> {
    /// What the field takes, and whether it must be there. A date changes a field once, so what
    /// follows a change that is proposed is compared once that is declared.
    pub(super) fn values(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        let before = self.edits.len();
        let compare = [Work::choices, Work::limits, Work::presence];
        for compare in compare {
            compare(self, owner, place, was, is);
            if self.edits[before..].iter().any(|edit| edit.lines.is_some()) {
                return;
            }
        }
    }

    /// Required, optional, default.
    fn presence(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        let unread = was.write_only || owner.action.is_some();
        let (what, why, lines) = match (was.required, is.required) {
            (false, true) => {
                let why = "requests without it would be refused";
                ("became required", why, owner.filled("required", is))
            }
            (true, false) if unread => {
                return self.safe(place, "became optional".to_owned(), "asks for less");
            }
            // Nobody sends it, and all read a value.
            (true, false) if is.read_only && self.fills(owner, &was.name) => return,
            (true, false) => {
                let why = "clients that always found a value would read null";
                ("became optional", why, owner.filled("optional", is))
            }
            _ if plain(was.default.as_ref()) != plain(is.default.as_ref()) => {
                let why = "requests that leave it out would mean something else";
                ("has another default", why, owner.default(was, is))
            }
            _ => return,
        };
        self.breaking(place, what.to_owned(), why, lines);
    }

    /// Whether clients of the old schema are shown something where there is nothing.
    fn fills(&self, owner: Owner<'_>, name: &str) -> bool {
        let lens = self.new.find(owner.collection).and_then(|at| self.view.lens(at));
        lens.is_some_and(|lens| lens.fills(name))
    }

    fn choices(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        match (was.choices.is_empty(), is.choices.is_empty()) {
            (true, true) => return,
            (true, false) => {
                let why = "values that were taken are refused";
                return self.breaking(place, "has an `enum` now".to_owned(), why, None);
            }
            (false, true) => {
                let why = "requests go on; readers may meet values they do not know";
                return self.safe(place, "has no `enum` any more".to_owned(), why);
            }
            (false, false) => {}
        }
        let fresh: Vec<&str> = without(&is.choices, &was.choices);
        let gone: Vec<&str> = without(&was.choices, &is.choices);
        let pairs: Vec<(&str, &str)> = gone.iter().copied().zip(fresh.iter().copied()).collect();
        let quoted = |words: &[&str]| {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        };
        if !pairs.is_empty() {
            let what = format!("gone from the `enum`: {}", quoted(&gone[..pairs.len()]));
            let lines = owner.enum_map(&was.name, &pairs);
            self.breaking(place, what, "clients use them", Some(lines));
        }
        if gone.len() > pairs.len() {
            let what = format!("gone from the `enum`: {}", quoted(&gone[pairs.len()..]));
            let why = "clients use them, and no new values stand for them";
            self.breaking(place, what, why, None);
        }
        if fresh.len() > pairs.len() {
            let what = format!("new in the `enum`: {}", quoted(&fresh[pairs.len()..]));
            let why = "requests go on; readers meet values they do not know: `enum_map` with \
                       `down` would hide them";
            self.safe(place, what, why);
        }
    }

    fn limits(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        // A length of 0 asks for nothing.
        let some = |length: Option<usize>| length.filter(|length| *length > 0);
        let pattern = |field: &Field| field.pattern.as_ref().map(|p| p.0.as_str().to_owned());
        let pattern = match (pattern(was), pattern(is)) {
            (old, new) if old == new => Limit::Same,
            (_, None) => Limit::Looser,
            _ => Limit::Tighter,
        };
        let (before, after) = (Limits::of(was).entries(), Limits::of(is).entries());
        let told = |all: &[(&str, Value)], key: &str| {
            all.iter().find(|(one, _)| *one == key).map(|(_, limit)| limit.clone())
        };
        let mut tighter = Vec::new();
        for (key, change) in [
            ("min", limit(was.min, is.min, true)),
            ("max", limit(was.max, is.max, false)),
            ("min_length", limit(some(was.min_length), some(is.min_length), true)),
            ("max_length", limit(was.max_length, is.max_length, false)),
            ("pattern", pattern),
        ] {
            match change {
                Limit::Same => {}
                Limit::Looser => {
                    self.safe(place, format!("`{key}` asks for less"), "what was taken still is");
                }
                Limit::Tighter => {
                    let not = told(&before, key).map(|limit| format!(", not {limit}"));
                    let is = told(&after, key).unwrap_or_default();
                    tighter.push(format!("`{key}` is {is}{}", not.unwrap_or_default()));
                }
            }
        }
        if tighter.is_empty() {
            return;
        }
        let meets = |word: &String| {
            let unchosen = Field { choices: Vec::new(), ..is.clone() };
            validate::value(&unchosen, &mut Value::from(word.as_str())).is_ok()
        };
        if !was.choices.is_empty() && was.choices.iter().all(meets) {
            return self.safe(place, tighter.join("; "), "all values that were taken meet that");
        }
        let lines = owner.limits(&was.name, &Limits::of(was));
        self.breaking(place, tighter.join("; "), "values that were taken are refused", Some(lines));
    }
}

fn without<'a>(all: &'a [String], others: &[String]) -> Vec<&'a str> {
    all.iter().filter(|one| !others.contains(one)).map(String::as_str).collect()
}
