//! Numbers that an older version has in another unit: what it sends comes back, what it shows can
//! be sent, asked for and compared with, whatever the factor.

use super::operations::asked;
use super::random::Dice;
use super::*;
use crate::query::Test;
use crate::record::{Scalar, to_scalar};
use crate::validate::MAX_INTEGER;

const FACTORS: [f64; 12] =
    [1.0, 3.0, 7.0, 60.0, 100.0, 1e6, 0.3, 0.01, 1.1, 2.54, 0.45359237, 1e-3];

/// The field of the newest version, and what it was multiplied by.
struct Bed {
    versions: Versions,
    new: &'static str,
    text: String,
}

/// Factors by which floats lose nothing.
const EXACT: [f64; 5] = [1.0, 2.0, 0.5, -1024.0, 0.0078125];

/// Between numbers, digits beyond the fifteenth may be lost, which the change must say.
fn retype(old: &str, new: &str, factor: f64) -> String {
    let is_lossy = [old, new] == ["number"; 2] && !EXACT.contains(&factor);
    let word = if is_lossy { ", nearest = true" } else { "" };
    format!("retype = {{ field = 'n', from = '{old}', factor = {factor:?}{word} }}")
}

impl Bed {
    fn new(new: &'static str, old: &str, factor: f64) -> Bed {
        Bed::of(new, &[retype(old, new, factor)])
    }

    fn of(new: &'static str, changes: &[String]) -> Bed {
        let fields = format!("n = {{ type = '{new}', filter = true }}");
        let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
        Bed { versions: service(&fields, &changes), new, text: format!("{new}, {changes:?}") }
    }

    fn shown(&self, kept: &Value) -> Value {
        let (_, lens) = oldest(&self.versions);
        lens.down(&object(json!({"n": kept})))["n"].clone()
    }

    fn raised(&self, shown: &Value) -> Value {
        let (_, lens) = oldest(&self.versions);
        lens.up(&object(json!({"n": shown})))["n"].clone()
    }

    /// Whether a list of the old version with this filter has a record with the kept value.
    fn finds(&self, test: Test, kept: &Value) -> bool {
        let (view, lens) = oldest(&self.versions);
        let mut query = asked(&[("n", test)], &[]);
        lens.query(&mut query);
        let column = to_scalar(&self.versions.kept().collections[0].fields[0].kind, kept);
        query.filters.iter().all(|filter| match &filter.test {
            Test::Shown { test, .. } => {
                passes(test, &self.versions.shown(view.index, 0, "n", &column))
            }
            test => passes(test, &column),
        })
    }

    /// As it was sent, or where the change says so, as the nearest. And once it has, it stays so.
    fn comes_back(&self, sent: &Value, raised: &Value) {
        let shown = self.shown(raised);
        let what = format!("{}: {sent}, {raised}, {shown}", self.text);
        if self.text.contains("nearest") && is_long(sent) {
            let (sent, shown) = (sent.as_f64().unwrap(), shown.as_f64().unwrap());
            assert!((sent - shown).abs() <= sent.abs() * 1e-14 + f64::MIN_POSITIVE, "{what}");
        } else {
            assert_eq!(sent, &shown, "{what}");
        }
        let again = self.shown(&self.raised(&shown));
        assert_eq!(again, shown, "{}: {sent}, {raised}", self.text);
    }

    fn check(&self, kept: &Value) {
        let (view, _) = oldest(&self.versions);
        let shown = self.shown(kept);
        if shown.is_null() {
            return;
        }
        let what = format!("{}: {kept} is shown as {shown}", self.text);
        let scalar = to_scalar(&view.schema.collections[0].fields[0].kind, &shown);
        for test in [Test::Min(scalar.clone()), Test::Max(scalar.clone())] {
            assert!(self.finds(test.clone(), kept), "{what}, {test:?}");
        }
        assert!(self.finds(Test::AnyOf(vec![scalar.clone()]), kept), "{what}");
        let float = shown.as_f64().unwrap();
        let (less, more) = (Scalar::Number(float.next_down()), Scalar::Number(float.next_up()));
        assert!(!self.finds(Test::Min(more), kept), "{what}, above");
        assert!(!self.finds(Test::Max(less), kept), "{what}, below");
    }
}

