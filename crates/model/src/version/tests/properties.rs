//! Random schemas with random histories: properties of every chain of changes.

use super::super::samples;
use super::*;
use crate::schema::{Field, Kind};

/// Schemas that are tried.
const SEEDS: u64 = 40;

/// A small generator with a fixed seed: the same schemas on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len())]) }
    }
}

/// What a field of the shape can be changed into.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sort {
    Text,
    Required,
    Whole,
    Object,
    Choice,
    /// Nothing more happens to it but another name.
    Rest,
}

const DECLARED: &[(&str, Sort, &str)] = &[
    ("alpha", Sort::Text, "'string'"),
    ("beta", Sort::Text, "'string'"),
    ("gamma", Sort::Rest, "{ type = 'string', write_only = true }"),
    ("delta", Sort::Required, "{ type = 'string', required = true }"),
    ("whole", Sort::Whole, "{ type = 'integer', min = -1000000, max = 1000000 }"),
    ("things", Sort::Object, "'object'"),
    ("extras", Sort::Object, "'object'"),
    ("kind", Sort::Choice, "{ type = 'string', enum = ['k0', 'k1', 'k2'] }"),
    ("flag", Sort::Rest, "'boolean'"),
];

/// A service in the making, its past written from the newest version on.
struct Maker {
    random: Random,
    shape: Vec<(String, Sort)>,
    /// Declared fields that some version removes.
    hidden: Vec<String>,
    /// Words that old names exist for, and names that were given.
    words: usize,
    names: usize,
}

impl Maker {
    fn new(seed: u64) -> Maker {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let chosen = DECLARED.iter().filter(|_| random.below(4) > 0);
        let shape = chosen.map(|(name, sort, _)| ((*name).to_owned(), *sort)).collect();
        let hidden = vec!["hidden0".to_owned(), "hidden1".to_owned()];
        Maker { random, shape, hidden, words: 0, names: 0 }
    }

    fn fields(&self) -> String {
        let known = DECLARED.iter().filter(|(name, ..)| self.shape.iter().any(|(n, _)| n == name));
        let hidden = self.hidden.iter().map(|name| format!("{name} = 'string'\n"));
        known.map(|(name, _, text)| format!("{name} = {text}\n")).chain(hidden).collect()
    }

    /// Takes a field of this sort out of the shape.
    fn take(&mut self, sorts: &[Sort]) -> Option<(String, Sort)> {
        let fits = |at: &usize| sorts.is_empty() || sorts.contains(&self.shape[*at].1);
        let places: Vec<usize> = (0..self.shape.len()).filter(fits).collect();
        let place = *self.random.pick(&places)?;
        Some(self.shape.remove(place))
    }

    fn add(&mut self, name: &str, sort: Sort) {
        self.shape.push((name.to_owned(), sort));
    }

    /// One change, and the shape before it.
    // tidy: table
    fn change(&mut self) -> Option<String> {
        self.names += 1;
        let old = format!("f{}", self.names);
        match self.random.below(12) {
            0..3 => {
                let (new, sort) = self.take(&[])?;
                self.add(&old, sort);
                Some(format!("rename = {{ from = '{old}', to = '{new}' }}"))
            }
            3 | 4 => {
                let (object, sort) = self.take(&[Sort::Object])?;
                let existing = self.random.below(2) == 0;
                if existing {
                    self.add(&object, sort);
                }
                self.add(&old, Sort::Text);
                Some(format!(
                    "move = {{ from = '{old}', to = '{object}.m{old}', existing = {existing} }}"
                ))
            }
            5 => {
                let (object, sort) = self.take(&[Sort::Object])?;
                let new = self.take(&[Sort::Text]);
                self.add(&object, sort);
                Some(format!("move = {{ from = '{object}.m{old}', to = '{}' }}", new?.0))
            }
            6 => {
                let (name, _) = self.take(&[Sort::Whole])?;
                self.add(&name, Sort::Rest);
                let formulas =
                    "up = 'int(math.round(value * 100.0))', down = 'double(value) / 100.0'";
                Some(format!("convert = {{ field = '{name}', from = 'number', {formulas} }}"))
            }
            7 => {
                let (name, _) = self.take(&[Sort::Text])?;
                self.add(&name, Sort::Rest);
                let formulas = "up = 'value[0]', down = '[value]'";
                Some(format!(
                    "convert = {{ field = '{name}', from = {{ type = 'array', items = 'string', \
                     min_length = 1 }}, {formulas} }}"
                ))
            }
            8 => {
                let (name, sort) = self.take(&[Sort::Choice])?;
                self.add(&name, sort);
                let (was, is) = (self.words, self.words + 1);
                self.words = is;
                let word = |n: usize| if n == 0 { "k0".to_owned() } else { format!("w{n}") };
                let down = if was == 0 { ", down = { k2 = 'k1' }" } else { "" };
                Some(format!(
                    "enum_map = {{ field = '{name}', values = {{ {} = '{}' }}{down} }}",
                    word(is),
                    word(was)
                ))
            }
            9 => {
                let (name, sort) = self.take(&[Sort::Text, Sort::Required])?;
                let required = sort == Sort::Required;
                self.add(&name, if required { Sort::Text } else { Sort::Required });
                let operation = if required { "required" } else { "optional" };
                Some(format!("{operation} = {{ field = '{name}', fill = 'filled' }}"))
            }
            10 => {
                let name = self.hidden.pop()?;
                self.add(&name, Sort::Text);
                Some(format!("removed = {{ field = '{name}' }}"))
            }
            _ => Some(format!(
                "removed = {{ field = {{ name = '{old}', type = 'integer' }}, value = 7 }}"
            )),
        }
    }

