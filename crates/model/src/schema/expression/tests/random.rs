//! Random expressions of every type, right and wrong ones, for every place that takes one. Whatever
//! `check` accepts has a value on every record that is well-typed, with fields null and members
//! absent, and that value is of the type that was found. Whatever is of another type than its place
//! takes is refused.
//!
//! `RESTIVE_EXPRESSIONS` and `RESTIVE_SEED`, set where the tests are compiled, say how many to try
//! and where to begin.

use super::super::*;
use super::{schema, scope};
use crate::schema::Collection;
use crate::schema::rule::Template;
use serde_json::json;

/// Expressions that are tried; a few seconds without optimisation.
const EXPRESSIONS: u64 = 1_500;

/// Records that each accepted one is evaluated on.
const SCENES: usize = 12;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, below: usize) -> usize {
        usize::try_from(self.next() % below as u64).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// What an expression is meant to be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sort {
    Bool,
    Int,
    Double,
    Text,
    Moment,
    Day,
    Words,
    Sizes,
    Bag,
}

const SORTS: [Sort; 9] = [
    Sort::Bool,
    Sort::Int,
    Sort::Double,
    Sort::Text,
    Sort::Moment,
    Sort::Day,
    Sort::Words,
    Sort::Sizes,
    Sort::Bag,
];

impl Sort {
    /// The optional field of this sort; `the_` before it names the required one.
    fn field(self) -> &'static str {
        match self {
            Sort::Bool => "flag",
            Sort::Int => "whole",
            Sort::Double => "price",
            Sort::Text => "name",
            Sort::Moment => "at",
            Sort::Day => "day",
            Sort::Words => "words",
            Sort::Sizes => "sizes",
            Sort::Bag => "bag",
        }
    }

    fn literals(self) -> &'static [&'static str] {
        match self {
            Sort::Bool => &["true", "false"],
            Sort::Int => &["0", "1", "-2", "7"],
            Sort::Double => &["0.5", "1.0", "-2.25"],
            Sort::Text => &["'a'", "''", "'2026'", "record.id"],
            Sort::Moment => &["now", "record.created_at", "'2026-01-31T12:00:00.000Z'"],
            Sort::Day => &["'2026-01-31'"],
            Sort::Words => &["['a', 'b']", "[]"],
            Sort::Sizes => &["[0.5, 1.0]", "[]"],
            Sort::Bag => &["{'a': 1}", "{}", "{'a': null, 'b': [1, 'x']}"],
        }
    }
}

/// Conditions on a text out of a list.
const WORDS: &[&str] = &[
    "record.status == 'new'",
    "('old' != record.status)",
    "(record.status in ['new', 'old'])",
    "record.status.startsWith('ne')",
    "('whole' in record)",
    "record.exists(name, name == 'price')",
    "(record.status == record.status ? record.status : 'other').size() > 1",
];

/// Makes texts. Half of them are right; the others have something of the wrong sort somewhere, or
/// use something that may be null or absent.
struct Maker {
    random: Random,
    /// One in this many parts is of another sort than it should be; 0: none.
    careless: usize,
    variables: Vec<(String, Sort)>,
}

impl Maker {
    fn make(&mut self, sort: Sort, depth: usize) -> String {
        let careless = self.careless > 0 && self.random.below(self.careless) == 0;
        let sort = if careless { SORTS[self.random.below(SORTS.len())] } else { sort };
        if depth == 0 || self.random.below(5) == 0 {
            return self.leaf(sort);
        }
        match self.random.below(6) {
            0 => self.guarded(sort, depth - 1),
            1 => {
                let condition = self.make(Sort::Bool, depth - 1);
                let (yes, no) = (self.make(sort, depth - 1), self.make(sort, depth - 1));
                format!("({condition} ? {yes} : {no})")
            }
            _ => self.operation(sort, depth - 1),
        }
    }

