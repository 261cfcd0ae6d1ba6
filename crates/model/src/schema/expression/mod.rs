//! CEL expressions: compiled when a schema file or a webhook filter is read, typed by `check`
//! before they are accepted, evaluated when an action, a timed transition or a delivery needs them.
//! Evaluation is pure. Knows no collection: what an expression can name is a `Scope`.

mod check;
mod cost;
mod event;
mod flow;
mod formula;
mod function;
mod limit;
mod scope;
#[cfg(test)]
mod tests;
mod shape;
mod comparison;
mod words;

pub use check::Complaint;
pub use event::Events;
pub use formula::{CONVERSION_UNITS, Formula};
pub use scope::Scope;
pub(crate) use scope::misfit;
pub use shape::{Shape, Type};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};
use cel::parser::Parser;
use cel::{Context, Env, ExecutionError};
use core::net::IpAddr;
use cost::{Cost, Extent};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Stack of the thread that parses. The deepest expression that the limits let through needs 3.6
/// MiB where the CEL library is built without optimisation.
const PARSER_STACK_BYTES: usize = 8 << 20;

/// The functions and types of CEL. Shared: making them costs more than most evaluations.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A compiled CEL expression, with the text it came from.
#[derive(Clone)]
pub struct Expression {
    pub text: String,
    /// Its place in the schema file: line and column, both from 1.
    pub place: Option<(usize, usize)>,
    /// Byte offset of its first character in the schema file; of the string that holds it where
    /// that has escapes, and then the second is false.
    pub(crate) origin: (usize, bool),
    syntax: Arc<Syntax>,
}

struct Syntax {
    root: IdedExpr,
    /// Byte offsets of the nodes in the text.
    info: SourceInfo,
    cost: Cost,
}

/// The values that an expression can see.
pub struct Inputs<'a> {
    /// The record before the change.
    pub record: &'a Map<String, Value>,
    /// The request's parameters.
    pub request: &'a Map<String, Value>,
    /// The client's address. None where the service acts by itself, and where a proxy named no
    /// client: an expression that reads it then has no value.
    pub client: Option<IpAddr>,
    pub now: String,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The message of the library. It may contain values of the record: for the log, not for
    /// clients.
    pub reason: String,
    /// Line and column in the schema file.
    pub place: Option<(usize, usize)>,
    /// Whether a value was out of range, not of the wrong type: an overflow, a division by zero, an
    /// index beyond the end, a text that is no number.
    pub of_value: bool,
}

impl Expression {
    /// Compiles a text. `check` checks its names and types.
    pub fn compile(text: &str) -> Result<Expression, Complaint> {
        limit::check_text(text).map_err(|message| Complaint { at: 0, message })?;
        let syntax = Arc::new(parse(text)?);
        Ok(Expression { text: text.to_owned(), place: None, origin: (0, false), syntax })
    }

    /// Finds the type, or everything that is wrong with the types.
    pub fn check(&self, scope: &Scope) -> Result<Type, Vec<Complaint>> {
        check::check(&self.syntax.root, &self.syntax.info, scope)
    }

    /// As `check`, for a condition.
    pub fn check_condition(&self, scope: &Scope) -> Result<(), Vec<Complaint>> {
        let found = self.check(scope)?;
        match found == Type::of(Shape::Bool) {
            true => Ok(()),
            false => {
                let null = if found.nullable { ", and can be null" } else { "" };
                let message = format!("must be true or false; it is {}{null}", found.shape);
                Err(vec![Complaint { at: 0, message }])
            }
        }
    }

    /// The value, if the whole expression is one literal.
    pub(crate) fn literal(&self) -> Option<Value> {
        match &self.syntax.root.expr {
            Expr::Literal(literal) => Some(match literal {
                LiteralValue::Boolean(truth) => Value::Bool(**truth),
                LiteralValue::Int(whole) => Value::from(**whole),
                LiteralValue::Double(float) => Value::from(**float),
                LiteralValue::String(text) => Value::from(text.inner()),
                _ => return None,
            }),
            _ => None,
        }
    }

