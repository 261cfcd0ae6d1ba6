//! Which crate may depend on which, and which external crates only some crates may use. The list is
//! that of ARCHITECTURE.md; dev- and build-dependencies count too.

use super::{File, Finding};

/// Every crate of ours, and which of our crates it may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("wire", &[]),
    ("wire-fuzz", &["wire"]),
    ("restive-kit", &[]),
    // To compare the HTTP server alone with the bare one.
    ("bench", &["wire"]),
    ("xtask", &[]),
    ("console", &[]),
    ("store", &["model"]),
    ("live", &["model", "store", "wire"]),
    ("api", &["model", "store", "live", "wire"]),
    ("webhooks", &["model", "store", "wire", "restive-kit"]),
    ("proxy", &["wire"]),
    (
        "restive",
        &["model", "wire", "restive-kit", "store", "live", "api", "webhooks", "proxy", "console"],
    ),
];

/// External crates that only the named crates of ours may use.
const HOMES: &[(&str, &[&str])] = &[
    // restive-kit: the queue of a receiver.
    ("rusqlite", &["store", "bench", "restive-kit"]),
    // restive: its end-to-end tests are clients of every version.
    ("h2", &["wire", "bench", "restive"]),
    ("h3", &["wire", "bench", "restive"]),
    ("h3-quinn", &["wire", "bench", "restive"]),
    ("quinn", &["wire", "bench", "restive"]),
    // restive-kit: its client is published alone, so it cannot use `wire`.
    ("hyper", &["wire", "wire-fuzz", "bench", "restive-kit"]),
    ("hyper-util", &["wire", "wire-fuzz", "bench", "restive-kit"]),
];

/// Checks one manifest. The workspace's own has no package and passes.
pub fn manifest(file: &File) -> Vec<Finding> {
    let table: toml::Table = match file.text.parse() {
        Ok(table) => table,
        Err(error) => return vec![Finding::new(&file.path, 0, format!("not TOML: {error}"))],
    };
    let Some(package) = table.get("package").and_then(|package| package.get("name")) else {
        return Vec::new();
    };
    let package = package.as_str().unwrap_or_default();
    let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == package) else {
        let message = format!("crate `{package}` is not in the list of allowed edges");
        return vec![Finding::new(&file.path, 0, message)];
    };
    let mut findings = Vec::new();
    for dependency in dependencies(&table) {
        let ours = EDGES.iter().any(|(name, _)| *name == dependency);
        if ours && !allowed.contains(&dependency.as_str()) {
            let message = format!("`{package}` must not depend on `{dependency}`");
            findings.push(Finding::new(&file.path, 0, message));
        }
        let home = HOMES.iter().find(|(name, _)| *name == dependency);
        if home.is_some_and(|(_, homes)| !homes.contains(&package)) {
            let message = format!("`{dependency}` must not be known in `{package}`");
            findings.push(Finding::new(&file.path, 0, message));
        }
    }
    findings
}

/// Package names from every kind of dependency table, also those under `target`.
fn dependencies(table: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    for (key, value) in table {
        let Some(inner) = value.as_table() else { continue };
        match key.as_str() {
            "dependencies" | "dev-dependencies" | "build-dependencies" => {
                // `alias = { package = "name" }` depends on name.
                names.extend(inner.iter().map(|(alias, detail)| {
                    let renamed = detail.get("package").and_then(|name| name.as_str());
                    renamed.unwrap_or(alias).to_owned()
                }));
            }
            "target" => {
                let platforms = inner.values().filter_map(|platform| platform.as_table());
                names.extend(platforms.flat_map(dependencies));
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(package: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{package}\"\n{rest}");
        let file = File { path: "Cargo.toml".into(), text };
        manifest(&file).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn allowed_edges_pass() {
        assert!(
            messages("store", "[dependencies]\nmodel.workspace = true\nrusqlite = \"1\"")
                .is_empty()
        );
        assert!(messages("model", "[dependencies]\nserde = \"1\"").is_empty());
        assert!(messages("wire", "[dependencies.hyper]\nversion = \"1\"").is_empty());
    }

    #[test]
    fn an_edge_that_is_not_listed_is_found_in_every_table() {
        for table in [
            "[dependencies]\nstore.workspace = true",
            "[dependencies.store]\npath = \"../store\"",
            "[dev-dependencies]\nstore = { path = \"../store\" }",
            "[dependencies]\nkept = { package = \"store\", path = \"../store\" }",
            "[target.'cfg(unix)'.dependencies]\nstore = { path = \"../store\" }",
        ] {
            assert_eq!(messages("model", table), ["`model` must not depend on `store`"]);
        }
    }

    #[test]
    fn sqlite_and_hyper_have_one_home_each() {
        let both = "[dependencies]\nhyper = \"1\"\nrusqlite = \"1\"";
        assert_eq!(
            messages("api", both),
            ["`hyper` must not be known in `api`", "`rusqlite` must not be known in `api`"]
        );
    }

    #[test]
    fn an_unknown_crate_must_be_listed_first() {
        assert!(messages("extras", "")[0].contains("not in the list"));
    }
}
