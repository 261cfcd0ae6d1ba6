//! Reads single figures from a server's /metrics.

use anyhow::{Context, Result, ensure};

use crate::http::Client;

pub const PATH: &str = "/metrics";

/// The response to `request`, which asks for [`PATH`].
pub fn page(client: &mut Client, request: &[u8]) -> Result<String> {
    Ok(String::from_utf8(client.expect(200, request)?.body)?)
}

/// A counter or gauge by its full name, labels included.
pub fn figure(page: &str, name: &str) -> Result<u64> {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.with_context(|| format!("the server's /metrics has no {name}"))?;
    let value: f64 = value.trim().parse().with_context(|| format!("{name} is {value:?}"))?;
    ensure!(value >= 0.0, "{name} is {value}");
    Ok(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let page = "# TYPE unsettled gauge\nunsettled_more 1\nunsettled 7\n";
        assert_eq!(figure(page, "unsettled").unwrap(), 7);
        let error = figure(page, "deliveries_total").unwrap_err().to_string();
        assert!(error.contains("has no deliveries_total"), "{error}");
    }
}
