//! Rules for single Rust files: their head, their size, forbidden words, waiting in tests, and what
//! a crate must not use. Line by line: a parser would not make them more accurate.

use super::{File, Finding};

/// The aim is 500; beyond 800 a file has two subjects.
const MAX_FILE_LINES: usize = 800;
const MAX_COLUMNS: usize = 100;

/// The rules must contain the words that they forbid.
const RULES: &str = "xtask/src/tidy/";

const WORDS: &[(&str, &str)] = &[
    ("todo!", "finish it or leave it out"),
    ("unimplemented!", "finish it or leave it out"),
    ("FIXME", "fix it or write down why it is right"),
    ("XXX", "fix it or write down why it is right"),
    ("dbg!", "left over from debugging"),
    ("#[ignore", "a test that does not run proves nothing"),
];

/// Words that one part of the tree must not contain, with the reason.
const BOUNDS: &[(&str, &[&str], &str)] = &[
    ("crates/model/", &["std::fs", "std::env", "std::net"], "model does no I/O"),
    (
        "crates/model/",
        &["SystemTime", "Instant", "Timestamp::now", "Zoned::now"],
        "model reads no clock: time is passed in",
    ),
];

/// Crates whose paths may appear only in the named parts of the tree.
const HOMES: &[(&str, &[&str])] = &[
    ("rusqlite::", &["crates/store/", "crates/bench/", "crates/kit/"]),
    ("hyper::", &["crates/wire/", "crates/bench/", "crates/kit/"]),
    ("hyper_util::", &["crates/wire/", "crates/bench/", "crates/kit/"]),
];

const SLEEPS: [&str; 2] = ["thread::sleep", "time::sleep"];
const WAITS_FOR: &str = "// waits for: ";

/// Names that say nothing about the content.
const EMPTY_NAMES: [&str; 5] = ["utils", "common", "helpers", "manager", "types"];

pub fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !file.text.starts_with("//!") {
        findings.push(Finding::new(
            &file.path,
            1,
            "must open with `//!`: what it is, what it must not know",
        ));
    }
    let count = file.text.lines().count();
    if count > MAX_FILE_LINES {
        let message = format!("{count} lines, at most {MAX_FILE_LINES}");
        findings.push(Finding::new(&file.path, 0, message));
    }
    findings.extend(long_lines(file));
    if !file.path.starts_with(RULES) {
        findings.extend(words(file));
        findings.extend(bounds(file));
        findings.extend(sleeps(file));
    }
    findings
}

/// Folder and file names, of anything under crates/ and xtask/.
pub fn names(file: &File) -> Vec<Finding> {
    let ours = file.path.starts_with("crates/") || file.path.starts_with("xtask/");
    let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    match parts.into_iter().find(|part| ours && EMPTY_NAMES.contains(part)) {
        None => Vec::new(),
        Some(part) => {
            let message = format!("`{part}` names nothing: call it after what it holds");
            vec![Finding::new(&file.path, 0, message)]
        }
    }
}

/// rustfmt breaks code but neither strings nor comments. A single long word, such as a link,
/// cannot be broken.
fn long_lines(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in numbered(file) {
        let columns = line.chars().count();
        let link = line.trim_start_matches(['/', '!', ' ']).split_whitespace().count() == 1;
        if columns > MAX_COLUMNS && !link {
            let message = format!("{columns} columns, at most {MAX_COLUMNS}");
            findings.push(Finding::new(&file.path, number, message));
        }
    }
    findings
}

fn words(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in numbered(file) {
        for (word, why) in WORDS {
            if contains_word(line, word) {
                let message = format!("`{word}`: {why}");
                findings.push(Finding::new(&file.path, number, message));
            }
        }
    }
    findings
}

fn bounds(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in numbered(file) {
        let code = code_of(line);
        for (part, words, why) in BOUNDS {
            for word in words.iter().filter(|word| contains_word(code, word)) {
                if file.path.starts_with(part) {
                    findings.push(Finding::new(&file.path, number, format!("`{word}`: {why}")));
                }
            }
        }
        for (word, homes) in HOMES {
            let at_home = homes.iter().any(|home| file.path.starts_with(home));
            if !at_home && contains_word(code, word) {
                let message = format!("`{word}` may be used only in {}", homes.join(", "));
                findings.push(Finding::new(&file.path, number, message));
            }
        }
    }
    findings
}

