//! Rules of an action before and after an edit: when they refuse, what they answer and do, and the
//! order they are tried in. Those whose code alone is another are told with the codes.

use super::Work;
use super::conduct::{Of, pairs, unpaired};
use super::words::{Said, Words};
use crate::problem::Problem;
use crate::record::Fields;
use crate::schema::{Action, Collection, CollectionIx, Rule, Schema};
use serde_json::Value;

/// A rule in the words of the old version.
struct Told<'a> {
    rule: &'a Rule,
    when: Said,
    code: String,
    message: String,
    /// Further keys and what they say.
    answer: [(&'static str, String); 6],
}

impl<'a> Told<'a> {
    /// `refusal` and `to`: what it answers, and the state it leads to, in those words.
    fn new(rule: &'a Rule, words: Words<'_>, refusal: &Problem, to: &str) -> Told<'a> {
        let Rule { status, kind, extra, event, .. } = rule;
        let answer = [
            ("status", status.to_string()),
            ("type", kind.clone()),
            ("param", refusal.param.clone().unwrap_or_default()),
            ("extra", Value::Object(extra.clone()).to_string()),
            ("to", to.to_owned()),
            ("event", event.clone().unwrap_or_default()),
        ];
        let code = refusal.declared.as_ref().map(|declared| declared.code.clone());
        let (code, message) = (code.unwrap_or_default(), refusal.message.clone());
        Told { rule, when: words.expression(&rule.when.text), code, message, answer }
    }

    fn answers_like(&self, other: &Told<'_>) -> bool {
        let set = |told: &Told<'_>| format!("{:?}", told.rule.set);
        (&self.code, &self.answer, set(self)) == (&other.code, &other.answer, set(other))
    }
}

impl Work<'_> {
    pub(super) fn rules(&mut self, place: &str, of: Of<'_>, action: usize, was: &Action) {
        let at = of.1;
        let words = self.words(at, Some(action));
        let rules = &self.new.collections[at].actions[action].rules;
        let before: Vec<Told<'_>> =
            was.rules.iter().map(|rule| self.as_it_was(rule, of.0, was)).collect();
        let after: Vec<Told<'_>> =
            rules.iter().map(|rule| self.lowered(rule, words, at, action)).collect();
        let asks = |was: &Told<'_>, is: &Told<'_>| was.when.text == is.when.text;
        let same = |was: &Told<'_>, is: &Told<'_>| was.code == is.code;
        let both = |was: &Told<'_>, is: &Told<'_>| asks(was, is) && same(was, is);
        let kept = self.kept_codes(at);
        let known: Vec<&String> =
            of.0.actions.iter().flat_map(|a| &a.rules).map(|r| &r.code).collect();
        // With another code, which is declared by itself.
        let recoded =
            |was: &Told<'_>, is: &Told<'_>| !kept.contains(&was.code) && !known.contains(&&is.code);
        let paired = pairs(&before, &after, &[&both, &asks, &same, &recoded]);
        for (was, is) in &paired {
            let (was, is) = (&before[*was], &after[*is]);
            self.rule(place, was, is);
            self.assignments(place, of, words, &was.rule.set, &is.rule.set);
            if was.code != is.code && kept.contains(&was.code) {
                let what = format!("the rule of `{}` answers with `{}` now", was.code, is.code);
                self.breaking(place, what, "clients tell refusals apart by it", None);
            }
        }
        for is in unpaired(&after, paired.iter().map(|(_, is)| *is)) {
            let what = format!("a new rule answers with `{}`", is.rule.code);
            self.breaking(place, what, "calls that worked may be refused", None);
        }
        let gone = unpaired(&before, paired.iter().map(|(was, _)| *was));
        for was in gone.iter().filter(|was| kept.contains(&was.code)) {
            let what = format!("a rule of `{}` is gone", was.code);
            self.breaking(place, what, "calls that were refused go through", None);
        }
        let overtakes = |(at, (was, is)): (usize, &(usize, usize))| {
            let later = &paired[at + 1..];
            later.iter().any(|(w, i)| w < was && !after[*i].answers_like(&after[*is]))
        };
        if paired.iter().enumerate().any(overtakes) {
            let what = "the rules are tried in another order".to_owned();
            self.breaking(place, what, "the first that fires answers: it may be another", None);
        }
    }

    fn as_it_was<'r>(&self, rule: &'r Rule, of: &Collection, action: &Action) -> Told<'r> {
        let at = self.old.find(&of.name).unwrap_or_default();
        let action = of.actions.iter().position(|one| one.name == action.name);
        let refusal = self.before.explain_rule(at, action.unwrap_or_default(), rule.refusal());
        Told::new(rule, Words::default(), &refusal, rule.to.as_deref().unwrap_or_default())
    }

    fn lowered<'r>(
        &self,
        rule: &'r Rule,
        words: Words<'_>,
        at: CollectionIx,
        action: usize,
    ) -> Told<'r> {
        let to = rule.to.as_deref().map(|to| self.state(at, to)).unwrap_or_default();
        let refusal = self.view.explain_rule(at, action, rule.refusal());
        Told::new(rule, words, &refusal, &to)
    }

    /// A state as the old version shows it.
    fn state(&self, at: CollectionIx, state: &str) -> String {
        let field = |schema: &Schema| Some(schema.collections[at].states.as_ref()?.field.clone());
        let shown = |kept: String| {
            let record = Fields::from_iter([(kept, Value::from(state))]);
            let shown = self.view.lens(at)?.down(&record);
            Some(shown.get(&field(&self.view.schema)?)?.as_str()?.to_owned())
        };
        field(self.new).and_then(shown).unwrap_or_else(|| state.to_owned())
    }

    fn rule(&mut self, place: &str, was: &Told<'_>, is: &Told<'_>) {
        let what = format!("the rule of `{}`", is.rule.code);
        self.said(place, &what, &was.when, &is.when, "calls that worked may be refused");
        for ((key, was), (_, is)) in was.answer.iter().zip(&is.answer) {
            if was != is {
                let what = format!("{what} has another `{key}`");
                self.breaking(place, what, "clients rely on how they are refused", None);
            }
        }
        if was.message != is.message {
            self.safe(place, format!("{what} has another message"), "only people read it");
        }
    }
}
