//! The values that a field or a parameter accepts, before and after an edit: its words, its limits,
//! and whether it is required.

use super::lines::Owner;
use super::{TAKEN, Work, quoted_names};
use crate::schema::{Field, Limits};
use crate::validate;
use serde_json::Value;
use std::collections::BTreeMap;

impl Work<'_> {
    /// Compares the accepted values, and whether the field is required. A date changes a field
    /// once, so after a proposed change the rest is compared only when that change is declared.
    pub(super) fn values(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        let before = self.edits.len();
        for compare in [Work::choices, Work::limits, Work::presence] {
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
            (true, false) if unread => return self.safe(place, "became optional", "asks for less"),
            // No client sends it, and all clients read a value.
            (true, false) if is.read_only && self.fills(owner, &was.name) => return,
            (true, false) => {
                let why = "clients that always found a value would read null";
                ("became optional", why, owner.filled("optional", is))
            }
            _ if default(was) != default(is) => {
                let why = "requests that leave it out would mean something else";
                ("has another default", why, owner.default(was, is))
            }
            _ => return,
        };
        self.breaking(place, what, why, lines);
    }

    /// Whether clients of the old schema read a value if none is stored.
    fn fills(&self, owner: Owner<'_>, name: &str) -> bool {
        let lens = self.new.find(owner.collection).and_then(|at| self.view.lens(at));
        lens.is_some_and(|lens| lens.fills(name))
    }

    fn choices(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        match (was.choices.is_empty(), is.choices.is_empty()) {
            (true, true) => return,
            (true, false) => {
                let why = "values that were accepted are refused";
                return self.breaks(place, "has an `enum` now", why);
            }
            (false, true) => {
                let why = "requests go on; readers may meet values they do not know";
                return self.safe(place, "has no `enum` any more", why);
            }
            (false, false) => {}
        }
        let (gone, fresh) =
            (without(&was.choices, &is.choices), without(&is.choices, &was.choices));
        let count = gone.len().min(fresh.len());
        if count > 0 {
            let pairs: Vec<_> = gone.iter().copied().zip(fresh.iter().copied()).collect();
            let what = format!("gone from the `enum`: {}", quoted_names(&gone[..count]));
            let lines = owner.enum_map(&was.name, &pairs);
            self.breaking(place, what, "clients use them", Some(lines));
        }
        if gone.len() > count {
            let what = format!("gone from the `enum`: {}", quoted_names(&gone[count..]));
            let why = "clients use them, and no new values stand for them";
            self.breaks(place, what, why);
        }
        if fresh.len() > count {
            let what = format!("new in the `enum`: {}", quoted_names(&fresh[count..]));
            let why = "requests go on; readers meet values they do not know: `enum_map` with \
                       `down` would hide them";
            self.safe(place, what, why);
        }
    }

    fn limits(&mut self, owner: Owner<'_>, place: &str, was: &Field, is: &Field) {
        // A length of 0 asks for nothing.
        let is_limit = |(key, limit): &(&str, Value)| *key != "min_length" || *limit != 0;
        let [old, new] = [was, is].map(|field| -> BTreeMap<&str, Value> {
            Limits::of(field).entries().into_iter().filter(is_limit).collect()
        });
        let mut tighter = Vec::new();
        for key in ["min", "max", "min_length", "max_length", "pattern"] {
            let (was, is) = (old.get(key), new.get(key));
            match is {
                _ if was == is => {}
                Some(is) if !looser(key, was, is) => {
                    let not = was.map_or_else(String::new, |was| format!(", not {was}"));
                    tighter.push(format!("`{key}` is {is}{not}"));
                }
                _ => self.safe(place, format!("`{key}` asks for less"), TAKEN),
            }
        }
        if tighter.is_empty() {
            return;
        }
        let unchosen = Field { choices: Vec::new(), ..is.clone() };
        let meets =
            |word: &String| validate::value(&unchosen, &mut Value::from(word.as_str())).is_ok();
        if !was.choices.is_empty() && was.choices.iter().all(meets) {
            return self.safe(place, tighter.join("; "), "all values that were accepted meet that");
        }
        let lines = owner.limits(&was.name, &Limits::of(was));
        let why = "values that were accepted are refused";
        self.breaking(place, tighter.join("; "), why, Some(lines));
    }
}

/// The default in its stored form: 1 and 1.0 are one number.
fn default(field: &Field) -> Option<Value> {
    let mut default = field.default.clone()?;
    validate::value(field, &mut default).map_or(None, |()| Some(default))
}

/// Whether the new limit admits all that the old one does.
fn looser(key: &str, was: Option<&Value>, is: &Value) -> bool {
    let (Some(was), Some(is)) = (was.and_then(Value::as_f64), is.as_f64()) else { return false };
    if key.starts_with("min") { is < was } else { is > was }
}

fn without<'a>(all: &'a [String], others: &[String]) -> Vec<&'a str> {
    all.iter().filter(|one| !others.contains(one)).map(String::as_str).collect()
}