    fn leaf(&mut self, sort: Sort) -> String {
        let bound: Vec<String> =
            self.variables.iter().filter(|(_, s)| *s == sort).map(|(n, _)| n.clone()).collect();
        if !bound.is_empty() && self.random.below(2) == 0 {
            return bound[self.random.below(bound.len())].clone();
        }
        let field = sort.field();
        match self.random.below(8) {
            0 | 1 => self.random.pick(sort.literals()).to_owned(),
            2 if self.careless > 0 => format!("record.{field}"),
            3 if self.careless > 0 => self
                .random
                .pick(&["null", "record.bag.x", "record.the_bag.x", "request.nope"])
                .into(),
            4 if sort == Sort::Int => "request.the_whole".to_owned(),
            4 if sort == Sort::Text => "request.the_name".to_owned(),
            _ => format!("record.the_{field}"),
        }
    }

    /// Something that may be null or absent, behind a question of one of the accepted forms.
    fn guarded(&mut self, sort: Sort, depth: usize) -> String {
        let other = self.make(sort, depth);
        let field = format!("record.{}", sort.field());
        let member = "record.the_bag.x";
        let kind = match sort {
            Sort::Bool => "bool",
            Sort::Int => "int",
            Sort::Double => "double",
            Sort::Text => "string",
            _ => "null_type",
        };
        match self.random.below(8) {
            0 => format!("({field} != null ? {field} : {other})"),
            1 => format!("(null == {field} ? {other} : {field})"),
            2 => format!("(has({field}) ? {field} : {other})"),
            3 => format!("(!has({field}) || {field} == null ? {other} : {field})"),
            4 if kind != "null_type" => {
                format!("(has({member}) && type({member}) == {kind} ? {member} : {other})")
            }
            5 if kind != "null_type" => {
                format!("('x' in record.the_bag && type({member}) == {kind} ? {member} : {other})")
            }
            6 if sort == Sort::Bool => format!("({field} != null && {field} && {other})"),
            7 if sort == Sort::Bool => format!("({field} == null || {field} || {other})"),
            _ => format!("(type({field}) != null_type && {field} != null ? {field} : {other})"),
        }
    }

    fn operation(&mut self, sort: Sort, depth: usize) -> String {
        match sort {
            Sort::Bool => self.condition(depth),
            Sort::Int => match self.random.below(7) {
                0 => format!("size({})", self.sized(depth)),
                1 => format!("{}.size()", self.sized(depth)),
                2 => format!("int({})", self.make(Sort::Double, depth)),
                3 => format!("({} / 3)", self.make(Sort::Int, depth)),
                4 => format!("({} % 5)", self.make(Sort::Int, depth)),
                5 => format!("-({} - {})", self.leaf(Sort::Int), self.make(Sort::Int, depth)),
                _ => format!("({} + {})", self.make(Sort::Int, depth), self.leaf(Sort::Int)),
            },
            Sort::Double => match self.random.below(4) {
                0 => format!("double({})", self.make(Sort::Int, depth)),
                1 => format!("({} * 0.5)", self.make(Sort::Double, depth)),
                2 => format!("({} / 2.0)", self.make(Sort::Double, depth)),
                _ => format!("({} - {})", self.make(Sort::Double, depth), self.leaf(Sort::Double)),
            },
            Sort::Text => match self.random.below(4) {
                0 => {
                    let of =
                        [Sort::Int, Sort::Bool, Sort::Text, Sort::Double][self.random.below(4)];
                    format!("string({})", self.make(of, depth))
                }
                1 => {
                    let list = self.make(Sort::Words, depth);
                    format!("(size({list}) > 1 ? {list}[1] : 'none')")
                }
                _ => format!("({} + {})", self.make(Sort::Text, depth), self.leaf(Sort::Text)),
            },
            Sort::Words => self.list(Sort::Words, Sort::Text, depth),
            Sort::Sizes => self.list(Sort::Sizes, Sort::Double, depth),
            Sort::Bag => {
                let sort = SORTS[self.random.below(SORTS.len())];
                format!("{{'k': {}}}", self.make(sort, depth))
            }
            Sort::Moment | Sort::Day => self.leaf(sort),
        }
    }

