//! What a list of an older version asks for, in the words of the newest: names and values of
//! filters, and names of sort keys.

use super::Versions;
use super::convert::Conversion;
use super::expr::{Expr, Parsed};
use super::lens::{Lens, Lift, Line, show_one};
use super::raw::Raw;
use crate::query::{Filter, Query, Shown, Test};
use crate::record::{Fields, Scalar, to_scalar};
use crate::schema::{CollectionIx, Field, Kind};
use crate::time::Timestamp;
use crate::validate::MAX_INTEGER;
use crate::value::plain_number;
use serde_json::Value;
use std::cmp::Ordering;

/// The column that stands for a record as a whole.
const RECORD: &str = "id";

/// Whether the expression shows kept values in their order. Other words have another one, and what
/// stands for null has its place among the rest.
fn sorts(expr: &Expr) -> bool {
    match expr {
        Expr::Kept(_) => true,
        Expr::Convert { of, by, .. } => by.keeps_order() && sorts(of),
        _ => false,
    }
}

/// Whether greater kept values are shown as greater ones, but for what stands for null.
fn ranges(expr: &Expr) -> bool {
    match expr {
        Expr::Kept(_) => true,
        Expr::Convert { of, by: Conversion::Fill(_), .. } => ranges(of),
        Expr::Convert { of, by, .. } => by.keeps_order() && ranges(of),
        _ => false,
    }
}

impl Lens {
    /// Turns names and values of filters and sort keys into those of the newest version.
    pub fn query(&self, query: &mut Query) {
        let mut filters = Vec::with_capacity(query.filters.len());
        for filter in query.filters.drain(..) {
            match self.declared(&filter.field) {
                None => filters.push(filter),
                Some((line, field)) => filters.extend(self.filter(line, field, &filter.test)),
            }
        }
        query.filters = filters;
        let last = query.sort.len().saturating_sub(1);
        for (place, key) in query.sort.iter_mut().enumerate() {
            let Some((line, _)) = self.declared(&key.field) else { continue };
            let Some(lift) = self.column(line) else {
                key.field = RECORD.to_owned();
                key.shown = Some(self.shown_by(line, true));
                continue;
            };
            lift.field.name.clone_into(&mut key.field);
            // What is shown alike is for the next key to tell apart.
            let alike = place < last && line.expr.has(Conversion::joins);
            let by_kept = sorts(&line.expr) && !alike;
            key.shown = (!by_kept).then(|| self.shown_by(line, false));
        }
        query.revealed = self.revealed().map(str::to_owned).collect();
    }

    /// The removed fields that this version searches.
    fn revealed(&self) -> impl Iterator<Item = &str> {
        let searches = |line: &&Line| line.field.as_ref().is_some_and(|field| field.search);
        let removed = self.lifts.iter().filter(|lift| lift.field.removed && lift.field.search);
        let names = removed.map(|lift| lift.field.name.as_str());
        names.filter(move |name| {
            self.lines.iter().filter(searches).any(|line| line.kept.contains(*name))
        })
    }

    /// An old name that stays beside a field means that one.
    fn declared(&self, name: &str) -> Option<(&Line, &Field)> {
        let name = self.aliases().find(|(old, _)| *old == name).map_or(name, |(_, new)| new);
        let line = self.lines.iter().find(|line| line.name == name)?;
        Some((line, line.field.as_ref()?))
    }

    /// The kept field that a field of this version is made from, if it is one with a column.
    fn column(&self, line: &Line) -> Option<&Lift> {
        let kept = line.expr.converted()?;
        self.lifts.iter().find(|lift| lift.field.name == kept && lift.field.has_column())
    }

    fn shown_by(&self, line: &Line, whole: bool) -> Shown {
        Shown { version: self.version, field: line.name.clone(), whole }
    }

