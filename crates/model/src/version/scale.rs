//! Numbers in another unit. What an old client is shown of a kept number is its quotient by the
//! factor; what it sends becomes the number that is shown as that, or where the change says so, the
//! nearest there is.

use super::decimal::{Decimal, shortened};
use crate::schema::Kind;
use crate::validate::{MAX_INTEGER, plain};
use crate::value::plain_number;
use serde_json::Number;

/// What a field was multiplied by, and what it was and is: integer or number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    factor: f64,
    decimal: Decimal,
    old: Kind,
    new: Kind,
    /// Whether the nearest will do.
    nearest: bool,
}

/// Neighbours that are tried: a float is off by no more, be it multiplied or divided.
const NEAR: u64 = 2;
/// By how much many divisions are off.
pub(super) const SLACK: u64 = 64;
/// Powers of two from which on all floats are whole, and none are whole numbers of 64 bits.
const WHOLE: f64 = (1u64 << 53) as f64;
const HUGE: f64 = (1u128 << 65) as f64;
/// Numbers in a row that are tried: of the last factors that one would use, one in so many is lost.
const ROW: u64 = 1024;

impl Scale {
    /// None of a factor that is no number.
    pub fn new(factor: f64, old: Kind, new: Kind) -> Option<Scale> {
        Some(Scale { factor, decimal: Decimal::of_float(factor)?, old, new, nearest: false })
    }

    pub fn with_nearest(self, nearest: bool) -> Scale {
        Scale { nearest, ..self }
    }

    /// Both in one, where that is as exact: between numbers, and of no more digits than a float.
    pub fn after(&self, older: &Scale) -> Option<Scale> {
        let decimal = self.decimal.times(&older.decimal)?.trimmed();
        let factor = decimal.float()?;
        let exact = Decimal::of_float(factor)? == decimal;
        let of_floats = self.is_of_floats() && older.is_of_floats();
        let nearest = self.nearest || older.nearest;
        (of_floats && exact).then_some(Scale { factor, decimal, nearest, ..self.clone() })
    }

    /// Without whole numbers as an aim.
    pub fn exact(&self) -> Scale {
        Scale { old: Kind::Number, ..self.clone() }
    }

    /// Whether old clients have the nearest whole number.
    pub fn rounds(&self) -> bool {
        self.old == Kind::Integer
    }

    /// Whether no digits are lost: by a power of two, floats stay as dense as they are.
    fn is_exact(&self) -> bool {
        self.is_of_floats() && self.steep() == 1.0
    }

    /// The factor without its power of two.
    fn steep(&self) -> f64 {
        self.factor.abs() / power_below(self.factor.abs())
    }

    /// Whether both are numbers, so that only digits can be lost.
    pub fn is_of_floats(&self) -> bool {
        [&self.old, &self.new] == [&Kind::Number; 2]
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
        let short = quotient.as_f64().and_then(shortened).and_then(Decimal::of_float);
        let leads_back = |short: &Decimal| {
            let product = short.times(&self.decimal).and_then(|product| product.float());
            product == kept.as_f64()
        };
        short.filter(leads_back).and_then(|short| short.number()).or(Some(quotient))
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
    /// unit has no such number, and the nearest will not do.
    pub fn up(&self, sent: &Number) -> Option<Number> {
        let sent = plain(sent);
        let product = Decimal::of(&sent)?.times(&self.decimal)?;
        let all = self.near(&product);
        let by_distance = all.into_iter().filter_map(|number| {
            let distance = distance(&self.down(&number)?, &sent);
            Some((distance, number))
        });
        let (distance, number) = by_distance.min_by_key(|(distance, _)| *distance)?;
        match self.new {
            _ if distance == 0 => Some(number),
            Kind::Integer if self.nearest => {
                let whole = product.rounded().filter(|whole| whole.abs() <= MAX_INTEGER);
                whole.map(Number::from).filter(|whole| self.down(whole).is_some())
            }
            _ => (self.nearest || distance <= SLACK).then_some(number),
        }
    }

    /// A number within these limits that comes back as another one. Floats are the denser the
    /// smaller they are, so where a product passes the next power of two, several share one.
    pub fn lost(&self, least: f64, most: f64) -> Option<Number> {
        if self.nearest || self.is_exact() || !self.is_of_floats() {
            return None;
        }
        let steep = self.steep();
        let halves = [(1.0, least, most), (-1.0, -most, -least)];
        halves.into_iter().find_map(|(sign, least, most)| {
            let least = least.max(0.0);
            let (low, high) = (power_below(least), power_below(most));
            let powers = [1.0, WHOLE, HUGE, high, high / 2.0, low, low * 2.0].into_iter();
            powers.filter(|power| power.is_normal()).find_map(|power| {
                let (from, to) = (least.max(2.0 * power / steep), most.min(2.0 * power));
                let middle = from + (to - from) / 2.0;
                let row = (0..ROW).map(|step| f64::from_bits(middle.to_bits() + step));
                let row = row.take_while(|number| from < *number && *number < to);
                row.filter_map(|number| plain_number(sign * number)).find(|number| {
                    let back = self.up(number).and_then(|kept| self.down(&kept));
                    back.is_some_and(|back| back != *number)
                })
            })
        })
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

/// Whether the nearest will do where a number is multiplied by all of these.
pub(super) fn finds_nearest(all: &[&Scale]) -> bool {
    all.iter().any(|scale| scale.nearest)
        && all.iter().all(|scale| scale.nearest || scale.is_exact())
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

/// Whether a float holds all of its digits.
pub(super) fn is_float(number: &Number) -> bool {
    let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
    whole.is_none_or(|whole| whole as f64 as i128 == whole)
}

/// The power of two that a number lies at or above.
fn power_below(number: f64) -> f64 {
    const FRACTION: u64 = (1 << (f64::MANTISSA_DIGITS - 1)) - 1;
    f64::from_bits(number.to_bits() & !FRACTION)
}
