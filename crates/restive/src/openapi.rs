//! `restive openapi`: the document a service with this schema serves at `/openapi.json`.

use crate::args::Openapi;
use crate::data;

pub fn run(openapi: &Openapi) -> anyhow::Result<()> {
    let schema = data::schema(&openapi.schema)?;
    let document = api::openapi::document(&schema, openapi.server.as_deref());
    println!("{}", serde_json::to_string_pretty(&document)?);
    Ok(())
}