    fn list(&mut self, sort: Sort, item: Sort, depth: usize) -> String {
        let list = self.make(sort, depth);
        match self.random.below(4) {
            0 => format!("[{}, {}]", self.make(item, depth), self.leaf(item)),
            1 => format!("({list} + {})", self.leaf(sort)),
            2 => {
                let (name, body) = self.each(item, Sort::Bool, depth);
                format!("{list}.filter({name}, {body})")
            }
            _ => {
                let (name, body) = self.each(item, item, depth);
                format!("{list}.map({name}, {body})")
            }
        }
    }

    /// The variable of a macro and a body that may use it.
    fn each(&mut self, item: Sort, sort: Sort, depth: usize) -> (String, String) {
        let name = format!("v{}", self.variables.len());
        self.variables.push((name.clone(), item));
        let body = self.make(sort, depth);
        self.variables.pop();
        (name, body)
    }

    fn sized(&mut self, depth: usize) -> String {
        let sort = [Sort::Text, Sort::Words, Sort::Bag, Sort::Sizes][self.random.below(4)];
        self.make(sort, depth)
    }

    fn condition(&mut self, depth: usize) -> String {
        let sort = SORTS[self.random.below(SORTS.len())];
        let ordered = [Sort::Int, Sort::Double, Sort::Text, Sort::Moment][self.random.below(4)];
        let order = self.random.pick(&["<", "<=", ">", ">="]);
        match self.random.below(12) {
            11 => self.random.pick(WORDS).to_owned(),
            0 => format!("!({})", self.make(Sort::Bool, depth)),
            1 => format!("({} && {})", self.make(Sort::Bool, depth), self.make(Sort::Bool, depth)),
            2 => format!("({} || {})", self.make(Sort::Bool, depth), self.make(Sort::Bool, depth)),
            3 => format!("({} == {})", self.make(sort, depth), self.make(sort, depth)),
            4 => format!("({} != record.{})", self.make(sort, depth), sort.field()),
            5 => format!("({} {order} {})", self.make(ordered, depth), self.make(ordered, depth)),
            6 => format!("({} {order} {})", self.make(Sort::Int, depth), self.leaf(Sort::Double)),
            7 => {
                let list = self.make(Sort::Words, depth);
                let (name, body) = self.each(Sort::Text, Sort::Bool, depth);
                let word = self.random.pick(&["all", "exists", "exists_one"]);
                format!("{list}.{word}({name}, {body})")
            }
            8 => {
                let word = self.random.pick(&["contains", "startsWith", "endsWith"]);
                format!("{}.{word}({})", self.make(Sort::Text, depth), self.leaf(Sort::Text))
            }
            9 => format!("{}.matches('^[a-z]+$')", self.make(Sort::Text, depth)),
            _ => format!("({} in {})", self.make(Sort::Text, depth), self.make(Sort::Words, depth)),
        }
    }
}

/// A well-typed record and request: optional fields null or not, members there or not.
fn inputs_of(
    random: &mut Random,
    collection: &Collection,
) -> (Map<String, Value>, Map<String, Value>) {
    let mut record = Map::new();
    for (name, value) in [
        ("id", json!("thing_1")),
        ("object", json!("thing")),
        ("created_at", json!("2026-01-01T00:00:00.000Z")),
        ("updated_at", json!("2026-01-02T00:00:00.000Z")),
        ("status", json!("new")),
    ] {
        record.insert(name.to_owned(), value);
    }
    let mut request = Map::new();
    let params = &collection.actions[0].params;
    for (fields, into) in [(&collection.fields, &mut record), (params, &mut request)] {
        for field in fields {
            let null = !field.required && random.below(2) == 0;
            let value = if null { Value::Null } else { value_of(random, &field.kind) };
            into.entry(field.name.clone()).or_insert(value);
        }
    }
    (record, request)
}

