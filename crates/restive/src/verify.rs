//! `restive verify`: says whether a signature verifies, and if not, why and what to do. Exit status
//! 0 only if it verifies.

use crate::args::Format;
use crate::args::receive::SignatureForm;
use crate::args::verify::{Verify, VerifyCommand};
use crate::output;
use crate::outside::System;
use crate::receive::signing;
use crate::text::printable;
use anyhow::{Context as _, bail};
use api::Outside as _;
use restive_kit::signature::{Diagnosis, Family, Scheme, diagnose};
use serde_json::json;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// A larger body is no webhook.
const MAX_BODY_BYTES: u64 = 64 << 20;

pub fn run(verify: Verify) -> anyhow::Result<ExitCode> {
    let VerifyCommand::Signature(given) = verify.command;
    let mut secrets = given.secret;
    if let Some(file) = &given.secret_file {
        secrets.extend(signing::from_file(file)?);
    }
    if secrets.is_empty() {
        bail!("there is no secret: add --secret, --secret-file or RESTIVE_RECEIVE_SECRET");
    }
    let headers: Vec<(String, String)> = given.header.iter().map(|text| named(text)).collect();
    refuse_repeated(&headers)?;
    let scheme = scheme(given.signature, &headers)?;
    let body = read(&given.body)?;
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let header =
        |name: &str| headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_bytes());
    let now = given.at.unwrap_or_else(|| System::new().now().seconds());
    let tolerance = Duration::from_secs(given.tolerance);
    let found = diagnose(&scheme, &secrets, header, &body, now, tolerance);
    output::print(&shown(&found, given.format.or(given.output)))?;
    Ok(if found.is_verified() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn shown(found: &Diagnosis, format: Format) -> String {
    let (text, advice) = (printable(&found.to_string()), found.advice());
    match format {
        Format::Json => {
            let verified = found.is_verified();
            let code = found.code();
            let shown =
                json!({ "verified": verified, "code": code, "message": text, "advice": advice });
            format!("{shown}\n")
        }
        Format::Pretty if found.is_verified() => {
            let replayable =
                matches!(found, Diagnosis::Verified { family: Family::Plain | Family::Hex });
            let note = match replayable {
                true => "note: this form has no time, so an old request can be sent again\n",
                false => "",
            };
            format!("verified: {text}\n{note}")
        }
        Format::Pretty => format!("not verified: {text}\nwhat to do: {advice}\n"),
    }
}

/// Name in lower case, and value. A value alone gets the usual name of its form.
fn named(text: &str) -> (String, String) {
    let text = text.trim();
    if let Some((name, value)) = text.split_once(':')
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    {
        return (name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let name = match text {
        _ if text.starts_with("sha256=") => "x-hub-signature-256",
        _ if text.starts_with("v1,") || text.starts_with("v1a,") => "webhook-signature",
        _ if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => "signature",
        _ => "restive-signature",
    };
    (name.to_owned(), text.to_owned())
}

/// As given, or by the headers that are there.
fn scheme(form: Option<SignatureForm>, headers: &[(String, String)]) -> anyhow::Result<Scheme> {
    let with = |part: &str| headers.iter().find(|(name, _)| name.contains(part));
    let first = headers.first().map(|(name, _)| name.as_str());
    let has = |name: &str| headers.iter().any(|(own, _)| own == name);
    let signature = with("signature").map(|(name, _)| name.as_str()).or(first);
    if let Some(form) = form {
        let header = match form {
            SignatureForm::Stripe | SignatureForm::Hex => signature,
            _ => None,
        };
        return signing::scheme(form, header);
    }
    if has("svix-signature") {
        return Ok(Scheme::standard_named("svix"));
    }
    if ["webhook-signature", "webhook-id", "webhook-timestamp"].into_iter().any(has) {
        return Ok(Scheme::standard());
    }
    let Some(name) = signature else { return Ok(Scheme::Detect) };
    let value = headers.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value);
    Ok(match value {
        _ if value.starts_with("sha256=") => Scheme::plain(name),
        _ if value.len() == 64 && !value.contains('=') => Scheme::hex(name),
        _ => Scheme::timestamped(name),
    })
}

/// A receiver refuses such a request: two of its parts could read different values.
fn refuse_repeated(headers: &[(String, String)]) -> anyhow::Result<()> {
    for (at, (name, _)) in headers.iter().enumerate() {
        if headers[..at].iter().any(|(earlier, _)| earlier == name) {
            bail!("the header `{name}` is given twice; no receiver accepts that");
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    const LIMIT: u64 = MAX_BODY_BYTES + 1;
    let failed = || format!("the body in {} cannot be read", path.display());
    let mut body = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().take(LIMIT).read_to_end(&mut body).with_context(failed)?;
    } else {
        let file = std::fs::File::open(path).with_context(failed)?;
        file.take(LIMIT).read_to_end(&mut body).with_context(failed)?;
    }
    if body.len() as u64 > MAX_BODY_BYTES {
        bail!("the body in {} has more than {MAX_BODY_BYTES} bytes", path.display());
    }
    Ok(body)
}