/// Of more digits than every float holds, as those close to zero hold fewer.
fn is_long(number: &Value) -> bool {
    let float = number.as_f64().unwrap();
    let digits: f64 = format!("{float:.14e}").parse().unwrap();
    digits != float || !number.is_f64() || float.abs() < 1e-300
}

fn passes(test: &Test, column: &Scalar) -> bool {
    let float = |scalar: &Scalar| match scalar {
        Scalar::Integer(whole) => *whole as f64,
        Scalar::Number(number) => *number,
        Scalar::Null | Scalar::Text(_) => f64::NAN,
    };
    let column = float(column);
    match test {
        Test::AnyOf(values) => values.iter().any(|value| float(value) == column),
        Test::Within(spans) => {
            spans.iter().any(|(first, last)| float(first) <= column && column <= float(last))
        }
        Test::Min(least) => column >= float(least),
        Test::Max(most) => column <= float(most),
        other => panic!("{other:?}"),
    }
}

fn some_numbers(dice: &mut Dice) -> Vec<Value> {
    let mut found = vec![json!(0), json!(82), json!(19), json!(1_700_000_000_123_456_i64)];
    for digits in [1, 3, 6, 10, 15] {
        let whole = dice.next() as i64 % 10i64.pow(digits);
        found.extend([json!(whole), json!(-whole)]);
    }
    found.extend([MAX_INTEGER, -MAX_INTEGER, MAX_INTEGER - 1].map(Value::from));
    found
}

fn some_floats(dice: &mut Dice) -> Vec<Value> {
    let mut found = some_numbers(dice);
    for power in [1e-7, 1e-3, 0.01, 0.1, 1.0, 1e5] {
        let digits = (dice.next() % 1_000_000) as f64;
        found.extend([json!(digits * power), json!(digits * power / 3.0), json!(-digits / 7.0)]);
    }
    found.extend([1e21, 1.5e300, -1e-300, 0.1 + 0.2].map(Value::from));
    found.into_iter().map(normal).collect()
}

/// As a field of type number keeps it.
fn normal(value: Value) -> Value {
    validate::of_kind(&Kind::Number, value).unwrap()
}

fn factors(dice: &mut Dice) -> Vec<f64> {
    let random = (0..8).map(|turn| match turn % 2 {
        0 => (1 + dice.next() % 5_000) as f64,
        _ => (1 + dice.next() % 100_000) as f64 / 1_000.0,
    });
    let random: Vec<f64> = random.collect();
    FACTORS.into_iter().chain(random).collect()
}

#[test]
fn every_number_that_a_version_shows_can_be_sent_and_asked_for() {
    let mut dice = Dice(7);
    for factor in factors(&mut dice) {
        for (new, old) in [("integer", "number"), ("number", "number"), ("integer", "integer")] {
            let bed = Bed::new(new, old, factor);
            let whole = bed.new == "integer";
            let values = if whole { some_numbers(&mut dice) } else { some_floats(&mut dice) };
            for kept in values {
                bed.check(&kept);
                let shown = bed.shown(&kept);
                if old == "integer" || shown.is_null() {
                    continue;
                }
                let raised = bed.raised(&shown);
                assert!(!validate::is_marked(&raised), "{}: {kept}, {shown}", bed.text);
                assert_eq!(bed.shown(&raised), shown, "{}: {kept}", bed.text);
                // Beyond that several look alike.
                if whole && kept.as_i64().unwrap().abs() < 1 << 51 {
                    assert_eq!(raised, kept, "{}: {shown}", bed.text);
                }
            }
        }
    }
}

