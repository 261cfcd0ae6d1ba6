//! The formulas of a `convert`, `up` and `down`: CEL expressions with functions of their own. They
//! see `value`, the field as it is on one side of the change, and `record`, all fields of that
//! side. Parsed, bounded and typed as every other expression.

use super::cost::Extent;
use super::scope::misfit;
use super::{Complaint, Expression, Fault, Scope, Shape, children, in_cel};
use crate::schema::{Field, Kind};
use crate::time::Timestamp;
use crate::value::Fields;
use cel::common::ast::Expr;
use cel::common::types::{CelInt, CelString};
use cel::{Context, DeclarationError, Env, ExecutionError, extensions};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

#[derive(Clone, Debug)]
pub struct Formula {
    pub expression: Expression,
    uses_record: bool,
}

/// The most that the formulas of one record may cost together, in one direction: 10 ms. A write in
/// an older version evaluates them five times while all other writes wait, and an event is
/// converted up to four times. With this limit, either takes at most half of the tenth of a second
/// that one account may make others wait.
pub const CONVERSION_UNITS: u64 = 100_000;

/// The functions of CEL, those for numbers (`math.round`) and texts (`split`), and two for
/// instants. `function` lists those that formulas may call.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    // Each is added once, so none of their names can be taken.
    let added = env
        .add_extension(extensions::math)
        .and_then(|()| env.add_extension(extensions::strings))
        .and_then(|()| env.add_extension(instants));
    debug_assert!(added.is_ok(), "{:?}", added.err());
    Arc::new(env)
});

impl Formula {
    pub fn new(expression: Expression) -> Formula {
        let mut waiting = vec![&expression.syntax.root];
        let mut uses_record = false;
        while let Some(node) = waiting.pop() {
            uses_record |= matches!(&node.expr, Expr::Ident(name) if name == "record");
            waiting.extend(children(&node.expr));
        }
        Formula { expression, uses_record }
    }

    /// The type errors of a formula that makes values of the field `made` from those of `given`.
    /// `record`: the other fields that it sees. `or_null`: it may make null.
    pub fn check(
        &self,
        given: &Field,
        record: &[Field],
        made: &Field,
        or_null: bool,
    ) -> Vec<Complaint> {
        let found = match self.expression.check(&Scope::of_formula(given, record)) {
            Ok(found) => found,
            Err(complaints) => return complaints,
        };
        let wrong =
            |reason: &str| vec![Complaint { at: 0, message: format!("the value {reason}") }];
        if found.nullable && found.shape != Shape::Any && !or_null {
            return wrong("can be null; of a value there must come a value");
        }
        // Whether a text is in the form of a timestamp or a date shows when there is one.
        let instant = matches!(made.kind, Kind::Timestamp | Kind::Date);
        if instant && found.shape.is_text() {
            return Vec::new();
        }
        let made = Field { required: false, ..made.clone() };
        misfit(&made, &found).map_or_else(Vec::new, |reason| wrong(&reason))
    }

    /// The most that an evaluation over values of so many bytes can cost.
    pub fn units(&self, bytes: u64) -> u64 {
        self.expression.syntax.cost.units(Extent { items: bytes, text: bytes })
    }

    /// Evaluates. `fields` declare what `record` has, and `kind` is that of `value`. The cost is
    /// taken from `left`.
    pub fn apply(
        &self,
        (kind, value): (&Kind, &Value),
        (fields, record): (&[Field], &Fields),
        left: &mut u64,
    ) -> Result<Value, Fault> {
        let mut seen = Extent::of_value(value);
        if self.uses_record {
            seen = seen.and(Extent::of(record));
        }
        let spent = self.expression.syntax.cost.spend(seen, left);
        spent.map_err(|reason| self.expression.fault(&reason, true))?;
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.add_variable_from_value("value", typed(kind, value));
        let members = fields.iter().filter(|_| self.uses_record).map(|field| {
            let value = record.get(&field.name).unwrap_or(&Value::Null);
            (field.name.clone(), typed(&field.kind, value))
        });
        let members: HashMap<String, cel::Value> = members.collect();
        context.add_variable_from_value("record", cel::Value::Map(members.into()));
        self.expression.run(&context)
    }
}

/// A field of type number is a `double` also where its value is whole: CEL does not mix the two.
fn typed(kind: &Kind, value: &Value) -> cel::Value {
    match (kind, value) {
        (Kind::Number, Value::Number(number)) => number.as_f64().unwrap_or(f64::NAN).into(),
        (Kind::Array(item), Value::Array(items)) => {
            items.iter().map(|value| typed(item, value)).collect::<Vec<_>>().into()
        }
        _ => in_cel(value),
    }
}

fn instants(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn from_millis: (CelInt) -> Result<CelString>, name = "from_millis")?;
    cel::add_overload!(env, fn to_millis: (CelString) -> Result<CelInt>, name = "to_millis")
}

/// Milliseconds since 1970 as a timestamp.
fn from_millis<'v>(millis: &CelInt) -> Result<CelString<'v>, ExecutionError> {
    let instant = Timestamp(*millis.inner());
    match (Timestamp::MIN.0..=Timestamp::MAX.0).contains(&instant.0) {
        true => Ok(instant.to_iso().into()),
        false => Err(ExecutionError::function_error("from_millis", "out of range")),
    }
}

/// A timestamp as milliseconds since 1970.
fn to_millis(text: &CelString<'_>) -> Result<CelInt, ExecutionError> {
    match Timestamp::parse(text.inner()) {
        Some(instant) => Ok(instant.0.into()),
        None => Err(ExecutionError::function_error("to_millis", "not a timestamp")),
    }
}
