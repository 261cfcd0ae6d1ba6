//! `cargo xtask deny`: checks licences, banned crates, wildcard requirements and sources of all
//! dependencies against deny.toml. It reads `cargo metadata`, so it needs no program besides cargo:
//! building cargo-deny takes minutes, and its database of advisories cannot be fetched everywhere.
//! Advisories and yanked versions are therefore not checked here; cargo-deny reads the same file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use toml::Table;

use crate::process::{cargo, output, root};

/// Registries that are crates.io, by the names that cargo gives it.
const CRATES_IO: [&str; 2] =
    ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

/// Every setting of deny.toml that this check implements, or leaves to cargo-deny. Any other
/// setting is an error: a rule that is not checked must not look as if it were.
const SETTINGS: [(&str, &[&str]); 5] = [
    ("graph", &["all-features"]),
    ("advisories", &["yanked"]),
    ("licenses", &["allow", "unused-allowed-license"]),
    ("bans", &["multiple-versions", "wildcards", "allow-wildcard-paths", "deny"]),
    ("sources", &["unknown-registry", "unknown-git"]),
];
/// The only values that this check implements.
const VALUES: [(&str, &str, &str); 4] = [
    ("bans", "multiple-versions", "warn"),
    ("bans", "wildcards", "deny"),
    ("sources", "unknown-registry", "deny"),
    ("sources", "unknown-git", "deny"),
];
const FLAGS: [(&str, &str); 2] = [("graph", "all-features"), ("bans", "allow-wildcard-paths")];

pub fn command() -> Result<()> {
    let rules = Rules::parse(&fs::read_to_string(root().join("deny.toml"))?)?;
    let mut metadata = cargo(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let metadata: Value = serde_json::from_str(&output(&mut metadata)?)?;
    let packages = packages(&metadata)?;
    for (name, versions) in duplicates(&packages) {
        println!("    warning: {name} in {} versions: {}", versions.len(), versions.join(", "));
    }
    let violations = violations(&rules, &packages);
    if !violations.is_empty() {
        bail!("{} violations of deny.toml\n{}", violations.len(), violations.join("\n"));
    }
    println!("    {} packages: licences, bans and sources are as deny.toml says", packages.len());
    Ok(())
}

struct Rules {
    licenses: BTreeSet<String>,
    banned: BTreeSet<String>,
}

impl Rules {
    fn parse(text: &str) -> Result<Rules> {
        let table: Table = text.parse().context("deny.toml")?;
        for (section, settings) in &table {
            let known = SETTINGS.iter().find(|(name, _)| name == section);
            let (_, known) = known.with_context(|| unknown(section))?;
            let settings = settings.as_table().with_context(|| unknown(section))?;
            if let Some(other) = settings.keys().find(|key| !known.contains(&key.as_str())) {
                bail!(unknown(&format!("{section}.{other}")));
            }
        }
        let setting = |section: &str, key: &str| table.get(section)?.get(key);
        for (section, key, expected) in VALUES {
            if setting(section, key).and_then(toml::Value::as_str) != Some(expected) {
                bail!("deny.toml: {section}.{key} must be {expected:?}: no other is implemented");
            }
        }
        for (section, key) in FLAGS {
            if setting(section, key).and_then(toml::Value::as_bool) != Some(true) {
                bail!("deny.toml: {section}.{key} must be true: false is not implemented");
            }
        }
        let strings = |section: &str, key: &str, of: fn(&toml::Value) -> Option<&str>| {
            let list = setting(section, key).and_then(toml::Value::as_array);
            let list = list.with_context(|| format!("deny.toml: no {section}.{key}"))?;
            let strings: Option<_> =
                list.iter().map(|value| of(value).map(str::to_owned)).collect();
            strings.with_context(|| format!("deny.toml: {section}.{key} is malformed"))
        };
        Ok(Rules {
            licenses: strings("licenses", "allow", toml::Value::as_str)?,
            banned: strings("bans", "deny", |ban| ban.get("crate")?.as_str())?,
        })
    }
}

fn unknown(setting: &str) -> String {
    format!("deny.toml: `cargo xtask deny` does not know `{setting}`")
}

struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for a folder of this repository.
    source: Option<String>,
    /// Dependencies with the requirement `*` that no path or git revision pins.
    wildcards: Vec<String>,
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let listed = metadata.get("packages").and_then(Value::as_array).context("no packages")?;
    listed.iter().map(|package| read(package).context("an unreadable package")).collect()
}

fn read(package: &Value) -> Option<Package> {
    let text = |key: &str| package.get(key)?.as_str().map(str::to_owned);
    let mut wildcards = Vec::new();
    for dependency in package.get("dependencies")?.as_array()? {
        if dependency.get("req")?.as_str()? == "*" && !dependency.get("source")?.is_null() {
            wildcards.push(dependency.get("name")?.as_str()?.to_owned());
        }
    }
    Some(Package {
        name: text("name")?,
        version: text("version")?,
        license: text("license"),
        source: text("source"),
        wildcards,
    })
}

