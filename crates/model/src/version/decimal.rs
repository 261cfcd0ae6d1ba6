//! Numbers multiplied and divided as they are written, in tenths, and rounded once: 0.29 divided by
//! 100 is 0.0029, which floats alone would miss. Greater numbers give greater results, so ranges
//! can be translated.

/// The shortest digits that are read as the number, and where the point stands.
struct Decimal {
    negative: bool,
    /// At most 17 of them.
    digits: u128,
    exponent: i32,
}

/// Digits to which a dividend is brought: with a divisor of 17 the quotient has at least 20, more
/// than rounding to a float can tell apart.
const DIVIDEND: u128 = 10u128.pow(36);

impl Decimal {
    fn of(number: f64) -> Option<Decimal> {
        let text = format!("{:e}", number.abs());
        let (mantissa, exponent) = text.split_once('e')?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        Some(Decimal {
            negative: number < 0.0,
            digits: format!("{whole}{fraction}").parse().ok()?,
            exponent: exponent.parse::<i32>().ok()? - fraction.len() as i32,
        })
    }

    /// The nearest float.
    fn number(&self) -> Option<f64> {
        let sign = if self.negative { "-" } else { "" };
        let number: f64 = format!("{sign}{}e{}", self.digits, self.exponent).parse().ok()?;
        number.is_finite().then_some(number)
    }
}

/// None where it is too large for a float.
pub(super) fn product(one: f64, other: f64) -> Option<f64> {
    let (one, other) = (Decimal::of(one)?, Decimal::of(other)?);
    let product = Decimal {
        negative: one.negative != other.negative,
        digits: one.digits * other.digits,
        exponent: one.exponent + other.exponent,
    };
    product.number()
}

/// None where it is too large for a float, and over zero.
pub(super) fn quotient(dividend: f64, divisor: f64) -> Option<f64> {
    let (mut dividend, divisor) = (Decimal::of(dividend)?, Decimal::of(divisor)?);
    while dividend.digits > 0 && dividend.digits < DIVIDEND {
        dividend.digits *= 10;
        dividend.exponent -= 1;
    }
    let digits = dividend.digits.checked_div(divisor.digits)?;
    // One more digit, which says on which side of a half an endless rest lies.
    let rest = u128::from(dividend.digits % divisor.digits > 0);
    let quotient = Decimal {
        negative: dividend.negative != divisor.negative,
        digits: digits.checked_mul(10)? + rest,
        exponent: dividend.exponent - divisor.exponent - 1,
    };
    quotient.number()
}

/// With fifteen digits, which is what every float holds.
pub(super) fn shortened(number: f64) -> Option<f64> {
    format!("{number:.14e}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
