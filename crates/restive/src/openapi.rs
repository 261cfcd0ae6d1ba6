//! `restive openapi`: prints the document that a service with this schema serves at
//! `/openapi.json`.

use crate::args::Openapi;
use crate::{data, output};
use anyhow::Context as _;
use model::version::Versions;

pub fn run(openapi: &Openapi) -> anyhow::Result<()> {
    let schema = data::schema(&openapi.schema)?;
    let versions = Versions::new(&schema);
    let view = match &openapi.api_version {
        None => versions.newest(),
        Some(date) => versions.find(date).with_context(|| {
            let known: Vec<&str> = versions.iter().map(|view| view.date.as_str()).collect();
            format!("there is no version {date}; there are: {}", known.join(", "))
        })?,
    };
    let document = api::openapi::of_version(view, openapi.server.as_deref());
    output::print(&format!("{}\n", serde_json::to_string_pretty(&document)?))
}
