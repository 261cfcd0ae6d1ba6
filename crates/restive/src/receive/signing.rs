//! The secrets and the form of signatures, from the command line. Messages never repeat a secret.

use crate::args::receive::{SignatureForm, Signing};
use anyhow::{Context as _, bail};
use restive_kit::signature::{Scheme, Secret, Verifier};
use std::fs;
use std::path::Path;
use std::time::Duration;

pub fn verifier(given: &Signing) -> anyhow::Result<Verifier> {
    let scheme = scheme(given.signature, given.signature_header.as_deref())?;
    let mut texts = given.secret.clone();
    if let Some(file) = &given.secret_file {
        texts.extend(from_file(file)?);
    }
    if texts.is_empty() {
        bail!(
            "there is no secret to verify webhooks with: set RESTIVE_RECEIVE_SECRET or \
             --secret-file to the signing secret of the endpoint (whsec_…)"
        );
    }
    let secrets: Vec<Secret> = texts
        .iter()
        .enumerate()
        .map(|(place, text)| secret(&scheme, text, place + 1))
        .collect::<anyhow::Result<_>>()?;
    Ok(Verifier::new(scheme, secrets).tolerance(Duration::from_secs(given.tolerance)))
}

/// One secret per line; empty lines and comments are skipped.
pub fn from_file(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("the secrets in {} cannot be read", file.display()))?;
    let lines = text.lines().map(str::trim);
    let secrets: Vec<String> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    if secrets.is_empty() {
        bail!("{} has no secret; write one per line", file.display());
    }
    Ok(secrets)
}

pub fn scheme(form: SignatureForm, header: Option<&str>) -> anyhow::Result<Scheme> {
    Ok(match (form, header) {
        (SignatureForm::Detect, None) => Scheme::Detect,
        (SignatureForm::Detect, Some(_)) => {
            bail!("--signature-header needs --signature stripe, github or hex")
        }
        (SignatureForm::Stripe, None) => Scheme::stripe(),
        (SignatureForm::Stripe, Some(header)) => Scheme::timestamped(header),
        (SignatureForm::Standard, None) => Scheme::standard(),
        (SignatureForm::Standard, Some(_)) => {
            bail!("the headers of Standard Webhooks are fixed; remove --signature-header")
        }
        (SignatureForm::Github, None) => Scheme::github(),
        (SignatureForm::Github, Some(header)) => Scheme::plain(header),
        (SignatureForm::Hex, Some(header)) => Scheme::hex(header),
        (SignatureForm::Hex, None) => bail!("--signature hex needs --signature-header"),
    })
}

/// The forms that sign with the text of a secret take any text.
fn secret(scheme: &Scheme, text: &str, number: usize) -> anyhow::Result<Secret> {
    let parsed = Secret::parse(text);
    match scheme {
        Scheme::Detect | Scheme::Standard { .. } => {
            parsed.with_context(|| format!("secret {number} cannot be used"))
        }
        _ if text.is_empty() => bail!("secret {number} is empty"),
        _ => Ok(parsed.unwrap_or_else(|_| Secret::from_text(text))),
    }
}
