//! How much an evaluation can cost at most. A filter is written by a customer and runs on a thread
//! that serves all customers, so its cost is bounded before it runs: the expression is measured
//! when it is compiled, the values when they are known. Knows the syntax of CEL, not its types.

use cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, operators,
};
use serde_json::{Map, Value};

/// The most that one evaluation may cost. A unit is one step of the evaluation, about 0.1 µs: one
/// evaluation must not make others wait for longer than a tenth of a second.
const MAX_UNITS: u64 = 500_000;

/// Bytes of a text that are compared or copied in the time of one step.
const BYTES_PER_UNIT: u64 = 64;

/// The library compiles a pattern whenever it is used.
const PATTERN_UNITS: u64 = 5_000;

/// Largest compiled pattern; takes less than a millisecond to compile, and has so few states that
/// the slowest way to match looks at each of them for each character.
const PATTERN_BYTES: usize = 16 << 10;
/// Steps for each whole text a pattern is held against, in the units of other functions.
const PATTERN_TIMES: u64 = 32;

/// The cost of an expression as a function of the values it sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    outside: Steps,
    /// The bodies of all macros; they run once per item.
    inside: Steps,
    /// Sums that may be of texts or lists: each can make the longest one longer by its length.
    sums: u64,
    /// The longest list and text in the expression itself.
    literal: Extent,
    macros: u64,
    /// `split`, which makes a list of a text, and `join`, which makes a text of a list.
    splits: u64,
    joins: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steps {
    /// Steps that take the same time for all values.
    plain: u64,
    /// Steps that may look at a whole text or list.
    whole: u64,
}

/// The size of the values that an expression sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Items in the longest list or object.
    pub items: u64,
    /// Bytes of the longest text.
    pub text: u64,
}

/// Why an expression is refused, and the syntax node that is to blame.
pub(super) type Refused = (u64, String);

impl Cost {
    pub fn of(root: &IdedExpr) -> Result<Cost, Refused> {
        let mut cost = Cost::default();
        let mut waiting = vec![(root, false)];
        while let Some((next, inside)) = waiting.pop() {
            cost.add(next, inside, &mut waiting)?;
        }
        Ok(cost)
    }

    /// Refuses an evaluation that could take too long.
    pub fn check(&self, seen: Extent) -> Result<(), String> {
        self.spend(seen, &mut { MAX_UNITS })
    }

    /// The same for several evaluations that share a budget.
    pub fn spend(&self, seen: Extent, left: &mut u64) -> Result<(), String> {
        let units = self.units(seen);
        match left.checked_sub(units) {
            Some(rest) => *left = rest,
            None => {
                return Err(format!(
                    "the expression is too expensive for values of this size: it could take \
                     {units} steps, at most {left} are allowed"
                ));
            }
        }
        Ok(())
    }

    /// The most that an evaluation over such values can cost.
    pub fn units(&self, seen: Extent) -> u64 {
        let growth = self.sums.saturating_add(1);
        let longest = seen.and(self.literal);
        let mut items = longest.items.saturating_mul(growth);
        let mut text = longest.text.saturating_mul(growth);
        // Joined texts can be split once more, and so on.
        for _ in 0..self.joins {
            let joined = if self.splits > 0 { items.max(text) } else { items };
            text = text.saturating_mul(joined.saturating_add(1)).saturating_mul(2);
        }
        if self.splits > 0 {
            items = items.max(text.saturating_add(1));
        }
        let whole = items.saturating_add(text / BYTES_PER_UNIT).saturating_add(1);
        let units = |steps: Steps| steps.plain.saturating_add(steps.whole.saturating_mul(whole));
        // A text is not gone through by macros; an object is, by its keys.
        let rounds = if self.macros == 0 { 0 } else { items };
        units(self.outside).saturating_add(units(self.inside).saturating_mul(rounds))
    }

