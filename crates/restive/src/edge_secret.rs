//! Reads the secret that servers share with the proxies of their operator, from a file or from the
//! environment.

use crate::args::EdgeSecretFile;
use anyhow::{Context as _, bail};
use api::EdgeSecret;
use http::HeaderValue;

const VARIABLE: &str = "RESTIVE_EDGE_SECRET";

/// The secret with which a server recognises its proxies.
pub fn of_server(given: &EdgeSecretFile) -> anyhow::Result<Option<EdgeSecret>> {
    let Some((secret, place)) = read(given)? else { return Ok(None) };
    EdgeSecret::new(&secret).map(Some).map_err(|why| anyhow::anyhow!("the secret in {place} {why}"))
}

/// The secret that a proxy sends to its servers.
pub fn of_proxy(given: &EdgeSecretFile) -> anyhow::Result<Option<HeaderValue>> {
    let Some((secret, place)) = read(given)? else { return Ok(None) };
    EdgeSecret::new(&secret).map_err(|why| anyhow::anyhow!("the secret in {place} {why}"))?;
    let value = HeaderValue::from_str(&secret);
    let mut value = value.with_context(|| format!("the secret in {place} is no text"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// The secret, and where it was found.
fn read(given: &EdgeSecretFile) -> anyhow::Result<Option<(String, String)>> {
    let variable = std::env::var(VARIABLE).ok().filter(|secret| !secret.is_empty());
    let Some(file) = &given.edge_secret_file else {
        return Ok(variable.map(|secret| (secret, VARIABLE.to_owned())));
    };
    if variable.is_some() {
        bail!("--edge-secret-file and {VARIABLE} are both given; use one of them");
    }
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("--edge-secret-file {shown} cannot be read"))?;
    Ok(Some((text.trim().to_owned(), shown.to_string())))
}