    fn filter(&self, line: &Line, field: &Field, test: &Test) -> Vec<Filter> {
        let of_record = || {
            let test = Box::new(test.clone());
            let test = Test::Shown { by: self.shown_by(line, true), test };
            vec![Filter { field: RECORD.to_owned(), test }]
        };
        let Some(lift) = self.column(line) else { return of_record() };
        let kept = lift.field.name.as_str();
        let counted = counted(&line.expr);
        let source = Source { line, counted, kept, field: &lift.field, up: &lift.expr };
        if source.is_beyond_floats(field, test) {
            return of_record();
        }
        let (translated, exact) = match test {
            Test::AnyOf(values) => (source.any_of(field, values), true),
            Test::Min(value) => (source.least(field, value), source.says_all()),
            Test::Max(value) => (source.most(field, value), source.says_all()),
            // The first two are only made here.
            Test::Within(_) | Test::Shown { .. } | Test::Like(_) => (Some(test.clone()), true),
        };
        // A bound that leaves too much is of use all the same: an index may serve it.
        let shown = (translated.is_none() || !exact)
            .then(|| Test::Shown { by: self.shown_by(line, false), test: Box::new(test.clone()) });
        let made = |test| Filter { field: kept.to_owned(), test };
        translated.into_iter().chain(shown).map(made).collect()
    }
}

impl Versions {
    /// What a field of an older version shows of a kept value, where it shows no more than one; as
    /// a column for it would keep that.
    pub fn shown(
        &self,
        version: usize,
        collection: CollectionIx,
        field: &str,
        kept: &Scalar,
    ) -> Scalar {
        let shown = || {
            let lens = self.get(version)?.lens(collection)?;
            let (line, field) = lens.declared(field)?;
            let name = line.expr.converted()?;
            let lift = lens.lifts.iter().find(|lift| lift.field.name == name)?;
            let value = show_one(&line.expr, name, &value_of(&lift.field.kind, kept));
            Some(to_scalar(&field.kind, &value))
        };
        shown().unwrap_or(Scalar::Null)
    }

    /// The same of a whole record, for a field that is made from more than one column, or none.
    pub fn shown_of(
        &self,
        version: usize,
        collection: CollectionIx,
        field: &str,
        body: &str,
        hidden: Option<&str>,
    ) -> Scalar {
        let shown = || {
            let lens = self.get(version)?.lens(collection)?;
            let (line, field) = lens.declared(field)?;
            Some(to_scalar(&field.kind, &line.expr.eval(&Raw::read(body, hidden))))
        };
        shown().unwrap_or(Scalar::Null)
    }
}

impl Expr {
    /// Whether it shows values that have no word in the version as this one.
    fn shows_unsaid(&self, value: &Value) -> bool {
        let mut found = false;
        self.visit(&mut |part| {
            if let Expr::Convert { by, .. } = part
                && by.leaves_out()
            {
                found |= self.shown_without(part) == *value;
            }
        });
        found
    }

    /// Whether one of its conversions is such a one.
    fn has(&self, wanted: impl Fn(&Conversion) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |part| {
            found |= matches!(part, Expr::Convert { by, .. } if wanted(by));
        });
        found
    }

    /// What it shows where one part of it says nothing.
    fn shown_without(&self, part: &Expr) -> Value {
        match self {
            Expr::Convert { of, by, .. } if !std::ptr::eq(self, part) => {
                by.apply(&of.shown_without(part)).unwrap_or_default()
            }
            _ => Value::Null,
        }
    }
}

/// A field of the version, and the kept one that it is made from.
struct Source<'a> {
    line: &'a Line,
    /// What it shows, without what stands for null.
    counted: Expr,
    kept: &'a str,
    field: &'a Field,
    up: &'a Expr,
}