    fn add<'e>(
        &mut self,
        node: &'e IdedExpr,
        inside: bool,
        waiting: &mut Vec<(&'e IdedExpr, bool)>,
    ) -> Result<(), Refused> {
        let mut steps = Steps { plain: 1, whole: 0 };
        match &node.expr {
            Expr::Unspecified | Expr::Ident(_) => {}
            Expr::Literal(LiteralValue::String(text)) => {
                self.literal.text = self.literal.text.max(text.inner().len() as u64);
            }
            Expr::Literal(_) => {}
            Expr::Select(select) => waiting.push((&select.operand, inside)),
            Expr::Call(call) => {
                steps = self.call(call)?;
                waiting.extend(call.target.iter().map(|target| (&**target, inside)));
                waiting.extend(call.args.iter().map(|argument| (argument, inside)));
            }
            Expr::List(list) => {
                self.longest(list.elements.len());
                waiting.extend(list.elements.iter().map(|element| (element, inside)));
            }
            Expr::Map(map) => self.entries(&map.entries, inside, waiting),
            Expr::Struct(object) => self.entries(&object.entries, inside, waiting),
            Expr::Comprehension(each) => {
                if inside {
                    let message = "a macro (`all`, `exists`, `exists_one`, `filter`, `map`) cannot \
                                   stand inside another one";
                    return Err((node.id, message.to_owned()));
                }
                self.macros += 1;
                let outside = [&each.iter_range, &each.accu_init, &each.result];
                waiting.extend(outside.map(|part| (part, false)));
                waiting.extend([&each.loop_cond, &each.loop_step].map(|part| (part, true)));
            }
        }
        let sum = if inside { &mut self.inside } else { &mut self.outside };
        sum.plain = sum.plain.saturating_add(steps.plain);
        sum.whole = sum.whole.saturating_add(steps.whole);
        Ok(())
    }

    fn call(&mut self, call: &CallExpr) -> Result<Steps, Refused> {
        let name = call.func_name.as_str();
        let bounded = call.args.iter().any(is_short);
        let whole = match name {
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::CONDITIONAL
            | operators::INDEX
            | operators::NEGATE
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NOT_STRICTLY_FALSE => false,
            // Compared with something short, the rest is not looked at.
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS => !bounded,
            operators::ADD if call.args.iter().any(is_number) => false,
            operators::ADD => {
                // The result of a macro grows by one item per round.
                if !call.args.iter().any(is_accumulator) {
                    self.sums += 1;
                }
                true
            }
            _ => true,
        };
        self.splits += u64::from(name == "split");
        self.joins += u64::from(name == "join");
        let mut steps = Steps { plain: 1, whole: u64::from(whole) };
        if name == "matches" {
            steps = Steps { plain: PATTERN_UNITS, whole: PATTERN_TIMES };
            check_pattern(call)?;
        }
        Ok(steps)
    }

    fn entries<'e>(
        &mut self,
        entries: &'e [IdedEntryExpr],
        inside: bool,
        waiting: &mut Vec<(&'e IdedExpr, bool)>,
    ) {
        self.longest(entries.len());
        for entry in entries {
            match &entry.expr {
                EntryExpr::StructField(field) => waiting.push((&field.value, inside)),
                EntryExpr::MapEntry(pair) => {
                    waiting.extend([(&pair.key, inside), (&pair.value, inside)]);
                }
            }
        }
    }

    fn longest(&mut self, items: usize) {
        self.literal.items = self.literal.items.max(items as u64);
    }
}

impl Extent {
    pub fn of(members: &Map<String, Value>) -> Extent {
        let extent = Extent { items: members.len() as u64, text: 0 };
        extent.and(Extent::of_values(members.values().collect()))
    }

    pub fn of_value(value: &Value) -> Extent {
        Extent::of_values(vec![value])
    }

