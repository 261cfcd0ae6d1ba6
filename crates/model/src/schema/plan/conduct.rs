//! What records and actions do: states, timed transitions, and what actions set. They are written
//! in the newest names, so they are compared in those of the old schema. What looks at a field
//! whose values became others cannot be compared, and is told to be looked at.

use super::Work;
use super::words::{Said, Verdict, Words};
use crate::schema::parse::duration_text;
use crate::schema::{Action, Assignment, Collection, CollectionIx, Field, Timed};

/// What is said of edits that are the author's to judge.
const SEE: &str = "cannot be compared: see that it says the same of the new values";

/// A collection of the old file, and its place in the new one.
pub(super) type Of<'a> = (&'a Collection, CollectionIx);

/// Whether an old one may have become the new one.
type Fit<'a, T> = &'a dyn Fn(&T, &T) -> bool;

/// Pairs of places in two lists: each new one with the first old one that is left and fits best.
/// The fits stand best first.
pub(super) fn pairs<T>(old: &[T], new: &[T], fits: &[Fit<'_, T>]) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for fit in fits {
        for (at, is) in new.iter().enumerate() {
            if found.iter().any(|(_, taken)| *taken == at) {
                continue;
            }
            let free = |place: &usize| found.iter().all(|(taken, _)| taken != place);
            let was = (0..old.len()).find(|place| free(place) && fit(&old[*place], is));
            found.extend(was.map(|was| (was, at)));
        }
    }
    found.sort_by_key(|(_, is)| *is);
    found
}

pub(super) fn unpaired<T>(all: &[T], paired: impl Iterator<Item = usize>) -> Vec<&T> {
    let paired: Vec<usize> = paired.collect();
    all.iter().enumerate().filter(|(at, _)| !paired.contains(at)).map(|(_, one)| one).collect()
}

impl<'a> Work<'a> {
    /// The words of the new file; `action`: the one whose parameters it may name.
    pub(super) fn words(&self, at: CollectionIx, action: Option<usize>) -> Words<'a> {
        let newer = &self.new.versions[..self.view.index];
        Words { newer, record: (at, None), request: action.map(|action| (at, Some(action))) }
    }

    /// An expression or a value that is told in both files.
    pub(super) fn said(&mut self, place: &str, what: &str, was: &Said, is: &Said, why: &str) {
        match was.compare(is) {
            Verdict::Same => {}
            Verdict::Differs => {
                self.breaking(place, format!("{what} says something else"), why, None);
            }
            Verdict::SameWords(field) => {
                let what = format!(
                    "{what} looks at `{field}`, whose values are others now, with the same words"
                );
                self.breaking(place, what, why, None);
            }
            Verdict::Unclear(field) => {
                let what = format!("{what} looks at `{field}`, whose values are others now");
                self.safe(place, what, SEE);
            }
        }
    }

    /// What records do by themselves.
    pub(super) fn states(&mut self, old: &Collection, at: CollectionIx) {
        let view = self.view;
        let seen = &view.schema.collections[at];
        if let (Some(was), Some(is)) = (&old.states, &seen.states) {
            let why = "clients expect new records to begin as before";
            let place = format!("{}.states.initial", old.name);
            self.setting(&place, &was.initial, &is.initial, why);
        }
        let place = format!("{}.timed", old.name);
        let why = "clients wait for what was";
        let same = |was: &Timed, is: &Timed| was.from == is.from && was.to == is.to;
        let alike = |was: &Timed, is: &Timed| same(was, is) && was.after == is.after;
        let leaves = |was: &Timed, is: &Timed| was.from == is.from;
        let paired = pairs(&old.timed, &seen.timed, &[&alike, &same, &leaves]);
        for (was, is) in &paired {
            self.timed(&place, (old, at), &old.timed[*was], &seen.timed[*is]);
        }
        for was in unpaired(&old.timed, paired.iter().map(|(was, _)| *was)) {
            let what = format!("`{}` does not become `{}` by itself any more", was.from, was.to);
            self.breaking(&place, what, why, None);
        }
        for is in unpaired(&seen.timed, paired.iter().map(|(_, is)| *is)) {
            let what = format!("`{}` becomes `{}` by itself now", is.from, is.to);
            self.breaking(&place, what, "clients expect records to stay as they are", None);
        }
    }

    fn timed(&mut self, place: &str, of: Of<'_>, was: &Timed, is: &Timed) {
        let why = "clients wait for what was";
        let state = &was.from;
        if was.to != is.to {
            let what = format!("`{state}` becomes `{}` by itself, not `{}`", is.to, was.to);
            self.breaking(place, what, why, None);
        }
        if was.after != is.after {
            let [is, was] = [is.after, was.after].map(duration_text);
            let what = format!("`{state}` lasts {is}, not {was}");
            self.breaking(place, what, why, None);
        }
        if was.event != is.event {
            let what =
                format!("the end of `{state}` is told as `{}`, not `{}`", is.event, was.event);
            self.breaking(place, what, "consumers choose their code by the type", None);
        }
        let words = self.words(of.1, None);
        self.assignments(place, of, words, &was.set, &is.set);
    }

    /// What happens when an action is called.
    pub(super) fn conduct(&mut self, place: &str, of: Of<'_>, was: &Action, is: &Action) {
        let action = self.new.collections[of.1].action(&is.name);
        self.assignments(place, of, self.words(of.1, action), &was.set, &is.set);
        self.rules(place, of, action.unwrap_or_default(), was);
    }

    /// What is set, field by field.
    pub(super) fn assignments(
        &mut self,
        place: &str,
        (old, at): Of<'_>,
        words: Words<'_>,
        was: &[Assignment],
        is: &[Assignment],
    ) {
        let why = "clients expect what it did";
        let before: Vec<_> = was.iter().map(|one| Words::default().assignment(one)).collect();
        let after: Vec<_> = is.iter().map(|one| words.assignment(one)).collect();
        for (field, is) in &after {
            let what = format!("sets `{field}`, too");
            match before.iter().find(|(name, _)| name == field) {
                Some((_, was)) => {
                    self.said(place, &format!("what it sets as `{field}`"), was, is, why);
                }
                None if is.moved.is_some() => self.safe(place, what, SEE),
                None if old.field(field).is_none() => self.safe(place, what, "the field is new"),
                None => self.breaking(place, what, why, None),
            }
        }
        for (field, _) in before.iter().filter(|(name, _)| after.iter().all(|(is, _)| is != name)) {
            let what = format!("does not set `{field}` any more");
            match self.dissolved(at, words, field) {
                true => self.safe(place, what, SEE),
                false => self.breaking(place, what, why, None),
            }
        }
    }

    /// Whether old clients see the field, and it is no field of its own any more.
    fn dissolved(&self, at: CollectionIx, words: Words<'_>, field: &str) -> bool {
        let is = |newest: &Field| words.field(&newest.name) == field;
        self.view.schema.collections[at].known(field).is_some()
            && !self.new.collections[at].fields.iter().any(is)
    }
}