impl Source<'_> {
    /// Which kept values are shown as one of these, where that can be listed.
    fn any_of(&self, shown: &Field, values: &[Scalar]) -> Option<Test> {
        let mut spans = Vec::new();
        for value in values.iter().map(|value| value_of(&shown.kind, value)) {
            if self.is_scattered(&value) {
                return None;
            }
            spans.extend(self.origins(shown, &value));
        }
        Some(any_of(spans))
    }

    /// Which kept values are shown as this one or a greater one.
    fn least(&self, shown: &Field, scalar: &Scalar) -> Option<Test> {
        if !self.has_bounds() {
            return None;
        }
        let Some(search) = self.search(shown) else {
            return bound(self.up, shown, scalar).map(Test::Min);
        };
        let first = search.first(|order| order.is_ge(), scalar);
        Some(first.map_or(Test::AnyOf(Vec::new()), |place| Test::Min(search.at(place))))
    }

    /// Which kept values are shown as this one or a smaller one.
    fn most(&self, shown: &Field, scalar: &Scalar) -> Option<Test> {
        if !self.has_bounds() {
            return None;
        }
        let Some(search) = self.search(shown) else {
            return bound(self.up, shown, scalar).map(Test::Max);
        };
        let last = search.last(scalar);
        Some(last.map_or(Test::AnyOf(Vec::new()), |place| Test::Max(search.at(place))))
    }

    /// Whether what lies beyond a shown value lies beyond a kept one.
    fn has_bounds(&self) -> bool {
        ranges(&self.line.expr) && !self.line.expr.has(Conversion::fills)
    }

    /// Whether no kept value but null is shown as null.
    fn says_all(&self) -> bool {
        !self.line.expr.has(Conversion::leaves_out) && self.line.expr.has_room_for(&self.field.kind)
    }

    /// The kept values that are shown as this one, first and last of each stretch: what it becomes
    /// with all that is rounded to it, and others that look like it.
    fn origins(&self, shown: &Field, value: &Value) -> Vec<(Scalar, Scalar)> {
        let shows = |kept: &Value| show_one(&self.line.expr, self.kept, kept) == *value;
        let mut found: Vec<(Scalar, Scalar)> = Vec::new();
        found.extend(self.span(shown, value));
        let choices = self.field.choices.iter().map(|choice| Value::from(choice.as_str()));
        let others = [raise(self.up, &self.line.name, value), Value::Null];
        for candidate in others.into_iter().chain(choices) {
            let scalar = to_scalar(&self.field.kind, &candidate);
            let known = found.iter().any(|(first, last)| lies_within(&scalar, first, last));
            if !known && shows(&candidate) {
                found.push((scalar.clone(), scalar));
            }
        }
        found
    }

    /// Whether the kept values that are shown as this one are no list of stretches: what has no
    /// word is anything, what is too large for a number may be filled, numbers that are rounded to
    /// it may be kept as texts, and so may be all that share a float.
    fn is_scattered(&self, value: &Value) -> bool {
        let expr = &self.line.expr;
        // All values of an `enum` are looked at one by one.
        let wordless = self.field.choices.is_empty() && expr.shows_unsaid(value);
        wordless
            || (value.is_null() || expr.has(Conversion::fills))
                && !self.counted.has_room_for(&self.field.kind)
            || !ranges(expr) && expr.has(Conversion::rounds)
            || value.as_f64().is_some_and(|float| float.abs() > MAX_INTEGER as f64)
                && expr.has(|by| *by == Conversion::FromText(Kind::Number))
    }

    /// Whether a number is asked for that is kept as one, in another unit, and may share its float,
    /// which is all that a column has, with other whole numbers.
    fn is_beyond_floats(&self, shown: &Field, test: &Test) -> bool {
        let values = match test {
            Test::AnyOf(values) => values.as_slice(),
            Test::Min(value) | Test::Max(value) => std::slice::from_ref(value),
            Test::Within(_) | Test::Like(_) | Test::Shown { .. } => &[],
        };
        let is_beyond = |value: &Scalar| {
            let raised = raise(self.up, &self.line.name, &value_of(&shown.kind, value));
            let size = raised.as_f64().map(f64::abs);
            !raised.is_null() && size.is_none_or(|size| size > MAX_INTEGER as f64)
        };
        let converted = self.field.kind == Kind::Number && self.search(shown).is_some();
        converted && values.iter().any(is_beyond)
    }

    /// First and last of the kept values that are shown as this one: a second has many instants, a
    /// rounded number stands for many. Only for what keeps its order.
    fn span(&self, shown: &Field, value: &Value) -> Option<(Scalar, Scalar)> {
        let search = self.search(shown).filter(|_| ranges(&self.line.expr) && !value.is_null())?;
        let scalar = to_scalar(&shown.kind, value);
        let (first, last) = (search.first(|order| order.is_ge(), &scalar)?, search.last(&scalar)?);
        (first <= last).then(|| (search.at(first), search.at(last)))
    }

    /// None where values are kept as they are shown, or are no numbers.
    fn search<'s>(&'s self, shown: &'s Field) -> Option<Search<'s>> {
        let (least, greatest) = match &self.field.kind {
            _ if matches!(self.counted, Expr::Kept(_)) => return None,
            Kind::Integer => (-MAX_INTEGER, MAX_INTEGER),
            Kind::Number => (place(f64::MIN), place(f64::MAX)),
            Kind::Timestamp => (Timestamp::MIN.0, Timestamp::MAX.0),
            _ => return None,
        };
        Some(Search { source: self, shown, least, greatest })
    }
}

