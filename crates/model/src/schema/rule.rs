//! Rules: CEL expressions over a record and a request, compiled when the schema is read. They guard
//! actions and compute the values actions set.

pub use super::expression::{Expression, Fault, Inputs};

use crate::problem::{Code, Declared, Problem};
use serde_json::{Map, Value};

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
    /// The refusal if its condition holds, in the words of the schema file.
    pub fn refusal(&self) -> Problem {
        let mut problem = Problem::new(Code::GuardFailed, self.message.clone());
        problem.param = self.param.clone();
        problem.extra = self.extra.clone();
        let (kind, code) = (self.kind.clone(), self.code.clone());
        problem.declared = Some(Declared { status: self.status, kind, code });
        problem
    }
}

impl Template {
    /// Something wrong with its value.
    pub fn fault(&self, reason: &str) -> Fault {
        let place = match self {
            Template::Computed(expression) => expression.place,
            Template::Fixed(_) => None,
        };
        Fault { reason: reason.to_owned(), place, of_value: false }
    }

    pub fn value(&self, inputs: &Inputs<'_>) -> Result<Value, Fault> {
        match self {
            Template::Fixed(value) => Ok(value.clone()),
            Template::Computed(expression) => expression.evaluate(inputs),
        }
    }
}
