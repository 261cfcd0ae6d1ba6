//! Rules: CEL expressions over a record and a request, compiled when the schema is read. They guard
//! actions and compute the values actions set. Evaluation is pure and bounded by the expression.

use crate::problem::{Code, Declared, Problem};
use cel::{Context, Program};
use core::net::IpAddr;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A compiled CEL expression, with the text it came from.
#[derive(Clone)]
pub struct Expression {
    pub text: String,
    program: Arc<Program>,
}

/// What an expression can see.
pub struct Scene<'a> {
    /// The record before the change.
    pub record: &'a Map<String, Value>,
    /// The request's parameters.
    pub request: &'a Map<String, Value>,
    /// Whoever asks; nobody where the service acts by itself.
    pub client: Option<IpAddr>,
    pub now: String,
}

/// A rule that refuses an action when its condition holds.
#[derive(Clone, Debug)]
pub struct Rule {
    pub when: Expression,
    pub status: u16,
    pub kind: String,
    pub code: String,
    pub message: String,
    pub param: Option<String>,
    /// Further members of the error body, such as `decline_code`.
    pub extra: Map<String, Value>,
    /// Fields set although (and because) the action is refused.
    pub set: Vec<super::Assignment>,
    /// State the record moves to on refusal.
    pub to: Option<String>,
    /// Event emitted with the refusal.
    pub event: Option<String>,
}

/// A value in the schema file: fixed, or computed when it is needed.
#[derive(Clone, Debug)]
pub enum Template {
    Fixed(Value),
    Computed(Expression),
}

impl Rule {
    /// What it answers when its condition holds, in the words of the schema file.
    pub fn refusal(&self) -> Problem {
        let mut problem = Problem::new(Code::GuardFailed, self.message.clone());
        problem.param = self.param.clone();
        problem.extra = self.extra.clone();
        let (kind, code) = (self.kind.clone(), self.code.clone());
        problem.declared = Some(Declared { status: self.status, kind, code });
        problem
    }
}

impl Expression {
    pub fn compile(text: &str) -> Result<Expression, String> {
        // The parser of the CEL library panics on some malformed texts; a schema file must not.
        let compiled = std::panic::catch_unwind(|| Program::compile(text));
        match compiled {
            Ok(Ok(program)) => Ok(Expression { text: text.to_owned(), program: Arc::new(program) }),
            Ok(Err(error)) => Err(error.to_string().trim().to_owned()),
            Err(_) => Err("the expression cannot be parsed".to_owned()),
        }
    }

    /// The parsed expression, for those who want to know what it names.
    pub(super) fn syntax(&self) -> &cel::common::ast::IdedExpr {
        self.program.expression()
    }

    /// Evaluates; an expression that fails (a missing key, a type mismatch) says why.
    pub fn evaluate(&self, scene: &Scene<'_>) -> Result<Value, String> {
        let mut context = Context::default();
        for (name, members) in [("record", scene.record), ("request", scene.request)] {
            context.add_variable_from_value(name, map_in_cel(members));
        }
        let client = scene.client.map_or(cel::Value::Null, |address| address.to_string().into());
        context.add_variable_from_value("client", client);
        context.add_variable_from_value("now", scene.now.clone());
        let result = self.program.execute(&context).map_err(|error| error.to_string())?;
        result.json().map_err(|error| error.to_string())
    }

    /// Evaluates over one named object.
    pub fn judge(&self, name: &str, members: &Map<String, Value>) -> Result<Value, String> {
        let mut context = Context::default();
        context.add_variable_from_value(name, map_in_cel(members));
        let result = self.program.execute(&context).map_err(|error| error.to_string())?;
        result.json().map_err(|error| error.to_string())
    }

    /// Whether the condition holds. Anything but `true` is false, an error included.
    pub fn holds(&self, scene: &Scene<'_>) -> bool {
        matches!(self.evaluate(scene), Ok(Value::Bool(true)))
    }
}

/// Whole numbers are `int`, as the literals in an expression are: CEL counts in one type only, and
/// the library's own conversion would make a `uint` of every number that is not negative.
fn in_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.clone().into(),
        Value::Array(items) => items.iter().map(in_cel).collect::<Vec<_>>().into(),
        Value::Object(members) => map_in_cel(members),
    }
}

fn map_in_cel(members: &Map<String, Value>) -> cel::Value {
    let members = members.iter().map(|(name, value)| (name.clone(), in_cel(value)));
    cel::Value::Map(members.collect::<HashMap<_, _>>().into())
}

impl Template {
    pub fn value(&self, scene: &Scene<'_>) -> Result<Value, String> {
        match self {
            Template::Fixed(value) => Ok(value.clone()),
            Template::Computed(expression) => expression.evaluate(scene),
        }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cel({:?})", self.text)
    }
}
