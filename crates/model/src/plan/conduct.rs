//! The behaviour of records and actions: states, timed transitions, the fields that actions set,
//! and rules. The new file uses the newest names, so these are replaced by the old ones before the
//! texts are compared. A text about a field whose values have changed cannot be compared: the
//! author has to look.

use super::{PEOPLE, TYPES, Work};
use crate::parse::duration_text;
use crate::schema::rule::Template;
use crate::schema::{Action, Assignment, Collection, CollectionIx, Rule, Timed};
use crate::version::Lens;
use regex::{Captures, Regex};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The reason for edits that the author has to judge.
const LOOK: &str = "cannot be compared: see that it says the same of the new values";

const WAIT: &str = "clients wait for what was";

/// `record.title`, `request.details.amount`; a comparison with null means the same of all values.
static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let path = r"\b(record|request)\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)";
    Regex::new(&format!(r"{path}(\s*[!=]=\s*null\b)?")).ok()
});

/// The names of the old version. None: the names of the file itself.
#[derive(Clone, Copy, Default)]
struct Names<'a> {
    record: Option<&'a Lens>,
    request: Option<&'a Lens>,
}

/// A text in these names, and a field in it whose values have changed.
struct Text {
    text: String,
    changed: Option<String>,
}

impl Names<'_> {
    fn expression(self, text: &str) -> Text {
        let mut changed = None;
        let named = |found: &Captures<'_>| {
            let (root, name) = (&found[1], &found[2]);
            let lens = if root == "record" { self.record } else { self.request };
            let null = found.get(3).map_or("", |test| test.as_str());
            if null.is_empty() && lens.is_some_and(|lens| !lens.keeps_values(name)) {
                changed = Some(name.to_owned());
            }
            format!("{root}.{}{null}", old_name(lens, name))
        };
        let lowered = NAMED.as_ref().map(|regex| regex.replace_all(text, named).into_owned());
        Text { text: without_spaces(lowered.as_deref().unwrap_or(text)), changed }
    }

    /// The assignments, by the old names of the fields.
    fn assignments(self, set: &[Assignment]) -> BTreeMap<String, Text> {
        let one = |assignment: &Assignment| {
            let field = &assignment.field;
            let mut text = match &assignment.value {
                Template::Computed(expression) => self.expression(&expression.text),
                Template::Fixed(value) => Text { text: value.to_string(), changed: None },
            };
            if self.record.is_some_and(|lens| !lens.keeps_values(field)) && text.text != "null" {
                text.changed = Some(field.clone());
            }
            (old_name(self.record, field), text)
        };
        set.iter().map(one).collect()
    }
}