/// A test must not sleep in place of a condition. If the wait itself is tested, a comment says what
/// it waits for.
fn sleeps(file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let all_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    let tests_from = match all_test {
        true => 0,
        false => lines.iter().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(lines.len()),
    };
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate().skip(tests_from) {
        let sleeps = SLEEPS.iter().any(|sleep| contains_word(code_of(line), sleep));
        let has_reason =
            lines[at.saturating_sub(2)..=at].iter().any(|line| line.contains(WAITS_FOR));
        if sleeps && !has_reason {
            let message = "a sleep in a test: wait for a condition, or say `// waits for: …`";
            findings.push(Finding::new(&file.path, at + 1, message));
        }
    }
    findings
}

fn numbered(file: &File) -> impl Iterator<Item = (usize, &str)> {
    file.text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// The line without a comment that fills or ends it. `://` is part of a link, not a comment.
fn code_of(line: &str) -> &str {
    let mut from = 0;
    while let Some(at) = line[from..].find("//") {
        let at = from + at;
        if !line[..at].ends_with(':') {
            return &line[..at];
        }
        from = at + 2;
    }
    line
}

/// Whether the line contains `word` as a whole word.
fn contains_word(line: &str, word: &str) -> bool {
    let part_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let open_end = word.ends_with(part_of_name);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part_of_name);
        let after = line[at + word.len()..].chars().next().is_some_and(part_of_name);
        !(before || (open_end && after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, body: &str) -> Vec<String> {
        let file = File { path: path.into(), text: format!("//! Head.\n{body}\n") };
        check(&file).into_iter().map(|finding| finding.message).collect()
    }

    #[track_caller]
    fn one(path: &str, body: &str, told: &str) {
        let findings = found(path, body);
        assert!(findings.len() == 1 && findings[0].contains(told), "{body}: {findings:?}");
    }

    #[track_caller]
    fn none(path: &str, body: &str) {
        assert_eq!(found(path, body), Vec::<String>::new(), "{body}");
    }

    #[test]
    fn a_file_opens_with_its_head() {
        let file = File { path: "crates/api/src/a.rs".into(), text: "use std::fmt;\n".into() };
        assert!(check(&file)[0].message.contains("must open with"));
        none("crates/api/src/a.rs", "use std::fmt;");
    }

    #[test]
    fn a_file_has_an_end() {
        none("crates/api/src/a.rs", &"\n".repeat(798));
        one("crates/api/src/a.rs", &"\n".repeat(800), "at most 800");
    }

    #[test]
    fn long_comments_are_found_and_links_are_not() {
        one("crates/api/src/a.rs", &format!("// {}", "word ".repeat(30)), "at most 100");
        none("crates/api/src/a.rs", &format!("// https://example.com/{}", "a".repeat(100)));
    }

    #[test]
    fn unfinished_work_is_found() {
        for line in ["todo!()", "unimplemented!(\"x\")", "// FIXME later", "// XXX", "dbg!(a);"] {
            assert_eq!(found("crates/api/src/a.rs", line).len(), 1, "{line}");
        }
        one("crates/api/tests/a.rs", "#[ignore = \"slow\"]", "proves nothing");
        none("crates/api/src/a.rs", "let todo = XXXL; my_dbg!(todo);");
    }

    #[test]
    fn model_stays_pure() {
        for line in ["use std::fs;", "std::env::var(a)", "let now = Instant::now();"] {
            assert_eq!(found("crates/model/src/a.rs", line).len(), 1, "{line}");
            none("crates/restive/src/a.rs", line);
        }
        none("crates/model/src/a.rs", "// the binary reads SystemTime and hands it in");
        none("crates/model/src/a.rs", "struct InstantAnswer;");
    }

    #[test]
    fn sqlite_and_hyper_stay_at_home() {
        one("crates/api/src/a.rs", "use rusqlite::Connection;", "only in crates/store/");
        one("crates/store/src/a.rs", "use hyper::body::Body;", "only in crates/wire/");
        none("crates/store/src/a.rs", "use rusqlite::Connection;");
        none("crates/wire/src/a.rs", "use hyper::body::Body;");
        none("crates/api/src/a.rs", "// as hyper::server does");
    }

    #[test]
    fn a_test_does_not_sleep_and_hope() {
        let sleep = "std::thread::sleep(SHORT);";
        one("crates/restive/tests/a.rs", sleep, "waits for");
        one("crates/api/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{sleep}\n}}"), "waits");
        none("crates/api/src/a.rs", sleep);
        none("crates/restive/tests/a.rs", &format!("// waits for: the key to expire\n{sleep}"));
    }

    #[test]
    fn a_name_says_something() {
        let named = |path: &str| names(&File { path: path.into(), text: String::new() }).len();
        assert_eq!(named("crates/api/src/utils.rs"), 1);
        assert_eq!(named("crates/restive/tests/common/mod.rs"), 1);
        assert_eq!(named("crates/api/src/route.rs"), 0);
        assert_eq!(named("docs/types.md"), 0);
    }
}
