//! Functions of at most 70 lines. Uses rustfmt's layout instead of a parser: a function ends at the
//! first `}` with the indentation of its `fn`. A raw string that looks like such an end can only
//! make a function seem shorter.

use super::{File, Finding};

/// Lines between the braces.
const MAX_LINES: usize = 70;
/// Marks a function that is one long table.
const TABLE: &str = "// tidy: table";

pub fn lengths(file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let Some(length) = body_lines(&lines[start..], indentation(line)) else { continue };
        if length > MAX_LINES && !is_table(&lines[..start]) {
            let message = format!("fn {name} has {length} lines, at most {MAX_LINES}");
            findings.push(Finding::new(&file.path, start + 1, message));
        }
    }
    findings
}

/// The name if the line begins a function item.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix("fn ") {
            let end = after.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
            return Some(&after[..end.unwrap_or(after.len())]);
        }
        let (word, after) = rest.split_once(' ')?;
        let modifier = word.starts_with("pub")
            || word.starts_with('"')
            || matches!(word, "const" | "async" | "unsafe" | "extern" | "default");
        if !modifier {
            return None;
        }
        rest = after;
    }
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// None for a declaration without a body and for a body on the line of its `fn`.
fn body_lines(lines: &[&str], indent: usize) -> Option<usize> {
    let mut opened = None;
    for (at, line) in lines.iter().enumerate() {
        let same_level = at == 0 || (!line.trim().is_empty() && indentation(line) == indent);
        if !same_level {
            continue;
        }
        match opened {
            None if line.ends_with('{') => opened = Some(at),
            None if line.ends_with('}') || line.ends_with(';') => return None,
            None => {}
            Some(open) if line.trim_start() == "}" => return Some(at - open - 1),
            Some(_) => {}
        }
    }
    None
}

/// Whether the comment is above, with only attributes and other comments in between.
fn is_table(before: &[&str]) -> bool {
    let head = before.iter().rev().map(|line| line.trim_start());
    head.take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .any(|line| line == TABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: String) -> Vec<String> {
        let file = File { path: "a.rs".into(), text };
        lengths(&file).into_iter().map(|finding| finding.message).collect()
    }

    fn function(head: &str, lines: usize, indent: &str) -> String {
        let body = format!("{indent}    call();\n").repeat(lines);
        format!("{indent}{head} {{\n{body}{indent}}}\n")
    }

    #[test]
    fn seventy_lines_pass_and_seventy_one_do_not() {
        assert!(found(function("fn story()", 70, "")).is_empty());
        for head in ["fn story()", "pub(crate) async fn story<T>()", "pub const fn story()"] {
            let findings = found(function(head, 71, "    "));
            assert_eq!(findings, ["fn story has 71 lines, at most 70"], "{head}");
        }
    }

    #[test]
    fn a_long_signature_does_not_count() {
        let head = "fn story(\n    one: One,\n    other: Other,\n) -> Result<()>";
        assert!(found(function(head, 70, "")).is_empty());
        assert_eq!(found(function(head, 71, "")).len(), 1);
    }

    #[test]
    fn a_table_may_be_long() {
        let table = function("fn routes()", 200, "");
        assert!(found(format!("// tidy: table\n#[rustfmt::skip]\n{table}")).is_empty());
        assert_eq!(found(format!("// tidy: table\n\nfn other() {{}}\n{table}")).len(), 1);
    }

    #[test]
    fn declarations_and_one_liners_have_no_length() {
        let declared = "    fn declared(\n        &self,\n    ) -> T;\n    fn empty() {}\n";
        assert!(found(format!("trait T {{\n{declared}}}\n")).is_empty());
    }
}