    /// A record or body with a random value in every field; objects with members that moved.
    fn record(&mut self, fields: &[Field]) -> Fields {
        let mut record = Fields::new();
        for field in fields.iter().filter(|field| !field.read_only && !field.removed) {
            let mut values = samples::of(field);
            if field.kind == Kind::Object {
                let name = format!("mf{}", 1 + self.random.below(self.names));
                values.extend([json!({name.clone(): "m"}), json!({name: "m", "z": 1})]);
            }
            let value = self.random.pick(&values).cloned().unwrap_or_default();
            record.insert(field.name.clone(), value);
        }
        record
    }
}

#[test]
fn no_chain_of_changes_loses_values_that_clients_send_or_do_not_see() {
    let mut served = 0;
    for seed in 1..=SEEDS {
        let mut maker = Maker::new(seed);
        let fields = maker.fields();
        let wanted = 1 + maker.random.below(24);
        let pasts: Vec<String> = (0..wanted).filter_map(|_| maker.change()).collect();
        let text = file(&fields, &pasts.iter().map(String::as_str).collect::<Vec<_>>());
        // What moves out of an object may be required; such a past is refused.
        let Ok(schema) = parse(&text) else { continue };
        served += 1;
        let versions = Versions::new(&Arc::new(schema));
        for view in versions.iter().skip(1) {
            let Some(lens) = view.lens(0) else { continue };
            let fixture =
                Fixture { newest: &versions.kept().collections[0], view, lens, text: &text };
            for _ in 0..6 {
                fixture.check(&mut maker);
            }
        }
    }
    assert!(served > SEEDS / 2, "{served} of {SEEDS} were served");
}

struct Fixture<'a> {
    newest: &'a Collection,
    view: &'a View,
    lens: &'a Lens,
    text: &'a str,
}

impl Fixture<'_> {
    fn check(&self, maker: &mut Maker) {
        let old = &self.view.schema.collections[0].fields;
        let mut kept = maker.record(&self.newest.fields);
        // Removed fields are stored, too.
        let removed = self.newest.fields.iter().filter(|field| field.removed);
        kept.extend(removed.map(|field| (field.name.clone(), json!("kept"))));
        self.shows_the_same_text(&kept);
        self.sending_back_changes_nothing(&kept);
        self.a_change_changes_no_more(&kept, &maker.record(old), maker);
        self.what_is_sent_is_shown(&maker.record(old));
    }

    /// The text that is served is that of the fields.
    fn shows_the_same_text(&self, kept: &Fields) {
        let encoded = record::encode(&self.view.schema.collections[0], &self.lens.down(kept));
        assert_eq!(self.lens.show(&record(self.newest, kept)), encoded, "{}", self.text);
    }

    fn sending_back_changes_nothing(&self, kept: &Fields) {
        let shown = self.lens.down(kept);
        for raised in [self.lens.merge(kept, &shown), self.lens.replace(kept, &shown)] {
            assert!(raised.fields.is_empty(), "{raised:?} of {kept:?}\n{}", self.text);
            let mut raised = raised;
            let checked = self.lens.check(&mut raised, &shown);
            assert!(checked.is_ok(), "{checked:?} of {kept:?}\n{}", self.text);
        }
    }

    /// After a PATCH of one field an old client reads that, and all else as before.
    fn a_change_changes_no_more(&self, kept: &Fields, sent: &Fields, maker: &mut Maker) {
        let names: Vec<&String> = sent.keys().filter(|name| !sent[*name].is_object()).collect();
        let Some(name) = maker.random.pick(&names) else { return };
        let patch = Fields::from_iter([((*name).clone(), sent[*name].clone())]);
        let mut raised = self.lens.merge(kept, &patch);
        if self.lens.check(&mut raised, &patch).is_err() {
            return;
        }
        let (mut wanted, mut after) = (self.lens.down(kept), kept.clone());
        wanted.extend(patch.clone());
        after.extend(raised.fields);
        let shown = self.lens.down(&after);
        self.same(&shown, &wanted, &patch);
        let previous: Fields = kept
            .iter()
            .filter(|(name, was)| after[*name] != **was)
            .map(|(name, was)| (name.clone(), was.clone()))
            .collect();
        for (name, was) in self.lens.previous(&after, &previous) {
            assert_eq!(self.lens.down(kept).get(&name), Some(&was), "{name}\n{}", self.text);
        }
    }

    /// What an old client creates is what it reads.
    fn what_is_sent_is_shown(&self, sent: &Fields) {
        let Ok(made) = self.view.body(0, sent.clone(), Mode::Create) else { return };
        self.same(&self.lens.down(&made), sent, sent);
    }

    /// But for what is filled, and objects that hold nothing else.
    fn same(&self, shown: &Fields, wanted: &Fields, sent: &Fields) {
        for name in shown.keys().chain(wanted.keys()) {
            let (is, should) = (lens::value_of(shown, name), lens::value_of(wanted, name));
            let same = is == should || without_fills(is) == without_fills(should);
            let same = same || self.lens.is_constant(name);
            assert!(same, "{name} is {is}, not {should}, by {sent:?}\n{}", self.text);
        }
    }
}

fn without_fills(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members = members.clone();
            members.retain(|_, member| *member != "filled");
            if members.is_empty() { Value::Null } else { Value::Object(members) }
        }
        Value::String(text) if text == "filled" => Value::Null,
        Value::Array(items) if items.iter().all(|item| item == "filled") => Value::Null,
        other => other.clone(),
    }
}
