//! `restive generate`: writes a typed client for the collections of a schema, one file in one
//! language, on top of the client package of that language. The same schema yields the same bytes
//! each time.

mod contract;
mod names;
mod python;
mod rust;
mod text;
mod typescript;

use crate::args::{Generate, Language};
use crate::{data, openapi, output};
use anyhow::Context as _;
use contract::Contract;
use model::schema::Schema;
use model::version::Versions;
use std::fs;

pub fn run(generate: &Generate) -> anyhow::Result<()> {
    let schema = data::schema(&generate.schema.or_local())?;
    let versions = Versions::new(&schema);
    let view = openapi::find(&versions, generate.api_version.as_deref())?;
    let text = generated(&api::openapi::served(view), generate.language);
    match &generate.out {
        None => output::print(&text),
        Some(file) => {
            fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
        }
    }
}

fn generated(schema: &Schema, language: Language) -> String {
    match language {
        Language::Typescript => typescript::generate(&Contract::new(schema, typescript::RESERVED)),
        Language::Python => python::generate(&Contract::new(schema, python::RESERVED)),
        Language::Rust => rust::generate(&Contract::new(schema, rust::RESERVED)),
    }
}
