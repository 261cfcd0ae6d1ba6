//! Random schemas with random pasts: the composed lens does what the changes do one by one.

use super::super::samples::{self, Hints};
use super::naive;
use super::*;
use crate::schema::Field;

/// Schemas that are tried. A chain may be lossy where none of its changes is: it is not served.
const SEEDS: u64 = 100;

/// A small generator with a fixed seed: the same schemas on every run.
pub(super) struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, below: usize) -> usize {
        usize::try_from(self.next() % below as u64).unwrap()
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
    Moment,
    List,
    Object,
    Choice,
    /// Nothing more happens to it.
    Rest,
}

/// A service in the making, its past written from the newest version on.
struct Maker {
    dice: Dice,
    shape: Vec<(String, Sort)>,
    /// Declared fields that some version removes.
    hidden: Vec<String>,
    /// Values of each choice field that old names exist for.
    words: usize,
    fresh: usize,
}

const DECLARED: &[(&str, Sort, &str)] = &[
    ("alpha", Sort::Text, "'string'"),
    ("beta", Sort::Text, "'string'"),
    ("gamma", Sort::Text, "{ type = 'string', write_only = true }"),
    ("delta", Sort::Required, "{ type = 'string', required = true }"),
    ("whole", Sort::Whole, "{ type = 'integer', min = -1000000, max = 1000000 }"),
    ("at", Sort::Moment, "'timestamp'"),
    ("list", Sort::List, "{ type = 'array', items = 'string' }"),
    ("things", Sort::Object, "'object'"),
    ("extras", Sort::Object, "'object'"),
    ("kind", Sort::Choice, "{ type = 'string', enum = ['k0', 'k1', 'k2'] }"),
    ("flag", Sort::Rest, "'boolean'"),
];

impl Maker {
    fn new(seed: u64) -> Maker {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut shape = Vec::new();
        for (name, sort, _) in DECLARED {
            if dice.below(4) > 0 {
                shape.push(((*name).to_owned(), *sort));
            }
        }
        let hidden = (0..dice.below(3)).map(|n| format!("hidden{n}")).collect();
        Maker { dice, shape, hidden, words: 0, fresh: 0 }
    }

    fn fields(&self) -> String {
        let known = DECLARED.iter().filter(|(name, ..)| self.shape.iter().any(|(n, _)| n == name));
        let hidden = self.hidden.iter().map(|name| format!("{name} = 'string'\n"));
        known.map(|(name, _, text)| format!("{name} = {text}\n")).chain(hidden).collect()
    }

    fn fresh(&mut self) -> String {
        self.fresh += 1;
        format!("f{}", self.fresh)
    }

    /// Takes a field of this sort out of the shape.
    fn take(&mut self, sorts: &[Sort]) -> Option<(String, Sort)> {
        let places: Vec<usize> =
            (0..self.shape.len()).filter(|at| sorts.contains(&self.shape[*at].1)).collect();
        let place = *self.dice.pick(&places)?;
        Some(self.shape.remove(place))
    }

    fn add(&mut self, name: &str, sort: Sort) {
        self.shape.push((name.to_owned(), sort));
    }

    /// One change, and the shape before it.
    // tidy: table
    fn change(&mut self) -> Option<String> {
        let old = self.fresh();
        match self.dice.below(14) {
            0..3 => {
                let (new, sort) = self.take(&[
                    Sort::Text,
                    Sort::Required,
                    Sort::Whole,
                    Sort::Moment,
                    Sort::List,
                    Sort::Object,
                    Sort::Choice,
                    Sort::Rest,
                ])?;
                self.add(&old, sort);
                Some(format!("rename = {{ from = '{old}', to = '{new}' }}"))
            }
            3 | 4 => {
                let (object, sort) = self.take(&[Sort::Object])?;
                let existing = self.dice.below(2) == 0;
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
                let (new, _) = new?;
                Some(format!("move = {{ from = '{object}.m{old}', to = '{new}' }}"))
            }
            6 => {
                let (first, sort) = self.take(&[Sort::Text])?;
                let Some((last, _)) = self.take(&[Sort::Text]) else {
                    self.add(&first, sort);
                    return None;
                };
                self.add(&old, Sort::Text);
                Some(format!(
                    "split = {{ from = {{ name = '{old}', type = 'string' }}, to = ['{first}', \
                     '{last}'], by = ' ' }}"
                ))
            }
            7 => {
                let (new, _) = self.take(&[Sort::Text])?;
                self.add(&format!("{old}b"), Sort::Rest);
                self.add(&format!("{old}a"), Sort::Rest);
                Some(format!(
                    "merge = {{ from = [{{ name = '{old}a', type = 'string', required = true, \
                     pattern = '^[^,]+$' }}, {{ name = '{old}b', type = 'string' }}], to = \
                     '{new}', by = ',' }}"
                ))
            }
            8 => {
                let (name, sort) =
                    self.take(&[Sort::Text, Sort::Moment, Sort::List, Sort::Whole])?;
                let (from, by) = match sort {
                    Sort::Text => ("integer", "by = 'text'"),
                    Sort::Moment => ("integer", "by = 'seconds'"),
                    Sort::List => ("string", "by = 'list'"),
                    _ => ("number", "factor = 100"),
                };
                let sort = if sort == Sort::List { Sort::Text } else { Sort::Rest };
                self.add(&name, sort);
                Some(format!("retype = {{ field = '{name}', from = '{from}', {by} }}"))
            }
            9 | 10 => {
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
            11 => {
                let (name, sort) = self.take(&[Sort::Text, Sort::Required])?;
                let required = sort == Sort::Required;
                self.add(&name, if required { Sort::Text } else { Sort::Required });
                let operation = if required { "required" } else { "optional" };
                Some(format!("{operation} = {{ field = '{name}', fill = 'filled' }}"))
            }
            12 => {
                let name = self.hidden.pop()?;
                self.add(&name, Sort::Text);
                Some(format!("removed = {{ field = '{name}' }}"))
            }
            _ => Some(format!(
                "removed = {{ field = {{ name = '{old}', type = 'integer' }}, value = 7 }}"
            )),
        }
    }
}

type Values = Vec<(String, Vec<Value>)>;

fn values_of<'f>(fields: impl Iterator<Item = &'f Field>, hints: &Hints) -> Values {
    fields.map(|field| (field.name.clone(), samples::of(field, hints))).collect()
}

