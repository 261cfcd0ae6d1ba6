//! The rules of STYLE.md that a program can check, run by `cargo xtask tidy` and by the test at the
//! end of this file. Rules are pure functions over loaded files; only this file reads the disk.

mod circles;
mod documents;
mod edges;
mod functions;
mod sources;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::root;

/// A file of the repository, its path relative to the root with forward slashes.
pub struct File {
    pub path: String,
    pub text: String,
}

/// One violation. `line` is 1-based; 0 means the whole file.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub message: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// `cargo xtask tidy`.
pub fn command() -> Result<()> {
    let files = load(&root())?;
    let findings = check(&files);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} untidy places", findings.len());
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

/// All rules over all files.
fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(documents::machine_paths(file));
        findings.extend(sources::names(file));
        if file.path.ends_with("Cargo.toml") {
            findings.extend(edges::manifest(file));
        }
        if file.path.ends_with(".rs") {
            findings.extend(sources::check(file));
            findings.extend(functions::lengths(file));
        }
    }
    findings.extend(circles::check(files));
    findings.extend(documents::required(files));
    findings.extend(documents::coverage(files));
    findings
}

/// Extensions of hand-written files. Lock files and licences are excluded.
const EXTENSIONS: [&str; 8] = ["rs", "toml", "md", "yaml", "yml", "json", "txt", "html"];
const UNREAD: [&str; 5] = ["target", ".git", "node_modules", ".venv", "restive-data"];
const OTHERS: [&str; 2] = ["package-lock.json", "Cargo.lock"];

fn load(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                if !UNREAD.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if is_text(&path) && !OTHERS.contains(&name.as_str()) {
                files.push(File { path: relative(root, &path), text: fs::read_to_string(&path)? });
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// By extension; files without one (.ci/run, licences) are text here.
fn is_text(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => EXTENSIONS.iter().any(|known| extension == *known),
        None => !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')),
    }
}

fn relative(root: &Path, path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root).unwrap_or(path).to_path_buf();
    path.to_string_lossy().replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_is_tidy() {
        let findings = check(&load(&root()).unwrap());
        let shown: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(shown.is_empty(), "\n{}", shown.join("\n"));
    }

    #[test]
    fn a_finding_names_its_place() {
        assert_eq!(Finding::new("a.rs", 3, "bad").to_string(), "a.rs:3: bad");
        assert_eq!(Finding::new("a.rs", 0, "bad").to_string(), "a.rs: bad");
    }
}
