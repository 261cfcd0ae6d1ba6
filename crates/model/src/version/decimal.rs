//! Numbers multiplied and divided as they are written, in tenths, and rounded once: 0.29 divided by
//! 100 is 0.0029, which floats alone would miss, and whole numbers beyond what floats hold stay
//! exact. Greater numbers give greater results, so ranges can be translated.

use crate::value::plain_number;
use serde_json::Number;

/// The shortest digits that are read as the number, and where the point stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decimal {
    negative: bool,
    /// At most 20 of what is read, 37 of a product, 38 of a quotient.
    digits: u128,
    exponent: i32,
}

/// Digits to which a dividend is brought: with a divisor of 17 the quotient has at least 20, more
/// than rounding to a float can tell apart.
const DIVIDEND: u128 = 10u128.pow(36);

impl Decimal {
    pub fn of(number: &Number) -> Option<Decimal> {
        match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Some(Decimal {
                negative: whole < 0,
                digits: u128::from(whole.unsigned_abs()),
                exponent: 0,
            }),
            (_, Some(whole)) => {
                Some(Decimal { negative: false, digits: u128::from(whole), exponent: 0 })
            }
            _ => Decimal::of_float(number.as_f64()?),
        }
    }

    pub fn of_float(number: f64) -> Option<Decimal> {
        let text = format!("{:e}", number.abs());
        let (mantissa, exponent) = text.split_once('e')?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        Some(Decimal {
            negative: number < 0.0,
            digits: format!("{whole}{fraction}").parse().ok()?,
            exponent: exponent.parse::<i32>().ok()? - fraction.len() as i32,
        })
    }

    pub fn times(&self, other: &Decimal) -> Option<Decimal> {
        Some(Decimal {
            negative: self.negative != other.negative,
            digits: self.digits.checked_mul(other.digits)?,
            exponent: self.exponent + other.exponent,
        })
    }

    /// Without zeros at the end.
    pub fn trimmed(mut self) -> Decimal {
        while self.digits > 0 && self.digits.is_multiple_of(10) {
            self.digits /= 10;
            self.exponent += 1;
        }
        self
    }

    /// None over zero.
    pub fn over(&self, divisor: &Decimal) -> Option<Decimal> {
        let (mut dividend, mut exponent) = (self.digits, self.exponent);
        while dividend > 0 && dividend < DIVIDEND {
            dividend *= 10;
            exponent -= 1;
        }
        let digits = dividend.checked_div(divisor.digits)?;
        // One more digit, which says on which side of a half an endless rest lies.
        let rest = u128::from(dividend % divisor.digits > 0);
        Some(Decimal {
            negative: self.negative != divisor.negative,
            digits: digits.checked_mul(10)? + rest,
            exponent: exponent - divisor.exponent - 1,
        })
    }

    /// In the form in which it is kept: a whole number as it is, any other as the nearest float.
    /// None where it is too large for either.
    pub fn number(&self) -> Option<Number> {
        match self.split() {
            Some((whole, 0, _)) if whole <= u128::from(u64::MAX) => {
                let whole = if self.negative { -(whole as i128) } else { whole as i128 };
                Number::from_i128(whole).or_else(|| plain_number(self.float()?))
            }
            _ => plain_number(self.float()?),
        }
    }

    /// The nearest float.
    pub fn float(&self) -> Option<f64> {
        let sign = if self.negative { "-" } else { "" };
        let number: f64 = format!("{sign}{}e{}", self.digits, self.exponent).parse().ok()?;
        number.is_finite().then_some(number)
    }

    /// The nearest whole number, a half away from zero; none beyond 64 bits.
    pub fn rounded(&self) -> Option<i64> {
        let (whole, rest, one) = self.split()?;
        let up = u128::from(rest >= one.div_ceil(2) && one > 1);
        let whole = i64::try_from(whole + up).ok()?;
        Some(if self.negative { -whole } else { whole })
    }

    /// What stands before the point, what behind it, and what a one would be there. None where it
    /// is too large.
    fn split(&self) -> Option<(u128, u128, u128)> {
        let places = self.exponent.unsigned_abs();
        match 10u128.checked_pow(places) {
            Some(one) if self.exponent < 0 => Some((self.digits / one, self.digits % one, one)),
            Some(one) => Some((self.digits.checked_mul(one)?, 0, 1)),
            // So far behind the point that it is less than a half.
            None if self.exponent < 0 => Some((0, u128::from(self.digits > 0), u128::MAX)),
            None => (self.digits == 0).then_some((0, 0, 1)),
        }
    }
}

/// With fifteen digits, which is what every float holds.
pub(super) fn shortened(number: f64) -> Option<f64> {
    format!("{number:.14e}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(one: f64, other: f64) -> Option<f64> {
        Decimal::of_float(one)?.times(&Decimal::of_float(other)?)?.float()
    }

    fn quotient(one: f64, other: f64) -> Option<f64> {
        Decimal::of_float(one)?.over(&Decimal::of_float(other)?)?.float()
    }

    #[test]
    fn digits_are_those_of_a_calculation_by_hand() {
        for (one, other, expected) in [
            (0.29, 100.0, 29.0),
            (19.99, 100.0, 1999.0),
            (0.1, 3.0, 0.3),
            (-1.1, 1.1, -1.21),
            (0.0, 7.0, 0.0),
            (1_700_000_000.123_456, 1e6, 1_700_000_000_123_456.0),
        ] {
            assert_eq!(product(one, other), Some(expected), "{one} * {other}");
            let back = if expected == 0.0 { 0.0 } else { one };
            assert_eq!(quotient(expected, other), Some(back), "{expected} / {other}");
        }
        assert_eq!(quotient(19.0, 60.0), Some(19.0 / 60.0));
        assert_eq!(quotient(1.495, 0.01), Some(149.5));
        assert_eq!(quotient(f64::MAX, 0.1), None);
        assert_eq!(product(f64::MAX, 10.0), None);
        assert_eq!(quotient(f64::MAX, 1.0), Some(f64::MAX));
    }

    #[test]
    fn whole_numbers_stay_exact_and_halves_go_away_from_zero() {
        let of = |number: Number| Decimal::of(&number).unwrap();
        let two = of(Number::from(2));
        let odd = Number::from(9_007_199_254_740_993_i64);
        let twice = of(odd.clone()).times(&two).unwrap().number().unwrap();
        assert_eq!(twice, Number::from(18_014_398_509_481_986_i64));
        assert_eq!(of(twice).over(&two).unwrap().number().unwrap(), odd);
        let least = of(Number::from(i64::MIN)).times(&of(Number::from(1))).unwrap();
        assert_eq!(least.number().unwrap(), Number::from(i64::MIN));
        for (number, rounded) in
            [(2.5, 3), (-2.5, -3), (2.499, 2), (0.5, 1), (5e-324, 0), (-1e-40, 0), (7.0, 7)]
        {
            assert_eq!(Decimal::of_float(number).unwrap().rounded(), Some(rounded), "{number}");
        }
        assert_eq!(Decimal::of_float(1e300).unwrap().rounded(), None);
    }
}