fn some_of(dice: &mut Dice, fields: &Values) -> Fields {
    let mut record = Fields::new();
    for (name, values) in fields {
        if let Some(value) = dice.pick(values) {
            record.insert(name.clone(), value.clone());
        }
    }
    record
}

fn without_nulls(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    fields.retain(|_, value| !value.is_null());
    fields
}

/// The record in each version, newest first.
fn levels(changes: &[&Change], kept: &Fields) -> Vec<Fields> {
    let mut levels = vec![kept.clone()];
    for change in changes {
        levels.push(naive::down(change, &levels[levels.len() - 1]));
    }
    levels
}

/// What is sent in the oldest version, over a record in each of them, in the newest.
fn raised(changes: &[&Change], sent: &Fields, levels: &[Fields]) -> Fields {
    let steps = changes.iter().zip(levels).rev();
    steps.fold(sent.clone(), |record, (change, base)| naive::up(change, &record, base))
}

#[test]
fn composed_lenses_do_what_their_changes_do_one_by_one() {
    let mut lossless = 0;
    for seed in 1..=SEEDS {
        let mut maker = Maker::new(seed);
        let fields = maker.fields();
        let wanted = 1 + maker.dice.below(24);
        let pasts: Vec<String> = (0..wanted).filter_map(|_| maker.change()).collect();
        let pasts: Vec<&str> = pasts.iter().map(String::as_str).collect();
        let text = file(&fields, &pasts);
        let Ok(schema) = parse(&text) else {
            continue;
        };
        lossless += 1;
        let schema = Arc::new(schema);
        let versions = Versions::new(&schema);
        for view in versions.iter().skip(1) {
            Bench { schema: &schema, view, text: &text }.check(&mut maker.dice);
        }
    }
    assert!(lossless > SEEDS / 2, "{lossless} of {SEEDS} were served");
}

struct Bench<'a> {
    schema: &'a Schema,
    view: &'a View,
    text: &'a str,
}