    pub fn evaluate(&self, inputs: &Inputs<'_>) -> Result<Value, Fault> {
        let mut context = Context::with_env(ENVIRONMENT.clone());
        for (name, members) in [("record", inputs.record), ("request", inputs.request)] {
            context.add_variable_from_value(name, map_in_cel(members));
        }
        self.afford(Extent::of(inputs.record).and(Extent::of(inputs.request)))?;
        // Null would satisfy a rule such as `client != '192.0.2.1'`.
        if let Some(client) = inputs.client {
            context.add_variable_from_value("client", client.to_string());
        }
        context.add_variable_from_value("now", inputs.now.clone());
        self.run(&context)
    }

    /// Evaluates over one named object.
    pub fn judge(&self, name: &str, members: &Map<String, Value>) -> Result<Value, Fault> {
        self.afford(Extent::of(members))?;
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.add_variable_from_value(name, map_in_cel(members));
        self.run(&context)
    }

    /// Whether a condition holds. A value that is not true or false is a fault, never a no.
    pub fn holds(&self, inputs: &Inputs<'_>) -> Result<bool, Fault> {
        self.truth(self.evaluate(inputs)?)
    }

    /// As `holds`, over one named object.
    pub fn admits(&self, name: &str, members: &Map<String, Value>) -> Result<bool, Fault> {
        self.truth(self.judge(name, members)?)
    }

    fn afford(&self, seen: Extent) -> Result<(), Fault> {
        self.syntax.cost.check(seen).map_err(|reason| self.fault(&reason, true))
    }

    fn truth(&self, value: Value) -> Result<bool, Fault> {
        value.as_bool().ok_or_else(|| self.fault("the value is neither true nor false", false))
    }

    fn run(&self, context: &Context<'_, '_>) -> Result<Value, Fault> {
        let found = cel::Value::resolve(&self.syntax.root, context)
            .map_err(|error| self.fault(&explained(&error), is_of_value(&error)))?;
        out_of_cel(&found).map_err(|reason| self.fault(reason, true))
    }

    fn fault(&self, reason: &str, of_value: bool) -> Fault {
        Fault { reason: reason.to_owned(), place: self.place, of_value }
    }
}

/// The message of the library, or of us where the library knows too little.
fn explained(error: &ExecutionError) -> String {
    match error {
        ExecutionError::UndeclaredReference(name) if name.as_str() == "client" => {
            "the address of the client is not known: the trusted proxy named no client. Configure \
             the proxy to send X-Forwarded-For, Forwarded or the PROXY protocol with an address"
                .to_owned()
        }
        error => error.to_string(),
    }
}

/// Whether the error depends on how large a value is. A comparison with NaN looks like a type
/// error.
fn is_of_value(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::DivisionByZero(_)
            | ExecutionError::RemainderByZero(_)
            | ExecutionError::Overflow(..)
            | ExecutionError::IndexOutOfBounds(_)
            | ExecutionError::FunctionError { .. }
    )
}

/// Parses in a thread of its own, whose stack is as large as the limits need it: the caller's may
/// not be. The parser of the library panics on some malformed texts.
fn parse(text: &str) -> Result<Syntax, Complaint> {
    let wrong = |at: usize, reason: &str| Complaint {
        at,
        message: format!("not a CEL expression: {reason}"),
    };
    let source = text.to_owned();
    let parsing = std::thread::Builder::new()
        .name("expression".to_owned())
        .stack_size(PARSER_STACK_BYTES)
        .spawn(move || {
            let (mut root, info) = Parser::new().parse_with_source_info(&source)?;
            let depth = limit::depth(&root);
            if depth <= limit::LEVELS {
                require_values(&mut root);
                return Ok(Ok((root, info)));
            }
            Ok::<_, cel::ParseErrors>(Err(limit::TOO_DEEP))
        });
    let Ok(parsing) = parsing else {
        return Err(wrong(0, "there is no memory to parse it; try again"));
    };
    match parsing.join() {
        Ok(Ok(Ok((root, info)))) => {
            let refused = |(id, message): cost::Refused| {
                let at = info.offset_for(id).map_or(0, |(start, _)| start as usize);
                Complaint { at, message }
            };
            let cost = Cost::of(&root).map_err(refused)?;
            Ok(Syntax { root, info, cost })
        }
        Ok(Ok(Err(message))) => Err(Complaint { at: 0, message: message.to_owned() }),
        Ok(Err(errors)) => Err(match errors.errors.first() {
            Some(first) => wrong(offset(text, first.pos), &first.msg),
            None => wrong(0, "it cannot be parsed"),
        }),
        Err(_) => Err(wrong(0, "it cannot be parsed")),
    }
}