/// A search among all kept values, which are shown in their order.
struct Search<'s> {
    source: &'s Source<'s>,
    shown: &'s Field,
    /// Places of the first and the last value.
    least: i64,
    greatest: i64,
}

impl Search<'_> {
    /// The first place whose shown value lies so to the wanted one. All behind it do, too.
    fn first(&self, lies: fn(Ordering) -> bool, wanted: &Scalar) -> Option<i64> {
        let reaches = |place: i64| lies(self.order(place, wanted));
        let (mut from, mut to) = self.bracket(reaches, self.guess(wanted))?;
        while from < to {
            let middle = from.midpoint(to).min(to - 1);
            match reaches(middle) {
                true => to = middle,
                false => from = middle + 1,
            }
        }
        Some(from)
    }

    /// Two places, so that the first one that reaches is among them and what lies between. Steps
    /// away from a guess, which is it or near, ever farther.
    fn bracket(&self, reaches: impl Fn(i64) -> bool, guess: i64) -> Option<(i64, i64)> {
        let (mut place, mut step) = (guess, 1i64);
        let falls = reaches(guess);
        loop {
            let next = if falls { place.saturating_sub(step) } else { place.saturating_add(step) };
            let next = next.clamp(self.least, self.greatest);
            match (falls, reaches(next)) {
                (true, false) => return Some((next + 1, place)),
                (false, true) => return Some((place + 1, next)),
                (true, true) if next == self.least => return Some((next, next)),
                (false, false) if next == self.greatest => return None,
                _ => (place, step) = (next, step.saturating_mul(2)),
            }
        }
    }

    /// The place of what the wanted value becomes, if that can be kept.
    fn guess(&self, wanted: &Scalar) -> i64 {
        let Source { line, field, up, .. } = self.source;
        let raised = raise(up, &line.name, &value_of(&self.shown.kind, wanted));
        let place = match to_scalar(&field.kind, &raised) {
            Scalar::Integer(whole) => whole,
            Scalar::Number(number) => place(number),
            Scalar::Null | Scalar::Text(_) => 0,
        };
        place.clamp(self.least, self.greatest)
    }

    /// The last place whose shown value is at most the wanted one.
    fn last(&self, wanted: &Scalar) -> Option<i64> {
        match self.first(|order| order.is_gt(), wanted) {
            Some(beyond) => (beyond > self.least).then(|| beyond - 1),
            None => Some(self.greatest),
        }
    }

    /// How what is shown of the value at this place lies to the wanted one.
    fn order(&self, place: i64, wanted: &Scalar) -> Ordering {
        let kept = value_of(&self.source.field.kind, &self.at(place));
        let shown = show_one(&self.source.counted, self.source.kept, &kept);
        let float = |scalar: &Scalar| match scalar {
            Scalar::Number(number) => *number,
            Scalar::Integer(whole) => *whole as f64,
            Scalar::Null | Scalar::Text(_) => f64::NAN,
        };
        match (to_scalar(&self.shown.kind, &shown), wanted) {
            // Too large to be shown, on its side of zero.
            (Scalar::Null, _) => place.cmp(&0),
            (Scalar::Integer(shown), Scalar::Integer(wanted)) => shown.cmp(wanted),
            (shown, wanted) => float(&shown).partial_cmp(&float(wanted)).unwrap_or(Ordering::Less),
        }
    }

    /// What stands at a place.
    fn at(&self, place: i64) -> Scalar {
        match self.source.field.kind {
            Kind::Number => {
                let bits = if place < 0 { i64::MIN - place } else { place };
                Scalar::Number(f64::from_bits(bits as u64))
            }
            _ => Scalar::Integer(place),
        }
    }
}

