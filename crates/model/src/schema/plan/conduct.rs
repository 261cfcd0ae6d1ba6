//! What records and actions do: states, timed transitions, what actions set, and rules. They are
//! written in the newest names, so they are compared in those of the old schema; what looks at a
//! field that is more than renamed cannot be, and is taken for the same.

use super::Work;
use crate::schema::rule::Template;
use crate::schema::{Action, Assignment, Collection, CollectionIx, Rule, Timed};
use crate::version::Lens;
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// The names of a newer schema in the words of the old one.
#[derive(Clone, Copy, Default)]
struct Words<'a> {
    record: Option<&'a Lens>,
    request: Option<&'a Lens>,
}

/// `record.title`, `request.amount`.
static NAMED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(record|request)\.([A-Za-z_]\w*)").ok());

impl Words<'_> {
    /// None where the field is not what it was.
    fn field(self, name: &str) -> Option<String> {
        self.record.map_or(Some(name), |lens| lens.sent_as(name)).map(str::to_owned)
    }

    fn param(self, name: &str) -> Option<String> {
        self.request.map_or(Some(name), |lens| lens.sent_as(name)).map(str::to_owned)
    }

    /// An expression without what only people see in it.
    fn expression(self, text: &str) -> Option<String> {
        let mut known = true;
        let named = |found: &Captures<'_>| {
            let name = match &found[1] {
                "record" => self.field(&found[2]),
                _ => self.param(&found[2]),
            };
            known &= name.is_some();
            format!("{}.{}", &found[1], name.unwrap_or_default())
        };
        let named = NAMED.as_ref()?.replace_all(text, named).into_owned();
        known.then(|| without_spaces(&named))
    }

    fn set(self, all: &[Assignment]) -> Option<Vec<String>> {
        let one = |assignment: &Assignment| {
            let value = match &assignment.value {
                Template::Fixed(value) => value.to_string(),
                Template::Computed(expression) => self.expression(&expression.text)?,
            };
            Some(format!("{} = {value}", self.field(&assignment.field)?))
        };
        let mut told = all.iter().map(one).collect::<Option<Vec<_>>>()?;
        told.sort();
        Some(told)
    }

    /// What a rule looks at and does, without its message.
    fn rule(self, rule: &Rule) -> Option<String> {
        let (when, set) = (self.expression(&rule.when.text)?, self.set(&rule.set)?);
        let Rule { status, kind, extra, to, event, .. } = rule;
        Some(format!("{when} {status} {kind} {extra:?} {set:?} {to:?} {event:?}"))
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

fn same<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}

impl Work<'_> {
    /// What records do by themselves.
    pub(super) fn states(&mut self, old: &Collection, at: CollectionIx) {
        let view = self.view;
        let seen = &view.schema.collections[at];
        let place = |key: &str| format!("{}.{key}", old.name);
        if let (Some(was), Some(is)) = (&old.states, &seen.states) {
            let why = "clients expect new records to begin as before";
            self.setting(&place("states.initial"), &was.initial, &is.initial, why);
        }
        let told = |timed: &[Timed], words: Words<'_>| -> Option<Vec<String>> {
            let one = |t: &Timed| {
                let set = words.set(&t.set)?;
                Some(format!("{} {} {:?} {} {set:?}", t.from, t.to, t.after, t.event))
            };
            let mut told = timed.iter().map(one).collect::<Option<Vec<_>>>()?;
            told.sort();
            Some(told)
        };
        let words = Words { record: view.lens(at), request: None };
        if !same(told(&old.timed, Words::default()), told(&seen.timed, words)) {
            let what = "records move otherwise by themselves".to_owned();
            self.breaking(&place("timed"), what, "clients wait for what was", None);
        }
    }

    /// What happens when an action is called.
    pub(super) fn conduct(&mut self, place: &str, at: CollectionIx, was: &Action, is: &Action) {
        let view = self.view;
        let action = view.schema.collections[at].action(&is.name).unwrap_or_default();
        let words = Words { record: view.lens(at), request: view.form(at, action) };
        if !same(Words::default().set(&was.set), words.set(&is.set)) {
            let what = "sets something else".to_owned();
            self.breaking(place, what, "clients expect what it did", None);
        }
        let mut left: Vec<&Rule> = was.rules.iter().collect();
        let mut take = |fits: &dyn Fn(&Rule) -> bool| {
            left.iter().position(|rule| fits(rule)).map(|found| left.remove(found)).is_some()
        };
        let told = |rule: &Rule| Words::default().rule(rule);
        let code = |rule: &Rule| view.code_down(at, &rule.code).to_owned();
        let mut changed: Vec<&Rule> = is.rules.iter().collect();
        changed.retain(|is| !take(&|was| was.code == code(is) && same(told(was), words.rule(is))));
        // With another code they are told by `codes`.
        changed.retain(|is| !take(&|was| told(was).is_some() && told(was) == words.rule(is)));
        for rule in changed {
            let what = match take(&|was| was.code == code(rule)) {
                true => format!("the rule of `{}` says something else", rule.code),
                false => format!("a new rule answers with `{}`", rule.code),
            };
            self.breaking(place, what, "calls that worked may be refused", None);
        }
    }
}
