//! Which version an endpoint is sent: its own, or its account's, or the newest. Knows accounts by
//! their numbers.

use model::record::{Record, parse_object};
use model::version::Versions;
use model::webhook::Endpoint;
use serde_json::Value;
use std::collections::HashMap;

/// The versions of accounts that are not on the newest, by their places.
#[derive(Default)]
pub struct Pins(HashMap<i64, usize>);

impl Pins {
    /// Takes over what an account says.
    pub fn put(&mut self, versions: &Versions, account: &Record) {
        let fields = parse_object(&account.body);
        let pin = fields.get("api_version").and_then(Value::as_str);
        match pin.map_or(0, |date| versions.written(date).index) {
            0 => self.0.remove(&account.number),
            older => self.0.insert(account.number, older),
        };
    }

    /// Place of the version that an endpoint is sent.
    pub fn version(&self, versions: &Versions, endpoint: &Endpoint) -> usize {
        match &endpoint.api_version {
            Some(date) => versions.written(date).index,
            None => self.0.get(&endpoint.scope.account_number()).copied().unwrap_or(0),
        }
    }
}