/// Where a float stands among all of them, one after the other.
fn place(number: f64) -> i64 {
    let bits = number.to_bits() as i64;
    if bits < 0 { i64::MIN - bits } else { bits }
}

fn lies_within(scalar: &Scalar, first: &Scalar, last: &Scalar) -> bool {
    match (scalar, first, last) {
        (Scalar::Integer(one), Scalar::Integer(first), Scalar::Integer(last)) => {
            (first..=last).contains(&one)
        }
        (Scalar::Number(one), Scalar::Number(first), Scalar::Number(last)) => {
            (first..=last).contains(&one)
        }
        _ => scalar == first,
    }
}

/// Single values are found faster than stretches.
fn any_of(spans: Vec<(Scalar, Scalar)>) -> Test {
    match spans.iter().all(|(first, last)| first == last) {
        true => Test::AnyOf(spans.into_iter().map(|(first, _)| first).collect()),
        false => Test::Within(spans),
    }
}

fn raise(up: &Expr, name: &str, value: &Value) -> Value {
    let sent: Fields = std::iter::once((name.to_owned(), value.clone())).collect();
    up.eval(&Parsed { sent: Some(&sent), kept: None }).into_owned()
}

/// The kept value that is shown as this one.
fn bound(up: &Expr, field: &Field, scalar: &Scalar) -> Option<Scalar> {
    let value = raise(up, &field.name, &value_of(&field.kind, scalar));
    match &value {
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Some(Scalar::Integer(whole)),
            None => number.as_f64().map(Scalar::Number),
        },
        Value::String(text) => match Timestamp::parse(text) {
            Some(instant) => Some(Scalar::Integer(instant.0)),
            None => Some(Scalar::Text(text.clone())),
        },
        _ => None,
    }
}

/// The expression without what stands for null.
fn counted(expr: &Expr) -> Expr {
    match expr {
        Expr::Convert { of, by: Conversion::Fill(_), .. } => counted(of),
        Expr::Convert { of, by, marks } => {
            Expr::Convert { of: Box::new(counted(of)), by: by.clone(), marks: *marks }
        }
        other => other.clone(),
    }
}

/// A value of the version from what its filter was read as.
fn value_of(kind: &Kind, scalar: &Scalar) -> Value {
    match (kind, scalar) {
        (_, Scalar::Null) => Value::Null,
        (Kind::Boolean, Scalar::Integer(flag)) => Value::Bool(*flag != 0),
        (Kind::Timestamp, Scalar::Integer(instant)) => Value::String(Timestamp(*instant).to_iso()),
        (_, Scalar::Integer(whole)) => Value::from(*whole),
        (_, Scalar::Number(number)) => plain_number(*number).map_or(Value::Null, Value::Number),
        (_, Scalar::Text(text)) => Value::from(text.as_str()),
    }
}
