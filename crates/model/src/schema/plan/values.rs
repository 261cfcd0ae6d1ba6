//! What a field or a parameter takes, before and after an edit: its words, its limits, and whether
//! it must be there.

use super::Work;
use super::field::Remark;
use super::history::plain;
use super::lines::{Owner, later};
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
    /// What the field takes, and then whether it must be there: one change after the other.
    pub(super) fn values(
        &mut self,
        owner: Owner<'_>,
        place: &str,
        was: &Field,
        is: &Field,
        presence: impl FnOnce(&mut Self, Result<&Field, &Field>),
    ) {
        let mut before = is.clone();
        Limits::of(was).set(&mut before);
        let fits = |default: &Value| validate::value(&before, &mut default.clone()).is_ok();
        // A default that the old limits do not take goes first.
        let limits_first = is.default.as_ref().is_none_or(fits);
        let limited = limits_first && self.limits(owner, place, was, is);
        let is = if limited { &before } else { is };
        let told = self.edits.len();
        self.remarked(limited.then_some(later as Remark), |work| {
            let chosen = work.choices(owner, place, was, is);
            presence(work, chosen.as_ref().ok_or(is));
        });
        if !limits_first {
            let lines = self.edits[told..].iter().filter_map(|edit| edit.lines.as_ref());
            let dates = lines.map(|lines| lines.matches("[[versions.changes]]").count()).sum();
            let told = self.edits.len();
            self.limits(owner, place, was, is);
            for edit in &mut self.edits[told..] {
                // Of a default that nothing declares, the old limits cannot be told.
                let lines = edit.lines.take().filter(|_| dates > 0);
                edit.lines = lines.map(|lines| (0..dates).fold(lines, |it, _| later(&it)));
            }
        }
    }

    /// Required, optional, default. `Ok`: the field as it is before another change of it, which is
    /// proposed already.
    pub(super) fn presence(
        &mut self,
        owner: Owner<'_>,
        place: &str,
        was: &Field,
        before: Result<&Field, &Field>,
    ) {
        let (Ok(is) | Err(is)) = before;
        let (what, why) = match (was.required, is.required) {
            (false, true) => ("became required", "requests without it would be refused"),
            // Nobody reads it.
            (true, false) if was.write_only => {
                return self.safe(place, "became optional".to_owned(), "asks for less");
            }
            // Nobody sends it, and all read a value.
            (true, false) if is.read_only && self.fills(owner, &was.name) => return,
            (true, false) => {
                ("became optional", "clients that always found a value would read null")
            }
            _ if plain(was.default.as_ref()) != plain(is.default.as_ref()) => {
                ("has another default", "requests that leave it out would mean something else")
            }
            _ => return,
        };
        let lines = owner.presence(was, is).map(|lines| match before.is_ok() {
            true => later(&lines),
            false => lines,
        });
        self.breaking(place, what.to_owned(), why, lines);
    }

    /// Whether clients of the old schema are shown something where there is nothing.
    fn fills(&self, owner: Owner<'_>, name: &str) -> bool {
        let lens = self.new.find(owner.collection).and_then(|at| self.view.lens(at));
        lens.is_some_and(|lens| lens.fills(name))
    }

    /// The field as it is before the change that is proposed, if one is.
    fn choices(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) -> Option<Field> {
        if was.choices.is_empty() && !is.choices.is_empty() {
            let why = "values that were taken are refused";
            self.breaking(place, "has an `enum` now".to_owned(), why, None);
        }
        if !was.choices.is_empty() && is.choices.is_empty() {
            let why = "requests go on; readers may meet values they do not know";
            self.safe(place, "has no `enum` any more".to_owned(), why);
        }
        if was.choices.is_empty() || is.choices.is_empty() {
            return None;
        }
        let fresh: Vec<&str> = without(&is.choices, &was.choices);
        let gone: Vec<&str> = without(&was.choices, &is.choices);
        let pairs: Vec<(&str, &str)> = gone.iter().copied().zip(fresh.iter().copied()).collect();
        // All of them are one change: a date changes a field once.
        if !pairs.is_empty() {
            let (what, why) = match pairs.as_slice() {
                [(one, _)] => (format!("the value `{one}` is gone"), "clients use it"),
                all => {
                    let names: Vec<String> =
                        all.iter().map(|(old, _)| format!("`{old}`")).collect();
                    (format!("the values {} are gone", names.join(", ")), "clients use them")
                }
            };
            let lines = owner.enum_map(&was.name, &pairs);
            self.breaking(place, what, why, Some(lines));
        }
        for choice in gone.iter().skip(pairs.len()) {
            let what = format!("the value `{choice}` is gone");
            let why = "clients use it, and no new value stands for it";
            self.breaking(place, what, why, None);
        }
        for choice in fresh.iter().skip(pairs.len()) {
            let what = format!("the value `{choice}` is new");
            let why = "requests go on; readers meet a value they do not know: `enum_map` with \
                       `down` would hide it";
            self.safe(place, what, why);
        }
        let older = |new: &str| pairs.iter().find(|(_, is)| *is == new).map(|(was, _)| *was);
        let lowered = |value: &Value| value.as_str().and_then(older).map(Value::from);
        let default = is.default.clone().map(|value| lowered(&value).unwrap_or(value));
        let unmapped = &gone[pairs.len()..];
        let choices = was.choices.iter().filter(|one| !unmapped.contains(&one.as_str())).cloned();
        let before = Field { choices: choices.collect(), default, ..is.clone() };
        (!pairs.is_empty()).then_some(before)
    }

    /// Whether a change of them is proposed.
    fn limits(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) -> bool {
        // A length of 0 asks for nothing.
        let some = |length: Option<usize>| length.filter(|length| *length > 0);
        let pattern = |field: &Field| field.pattern.as_ref().map(|p| p.0.as_str().to_owned());
        let pattern = match (pattern(was), pattern(is)) {
            (old, new) if old == new => Limit::Same,
            (_, None) => Limit::Looser,
            _ => Limit::Tighter,
        };
        let (before, after) = (Limits::of(was).told(), Limits::of(is).told());
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
            return false;
        }
        let meets = |word: &String| {
            let unchosen = Field { choices: Vec::new(), ..is.clone() };
            validate::value(&unchosen, &mut Value::from(word.as_str())).is_ok()
        };
        if !was.choices.is_empty() && was.choices.iter().all(meets) {
            self.safe(place, tighter.join("; "), "all values that were taken meet that");
            return false;
        }
        let lines = owner.limits(&was.name, &Limits::of(was));
        self.breaking(place, tighter.join("; "), "values that were taken are refused", Some(lines));
        true
    }
}

fn without<'a>(all: &'a [String], others: &[String]) -> Vec<&'a str> {
    all.iter().filter(|one| !others.contains(one)).map(String::as_str).collect()
}