/// Byte offset of a line and column, both from 1.
fn offset(text: &str, (line, column): (isize, isize)) -> usize {
    let (Ok(line), Ok(column)) = (usize::try_from(line - 1), usize::try_from(column - 1)) else {
        return 0;
    };
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
}

/// `has(x.y)` becomes `has(x.y) && x.y != null`: a field that is unset is null in `record` and
/// `request`, and the question is meant as "is there a value".
fn require_values(node: &mut IdedExpr) {
    for child in children_mut(&mut node.expr) {
        require_values(child);
    }
    let id = node.id;
    let Expr::Select(select) = &node.expr else { return };
    if !select.test {
        return;
    }
    let mut read = select.clone();
    read.test = false;
    let node_of = |expr: Expr| IdedExpr { id, expr };
    let call = |name: &str, args: Vec<IdedExpr>| {
        Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args })
    };
    let null = node_of(Expr::Literal(LiteralValue::Null));
    let some = node_of(call(operators::NOT_EQUALS, vec![node_of(Expr::Select(read)), null]));
    let test = node_of(std::mem::take(&mut node.expr));
    node.expr = call(operators::LOGICAL_AND, vec![test, some]);
}

fn children(expr: &Expr) -> Vec<&IdedExpr> {
    match expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| of_entry(&entry.expr)).collect(),
        Expr::Struct(object) => {
            object.entries.iter().flat_map(|entry| of_entry(&entry.expr)).collect()
        }
        Expr::Comprehension(each) => {
            vec![&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result]
        }
    }
}

fn of_entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(pair) => vec![&pair.key, &pair.value],
    }
}

fn children_mut(expr: &mut Expr) -> Vec<&mut IdedExpr> {
    match expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
        Expr::Select(select) => vec![&mut select.operand],
        Expr::Call(call) => call.target.as_deref_mut().into_iter().chain(&mut call.args).collect(),
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => {
            map.entries.iter_mut().flat_map(|entry| of_entry_mut(&mut entry.expr)).collect()
        }
        Expr::Struct(object) => {
            object.entries.iter_mut().flat_map(|entry| of_entry_mut(&mut entry.expr)).collect()
        }
        Expr::Comprehension(each) => {
            let each = &mut **each;
            vec![
                &mut each.iter_range,
                &mut each.accu_init,
                &mut each.loop_cond,
                &mut each.loop_step,
                &mut each.result,
            ]
        }
    }
}

fn of_entry_mut(entry: &mut EntryExpr) -> Vec<&mut IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&mut field.value],
        EntryExpr::MapEntry(pair) => vec![&mut pair.key, &mut pair.value],
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

/// The library would make null of a number that JSON does not have, and text of a type.
fn out_of_cel(value: &cel::Value) -> Result<Value, &'static str> {
    Ok(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(truth) => Value::Bool(*truth),
        cel::Value::Int(whole) => Value::from(*whole),
        cel::Value::Float(float) => {
            Value::Number(Number::from_f64(*float).ok_or("the number is infinite or undefined")?)
        }
        cel::Value::String(text) => Value::from(text.as_str()),
        cel::Value::List(items) => {
            Value::Array(items.iter().map(out_of_cel).collect::<Result<_, _>>()?)
        }
        cel::Value::Map(members) => {
            let mut object = Map::new();
            for (key, value) in members.map.iter() {
                object.insert(key.to_string(), out_of_cel(value)?);
            }
            Value::Object(object)
        }
        _ => return Err("the value has no form in JSON"),
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, "{line}:{column}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cel({:?})", self.text)
    }
}
