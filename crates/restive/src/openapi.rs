//! `restive openapi` and `restive asyncapi`: print the documents that a service with this schema
//! serves at `/openapi.json` and `/asyncapi.json`.

use crate::args::Openapi;
use crate::{data, output};
use anyhow::Context as _;
use model::version::{Versions, View};
use serde_json::Value;

pub fn run(openapi: &Openapi) -> anyhow::Result<()> {
    print(openapi, api::openapi::of_version)
}

pub fn run_asyncapi(asyncapi: &Openapi) -> anyhow::Result<()> {
    print(asyncapi, api::asyncapi::of_version)
}

fn print(asked: &Openapi, generate: impl Fn(&View, Option<&str>) -> Value) -> anyhow::Result<()> {
    let schema = data::schema(&asked.schema.or_local())?;
    let versions = Versions::new(&schema);
    let view = find(&versions, asked.api_version.as_deref())?;
    let document = generate(view, asked.server.as_deref());
    output::print(&format!("{}\n", serde_json::to_string_pretty(&document)?))
}

/// The version of this date; the newest by default.
pub fn find<'a>(versions: &'a Versions, date: Option<&str>) -> anyhow::Result<&'a View> {
    let Some(date) = date else { return Ok(versions.newest()) };
    versions.find(date).map(|view| &**view).with_context(|| {
        let known: Vec<&str> = versions.iter().map(|view| view.date.as_str()).collect();
        format!("there is no version {date}; there are: {}", known.join(", "))
    })
}