impl Bench<'_> {
    fn check(&self, dice: &mut Dice) {
        let Some(lens) = self.view.lens(0) else { return };
        let newer = &self.schema.versions[..self.view.index];
        let changes: Vec<&Change> = newer.iter().flat_map(|version| &version.changes).collect();
        let members = vec!["mf1".to_owned(), "mf3".to_owned()];
        let hints = Hints { separators: vec![" ".into(), ",".into()], members, ..Hints::default() };
        let newest = values_of(self.schema.collections[0].fields.iter(), &hints);
        let old = &self.view.schema.collections[0];
        let writable = old.fields.iter().filter(|field| !field.read_only && !field.removed);
        let writable = values_of(writable, &hints);
        for _ in 0..6 {
            let kept = some_of(dice, &newest);
            self.check_down(lens, &changes, &kept, dice);
            let sent = some_of(dice, &writable);
            let made = lens.up(&sent);
            if made.values().any(validate::is_marked) {
                continue;
            }
            let expected = raised(&changes, &sent, &vec![Fields::new(); changes.len() + 1]);
            self.same(&made, &expected, "up", &sent);
            self.check_writes(lens, &changes, &kept, dice, &writable);
            self.check_put_get(lens, &made, dice, &writable);
        }
    }

    fn check_down(&self, lens: &Lens, changes: &[&Change], kept: &Fields, dice: &mut Dice) {
        let old = &self.view.schema.collections[0];
        let shown = lens.down(kept);
        let expected = levels(changes, kept).pop().unwrap();
        for field in old.fields.iter().filter(|field| !field.removed) {
            let (is, should) =
                (lens::value_of(&shown, &field.name), lens::value_of(&expected, &field.name));
            assert_eq!(is, should, "down {} of {kept:?}\n{}", field.name, self.text);
        }
        let text = lens.show(&record(self.schema, kept));
        let unhidden = |fields: &Fields| {
            let mut fields = fields.clone();
            fields.retain(|name, _| name != "gamma");
            fields
        };
        let encoded = record::encode(old, &lens.down(&unhidden(kept)));
        assert_eq!(text, encoded, "{}", self.text);
        // What changed, as the difference of the two records.
        let mut before = kept.clone();
        let names: Vec<String> = kept.keys().cloned().collect();
        let mut previous = Fields::new();
        for name in names.iter().filter(|_| dice.below(3) == 0) {
            before.insert(name.clone(), Value::Null);
            previous.insert(name.clone(), Value::Null);
        }
        let was = levels(changes, &before).pop().unwrap();
        let told = lens.previous(kept, &previous);
        for name in old.fields.iter().filter(|field| field.is_served()).map(|field| &field.name) {
            let (was, is) = (lens::value_of(&was, name), lens::value_of(&expected, name));
            let should = (was != is).then_some(was);
            assert_eq!(told.get(name), should, "previous {name} of {kept:?}\n{}", self.text);
        }
    }

    /// A changed field has the value that the changes give it; all others stay.
    fn check_writes(
        &self,
        lens: &Lens,
        changes: &[&Change],
        kept: &Fields,
        dice: &mut Dice,
        writable: &Values,
    ) {
        let sent = some_of(dice, writable);
        let mut patch = sent.clone();
        patch.retain(|_, value| dice.below(3) == 0 && !value.is_object());
        let levels = levels(changes, kept);
        let mut wanted = levels[levels.len() - 1].clone();
        wanted.extend(patch.clone());
        for (changed, wanted) in
            [(lens.merge(kept, &patch), wanted), (lens.replace(kept, &sent), sent.clone())]
        {
            let expected = raised(changes, &wanted, &levels);
            let unchanged = raised(changes, &levels[levels.len() - 1], &levels);
            for (name, value) in changed.iter().filter(|(_, value)| !validate::is_marked(value)) {
                let of = |fields| lens::value_of(fields, name);
                // Of what does not come back as it is kept, parts that nobody changed stay.
                let comes_back = of(&unchanged) == of(kept);
                let should = match of(kept) {
                    Value::Object(members) => {
                        let ends = (of(&unchanged), of(&expected));
                        &with_changes(members, &made_members(lens, name), ends, value)
                    }
                    _ if comes_back => of(&expected),
                    _ => continue,
                };
                assert_eq!(value, should, "write {name}: {wanted:?} over {kept:?}\n{}", self.text);
            }
        }
        let back = lens.merge(kept, &lens.down(kept));
        assert!(back.is_empty(), "{back:?} by sending back {kept:?}\n{}", self.text);
    }

    /// What an old client wrote is what it reads.
    fn check_put_get(&self, lens: &Lens, made: &Fields, dice: &mut Dice, writable: &Values) {
        let mut patch = some_of(dice, writable);
        patch.retain(|_, value| dice.below(3) == 0 && !value.is_object());
        let mut wanted = lens.down(made);
        wanted.extend(patch.clone());
        let mut after = made.clone();
        let changed = lens.merge(made, &patch);
        if changed.values().any(validate::is_marked) {
            return;
        }
        after.extend(changed);
        let shown = lens.down(&after);
        for (name, value) in wanted.iter_mut().filter(|(_, value)| value.is_null()) {
            // Nothing may mean what is filled, and an object that holds what moved there.
            let meant = lens::value_of(&shown, name);
            let filled = |value: &Value| *value == "filled";
            let members = meant.as_object();
            if filled(meant) || members.is_some_and(|members| members.values().all(filled)) {
                *value = meant.clone();
            }
        }
        self.same(&shown, &wanted, "read back", &patch);
    }

    fn same(&self, is: &Fields, should: &Fields, what: &str, of: &Fields) {
        let (is, should) = (without_nulls(is), without_nulls(should));
        assert_eq!(is, should, "{what} of {of:?}\n{}", self.text);
    }
}

/// The members of a kept object that are made from what is sent.
fn made_members(lens: &Lens, name: &str) -> Vec<String> {
    let mut members = Vec::new();
    let lift = lens.lifts.iter().find(|lift| lift.field.name == name).unwrap();
    lift.expr.visit(&mut |part| {
        if let expr::Expr::With { name, .. } = part {
            members.push(name.clone());
        }
    });
    members
}

/// A kept object with those members changed that differ. The others are as they are kept, or as
/// what was sent says it anew.
fn with_changes(
    kept: &Fields,
    anew: &[String],
    (was, is): (&Value, &Value),
    made: &Value,
) -> Value {
    let shown = [was, is].into_iter().filter_map(Value::as_object).flat_map(|object| object.keys());
    let names = shown.chain(anew);
    let mut members = kept.clone();
    for name in names.filter(|name| was.get(name) != is.get(name) || made.get(name) == is.get(name))
    {
        match is.get(name) {
            Some(value) => drop(members.insert(name.clone(), value.clone())),
            None => drop(members.remove(name)),
        }
    }
    match members.is_empty() {
        // Without members it is none, or an empty one.
        true if made.is_null() => Value::Null,
        _ => Value::Object(members),
    }
}
