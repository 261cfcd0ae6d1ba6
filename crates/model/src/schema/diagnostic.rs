//! One finding about a schema file: what is wrong, where, and what to do.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// 1-based; column counts characters.
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl Diagnostic {
    pub fn at(source: &str, offset: usize, message: impl Into<String>) -> Diagnostic {
        let before = &source[..source.floor_char_boundary(offset.min(source.len()))];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Diagnostic {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}