fn value_of(random: &mut Random, kind: &crate::schema::Kind) -> Value {
    use crate::schema::Kind;
    match kind {
        Kind::String => json!(random.pick(&["", "a", "b", "xyz", "Ä"])),
        Kind::Integer => json!([-3, 0, 1, 7][random.below(4)]),
        Kind::Number => json!([-1.5, 0.5, 2.0][random.below(3)]),
        Kind::Boolean => json!(random.below(2) == 0),
        Kind::Timestamp => json!("2026-05-05T05:05:05.000Z"),
        Kind::Date => json!("2026-05-05"),
        Kind::Array(item) => (0..random.below(4)).map(|_| value_of(random, item)).collect(),
        Kind::Object => match random.below(7) {
            0 => json!({}),
            1 => json!({ "x": null }),
            2 => json!({ "x": 1, "y": 2 }),
            3 => json!({ "x": "text" }),
            4 => json!({ "x": 1.5, "a": {} }),
            5 => json!({ "x": true }),
            _ => json!({ "x": { "y": 1 } }),
        },
    }
}

/// Whether a value is of a type.
fn is_of(value: &Value, kind: &Type) -> bool {
    match (&kind.shape, value) {
        (_, Value::Null) => kind.nullable,
        (Shape::Any, _) => true,
        (Shape::Bool, Value::Bool(_)) => true,
        (Shape::Int, Value::Number(number)) => number.is_i64(),
        (Shape::Double, Value::Number(number)) => number.is_f64(),
        (Shape::Number, Value::Number(_)) => true,
        (Shape::Text, Value::String(_)) => true,
        (Shape::Words(words), Value::String(text)) => words.has(text),
        (Shape::Timestamp, Value::String(text)) => crate::Timestamp::parse(text).is_some(),
        (Shape::Date, Value::String(text)) => crate::time::is_date(text),
        (Shape::Address, Value::String(text)) => text.parse::<core::net::IpAddr>().is_ok(),
        (Shape::List(item), Value::Array(items)) => items.iter().all(|value| is_of(value, item)),
        (Shape::Map, Value::Object(_)) => true,
        (Shape::Object(object), Value::Object(members)) => object.members.iter().all(|member| {
            members.get(&member.name).map_or(!member.always, |value| is_of(value, &member.kind))
        }),
        _ => false,
    }
}

