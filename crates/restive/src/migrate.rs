//! `restive migrate`: moves a service between a data folder and a PostgreSQL database, and compares
//! both sides at the end. Killed at any time, the same command goes on.

use crate::args::migrate::Migrate;
use crate::output::{print, print_json};
use crate::{data, private, restore};
use anyhow::{Context as _, bail};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::Error;
use store::migrate::{Progress, Report, Source, Stage, Target, run as migrate_all};
use store::postgres::connect::Address;
use store::postgres::{PostgresSource, PostgresTarget};
use store::sqlite::{SqliteSource, SqliteTarget};

/// Outcomes of deliveries that are not in the database, after a server was killed.
const JOURNAL: [&str; 2] = ["outcomes.0", "outcomes.1"];
/// Between two reports on a terminal, and elsewhere.
const REDRAW: Duration = Duration::from_millis(100);
const LINE: Duration = Duration::from_secs(10);

enum Place {
    Folder(PathBuf),
    Database(Box<Address>),
}

impl Place {
    fn parse(option: &str, text: &str) -> anyhow::Result<Place> {
        if !text.contains("://") {
            return Ok(Place::Folder(PathBuf::from(text)));
        }
        match Address::parse(text) {
            Ok(address) => Ok(Place::Database(Box::new(address))),
            // The parser knows the option of the other commands.
            Err(error) => bail!("{}", error.to_string().replacen("--database", option, 1)),
        }
    }
}

pub fn run(arguments: &Migrate) -> anyhow::Result<()> {
    let from = Place::parse("--from", &arguments.from)?;
    let to = Place::parse("--to", &arguments.to)?;
    let mut shown = Shown::new();
    let report = match (&from, &to) {
        (Place::Folder(from), Place::Database(to)) => {
            let _lock = lock_source(from)?;
            let source = SqliteSource::open(&from.join(data::DATABASE)).map_err(|e| explain(&e))?;
            let target = PostgresTarget::open(to).map_err(|error| explain(&error))?;
            moved(source, target, &mut shown)?
        }
        (Place::Database(from), Place::Folder(to)) => {
            let source = PostgresSource::open(from).map_err(|error| explain(&error))?;
            data::make(to).with_context(|| format!("cannot create {}", to.display()))?;
            private::close(to);
            let _lock = data::lock_folder(to)?;
            let target = SqliteTarget::open(&to.join(data::DATABASE)).map_err(|e| explain(&e))?;
            let report = moved(source, target, &mut shown)?;
            give_to_owner(to)?;
            report
        }
        (Place::Folder(_), Place::Folder(_)) => bail!(
            "--from and --to are both folders. Copy a folder with `restive backup` and `restive \
             restore`"
        ),
        (Place::Database(_), Place::Database(_)) => bail!(
            "--from and --to are both PostgreSQL databases. Copy a database with pg_dump and \
             pg_restore"
        ),
    };
    shown.end();
    match arguments.output.json {
        true => print_json(&as_json(&report))?,
        false => print(&table(&report))?,
    }
    if !report.is_equal() {
        bail!(
            "the two sides differ: the source was changed during the move. The target is not \
             served. Empty it and start again, while nothing uses the source"
        );
    }
    Ok(())
}

/// No server may use the folder, and what it sent must be in the database.
fn lock_source(folder: &Path) -> anyhow::Result<data::Lock> {
    let shown = folder.display();
    if !folder.join(data::DATABASE).exists() {
        bail!("there is no database in {shown}; name the data folder of a server with --from");
    }
    let lock = data::lock_folder(folder)?;
    let length = |name: &&str| std::fs::metadata(folder.join(name)).map_or(0, |file| file.len());
    if JOURNAL.iter().any(|name| length(name) > 0) {
        bail!(
            "the last server of {shown} was killed, and what it sent last is only in {}: start \
             `restive serve` on it once, stop it, and run this command again",
            JOURNAL.join(" and ")
        );
    }
    Ok(lock)
}

/// A move by root must not keep the server, which is another user, from starting.
fn give_to_owner(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).context("cannot read the folder of the target")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(data::DATABASE) || name == data::LOCK) {
            restore::give_to_owner(folder, &path)?;
        }
    }
    Ok(())
}

