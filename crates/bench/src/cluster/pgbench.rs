//! The limit: pgbench with scripts of its own on copies of the tables of the service. They have the
//! same columns and indexes, and rows like the ones that the nodes wrote.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::options::Options;
use crate::report::Sample;

/// The tables that a create writes to.
const TABLES: [&str; 2] = ["r_books", "log"];
/// Rows of pgbench begin here, far from those of the service.
const FIRST_ROW: u64 = 1_000_000_000;
/// Rows of the nodes that pgbench repeats, each with a number, an id and an ISBN of its own.
const SAMPLE: u64 = 50_000;
/// More transactions than a client has time for in one run.
const TURNS: u64 = 1_000_000;
/// Scatters ISBNs over their ten digits, each of them once.
const SCATTER: u64 = 2_654_435_761;

pub struct Database {
    url: String,
    /// The folder of pgbench.
    programs: PathBuf,
    /// How many times it ran.
    runs: AtomicU64,
}

impl Database {
    pub fn new(options: &Options) -> Result<Self> {
        let url = options.database.clone().context("--database URL is missing")?;
        let programs = options.dir.clone().context("--dir, the folder of pgbench, is missing")?;
        Ok(Self { url, programs, runs: AtomicU64::new(0) })
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
    /// the same lock, rows with the same texts, one commit. Needs as many rows of the nodes.
    /// Clients take turns with numbers, so that new rows are at the end of the indexes of numbers
    /// and ids, as those of the nodes are.
    pub fn creates(&self, schema: &str, batch: u64, clients: u64) -> Result<String> {
        let mut script = String::from("\\set turn :turn + 1\n");
        script.push_str(&format!(
            "\\set base {FIRST_ROW} + (:turn * {clients} + :client_id) * {batch}\n"
        ));
        let mut inserts = String::new();
        let mut rows = SAMPLE;
        for table in TABLES {
            rows = rows.min(self.copy(schema, table)?);
            let columns = self.columns(schema, table)?;
            let values: Vec<String> = columns.iter().map(|column| value_of(column)).collect();
            inserts.push_str(&format!(
                "INSERT INTO {schema}.bench_{table} ({}) SELECT {} FROM (SELECT *, place - :at g \
                 FROM {schema}.bench_{table}_sample WHERE place > :at AND place <= :at + {batch}) \
                 t;\n",
                columns.join(", "),
                values.join(", ")
            ));
        }
        ensure!(rows > batch, "the nodes made only {rows} rows");
        script.push_str(&format!("\\set at random(0, {})\n", rows - batch));
        script.push_str(&format!("BEGIN;\nSELECT pg_advisory_xact_lock(7);\n{inserts}COMMIT;\n"));
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
             (SELECT * FROM {schema}.bench_{table}_sample WHERE place = 1) t, \
             generate_series(1, {rows}) g; ANALYZE {schema}.bench_{table}",
            columns.join(", "),
            values.join(", ").replace(":base::bigint", "0")
        ))?;
        let selected = "n, id, version, updated, shape, body, hidden";
        let scope =
            self.sql(&format!("SELECT scope FROM {schema}.bench_{table}_sample LIMIT 1"))?;
        Ok(format!(
            "\\set k random(1, {rows})\nSELECT {selected} FROM {schema}.bench_{table} \
             WHERE id = 'bench_' || :k::text AND scope = {scope};\n"
        ))
    }

    /// An empty copy of a table with its indexes, and a numbered sample of its rows. Returns how
    /// many rows the sample has.
    fn copy(&self, schema: &str, table: &str) -> Result<u64> {
        let (from, to) = (format!("{schema}.{table}"), format!("{schema}.bench_{table}"));
        self.sql(&format!(
            "DROP TABLE IF EXISTS {to}, {to}_sample; \
             CREATE TABLE {to} (LIKE {from} INCLUDING ALL); \
             CREATE TABLE {to}_sample AS SELECT row_number() OVER (ORDER BY t.id) AS place, t.* \
             FROM (SELECT * FROM {from} ORDER BY 1 DESC LIMIT {SAMPLE}) t; \
             ALTER TABLE {to}_sample ADD PRIMARY KEY (place); ANALYZE {to}_sample"
        ))?;
        Ok(self.sql(&format!("SELECT count(*) FROM {to}_sample"))?.parse()?)
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
        // No run repeats the numbers of another.
        let turn = self.runs.fetch_add(1, Ordering::Relaxed) * TURNS;
        let mut command = Command::new(self.programs.join("pgbench"));
        command.args(["--no-vacuum", "--protocol=prepared", "--jobs=1", "--report-per-command"]);
        command.arg(format!("--client={clients}")).arg(format!("--define=turn={turn}"));
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
        "f_isbn" => {
            format!("'978' || lpad(((:base::bigint + g) * {SCATTER} % 10000000000)::text, 10, '0')")
        }
        _ => format!("t.{column}"),
    }
}
