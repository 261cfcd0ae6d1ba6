//! The command line of all sub-commands, with defaults. Each command uses its own options.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

#[derive(Debug, Clone)]
pub struct Options {
    pub server: Option<PathBuf>,
    /// The address of a PostgreSQL database.
    pub database: Option<String>,
    pub quick: bool,
    pub only: Option<String>,
    pub json: Option<PathBuf>,
    pub pin: bool,
    /// One runtime for all cores instead of one for each.
    pub multi_thread: bool,
    pub dir: Option<PathBuf>,
    /// A free port unless told.
    pub listen: Option<String>,
    pub in_flight: usize,
    pub seconds: Duration,
    /// Length of a soak.
    pub minutes: f64,
    pub book_bytes: usize,
    pub list_bytes: usize,
    pub target: Option<String>,
    pub body_bytes: usize,
}

impl Options {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            server: None,
            database: None,
            quick: false,
            only: None,
            json: None,
            pin: true,
            multi_thread: false,
            dir: None,
            listen: None,
            in_flight: 64,
            seconds: Duration::from_secs(3),
            minutes: 10.0,
            book_bytes: 300,
            list_bytes: 6_000,
            target: None,
            body_bytes: 1_024,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{name} needs a value"));
            match name.as_str() {
                "--quick" => options.quick = true,
                "--multi-thread" => options.multi_thread = true,
                "--no-pin" => options.pin = false,
                "--server" => options.server = Some(value()?.into()),
                "--database" => options.database = Some(value()?),
                "--only" => options.only = Some(value()?),
                "--json" => options.json = Some(value()?.into()),
                "--listen" => options.listen = Some(value()?),
                "--dir" => options.dir = Some(value()?.into()),
                "--in-flight" => options.in_flight = number(&value()?)?.clamp(1, 4_096),
                "--book-bytes" => options.book_bytes = number(&value()?)?,
                "--target" => options.target = Some(value()?),
                "--body-bytes" => options.body_bytes = number(&value()?)?,
                "--list-bytes" => options.list_bytes = number(&value()?)?,
                "--minutes" => {
                    let minutes: f64 = value()?.parse().context("--minutes is not a number")?;
                    options.minutes = minutes.clamp(0.5, 600.0);
                }
                "--seconds" => {
                    let seconds: f64 = value()?.parse().context("--seconds is not a number")?;
                    options.seconds = Duration::from_secs_f64(seconds.clamp(0.1, 60.0));
                }
                other => bail!("unknown option {other:?}"),
            }
        }
        Ok(options)
    }
}

fn number(text: &str) -> Result<usize> {
    text.parse().with_context(|| format!("{text:?} is not a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read() {
        let options = parse("--quick --only get --in-flight 256 --seconds 0.5").unwrap();
        assert!(options.quick && options.pin);
        assert_eq!(options.only.as_deref(), Some("get"));
        assert_eq!((options.in_flight, options.seconds), (256, Duration::from_millis(500)));
    }

    #[test]
    fn invalid_options_are_refused() {
        for line in ["--fast", "--only", "--in-flight many"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