#[test]
fn fifteen_digits_of_an_old_client_come_back_as_they_were_sent() {
    let mut dice = Dice(3);
    for factor in factors(&mut dice) {
        let bed = Bed::new("number", "number", factor);
        for _ in 0..20 {
            let digits = (dice.next() % 1_000_000_000_000_000) as f64;
            let sent = normal(json!(digits / 10f64.powi((dice.next() % 15) as i32)));
            assert_eq!(bed.shown(&bed.raised(&sent)), sent, "{}", bed.text);
        }
        // Whole numbers that no float holds are refused without the word.
        let mut long = vec![7_403_233_959_222_800, 116_680_426_580_356_000, 10i64.pow(16)];
        let zeros = |dice: &mut Dice| 10i64.pow((dice.next() % 5) as u32);
        long.extend((0..20).map(|_| dice.next() as i64 % 900_000_000_000_000 * zeros(&mut dice)));
        for sent in long.into_iter().filter(|_| bed.text.contains("nearest")).map(Value::from) {
            assert_eq!(bed.shown(&bed.raised(&sent)), sent, "{}", bed.text);
        }
    }
}

/// Numbers with as many digits as there are, below and beyond what integers and floats hold.
fn long_numbers(dice: &mut Dice) -> Vec<Value> {
    let mut found = vec![json!(8_606_342_099_091_030_i64), json!(9_007_199_254_740_993_i64)];
    found.extend([json!(u64::MAX), json!(i64::MIN), json!(0.3333333333333334), json!(5e-324)]);
    for _ in 0..20 {
        let (whole, float) = (dice.next() as i64, f64::from_bits(dice.next()));
        found.extend([json!(whole), json!(whole % MAX_INTEGER), json!(whole % MAX_INTEGER / 4)]);
        let between =
            (dice.next() as f64 / u64::MAX as f64) * 10f64.powi((dice.next() % 20) as i32);
        found.extend([json!(between), json!(-between)]);
        found.extend(float.is_finite().then(|| json!(float)));
    }
    found
}