impl Work<'_> {
    fn names(&self, at: CollectionIx, action: Option<usize>) -> Names<'_> {
        let request = action.and_then(|action| self.view.form(at, action));
        Names { record: self.view.lens(at), request }
    }

    fn compare(&mut self, place: &str, what: &str, was: &Text, is: &Text, why: &str) {
        let same = was.text == is.text;
        let looks = |field: &str| format!("{what} looks at `{field}`, whose values are others now");
        match &is.changed {
            None if same => {}
            None => self.breaks(place, format!("{what} changed"), why),
            Some(field) if same => {
                let what = format!("{}, with the same words", looks(field));
                self.breaks(place, what, why);
            }
            Some(field) => self.safe(place, looks(field), LOOK),
        }
    }

    /// States and timed transitions.
    pub(super) fn states(&mut self, old: &Collection, at: CollectionIx) {
        let seen = &self.view.schema.collections[at];
        if let (Some(was), Some(is)) = (&old.states, &seen.states) {
            let why = "clients expect new records to begin as before";
            self.setting(&format!("{}.states.initial", old.name), &was.initial, &is.initial, why);
        }
        let place = format!("{}.timed", old.name);
        let same = |one: &Timed, other: &Timed| one.from == other.from && one.to == other.to;
        for was in &old.timed {
            let (from, to) = (&was.from, &was.to);
            let Some(is) = seen.timed.iter().find(|is| same(was, is)) else {
                let what = format!("`{from}` does not become `{to}` by itself any more");
                self.breaks(&place, what, WAIT);
                continue;
            };
            let [before, after] = [was.after, is.after].map(duration_text);
            self.setting(&format!("{place}.{from}.after"), &before, &after, WAIT);
            self.setting(&format!("{place}.{from}.event"), &was.event, &is.event, TYPES);
            self.set(&place, (old, at, None), &was.set, &is.set);
        }
        for is in seen.timed.iter().filter(|is| !old.timed.iter().any(|was| same(was, is))) {
            let what = format!("`{}` becomes `{}` by itself now", is.from, is.to);
            self.breaks(&place, what, "clients expect records to stay as they are");
        }
    }

    /// The effects and the rules of an action.
    pub(super) fn conduct(&mut self, place: &str, of: (&Collection, CollectionIx), was: &Action) {
        let (old, at) = of;
        let Some(action) = self.new.collections[at].action(&was.name) else { return };
        let view = self.view;
        let is = &view.schema.collections[at].actions[action];
        self.set(place, (old, at, Some(action)), &was.set, &is.set);
        let code = |rule: &Rule| view.code_down(at, &rule.code).to_owned();
        let mut left: Vec<_> = is.rules.iter().map(code).zip(&is.rules).enumerate().collect();
        let (mut order, mut recoded) = (Vec::new(), 0);
        for rule in &was.rules {
            if let Some(found) = left.iter().position(|(_, (code, _))| *code == rule.code) {
                let (place_of, (_, new)) = left.remove(found);
                order.push(place_of);
                self.rule(place, (old, at, action), rule, new);
            } else if self.kept_codes(at).contains(&rule.code) {
                let what = format!("a rule of `{}` is gone", rule.code);
                self.breaks(place, what, "calls that were refused go through");
            } else {
                // A rule under another code is reported with the codes.
                recoded += 1;
            }
        }
        if !order.is_sorted() {
            let why = "the first that fires answers: it may be another";
            self.breaks(place, "the rules are tried in another order", why);
        }
        for (_, (code, _)) in left.into_iter().skip(recoded) {
            let what = format!("a new rule answers with `{code}`");
            self.breaks(place, what, "calls that worked may be refused");
        }
    }

    fn rule(
        &mut self,
        place: &str,
        (old, at, action): (&Collection, CollectionIx, usize),
        was: &Rule,
        is: &Rule,
    ) {
        let what = format!("the rule of `{}`", was.code);
        let when = self.names(at, Some(action)).expression(&is.when.text);
        let before = Names::default().expression(&was.when.text);
        self.compare(place, &what, &before, &when, "calls that worked may be refused");
        let refusal = self.view.explain_rule(at, action, is.refusal());
        let answer = |rule: &Rule, param: &Option<String>| {
            let (kind, to, event) = (rule.kind.clone(), rule.to.clone(), rule.event.clone());
            let extra = Value::Object(rule.extra.clone()).to_string();
            (rule.status, kind, param.clone(), extra, to, event)
        };
        if answer(was, &was.param) != answer(is, &refusal.param) {
            let why = "clients rely on how they are refused";
            self.breaks(place, format!("{what} answers otherwise"), why);
        }
        let message = format!("{what} has another message");
        self.note(place, &was.message, &refusal.message, &message, PEOPLE);
        self.set(place, (old, at, Some(action)), &was.set, &is.set);
    }

    /// Compares assignments field by field.
    fn set(
        &mut self,
        place: &str,
        (old, at, action): (&Collection, CollectionIx, Option<usize>),
        was: &[Assignment],
        is: &[Assignment],
    ) {
        let why = "clients expect what it did";
        let before = Names::default().assignments(was);
        let after = self.names(at, action).assignments(is);
        for (field, is) in &after {
            match before.get(field) {
                Some(was) => {
                    self.compare(place, &format!("what it sets as `{field}`"), was, is, why);
                }
                None if old.field(field).is_none() => {
                    self.safe(place, format!("sets `{field}`, too"), "the field is new");
                }
                None => self.breaks(place, format!("sets `{field}`, too"), why),
            }
        }
        for field in before.keys().filter(|field| !after.contains_key(*field)) {
            self.breaks(place, format!("does not set `{field}` any more"), why);
        }
    }
}

fn old_name(lens: Option<&Lens>, name: &str) -> String {
    lens.and_then(|lens| lens.name_down(name)).unwrap_or_else(|| name.to_owned())
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
