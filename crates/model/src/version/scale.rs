//! Numbers in another unit. What an old client is shown of a kept number is its quotient by the
//! factor; what it sends becomes the number that is shown as that.

use super::decimal::{Decimal, shortened};
use crate::schema::Kind;
use crate::validate::{MAX_INTEGER, plain};
use crate::value::plain_number;
use serde_json::{Number, Value};

/// What a field was multiplied by, and what it was and is: integer or number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    factor: f64,
    decimal: Decimal,
    old: Kind,
    new: Kind,
}

/// Neighbours that are tried: a float is off by no more, be it multiplied or divided.
const NEAR: u64 = 2;
/// By how much many divisions are off.
pub(super) const SLACK: u64 = 64;

impl Scale {
    /// None of a factor that is no number.
    pub fn new(factor: f64, old: Kind, new: Kind) -> Option<Scale> {
        Some(Scale { factor, decimal: Decimal::of_float(factor)?, old, new })
    }

    /// Without whole numbers as an aim.
    pub fn exact(&self) -> Scale {
        Scale { old: Kind::Number, ..self.clone() }
    }

    /// Whether old clients have the nearest whole number.
    pub fn rounds(&self) -> bool {
        self.old == Kind::Integer
    }

    /// Whether greater numbers are shown as smaller ones.
    pub fn falls(&self) -> bool {
        self.factor < 0.0
    }

    /// What is shown of a kept number: the nearest whole one where old clients have integers. Else
    /// fifteen digits where these lead back to it, since an old client that sent as many reads them
    /// again, and otherwise as many as it takes.
    pub fn down(&self, kept: &Number) -> Option<Number> {
        if self.rounds() {
            let whole = Decimal::of(kept)?.over(&self.decimal)?.rounded()?;
            return (whole.abs() <= MAX_INTEGER).then(|| Number::from(whole));
        }
        if let Some(quotient) = self.divided(kept) {
            return plain_number(quotient);
        }
        let quotient = Decimal::of(kept)?.over(&self.decimal)?.number()?;
        let short = quotient.as_f64().filter(|_| quotient.is_f64()).and_then(shortened);
        let leads_back = |short: &f64| {
            let product = Decimal::of_float(*short).and_then(|short| short.times(&self.decimal));
            product.and_then(|product| product.float()) == kept.as_f64()
        };
        short.filter(leads_back).and_then(plain_number).or(Some(quotient))
    }

    /// The common case, without the detour over digits: floats divide whole numbers as well.
    fn divided(&self, kept: &Number) -> Option<f64> {
        let kept = kept.as_i64().filter(|whole| whole.unsigned_abs() <= MAX_INTEGER as u64)? as f64;
        let factor = self.factor;
        let whole = factor.fract() == 0.0 && factor.abs() <= MAX_INTEGER as f64;
        let moves_point = [10.0, 100.0, 1_000.0, 1e4, 1e5, 1e6, 1e9].contains(&factor);
        let exact = kept % factor == 0.0 || moves_point && kept.abs() < 1e15;
        (whole && exact).then(|| kept / factor)
    }

    /// The number that is shown as this one, or else as one beside it, since that may be what is
    /// left of it after another division: `settle` looks what becomes of it. None where the other
    /// unit has no such number.
    pub fn up(&self, sent: &Number) -> Option<Number> {
        let sent = plain(sent);
        let product = Decimal::of(&sent)?.times(&self.decimal)?;
        let all = self.near(&product);
        let by_distance = all.into_iter().filter_map(|number| {
            let distance = distance(&self.down(&number)?, &sent);
            Some((distance, number))
        });
        let nearest = by_distance.min_by_key(|(distance, _)| *distance);
        nearest.filter(|(distance, _)| *distance <= SLACK).map(|(_, number)| number)
    }

    /// Numbers of the new kind, the likeliest first.
    fn near(&self, product: &Decimal) -> Vec<Number> {
        if self.new == Kind::Integer {
            let Some(whole) = product.rounded() else { return Vec::new() };
            let whole = whole.clamp(-MAX_INTEGER, MAX_INTEGER);
            return beside(&self.new, &Number::from(whole), NEAR);
        }
        // No whole number that is no float: columns hold floats, and lists go by them.
        let Some(nearest) = product.float().and_then(plain_number) else { return Vec::new() };
        beside(&self.new, &nearest, NEAR)
    }
}

/// A number and those next to it, nearest first, of fractions the one with fifteen digits.
pub(super) fn beside(kind: &Kind, number: &Number, reach: u64) -> Vec<Number> {
    let steps = std::iter::once(0).chain((1..=reach as i64).flat_map(|step| [step, -step]));
    match (kind, number.as_i64()) {
        (Kind::Integer, Some(whole)) => {
            let near = steps.filter_map(|step| whole.checked_add(step));
            near.filter(|whole| whole.abs() <= MAX_INTEGER).map(Number::from).collect()
        }
        _ => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            let near = steps.skip(1).map(|step| float.to_bits().wrapping_add_signed(step));
            let near = near.filter_map(|bits| plain_number(f64::from_bits(bits)));
            let short = shortened(float).filter(|_| number.is_f64()).and_then(plain_number);
            short.into_iter().chain([number.clone()]).chain(near).collect()
        }
    }
}

/// How many floats lie between two numbers.
fn distance(one: &Number, other: &Number) -> u64 {
    let bits = |number: &Number| number.as_f64().map_or(0, |float| float.to_bits() as i64);
    let apart = bits(one).wrapping_sub(bits(other)).unsigned_abs();
    // Beyond what floats hold, two whole numbers may be one float.
    if apart == 0 && one != other { 1 } else { apart }
}

/// Whether a number comes back: whole ones and fifteen digits as they were sent, more as those of a
/// float beside it, since no other may be there.
pub(super) fn comes_back(sent: &Value, read: &Value) -> bool {
    match (sent, read) {
        (Value::Number(sent), Value::Number(read)) if sent.is_f64() && read.is_f64() => {
            let is_long = sent.as_f64().and_then(shortened) != sent.as_f64();
            sent == read || is_long && distance(sent, read) <= SLACK
        }
        _ => sent == read,
    }
}
