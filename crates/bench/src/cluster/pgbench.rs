//! The limit: pgbench with scripts of its own on copies of the tables of the service. They have the
//! same columns and indexes, and rows like the ones that the nodes wrote.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::options::Options;
use crate::report::Sample;

/// The tables that a create writes to.
const TABLES: [&str; 2] = ["r_books", "log"];
/// Rows of pgbench begin here, far from those of the service.
const FIRST_ROW: u64 = 1_000_000_000;

pub struct Database {
    url: String,
    /// The folder of pgbench.
    programs: PathBuf,
}

impl Database {
    pub fn new(options: &Options) -> Result<Self> {
        let url = options.database.clone().context("--database URL is missing")?;
        let programs = options.dir.clone().context("--dir, the folder of pgbench, is missing")?;
        Ok(Self { url, programs })
    }

    /// The address of a schema for the tables of a service.
    pub fn url_of(&self, schema: &str) -> String {
        format!("{}?schema={schema}", self.url)
    }

    pub fn make_schema(&self, schema: &str) -> Result<()> {
        self.sql(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"))?;
        Ok(())
    }

    /// The script of one transaction that creates `batch` books and their events, as a node does:
    /// the same lock, the same rows, one commit.
    pub fn creates(&self, schema: &str, batch: u64) -> Result<String> {
        let mut script = format!(
            "\\set base random({FIRST_ROW}, 9000000000000000)\nBEGIN;\n\
             SELECT pg_advisory_xact_lock(7);\n"
        );
        for table in TABLES {
            self.copy(schema, table)?;
            let columns = self.columns(schema, table)?;
            let values: Vec<String> = columns.iter().map(|column| value_of(column)).collect();
            script.push_str(&format!(
                "INSERT INTO {schema}.bench_{table} ({}) SELECT {} FROM \
                 (SELECT * FROM {schema}.bench_{table}_sample LIMIT 1) t, \
                 generate_series(1, {batch}) g;\n",
                columns.join(", "),
                values.join(", ")
            ));
        }
        script.push_str("COMMIT;\n");
        Ok(script)
    }

    /// The script of one read by id, of books that are there.
    pub fn point_select(&self, schema: &str, rows: u64) -> Result<String> {
        let table = "r_books";
        self.copy(schema, table)?;
        let columns = self.columns(schema, table)?;
        let values: Vec<String> = columns.iter().map(|column| value_of(column)).collect();
        self.sql(&format!(
            "INSERT INTO {schema}.bench_{table} ({}) SELECT {} FROM \
             (SELECT * FROM {schema}.bench_{table}_sample LIMIT 1) t, \
             generate_series(1, {rows}) g; ANALYZE {schema}.bench_{table}",
            columns.join(", "),
            values.join(", ").replace(":base::bigint", "0")
        ))?;
        let selected = "n, id, version, updated, shape, body, hidden";
        let scope = self.sql(&format!("SELECT scope FROM {schema}.bench_{table}_sample"))?;
        Ok(format!(
            "\\set k random(1, {rows})\nSELECT {selected} FROM {schema}.bench_{table} \
             WHERE id = 'bench_' || :k::text AND scope = {scope};\n"
        ))
    }

    /// An empty copy of a table with its indexes, and one of its rows.
    fn copy(&self, schema: &str, table: &str) -> Result<()> {
        let (from, to) = (format!("{schema}.{table}"), format!("{schema}.bench_{table}"));
        self.sql(&format!(
            "DROP TABLE IF EXISTS {to}, {to}_sample; \
             CREATE TABLE {to} (LIKE {from} INCLUDING ALL); \
             CREATE TABLE {to}_sample AS SELECT * FROM {from} ORDER BY 1 DESC LIMIT 1"
        ))?;
        Ok(())
    }

    fn columns(&self, schema: &str, table: &str) -> Result<Vec<String>> {
        let names = self.sql(&format!(
            "SELECT quote_ident(column_name) FROM information_schema.columns \
             WHERE table_schema = '{schema}' AND table_name = '{table}' ORDER BY ordinal_position"
        ))?;
        let names: Vec<String> = names.lines().map(str::to_owned).collect();
        ensure!(!names.is_empty(), "the table {schema}.{table} has no columns");
        Ok(names)
    }

    /// Runs a script with prepared statements; the rate is that of its transactions.
    pub fn run(&self, script: &str, clients: usize, duration: Duration) -> Result<Sample> {
        let file = std::env::temp_dir().join(format!("restive-pgbench-{}", std::process::id()));
        std::fs::write(&file, script)?;
        let mut command = Command::new(self.programs.join("pgbench"));
        command.args(["--no-vacuum", "--protocol=prepared", "--jobs=1", "--report-per-command"]);
        command.arg(format!("--client={clients}"));
        command.arg(format!("--time={}", duration.as_secs().max(1)));
        let output = command.arg("--file").arg(&file).arg(&self.url).output();
        std::fs::remove_file(&file)?;
        let output = output.context("cannot start pgbench")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "pgbench: {}", String::from_utf8_lossy(&output.stderr));
        let figure = |name: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            Ok(number.with_context(|| format!("pgbench printed no `{name}`"))?.parse()?)
        };
        let p50_us = figure("latency average = ")? * 1_000.0;
        Ok(Sample { per_second: figure("tps = ")?, p50_us, p99_us: f64::NAN, cpu_us: f64::NAN })
    }

    fn sql(&self, sql: &str) -> Result<String> {
        let mut psql = Command::new("psql");
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "-v",
            "ON_ERROR_STOP=1",
        ]);
        let output = psql.args(["-c", sql]).arg(&self.url).output().context("cannot start psql")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "psql: {error}\n{sql}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

/// What a row has in this column: numbers and ids of its own, the rest like the sample.
fn value_of(column: &str) -> String {
    match column.trim_matches('"') {
        "n" | "seq" | "version" => ":base::bigint + g".to_owned(),
        "id" => "'bench_' || (:base::bigint + g)".to_owned(),
        "f_isbn" => "(:base::bigint + g)::text".to_owned(),
        _ => format!("t.{column}"),
    }
}