/// A number that was given when the tests were compiled.
fn number(given: Option<&str>, default: u64) -> u64 {
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn no_accepted_expression_fails_for_its_types() {
    let (schema, scope) = (schema(), scope());
    let things = &schema.collections[0];
    let first = number(option_env!("RESTIVE_SEED"), 1);
    let (mut accepted, mut refused) = (0, 0);
    for seed in first..first + number(option_env!("RESTIVE_EXPRESSIONS"), EXPRESSIONS) {
        let random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let careless = if seed % 2 == 0 { 0 } else { 12 };
        let mut maker = Maker { random, careless, variables: Vec::new() };
        let sort = SORTS[maker.random.below(SORTS.len())];
        let depth = 1 + maker.random.below(4);
        let text = maker.make(sort, depth);
        let Ok(expression) = Expression::compile(&text) else { continue };
        let kind = match expression.check(&scope) {
            Ok(kind) => kind,
            Err(complaints) => {
                assert!(careless > 0, "{seed}: {text}\nis right: {complaints:?}");
                refused += 1;
                continue;
            }
        };
        accepted += 1;
        for _ in 0..SCENES {
            let (record, request) = inputs_of(&mut maker.random, things);
            let inputs = Inputs {
                record: &record,
                request: &request,
                client: Some("192.0.2.1".parse().unwrap()),
                now: "2026-06-06T06:06:06.000Z".into(),
            };
            let found = expression.evaluate(&inputs);
            let told = || format!("{seed}: {text}\n{kind:?}\n{record:?}\n{request:?}\n{found:?}");
            match &found {
                Ok(value) => assert!(is_of(value, &kind), "{}", told()),
                Err(fault) => assert!(fault.of_value, "{}", told()),
            }
        }
    }
    assert!(accepted > refused && refused > accepted / 20, "{accepted} and {refused}");
}

/// The same for the filter of an endpoint, which sees records as they are sent.
#[test]
fn no_accepted_filter_fails_for_its_types() {
    let schema = schema();
    let scope = crate::webhook::filter::scope(&schema, &["thing.*"], None);
    let first = number(option_env!("RESTIVE_SEED"), 1);
    let mut accepted = 0;
    for seed in first..first + number(option_env!("RESTIVE_EXPRESSIONS"), EXPRESSIONS) / 2 {
        let random = Random(seed.wrapping_mul(0xD1B5_4A32_D192_ED03) | 1);
        let careless = if seed % 2 == 0 { 0 } else { 12 };
        let mut maker = Maker { random, careless, variables: Vec::new() };
        let text = maker.make(Sort::Bool, 3);
        let text = [
            ("record.", "event.data.object."),
            ("request.", "event.data.object."),
            ("client", "event.type"),
            ("now", "event.data.object.updated_at"),
        ]
        .into_iter()
        .fold(text, |text, (from, to)| text.replace(from, to));
        let Ok(expression) = Expression::compile(&text) else { continue };
        if expression.check_condition(&scope).is_err() {
            continue;
        }
        accepted += 1;
        for _ in 0..SCENES {
            let (record, _) = inputs_of(&mut maker.random, &schema.collections[0]);
            // A number without a fraction is sent as a whole number.
            let sent = Value::Object(record).to_string().replace("2.0", "2");
            let object: Value = serde_json::from_str(&sent).unwrap();
            let event = json!({
                "id": "evt_1", "object": "event", "type": "thing.created", "created": 1,
                "api_version": "2026-01-01", "livemode": true, "pending_webhooks": 1,
                "data": { "object": object }, "request": { "id": null, "idempotency_key": null },
            });
            let found = expression.admits("event", event.as_object().unwrap());
            let fails = found.as_ref().is_err_and(|fault| !fault.of_value);
            assert!(!fails, "{seed}: {text}\n{event}\n{found:?}");
        }
    }
    assert!(accepted > 50, "{accepted}");
}

/// Each place takes the sorts that fit it, and refuses all others.
#[test]
fn each_place_accepts_only_expressions_of_its_type() {
    let fits = |sort: Sort, place: Sort| {
        let text = [Sort::Text, Sort::Moment, Sort::Day];
        sort == place
            || place == Sort::Text && text.contains(&sort)
            || place == Sort::Double && sort == Sort::Int
    };
    let first = number(option_env!("RESTIVE_SEED"), 1);
    for seed in first..first + 8 {
        for sort in SORTS {
            let random = Random((seed * 31 + sort as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let mut maker = Maker { random, careless: 0, variables: Vec::new() };
            let text = maker.make(sort, 2);
            // A list without items is a list of anything.
            if text.contains("[]") || Expression::compile(&text).is_err() {
                continue;
            }
            for place in SORTS {
                for required in ["", "the_"] {
                    let set =
                        format!("[collections.things.actions.go.set]\n{required}{}", place.field());
                    let file = format!("{}{set} = '''={text}'''\n", super::SCHEMA);
                    let taken = crate::parse::parse(&file);
                    assert_eq!(taken.is_ok(), fits(sort, place), "{file}\n{taken:?}");
                    let computed =
                        taken.ok().map(|schema| schema.collections[0].actions[0].set[0].clone());
                    assert!(computed.is_none_or(|set| matches!(set.value, Template::Computed(_))));
                }
            }
            let rule = "[[collections.things.actions.go.rules]]\nmessage = 'm'\nwhen = ";
            let file = format!("{}{rule}'''{text}'''\n", super::SCHEMA);
            let taken = crate::parse::parse(&file);
            assert_eq!(taken.is_ok(), sort == Sort::Bool, "{file}\n{taken:?}");
        }
    }
}
