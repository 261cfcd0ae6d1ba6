//! Bringing the rows of one collection to the newest version: text, hidden part and typed columns.
//! If a row cannot be rewritten, the error names it, and nothing is changed.

use super::{EXAMPLES, Row, Tables};
use crate::Error;
use model::record::{self, Fields, Scalar, parse_object, to_scalar};
use model::version::{Versions, View};
use model::{Collection, CollectionIx, Problem, Schema};

/// A row in the newest version.
pub struct Rewritten {
    pub body: String,
    pub hidden: Option<String>,
    /// Values of the typed columns, in the order of the collection's columns.
    pub columns: Vec<Scalar>,
}

/// Rewrites every row; returns why not, if it cannot be done.
pub fn collection(
    tables: &impl Tables,
    schema: &Schema,
    view: &View,
    ix: CollectionIx,
) -> Result<Vec<String>, Error> {
    let newest = &schema.collections[ix];
    tables.begin_rewrite(ix)?;
    let (mut refusals, mut rows) = (Vec::new(), 0u64);
    tables.each_row(&newest.name, &mut |row| {
        match view.raise(ix, &fields(&row)) {
            Ok(fields) => {
                rows += 1;
                return tables.rewrite(ix, row.number, &rewritten(newest, &fields));
            }
            Err(problem) if refusals.len() < EXAMPLES => {
                refusals.push(refusal(schema, newest, &row.id, &problem));
            }
            Err(_) => {}
        }
        Ok(())
    })?;
    refusals.extend(duplicates(tables, schema, ix)?);
    let (collection, from, to) = (&newest.name, &view.date, &schema.service.version);
    if refusals.is_empty() {
        tracing::info!(%collection, rows, %from, %to, "records are brought to the newest version");
    }
    tables.rename_timers(&view.schema.collections[ix], ix)?;
    Ok(refusals)
}

fn fields(row: &Row) -> Fields {
    let mut fields = parse_object(&row.body);
    fields.extend(parse_object(row.hidden.as_deref().unwrap_or("{}")));
    fields
}

fn rewritten(collection: &Collection, fields: &Fields) -> Rewritten {
    let scalar = |field: &model::Field| {
        fields.get(&field.name).map_or(Scalar::Null, |value| to_scalar(&field.kind, value))
    };
    Rewritten {
        body: record::encode(collection, fields),
        hidden: record::encode_hidden(collection, fields),
        columns: collection.columns().map(scalar).collect(),
    }
}

/// Records whose values do not survive a conversion: what a client of an older version reads and
/// sends back would be stored as something else.
pub fn unstable(tables: &impl Tables, versions: &Versions) -> Result<Vec<String>, Error> {
    let mut refusals = Vec::new();
    for (ix, collection) in versions.kept().collections.iter().enumerate() {
        let views: Vec<_> = versions.iter().filter(|view| view.converts(ix)).collect();
        if views.is_empty() {
            continue;
        }
        tables.each_row(&collection.name, &mut |row| {
            let fields = fields(&row);
            let found = views.iter().find_map(|view| view.unstable(ix, &fields));
            if let Some(what) = found.filter(|_| refusals.len() < EXAMPLES) {
                refusals.push(format!(
                    "collection `{}`: record `{}` does not survive a `convert`: {what}. Correct \
                     the formulas, or declare `lossy = true`.",
                    collection.name, row.id
                ));
            }
            Ok(())
        })?;
    }
    Ok(refusals)
}

fn refusal(schema: &Schema, collection: &Collection, id: &str, problem: &Problem) -> String {
    let reasons: Vec<&str> = problem.violations.iter().map(|one| one.message.as_str()).collect();
    let reason = match reasons.is_empty() {
        true => problem.message.clone(),
        false => reasons.join(" "),
    };
    format!(
        "collection `{}`: record `{id}` cannot be brought to version {}: {reason} Change it with \
         the schema it was written under, then try again.",
        collection.name, schema.service.version
    )
}

/// Values that must be unique and are not any more, since several became one.
fn duplicates(
    tables: &impl Tables,
    schema: &Schema,
    ix: CollectionIx,
) -> Result<Vec<String>, Error> {
    let collection = &schema.collections[ix];
    let mut refusals = Vec::new();
    let unique = collection.fields.iter().enumerate().filter(|(_, field)| field.unique);
    for (place, field) in unique {
        for (one, other) in tables.duplicates(ix, place)? {
            refusals.push(format!(
                "collection `{}`: records `{one}` and `{other}` would share a value of the unique \
                 field `{}` in version {}. Change one of them first.",
                collection.name, field.name, schema.service.version
            ));
        }
    }
    Ok(refusals)
}
