//! What a list of an older version asks for, in the words of the newest: names and values of
//! filters, and names of sort keys.

use super::Versions;
use super::convert::Conversion;
use super::expr::{Expr, Parsed};
use super::lens::{Lens, Line, show_one};
use crate::problem::{Code, Problem, Violation};
use crate::query::{Filter, Query, Test};
use crate::record::{Fields, Scalar, to_scalar};
use crate::schema::{CollectionIx, Field, Kind};
use crate::time::Timestamp;
use serde_json::Value;

/// No stretch of kept values that look alike is longer.
const FAR: i64 = 1 << 60;

/// Whether lists can be sorted by what the expression makes. Words sort as the newest ones do.
pub(super) fn sorts(expr: &Expr) -> bool {
    match expr {
        Expr::Kept(_) => true,
        Expr::Convert { of, by, .. } => (by.keeps_order() || is_wording(by)) && sorts(of),
        _ => false,
    }
}

fn is_wording(by: &Conversion) -> bool {
    matches!(by, Conversion::Table(_) | Conversion::Fill(_) | Conversion::Empty(_))
}

/// Whether greater kept values are shown as greater ones, but for what stands for null.
fn ranges(expr: &Expr) -> bool {
    match expr {
        Expr::Kept(_) => true,
        Expr::Convert { of, by: Conversion::Fill(_) | Conversion::Empty(_), .. } => ranges(of),
        Expr::Convert { of, by, .. } => by.keeps_order() && ranges(of),
        _ => false,
    }
}