fn violations(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        let mut report = |what: String| {
            found.push(format!("{} {}: {what}", package.name, package.version));
        };
        match package.license.as_deref().map(|license| (license, allows(license, rules))) {
            None => report("declares no licence expression".to_owned()),
            Some((license, Ok(false))) => report(format!("the licence {license:?} is not allowed")),
            Some((license, Err(error))) => report(format!("the licence {license:?}: {error}")),
            Some((_, Ok(true))) => {}
        }
        if rules.banned.contains(&package.name) {
            report("is banned".to_owned());
        }
        for name in &package.wildcards {
            report(format!("requires any version (`*`) of {name}"));
        }
        if let Some(source) = package.source.as_deref().filter(|from| !CRATES_IO.contains(from)) {
            report(format!("comes from {source}, which is not crates.io"));
        }
    }
    found
}

fn duplicates(packages: &[Package]) -> BTreeMap<&str, Vec<&str>> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

/// Whether the licences that are allowed satisfy an SPDX expression.
fn allows(expression: &str, rules: &Rules) -> Result<bool> {
    // Before SPDX expressions, a slash meant a choice.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = any_of(&mut words, rules)?;
    match words.next() {
        None => Ok(allowed),
        Some(extra) => bail!("unexpected {extra:?}"),
    }
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, rules: &Rules) -> Result<bool> {
    let mut allowed = all_of(words, rules)?;
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all_of(words, rules)?;
    }
    Ok(allowed)
}

fn all_of(words: &mut Words<'_>, rules: &Rules) -> Result<bool> {
    let mut allowed = one_term(words, rules)?;
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one_term(words, rules)?;
    }
    Ok(allowed)
}

fn one_term(words: &mut Words<'_>, rules: &Rules) -> Result<bool> {
    match words.next() {
        Some("(") => {
            let allowed = any_of(words, rules)?;
            match words.next() {
                Some(")") => Ok(allowed),
                _ => bail!("a parenthesis is not closed"),
            }
        }
        None | Some(")" | "AND" | "OR" | "WITH") => bail!("a licence is missing"),
        Some(license) => {
            let mut term = license.to_owned();
            if words.next_if_eq(&"WITH").is_some() {
                let exception = words.next().context("an exception is missing")?;
                term = format!("{term} WITH {exception}");
            }
            Ok(rules.licenses.contains(&term))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const USUAL: &str = r#"
        [graph]
        all-features = true
        [licenses]
        allow = ["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"]
        [bans]
        multiple-versions = "warn"
        wildcards = "deny"
        allow-wildcard-paths = true
        deny = [{ crate = "openssl" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
    "#;

    #[test]
    fn a_licence_expression_is_allowed_if_the_list_satisfies_it() {
        let rules = Rules::parse(USUAL).unwrap();
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("MIT/GPL-3.0", Some(true)),
            ("GPL-3.0 AND MIT", Some(false)),
            ("MIT OR Apache-2.0 AND GPL-3.0", Some(true)),
            ("(MIT OR Apache-2.0) AND GPL-3.0", Some(false)),
            ("ISC AND (GPL-3.0 OR Apache-2.0)", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT ISC", None),
            ("MIT)", None),
        ] {
            assert_eq!(allows(expression, &rules).ok(), expected, "{expression:?}");
        }
    }

    #[test]
    fn each_violation_of_the_rules_is_reported() {
        let rules = Rules::parse(USUAL).unwrap();
        let package = |changes: Value| {
            let mut package = json!({
                "name": "good", "version": "1.0.0", "license": "MIT",
                "source": CRATES_IO[0], "dependencies": [],
            });
            for (key, value) in changes.as_object().unwrap() {
                package[key] = value.clone();
            }
            violations(&rules, &packages(&json!({ "packages": [package] })).unwrap()).join(", ")
        };
        let any = |source: Value| json!([{"name": "x", "req": "*", "source": source}]);
        for (changes, expected) in [
            (json!({}), ""),
            (json!({ "source": null }), ""),
            (json!({ "dependencies": any(Value::Null) }), ""),
            (json!({ "license": "GPL-3.0" }), "good 1.0.0: the licence \"GPL-3.0\" is not allowed"),
            (json!({ "license": null }), "good 1.0.0: declares no licence expression"),
            (json!({ "name": "openssl" }), "openssl 1.0.0: is banned"),
            (
                json!({ "dependencies": any(json!(CRATES_IO[0])) }),
                "good 1.0.0: requires any version (`*`) of x",
            ),
            (
                json!({ "source": "git+https://example.com/x" }),
                "good 1.0.0: comes from git+https://example.com/x, which is not crates.io",
            ),
        ] {
            assert_eq!(package(changes), expected);
        }
    }

    #[test]
    fn a_setting_that_is_not_checked_is_refused() {
        for (from, to) in [
            ("[graph]", "[output]\nx = 1\n[graph]"),
            ("wildcards = \"deny\"", "wildcards = \"allow\""),
            ("unknown-git = \"deny\"", ""),
            ("deny = [", "skip = []\ndeny = ["),
            ("crate = ", "name = "),
        ] {
            assert!(Rules::parse(&USUAL.replacen(from, to, 1)).is_err(), "{to}");
        }
        assert!(Rules::parse(&fs::read_to_string(root().join("deny.toml")).unwrap()).is_ok());
    }
}