    fn of_values(mut waiting: Vec<&Value>) -> Extent {
        let mut extent = Extent::default();
        while let Some(value) = waiting.pop() {
            match value {
                Value::String(text) => extent.text = extent.text.max(text.len() as u64),
                Value::Array(items) => {
                    extent.items = extent.items.max(items.len() as u64);
                    waiting.extend(items);
                }
                Value::Object(members) => {
                    extent.items = extent.items.max(members.len() as u64);
                    waiting.extend(members.values());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        extent
    }

    pub fn and(self, other: Extent) -> Extent {
        Extent { items: self.items.max(other.items), text: self.text.max(other.text) }
    }
}

/// The pattern is part of the expression, and small when compiled. Whether it can be read at all is
/// for `check`.
fn check_pattern(call: &CallExpr) -> Result<(), Refused> {
    let Some(argument) = call.args.last() else { return Ok(()) };
    let Expr::Literal(LiteralValue::String(pattern)) = &argument.expr else {
        let message = "the pattern of matches() must be a literal string";
        return Err((argument.id, message.to_owned()));
    };
    let compiled = regex::RegexBuilder::new(pattern.inner()).size_limit(PATTERN_BYTES).build();
    match compiled {
        Err(regex::Error::CompiledTooBig(_)) => {
            Err((argument.id, "the pattern of matches() is too large".to_owned()))
        }
        _ => Ok(()),
    }
}

/// A literal that is compared in one step.
fn is_short(node: &IdedExpr) -> bool {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => (text.inner().len() as u64) < BYTES_PER_UNIT,
        Expr::Literal(LiteralValue::Bytes(_)) => false,
        Expr::Literal(_) => true,
        _ => false,
    }
}

fn is_number(node: &IdedExpr) -> bool {
    use LiteralValue::{Double, Int, UInt};
    matches!(&node.expr, Expr::Literal(Int(_) | UInt(_) | Double(_)))
}

fn is_accumulator(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name.starts_with('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::expression::in_cel;
    use serde_json::json;

    fn cost(text: &str) -> Result<Cost, String> {
        let program = cel::Program::compile(text).unwrap();
        Cost::of(program.expression()).map_err(|(_, message)| message)
    }

    fn members(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn macros_inside_macros_and_unreadable_patterns_are_refused() {
        for (text, why) in [
            ("[1].all(a, [1].all(b, a == b))", "inside another"),
            ("[[1]].exists(a, a.map(b, b + 1) == [2])", "inside another"),
            ("event.a.matches(event.b)", "a literal string"),
            ("event.a.matches('(a{100}){100}{100}')", "too large"),
        ] {
            assert!(cost(text).unwrap_err().contains(why), "{text}");
        }
        for text in ["event.a.filter(x, x > 1).map(x, x + 1) == [3]", "event.a.matches('^a+$')"] {
            assert!(cost(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_evaluation_is_refused_when_its_values_are_too_large() {
        let small = Extent { items: 20, text: 10_000 };
        let large = Extent { items: 30_000, text: 100_000 };
        for (text, with_large) in [
            ("event.tags.exists(tag, tag == 'a')", true),
            ("event.total > 3 && event.note.contains('x')", true),
            ("event.tags.all(tag, tag in event.others)", false),
            ("event.tags.all(tag, event.note.contains(tag))", false),
            ("event.tags.map(tag, tag + 'a') == event.others", false),
            ("event.tags.all(tag, event.tags == event.others)", false),
            ("event.tags.all(tag, tag.matches('^a'))", false),
        ] {
            let cost = cost(text).unwrap();
            assert_eq!(cost.check(small), Ok(()), "{text}");
            assert_eq!(cost.check(large).is_ok(), with_large, "{text}");
        }
    }

    #[test]
    fn the_extent_is_that_of_the_longest_list_and_text() {
        let value = json!({"a": ["xyz", ["x", "y", "z", {"b": "12345"}]], "c": {}});
        assert_eq!(Extent::of(&members(value)), Extent { items: 4, text: 5 });
    }

    /// The bound limits time: with the largest values that pass, this test ends soon.
    #[test]
    fn an_allowed_expression_ends_soon() {
        let long = "ab".repeat(400);
        let texts = [
            "event.tags.exists(tag, tag in event.others)".to_owned(),
            "event.tags.map(tag, tag + tag) == event.others".to_owned(),
            "event.tags.exists(tag, event.note.contains(tag))".to_owned(),
            "event.tags.exists(tag, event.tags == event.others)".to_owned(),
            "event.tags.all(tag, tag.matches('^(a|b)+$'))".to_owned(),
            "event.tags.filter(tag, tag.startsWith('a')).size() > 3".to_owned(),
            format!("({}).contains('{long}')", vec!["event.note"; 60].join(" + ")),
            format!("({}).size() > 3", vec!["event.tags"; 60].join(" + ")),
        ];
        for text in texts {
            let program = cel::Program::compile(&text).unwrap();
            let cost = Cost::of(program.expression()).unwrap();
            let allowed = |size: usize| {
                let extent = Extent { items: size as u64, text: size as u64 };
                cost.check(extent).is_ok()
            };
            let mut size = 1;
            while size < 1 << 20 && allowed(size * 2) {
                size *= 2;
            }
            let tags = vec!["ab"; size];
            let mut others = vec!["ac"; size];
            // Equal up to the last item.
            others[..size - 1].copy_from_slice(&tags[1..]);
            let others = if text.contains(" in ") { vec!["ac"; size] } else { others };
            let mut context = cel::Context::default();
            let event = json!({"tags": tags, "others": others, "note": "a".repeat(size)});
            context.add_variable_from_value("event", in_cel(&event));
            assert!(program.execute(&context).is_ok(), "{text}");
        }
    }
}
