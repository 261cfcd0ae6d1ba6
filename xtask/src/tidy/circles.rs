//! Import circles inside a crate. In every folder the children (a file, or a folder with its
//! content) may import each other in one direction only: in a circle, none of them can be read or
//! moved without the others. Two files that are one idea may import each other.

use super::{File, Finding};
use std::collections::{BTreeMap, BTreeSet};

type Module = Vec<String>;
type Edges = BTreeMap<Module, BTreeSet<Module>>;

/// Two files that are one idea. More than two are a circle.
const MAX_FILES: usize = 2;

pub fn check(files: &[File]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &File>> = BTreeMap::new();
    for file in files {
        if let Some((source, module)) = module(&file.path) {
            crates.entry(source).or_default().insert(module, file);
        }
    }
    crates.iter().flat_map(|(source, modules)| crate_circles(source, modules)).collect()
}

fn crate_circles(source: &str, modules: &BTreeMap<Module, &File>) -> Vec<Finding> {
    let names: BTreeSet<Module> = modules.keys().cloned().collect();
    let edges: Edges = modules
        .iter()
        .map(|(module, file)| (module.clone(), imports(module, &file.text, &names)))
        .collect();
    let folders: BTreeSet<&[String]> =
        names.iter().flat_map(|name| (0..name.len()).map(|depth| &name[..depth])).collect();
    let mut findings = Vec::new();
    for folder in folders {
        for circle in circles(&children(folder, &edges)) {
            let is_folder = |child: &String| {
                let path: Module = folder.iter().chain([child]).cloned().collect();
                names.iter().any(|name| name.len() > path.len() && name.starts_with(&path))
            };
            if circle.len() <= MAX_FILES && !circle.iter().any(is_folder) {
                continue;
            }
            let path = format!("{source}{}", folder.join("/"));
            let shown: Vec<&str> = circle.iter().map(String::as_str).collect();
            let message = format!("these import each other in a circle: {}", shown.join(", "));
            findings.push(Finding::new(&path, 0, message));
        }
    }
    findings
}

/// The source folder of a file's crate, and the file's module path in it. Tests are not modules of
/// their crate.
fn module(path: &str) -> Option<(&str, Module)> {
    let end = path.find("/src/")? + "/src/".len();
    let inner = path[end..].strip_suffix(".rs")?;
    let mut module: Module = inner.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        module.pop();
    }
    let is_test = module.iter().any(|part| part == "tests" || part == "testbed");
    (!is_test && path.starts_with("crates/")).then_some((&path[..end], module))
}

/// Which child of a folder imports which. The folder's own `mod.rs` belongs to all of them.
fn children(folder: &[String], edges: &Edges) -> BTreeMap<String, BTreeSet<String>> {
    let child = |module: &Module| {
        module.starts_with(folder).then(|| module.get(folder.len()).cloned()).flatten()
    };
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, targets) in edges {
        let Some(from) = child(from) else { continue };
        let targets = targets.iter().filter_map(child).filter(|to| *to != from);
        graph.entry(from.clone()).or_default().extend(targets);
    }
    graph
}

/// The modules that a file names by `crate::` and `super::`.
fn imports(module: &Module, text: &str, names: &BTreeSet<Module>) -> BTreeSet<Module> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code: String = lines.flat_map(|line| [line, " "]).collect();
    let mut found = BTreeSet::new();
    for start in ["crate::", "super::"] {
        for (place, _) in code.match_indices(start) {
            let before = code[..place].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '$')) {
                continue;
            }
            found.extend(paths(&code[place..]).into_iter().filter_map(|path| {
                let path = absolute(module, path);
                let known = (0..=path.len()).rev().map(|depth| path[..depth].to_vec());
                known.into_iter().find(|path| names.contains(path))
            }));
        }
    }
    found.remove(module);
    found
}

/// `super::a::b` from a module, as a path from the root of the crate.
fn absolute(module: &Module, path: Module) -> Module {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let base = match path.first().map(String::as_str) {
        Some("crate") => &[],
        _ => &module[..module.len().saturating_sub(ups)],
    };
    let rest = path.into_iter().filter(|part| part != "crate" && part != "super");
    base.iter().cloned().chain(rest).collect()
}

/// The paths of a use tree at the start of a text: `a::{b, c::d}` has two.
fn paths(text: &str) -> Vec<Module> {
    let mut path: Module = Vec::new();
    let mut word = String::new();
    let mut found = Vec::new();
    let mut characters = text.char_indices().peekable();
    while let Some((place, c)) = characters.next() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => word.push(c),
            ':' if characters.peek().is_some_and(|(_, next)| *next == ':') => {
                characters.next();
                path.push(std::mem::take(&mut word));
            }
            '{' if word.is_empty() && !path.is_empty() => {
                for part in split(&text[place + 1..]) {
                    for inner in paths(part.trim_start()) {
                        found.push(path.iter().cloned().chain(inner).collect());
                    }
                }
                return found;
            }
            _ => break,
        }
    }
    path.push(word);
    found.push(path);
    found
}

/// The parts of a list up to its closing brace, at the commas of its own level.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (place, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&text[start..place]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts
}

/// Groups of more than one module that can reach each other.
fn circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            for to in graph.get(next).into_iter().flatten() {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|name| (name, reach(name))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (name, seen) in &reached {
        if seen.contains(*name) {
            let back =
                |other: &&&String| reached.get(**other).is_some_and(|all| all.contains(*name));
            groups.insert(seen.iter().filter(back).map(|other| (*other).clone()).collect());
        }
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("crates/x/src/{path}"),
            text: (*text).to_owned(),
        };
        let files: Vec<File> = files.iter().map(file).collect();
        check(&files).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn one_way_passes_and_so_do_two_files() {
        assert!(
            messages(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c;"), ("c.rs", "")])
                .is_empty()
        );
        assert!(messages(&[("a.rs", "use crate::b::B;"), ("b.rs", "use super::a;")]).is_empty());
    }

    #[test]
    fn a_circle_of_three_files_is_found_through_every_form_of_import() {
        let circle = [
            ("a.rs", "use crate::{d, b::{self, B}};"),
            ("b.rs", "fn f() { super::c::run() }"),
            ("c.rs", "use crate::a::A;"),
            ("d.rs", ""),
        ];
        assert_eq!(
            messages(&circle),
            ["crates/x/src/: these import each other in a circle: a, b, c"]
        );
    }

    #[test]
    fn a_circle_with_a_folder_is_found() {
        let files = [
            ("a/mod.rs", "mod inner;"),
            ("a/inner.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A;"),
        ];
        assert_eq!(messages(&files), ["crates/x/src/: these import each other in a circle: a, b"]);
    }

    #[test]
    fn tests_and_comments_do_not_count() {
        let files = [
            ("a/mod.rs", "use crate::b::B;"),
            ("a/inner.rs", ""),
            ("b.rs", "// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
        ];
        assert!(messages(&files).is_empty());
    }
}