impl Lens {
    /// Turns names and values of filters and sort keys into those of the newest version.
    pub fn query(&self, query: &mut Query) -> Result<(), Problem> {
        let mut filters = Vec::with_capacity(query.filters.len());
        let mut violations = Vec::new();
        for filter in query.filters.drain(..) {
            match self.declared(&filter.field) {
                None => filters.push(filter),
                Some((line, field)) => match self.filter(line, field, &filter.test) {
                    Ok(raised) => filters.extend(raised),
                    Err(violation) => violations.push(violation),
                },
            }
        }
        query.filters = filters;
        for key in &mut query.sort {
            let Some((line, _)) = self.declared(&key.field) else { continue };
            match line.expr.converted().filter(|_| sorts(&line.expr)) {
                Some(kept) => key.field = kept.to_owned(),
                None => violations.push(refusal("sort", format!("cannot be by `{}`", key.field))),
            }
        }
        query.revealed = self.revealed().map(str::to_owned).collect();
        match violations.is_empty() {
            true => Ok(()),
            false => Err(Problem::of(Code::InvalidParameter, violations)),
        }
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

    fn filter(&self, line: &Line, field: &Field, test: &Test) -> Result<Vec<Filter>, Violation> {
        let cannot = || refusal(&field.name, "cannot be filtered by in this version".to_owned());
        let kept = line.expr.converted().ok_or_else(cannot)?;
        let lift = self.lifts.iter().find(|lift| lift.field.name == kept).ok_or_else(cannot)?;
        let counted = counted(&line.expr);
        let source = Source { line, counted, kept, field: &lift.field, up: &lift.expr };
        let (translated, exact) = match test {
            Test::AnyOf(values) => (source.any_of(field, values), true),
            Test::Min(value) => {
                let least = source.bound(field, value, |(first, _)| first);
                (least.map(Test::Min), source.says_all())
            }
            Test::Max(value) => {
                let most = source.bound(field, value, |(_, last)| last);
                (most.map(Test::Max), source.says_all())
            }
            // The first two are only made here.
            Test::Within(_) | Test::Shown { .. } | Test::Like(_) => (Some(test.clone()), true),
        };
        // A bound that leaves too much is of use all the same: an index may serve it.
        let shown = (translated.is_none() || !exact).then(|| Test::Shown {
            version: self.version,
            field: field.name.clone(),
            test: Box::new(test.clone()),
        });
        let made = |test| Filter { field: kept.to_owned(), test };
        Ok(translated.into_iter().chain(shown).map(made).collect())
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

fn refusal(name: &str, what: String) -> Violation {
    Violation::new(name, Code::InvalidParameter, format!("`{name}` {what}."))
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
            spans.extend(self.origins(&value));
        }
        Some(any_of(spans))
    }

    /// The bound of kept values behind which none is shown on the wanted side of this one.
    fn bound(
        &self,
        shown: &Field,
        scalar: &Scalar,
        end: fn((Scalar, Scalar)) -> Scalar,
    ) -> Option<Scalar> {
        let expr = &self.line.expr;
        if !ranges(expr) || expr.has(Conversion::fills) {
            return None;
        }
        let span = self.span(&value_of(&shown.kind, scalar)).map(end);
        span.or_else(|| bound(self.up, shown, scalar))
    }

    /// Whether no kept value but null is shown as null.
    fn says_all(&self) -> bool {
        !self.line.expr.has(|by| by.leaves_out() || matches!(by, Conversion::Empty(_)))
            && self.line.expr.has_room_for(&self.field.kind)
    }

    /// The kept values that are shown as this one, first and last of each stretch: what it becomes
    /// with all that is rounded to it, and others that look like it.
    fn origins(&self, value: &Value) -> Vec<(Scalar, Scalar)> {
        let mut found: Vec<(Scalar, Scalar)> = Vec::new();
        found.extend(self.span(value).filter(|_| ranges(&self.line.expr)));
        let choices = self.field.choices.iter().map(|choice| Value::from(choice.as_str()));
        let others = [raise(self.up, &self.line.name, value), Value::Null];
        for candidate in others.into_iter().chain(choices) {
            let scalar = to_scalar(&self.field.kind, &candidate);
            let known = found.iter().any(|(first, last)| lies_within(&scalar, first, last));
            if !known && show_one(&self.line.expr, self.kept, &candidate) == *value {
                found.push((scalar.clone(), scalar));
            }
        }
        found
    }

    /// Whether the kept values that are shown as this one are no list of stretches: what has no
    /// word is anything, one of a stretch may stand for null, and numbers that are rounded to it
    /// may be kept as texts.
    fn is_scattered(&self, value: &Value) -> bool {
        let expr = &self.line.expr;
        // All values of an `enum` are looked at one by one.
        let wordless = self.field.choices.is_empty() && expr.shows_unsaid(value);
        let stretch = || self.span(value).is_some_and(|(first, last)| first != last);
        wordless
            || value.is_null() && !expr.has_room_for(&self.field.kind)
            || !ranges(expr) && expr.has(Conversion::rounds)
            || expr.has(|by| matches!(by, Conversion::Empty(_))) && stretch()
    }

    /// The stretch of kept values around what the value becomes that are all shown as it: a second
    /// has many instants, a rounded number stands for many. Only for what keeps its order.
    fn span(&self, value: &Value) -> Option<(Scalar, Scalar)> {
        let kind = &self.field.kind;
        let place = place(&to_scalar(kind, &raise(self.up, &self.line.name, value)))?;
        let shows = |place: i64| {
            let kept = value_of(kind, &at(kind, place));
            show_one(&self.counted, self.kept, &kept) == *value
        };
        let edge = |step: i64| at(kind, edge(place, step, shows));
        shows(place).then(|| (edge(-1), edge(1)))
    }
}

/// The farthest place in this direction up to which all are shown: ever longer steps, then ever
/// shorter ones.
fn edge(from: i64, direction: i64, shows: impl Fn(i64) -> bool) -> i64 {
    let (mut reached, mut step) = (from, 1i64);
    let beyond = |reached: i64, step: i64| reached.checked_add(direction * step);
    while let Some(next) = beyond(reached, step).filter(|next| step < FAR && shows(*next)) {
        (reached, step) = (next, step * 2);
    }
    while step > 0 {
        match beyond(reached, step).filter(|next| shows(*next)) {
            Some(next) => reached = next,
            None => step /= 2,
        }
    }
    reached
}

/// Where a value stands among all of its kind, one after the other.
fn place(scalar: &Scalar) -> Option<i64> {
    match scalar {
        Scalar::Integer(whole) => Some(*whole),
        Scalar::Number(number) => {
            let bits = number.to_bits() as i64;
            Some(if bits < 0 { i64::MIN - bits } else { bits })
        }
        Scalar::Null | Scalar::Text(_) => None,
    }
}

/// What stands there.
fn at(kind: &Kind, place: i64) -> Scalar {
    match kind {
        Kind::Number => {
            let bits = if place < 0 { i64::MIN - place } else { place };
            Scalar::Number(f64::from_bits(bits as u64))
        }
        _ => Scalar::Integer(place),
    }
}

fn lies_within(scalar: &Scalar, first: &Scalar, last: &Scalar) -> bool {
    match (place(scalar), place(first), place(last)) {
        (Some(scalar), Some(first), Some(last)) => (first..=last).contains(&scalar),
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

/// A bound need not be a value that can be kept: half a cent is a bound between two prices.
fn bound(up: &Expr, field: &Field, scalar: &Scalar) -> Option<Scalar> {
    let value = raise(&loosened(up), &field.name, &value_of(&field.kind, scalar));
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
        Expr::Convert { of, by: Conversion::Fill(_) | Conversion::Empty(_), .. } => counted(of),
        Expr::Convert { of, by, marks } => {
            Expr::Convert { of: Box::new(counted(of)), by: by.clone(), marks: *marks }
        }
        other => other.clone(),
    }
}

/// The expression without whole numbers as an aim.
fn loosened(expr: &Expr) -> Expr {
    match expr {
        Expr::Convert { of, by, marks } => {
            let by = match by {
                Conversion::Times(factor, _) => Conversion::Times(*factor, Kind::Number),
                other => other.clone(),
            };
            Expr::Convert { of: Box::new(loosened(of)), by, marks: *marks }
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
        (_, Scalar::Number(number)) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Value::from(*number as i64)
        }
        (_, Scalar::Number(number)) => Value::from(*number),
        (_, Scalar::Text(text)) => Value::from(text.as_str()),
    }
}
