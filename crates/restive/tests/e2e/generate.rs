//! `restive generate`: the text of generated clients, and what the command refuses. The files in
//! `generated` are what it must write, byte for byte: for the bookshop, and for a schema with names
//! and texts that a generator could get wrong.

use crate::harness::run;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const LANGUAGES: [(&str, &str); 3] =
    [("typescript", "ts"), ("python", "py"), ("rust", "rs.golden")];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/generated")
}

#[test]
fn generated_clients_are_the_same_bytes_each_time() {
    let scratch = TempDir::new().unwrap();
    for (schema, name) in [(None, "bookshop"), (Some("hostile.toml"), "hostile")] {
        for (language, ending) in LANGUAGES {
            let schema = schema.map(|file| folder().join(file).display().to_string());
            let mut arguments = vec!["generate", language];
            arguments.extend(schema.iter().flat_map(|file| ["--schema", file]));
            let (printed, error, code) = run(scratch.path(), &arguments);
            assert_eq!((code, error.as_str()), (0, ""), "{language}");
            let golden = format!("{name}.{ending}");
            let expected = fs::read_to_string(folder().join(&golden)).unwrap_or_default();
            let line = printed.lines().zip(expected.lines()).position(|(new, old)| new != old);
            assert!(
                printed == expected,
                "{golden} differs from line {:?} on; if that is intended: restive {} --out \
                 crates/restive/tests/e2e/generated/{golden}",
                line.map(|line| line + 1),
                arguments.join(" ")
            );
            let out = scratch.path().join("out");
            let (printed, error, code) =
                run(scratch.path(), &[&arguments[..], &["--out", "out"]].concat());
            assert_eq!((code, printed.as_str(), error.as_str()), (0, "", ""));
            assert_eq!(fs::read_to_string(&out).unwrap(), expected);
        }
    }
}

#[test]
fn a_client_of_an_older_version_has_the_names_of_that_version() {
    let scratch = TempDir::new().unwrap();
    let text = "[service]\nmount = '/v2'\n[[mounts]]\npath = '/v1'\nversion = '2025-01-01'\n\
        [[versions]]\ndate = '2026-01-01'\n[[versions.changes]]\ncollection = 'books'\n\
        rename = { from = 'label', to = 'title' }\n[[versions.changes]]\ncollection = 'pens'\n\
        collection_added = true\n[[versions]]\ndate = '2025-01-01'\n\
        [collections.books.fields]\ntitle = 'string'\n[collections.pens]\n";
    fs::write(scratch.path().join("s.toml"), text).unwrap();
    for (language, _) in LANGUAGES {
        let generate = ["generate", language, "--schema", "s.toml"];
        let (new, error, _) = run(scratch.path(), &generate);
        let older = [&generate[..], &["--api-version", "2025-01-01"]].concat();
        let (old, _, _) = run(scratch.path(), &older);
        for (text, shown, hidden) in [
            (&new, ["title", "Pens", "\"/v2/books\"", "2026-01-01"], "label:"),
            (&old, ["label:", "Books", "\"/v1/books\"", "2025-01-01"], "Pens"),
        ] {
            for word in shown {
                assert!(text.contains(word), "{word} is missing in {language}: {text}{error}");
            }
            assert!(!text.contains(&format!(" {hidden}")), "{hidden} is in {language}");
        }
    }
}

#[test]
fn generate_refuses_unknown_languages_versions_and_files() {
    let scratch = TempDir::new().unwrap();
    fs::write(scratch.path().join("bad.toml"), "[service\n").unwrap();
    for (arguments, status, reason) in [
        (&["generate", "cobol"][..], 2, "typescript"),
        (&["generate"], 2, "LANGUAGE"),
        (&["generate", "rust", "--api-version", "2000-01-01"], 1, "there is no version 2000-01-01"),
        (&["generate", "rust", "--out", "none/file.rs"], 1, "none/file.rs cannot be written"),
        (&["generate", "rust", "--schema", "bad.toml"], 1, "bad.toml:1:"),
        (&["generate", "rust", "--schema", "none.toml"], 1, "none.toml"),
    ] {
        let (out, error, code) = run(scratch.path(), arguments);
        assert_eq!((code, out.as_str()), (status, ""), "{arguments:?}");
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}