fn moved(
    mut source: impl Source,
    mut target: impl Target,
    shown: &mut Shown,
) -> anyhow::Result<Report> {
    let report = migrate_all(&mut source, &mut target, &mut |progress| shown.show(progress));
    report.map_err(|error| {
        shown.end();
        explain(&error)
    })
}

fn explain(error: &Error) -> anyhow::Error {
    match error {
        Error::Refused(reasons) => anyhow::anyhow!("cannot migrate: {}", reasons.join("\n  ")),
        Error::Full => anyhow::anyhow!(
            "the disk of the target is full. Make room and run the same command again: it goes on \
             where it stopped"
        ),
        other => anyhow::anyhow!(
            "{other}. The source is unchanged; the same command goes on where it stopped"
        ),
    }
}

/// Progress on stderr: a bar on a terminal, now and then a line elsewhere.
struct Shown {
    interactive: bool,
    last: Option<(Stage, String, Instant)>,
    drawn: bool,
}

impl Shown {
    fn new() -> Shown {
        Shown { interactive: std::io::stderr().is_terminal(), last: None, drawn: false }
    }

    fn show(&mut self, progress: &Progress<'_>) {
        let now = Instant::now();
        let pause = if self.interactive { REDRAW } else { LINE };
        let is_new = self.last.as_ref().is_none_or(|(stage, table, at)| {
            *stage != progress.stage || table != progress.table || now - *at >= pause
        });
        if !is_new {
            return;
        }
        self.last = Some((progress.stage, progress.table.to_owned(), now));
        let verb = match progress.stage {
            Stage::Copying => "copying",
            Stage::Comparing => "comparing",
        };
        let Progress { table, done, all, .. } = progress;
        let percent = done * 100 / (*all).max(1);
        let mut stderr = std::io::stderr();
        // Progress that cannot be written does not stop the move.
        let _ = if self.interactive {
            const WIDTH: usize = 24;
            let full = usize::try_from(percent).unwrap_or(0).min(100) * WIDTH / 100;
            let bar = format!("{}{}", "#".repeat(full), ".".repeat(WIDTH - full));
            self.drawn = true;
            write!(stderr, "\r\x1b[K{verb} [{bar}] {percent:>3} % {table}")
                .and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{verb} {table}: {done} of {all} rows")
        };
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.drawn) {
            eprintln!();
        }
    }
}

fn as_json(report: &Report) -> serde_json::Value {
    let tables: Vec<_> = report
        .tables
        .iter()
        .map(|one| {
            json!({
                "table": one.table,
                "rows": one.source.rows,
                "checksum": one.source.hex(),
                "target_rows": one.target.rows,
                "target_checksum": one.target.hex(),
                "equal": one.is_equal(),
            })
        })
        .collect();
    json!({
        "object": "migration",
        "equal": report.is_equal(),
        "resumed": report.resumed,
        "was_finished": report.was_finished,
        "tables": tables,
    })
}

fn table(report: &Report) -> String {
    if report.was_finished {
        return "this source was moved to this target before; nothing was done\n".to_owned();
    }
    let widest = report.tables.iter().map(|one| one.table.len()).max().unwrap_or(0);
    let wide = widest.max(5) + 2;
    let mut text = format!("{:<wide$}{:>12}  {:<34}RESULT\n", "TABLE", "ROWS", "CHECKSUM");
    for one in &report.tables {
        let result = match one.is_equal() {
            true => "equal".to_owned(),
            false => format!("DIFFERS: {} rows, {}", one.target.rows, one.target.hex()),
        };
        let (rows, sum) = (one.source.rows, one.source.hex());
        let _ = writeln!(text, "{:<wide$}{rows:>12}  {sum:<34}{result}", one.table);
    }
    if report.is_equal() {
        let rows: u64 = report.tables.iter().skip(1).map(|one| one.source.rows).sum();
        let again = if report.resumed { ", after an interruption" } else { "" };
        let _ = writeln!(text, "moved {rows} rows{again}; both sides are equal");
    }
    text
}
