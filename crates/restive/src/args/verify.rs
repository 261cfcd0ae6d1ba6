//! The command line of `restive verify`, as given.

use super::receive::SignatureForm;
use super::{AsJson, Format};
use clap::{Args as Arguments, Subcommand};
use std::path::PathBuf;

#[derive(Arguments)]
pub struct Verify {
    #[command(subcommand)]
    pub command: VerifyCommand,
}

#[derive(Subcommand)]
pub enum VerifyCommand {
    /// Check the signature of a webhook, and say why it does not verify
    Signature(Signature),
}

#[derive(Arguments)]
pub struct Signature {
    /// Secret of the endpoint; several during a rotation
    #[arg(long, value_name = "SECRET", env = "RESTIVE_RECEIVE_SECRET", hide_env_values = true)]
    pub secret: Vec<String>,
    /// File with one secret per line
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Header of the request, `Name: value`; repeat it for Standard Webhooks. The value alone is
    /// enough for other forms
    #[arg(long, value_name = "HEADER")]
    pub header: Vec<String>,
    /// File with the body as it came, or - for the standard input
    #[arg(long, value_name = "FILE")]
    pub body: PathBuf,
    /// Form of the signature [default: the one of the headers]
    #[arg(long, value_name = "FORM")]
    pub signature: Option<SignatureForm>,
    /// Time to compare with, in seconds since 1970 [default: now]
    #[arg(long, value_name = "SECONDS")]
    pub at: Option<i64>,
    /// Seconds that the time of the signature may differ
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub tolerance: u64,
    #[arg(long, default_value = "pretty")]
    pub format: Format,
    #[command(flatten)]
    pub output: AsJson,
}
