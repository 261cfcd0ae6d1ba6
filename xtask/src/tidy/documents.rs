//! Rules for documents: the files that a repository must have, paths of one machine, and the
//! coverage table, which may name only existing tests.

use std::collections::HashSet;

use super::{File, Finding};

const REQUIRED: [&str; 5] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "README.md", "STYLE.md", "docs/spec-coverage.md"];
const COVERAGE: &str = "docs/spec-coverage.md";

/// First folders of absolute paths that exist on one machine only.
const HOMES: [&str; 6] = ["home", "root", "Users", "work", "workspace", "mnt"];

/// Only this file may contain them.
const RULES: &str = "xtask/src/tidy/documents.rs";

pub fn required(files: &[File]) -> Vec<Finding> {
    let missing = REQUIRED.iter().filter(|name| files.iter().all(|file| file.path != **name));
    missing.map(|name| Finding::new(name, 0, "is missing")).collect()
}

/// Absolute paths into a home folder: they are useless to others and reveal where they were
/// written.
pub fn machine_paths(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.path == RULES {
        return findings;
    }
    for (at, line) in file.text.lines().enumerate() {
        if let Some(path) = HOMES.iter().find_map(|home| machine_path(line, home)) {
            let message = format!("a path of one machine: {path}");
            findings.push(Finding::new(&file.path, at + 1, message));
        }
    }
    findings
}

/// `/<home>/x` that does not continue a longer path or an address.
fn machine_path<'a>(line: &'a str, home: &str) -> Option<&'a str> {
    let start = format!("/{home}/");
    line.match_indices(&start).find_map(|(at, _)| {
        let before = line[..at].chars().next_back();
        let continues = before.is_some_and(|letter| {
            letter.is_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-' | '}' | '*' | '~')
        });
        let rest = &line[at + start.len()..];
        let named = rest.chars().next().is_some_and(|letter| letter.is_alphanumeric());
        let end = rest.find(|letter: char| letter.is_whitespace() || "\"'`)".contains(letter));
        let length = start.len() + end.unwrap_or(rest.len());
        (!continues && named).then(|| &line[at..at + length])
    })
}

/// Every name in backticks in the last column must be a function somewhere. Commands of ours are
/// allowed too: `cargo xtask test` runs the judges.
pub fn coverage(files: &[File]) -> Vec<Finding> {
    let Some(table) = files.iter().find(|file| file.path == COVERAGE) else { return Vec::new() };
    let functions: HashSet<&str> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .flat_map(|file| file.text.lines().filter_map(declared))
        .collect();
    let mut findings = Vec::new();
    for (at, line) in table.text.lines().enumerate() {
        for name in quoted(last_column(line)) {
            let function = name.rsplit("::").next().unwrap_or(name).trim_end_matches("()");
            if !name.starts_with("cargo ") && !functions.contains(function) {
                let message = format!("names a test that does not exist: {name}");
                findings.push(Finding::new(COVERAGE, at + 1, message));
            }
        }
    }
    findings
}

fn declared(line: &str) -> Option<&str> {
    let (_, after) = line.split_once("fn ")?;
    let end = after.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    Some(&after[..end?])
}

/// Empty for lines that are not a table row.
fn last_column(line: &str) -> &str {
    let row = line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|'));
    row.and_then(|row| row.rsplit('|').next()).unwrap_or_default()
}

/// The texts between pairs of backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_missing_document_is_found() {
        let mut files: Vec<File> = REQUIRED.iter().map(|name| file(name, "")).collect();
        assert!(required(&files).is_empty());
        files.pop();
        assert_eq!(required(&files), [Finding::new("docs/spec-coverage.md", 0, "is missing")]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for text in [
            "see /home/ada/restive",
            "\"/Users/ada\"",
            concat!("(/ro", "ot/x)"),
            concat!("at /wo", "rk/x:1"),
        ] {
            assert_eq!(machine_paths(&file("README.md", text)).len(), 1, "{text}");
        }
        for text in [
            "https://example.com/home/ada",
            "crates/work/src",
            "GET /v1/users/ada",
            "`/home/` and nothing more",
            "the root/home/x folder",
        ] {
            assert_eq!(machine_paths(&file("README.md", text)), [], "{text}");
        }
    }

    #[test]
    fn the_coverage_table_names_only_tests_that_exist() {
        let tests = file("crates/restive/tests/api.rs", "#[test]\nfn put_erases() {}\n");
        let table = |last: &str| {
            let text = format!("# Title `not_a_test`\n| rule | `GET` | {last} |\n|---|---|---|\n");
            file(COVERAGE, &text)
        };
        for good in ["`put_erases`", "`api::put_erases()`", "`cargo xtask test`", "none yet"] {
            assert_eq!(coverage(&[table(good), file("a.rs", "fn put_erases() {}")]), [], "{good}");
        }
        let findings = coverage(&[table("`put_erases`, `patch_merges`"), tests]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("patch_merges"));
    }
}