#[test]
fn a_number_comes_back_as_it_was_sent_or_is_refused() {
    let mut dice = Dice(5);
    let kinds = ["integer", "number"];
    let mut refused = 0;
    for factor in factors(&mut dice).into_iter().chain(EXACT) {
        for (old, new) in kinds.into_iter().flat_map(|old| kinds.map(|new| (old, new))) {
            let bed = Bed::new(new, old, factor);
            let (view, _) = oldest(&bed.versions);
            let field = &view.schema.collections[0].fields[0];
            for mut sent in long_numbers(&mut dice) {
                if validate::value(field, &mut sent).is_err() {
                    continue;
                }
                let raised = bed.raised(&sent);
                if validate::is_marked(&raised) {
                    let size = sent.as_f64().unwrap().abs();
                    let fraction = sent.is_f64() && (1e-200..1e200).contains(&size);
                    assert!(!fraction || [old, new] != ["number"; 2], "{}: {sent}", bed.text);
                    refused += 1;
                } else {
                    bed.comes_back(&sent, &raised);
                }
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_number_comes_back_through_several_units_or_is_refused() {
    let mut dice = Dice(9);
    let kinds = ["integer", "number"];
    let factors = [3.0, 60.0, 7.0, 0.3, 1.1, 2.54, 1e-3, 100.0];
    for _ in 0..80 {
        let kind = |dice: &mut Dice| kinds[(dice.next() % 2) as usize];
        let new = kind(&mut dice);
        let mut steps: Vec<String> = Vec::new();
        let mut newer = new;
        for _ in 0..2 + dice.next() % 3 {
            let (old, factor) = (kind(&mut dice), factors[(dice.next() % 8) as usize]);
            steps.push(retype(old, newer, factor));
            newer = old;
        }
        let bed = Bed::of(new, &steps);
        let (view, _) = oldest(&bed.versions);
        let field = &view.schema.collections[0].fields[0];
        let mut sent = long_numbers(&mut dice);
        sent.extend(some_floats(&mut dice));
        for mut sent in sent {
            if validate::value(field, &mut sent).is_err() {
                continue;
            }
            let raised = bed.raised(&sent);
            if !validate::is_marked(&raised) {
                bed.comes_back(&sent, &raised);
            }
        }
        // What was rounded on the way may have no way back.
        if steps.iter().any(|step| step.contains("from = 'integer'")) {
            continue;
        }
        let whole = new == "integer";
        for kept in if whole { some_numbers(&mut dice) } else { some_floats(&mut dice) } {
            let shown = bed.shown(&kept);
            if !shown.is_null() {
                let raised = bed.raised(&shown);
                assert!(!validate::is_marked(&raised), "{}: {kept} as {shown}", bed.text);
            }
        }
    }
}

#[test]
fn an_amount_in_another_unit_is_found_by_the_very_value_shown() {
    for (factor, kept, shown) in [
        (60.0, json!(19), json!(0.31666666666666665)),
        (1e6, json!(1_700_000_000_123_456_i64), json!(1_700_000_000.123_456)),
        (100.0, json!(1999), json!(19.99)),
    ] {
        let bed = Bed::new("integer", "number", factor);
        assert_eq!((bed.shown(&kept), bed.raised(&shown)), (shown.clone(), kept.clone()));
        bed.check(&kept);
    }
    // It would come back with other digits.
    let third = Bed::new("integer", "number", 60.0).raised(&json!(0.316666666666667));
    assert!(validate::is_marked(&third));
    let too_fine = Bed::new("integer", "number", 100.0).raised(&json!(0.295));
    assert!(validate::is_marked(&too_fine));
}

#[test]
fn an_amount_that_changed_its_unit_twice_is_sent_back_as_it_is_shown() {
    let mut dice = Dice(11);
    for (first, second) in [(60.0, 60.0), (60.0, 7.0), (3.0, 0.3), (100.0, 2.54)] {
        let change = |factor: f64| {
            format!("retype = {{ field = 'n', from = 'number', factor = {factor:?} }}")
        };
        let bed = Bed::of("integer", &[change(first), change(second)]);
        for kept in some_numbers(&mut dice) {
            bed.check(&kept);
            if kept.as_i64().unwrap().abs() < 1 << 49 {
                let shown = bed.shown(&kept);
                assert_eq!(bed.raised(&shown), kept, "{}: {shown}", bed.text);
            }
        }
    }
    // Who sends more digits than the unit has means something else.
    let too_fine = Bed::new("integer", "number", 100.0).raised(&json!(0.30000000000000004));
    assert!(validate::is_marked(&too_fine));
}

/// What `check` says to a change between numbers, of which the old ones had these limits.
fn finding(limits: &str, factor: f64, word: &str) -> Option<String> {
    let from = format!("{{ type = 'number'{limits} }}");
    let change = format!("retype = {{ field = 'n', from = {from}, factor = {factor:?}{word} }}");
    let findings = parse(&file("n = 'number'", &[&change])).err()?;
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    Some(lines.join("\n"))
}

#[test]
fn a_factor_by_which_numbers_lose_digits_is_refused_with_one_of_them() {
    let mut dice = Dice(13);
    let steep = [1.000001, 1.99, -1.1, 9.81, 1e9, 1.0 / 3.0, 1e-20, 4.35e17];
    for factor in factors(&mut dice).into_iter().chain(steep).filter(|f| !EXACT.contains(f)) {
        for limits in [
            "",
            ", min = 0, max = 1",
            ", max = -1000",
            ", min = 1, max = 1e300",
            ", min = 1e16",
            ", min = 1e20",
        ] {
            let found = finding(limits, factor, "").unwrap_or_default();
            let begin = "this change loses data: { n = ";
            assert!(found.contains(begin), "{factor}{limits}: {found}");
            assert!(found.contains("; `nearest = true` "), "{factor}{limits}: {found}");
            assert_eq!(finding(limits, factor, ", nearest = true"), None, "{factor}{limits}");
        }
    }
}

#[test]
fn a_factor_by_which_numbers_lose_nothing_needs_no_word() {
    for factor in EXACT {
        assert_eq!(finding("", factor, ""), None, "{factor}");
    }
    // Nor does one by which there is nothing that could be sent, but that proves nothing.
    let refused = finding(", min = 1e307", 100.0, "").unwrap_or_default();
    assert!(refused.contains("nothing proves that this change loses nothing"), "{refused}");
    // Floats are as dense there as those that they become.
    assert_eq!(finding(", min = 1, max = 1.3", 1.1, ""), None);
    assert!(finding(", min = 1, max = 1.9", 1.1, "").is_some());
    for (limits, factor) in [
        (", min = 2050000000000, max = 2050000000000000", 4.73),
        (", min = 1704000000000000, max = 17040000000000000", 3e6),
        (", min = 1e16, max = 1e17", 100.0),
    ] {
        assert!(finding(limits, factor, "").is_some(), "{limits} {factor}");
    }
}

#[test]
fn fifteen_digits_come_back_through_several_units_as_well() {
    let mut dice = Dice(17);
    for factors in [[1.609344, 1000.0], [60.0, 60.0], [10.0, 1.1], [59.0, 1.1], [0.5, 485.597]] {
        let bed = Bed::of("number", &factors.map(|factor| retype("number", "number", factor)));
        let known = [0.11080615248, 0.0006865692623, 466.7602158904, 9.99999999999999, 338.8567];
        let random = (0..200).map(|_| {
            let digits = (dice.next() % 1_000_000_000_000_000) as f64;
            digits / 10f64.powi((dice.next() % 15) as i32)
        });
        for sent in known.into_iter().chain([12.0, 0.333333333333333]).chain(random) {
            let sent = normal(json!(sent));
            assert_eq!(bed.shown(&bed.raised(&sent)), sent, "{}", bed.text);
        }
    }
}

#[test]
fn fifteen_digits_come_back_out_of_a_list_as_well() {
    let fields = "n = { type = 'array', items = 'number' }";
    let list = "retype = { field = 'n', from = 'number', by = 'list' }";
    let (first, second) = (retype("number", "number", 12.0), retype("number", "number", 0.00376));
    let versions = service(fields, &[list, &first, &second]);
    let bed = Bed { versions, new: "array", text: "a list".to_owned() };
    for sent in [0.999999999999999, 0.11080615248, 338.8567, 12.0] {
        let sent = normal(json!(sent));
        assert_eq!(bed.shown(&bed.raised(&sent)), sent);
    }
}

#[test]
fn the_nearest_is_kept_where_the_change_says_so() {
    for (old, new, factor, sent, kept, shown) in [
        ("number", "integer", 100.0, json!(0.295), json!(30), json!(0.3)),
        ("number", "integer", 100.0, json!(0.1 + 0.2), json!(30), json!(0.3)),
        ("number", "integer", 100.0, json!(-19.994), json!(-1999), json!(-19.99)),
        ("integer", "integer", 0.01, json!(149), json!(1), json!(100)),
        (
            "number",
            "number",
            3.0,
            json!(22.883771021940003),
            json!(68.65131306582),
            json!(22.88377102194),
        ),
    ] {
        let change = |word: &str| {
            format!("retype = {{ field = 'n', from = '{old}', factor = {factor:?}{word} }}")
        };
        let bed = Bed::of(new, &[change(", nearest = true")]);
        assert_eq!(bed.raised(&sent), kept, "{}: {sent}", bed.text);
        assert_eq!(bed.shown(&kept), shown, "{}: {sent}", bed.text);
        if [old, new] != ["number"; 2] {
            assert!(validate::is_marked(&Bed::of(new, &[change("")]).raised(&sent)), "{sent}");
        }
    }
    // Nothing is near what is too large.
    for too_large in [json!(1e15), json!(1e300)] {
        let change = "retype = { field = 'n', from = 'number', factor = 100, nearest = true }";
        let bed = Bed::of("integer", &[change.to_owned()]);
        assert!(validate::is_marked(&bed.raised(&too_large)), "{too_large}");
    }
}
