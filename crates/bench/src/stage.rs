//! What every comparison of the server with its limits shares: the cores, the scratch folder, a
//! server on it, the report. Knows neither the measurements nor the schema.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::count::Counted;
use crate::entropy::Entropy;
use crate::options::Options;
use crate::process::{Pinning, Service};
use crate::report::Report;

pub struct Stage<'a> {
    pub options: &'a Options,
    pub pinning: Pinning,
    pub report: Report,
    pub server: PathBuf,
    pub scratch: PathBuf,
    /// The key of the first account of every server that is started here.
    pub key: String,
}

impl<'a> Stage<'a> {
    /// `scenarios`: every name that `--only` accepts.
    pub fn new(options: &'a Options, scenarios: &[&str]) -> Result<Self> {
        // First, because threads that start later inherit the core.
        let pinning = Pinning::claim(options.pin);
        let server = options.server.clone().context("--server FILE is missing")?;
        if let Some(only) = options.only.as_deref()
            && !scenarios.iter().any(|name| selects(only, name))
        {
            bail!("--only {only}: there are {}", scenarios.join(" "));
        }
        let own = std::env::current_exe()?;
        // Next to the executables, not in /tmp: that may be in memory, where fsync is free.
        let target = own.parent().and_then(Path::parent).context("no target folder")?;
        let scratch = target.join(format!("bench-data-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        let key = format!("sk_test_{}", Entropy::new()?.letters(32));
        Ok(Self { options, pinning, report: Report::default(), server, scratch, key })
    }

    pub fn wants(&self, name: &str) -> bool {
        self.options.only.as_deref().is_none_or(|only| selects(only, name))
    }

    /// Rounds of one scenario, alternating between the subjects; the median counts.
    pub fn rounds(&self) -> usize {
        if self.options.quick { 2 } else { 3 }
    }

    /// An empty folder on the measured disk.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.scratch.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The server under test with the data in `data`. Auth, ETag and metrics are on; only the
    /// request limit is off, because a bench sends many requests.
    pub fn restive(&self, data: &Path, schema: Option<&Path>) -> Result<Service> {
        Service::start(self.serve(self.pinning.command(&self.server), data, schema))
    }

    /// A node on this database; `data` is what is its own.
    pub fn node(&self, data: &Path, schema: Option<&Path>, database: &str) -> Result<Service> {
        let mut command = self.serve(self.pinning.command(&self.server), data, schema);
        command.env("RESTIVE_DATABASE", database);
        Service::start(command)
    }

    /// The server, with its instructions counted: dozens of times slower.
    pub fn restive_counted(&self, data: &Path, schema: Option<&Path>) -> Result<Counted> {
        let folder = self.folder("counts")?;
        let valgrind = self.pinning.command(Path::new("valgrind"));
        let mut command = Counted::prefix(valgrind, &folder);
        command.arg(&self.server);
        Counted::start(self.serve(command, data, schema), folder)
    }

    /// Adds the arguments of the server.
    fn serve(&self, mut server: Command, data: &Path, schema: Option<&Path>) -> Command {
        server
            .args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "off", "--data"])
            .arg(data)
            .env("RESTIVE_BOOTSTRAP_KEY", &self.key);
        if let Some(schema) = schema {
            server.arg("--schema").arg(schema);
        }
        server
    }

    /// Ends a comparison: `done` is the result of its scenarios, `notes` describe the measurement.
    /// True if every bar was met.
    pub fn finish(mut self, done: Result<()>, notes: &[&str]) -> Result<bool> {
        // Removes millions of rows in every case.
        let cleaned = fs::remove_dir_all(&self.scratch);
        for note in notes {
            self.report.note(*note);
        }
        self.report.print();
        done?;
        cleaned.context("cannot remove the scratch folder")?;
        if let Some(file) = &self.options.json {
            self.report.save(file)?;
        }
        Ok(self.report.passed())
    }
}

/// `--only create` selects all of `create-…`.
fn selects(only: &str, name: &str) -> bool {
    name == only
        || name.strip_prefix(only).is_some_and(|rest| rest.starts_with('-') && only == "create")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selects_by_name_or_all_creates() {
        assert!(selects("get", "get") && !selects("get", "get-under-writes"));
        assert!(selects("create", "create-64") && selects("create-64", "create-64"));
        assert!(!selects("list", "list-304") && !selects("create-6", "create-64"));
    }
}
