//! Bringing stored data to a schema, inside one transaction: what `model::evolve` plans is
//! checked against the rows and carried out, or refused with nothing changed. A backend has the
//! tables (`Tables`); which steps are taken, and what becomes of each row, is decided here.

mod cleanup;
mod conversion;
mod rewrite;

pub use cleanup::{Cleanup, Stage};
pub use conversion::{EventTexts, ResponseTexts, convert_log};
pub use rewrite::{Rewritten, unstable};

use crate::Error;
use model::evolve::{Accept, Check, CheckRule, Plan, Step, Stored, evolve};
use model::record::{Scalar, parse_object, to_scalar};
use model::version::Versions;
use model::{Collection, CollectionIx, Schema, Scope};
use model::{parse, plan};
use serde_json::Value;
use std::collections::HashMap;

/// Examples shown of rows that stand in the way.
pub const EXAMPLES: usize = 5;

/// The schema as a file, for a server.
#[derive(Default)]
pub struct ServedSchema {
    /// Stored with the data, for the next start to compare with.
    pub text: Option<String>,
    /// Which edits since the last start are accepted.
    pub accept: Accept,
}

/// A record as it is stored.
pub struct Row {
    pub number: i64,
    pub scope: Scope,
    pub id: String,
    pub body: String,
    pub hidden: Option<String>,
}

impl Row {
    /// A field, public or hidden; `None` if the row was written without it.
    fn value(&self, field: &str) -> Option<Value> {
        let texts = [Some(self.body.as_str()), self.hidden.as_deref()].into_iter().flatten();
        let mut fields = texts.filter_map(|text| match serde_json::from_str(text) {
            Ok(Value::Object(mut fields)) => fields.remove(field),
            _ => None,
        });
        fields.next()
    }
}

/// The tables of a backend, inside the transaction that upgrades them. Collections are those of the
/// new schema, by their places; `name` is the name of one that may be gone from it.
pub trait Tables {
    /// Visits every row of a collection. The visit may change the row.
    fn each_row(
        &self,
        name: &str,
        visit: &mut dyn FnMut(Row) -> Result<(), Error>,
    ) -> Result<(), Error>;

    fn exists(&self, collection: CollectionIx, scope: Scope, id: &str) -> Result<bool, Error>;

    /// Creates the table of a collection, and its search index.
    fn create(&self, collection: CollectionIx) -> Result<(), Error>;

    fn drop(&self, name: &str) -> Result<(), Error>;

    fn add_column(&self, collection: CollectionIx, field: &str) -> Result<(), Error>;

    fn drop_column(&self, collection: CollectionIx, field: &str) -> Result<(), Error>;

    fn set_column(
        &self,
        collection: CollectionIx,
        field: &str,
        number: i64,
        value: &Scalar,
    ) -> Result<(), Error>;

    fn set_texts(
        &self,
        collection: CollectionIx,
        number: i64,
        body: &str,
        hidden: Option<&str>,
    ) -> Result<(), Error>;

    fn rebuild_search(&self, collection: CollectionIx) -> Result<(), Error>;

    fn drop_search(&self, collection: CollectionIx) -> Result<(), Error>;

    /// Gives the table the columns of the new schema, before its rows are rewritten.
    fn begin_rewrite(&self, collection: CollectionIx) -> Result<(), Error>;

    fn rewrite(
        &self,
        collection: CollectionIx,
        number: i64,
        rewritten: &Rewritten,
    ) -> Result<(), Error>;

    /// Pairs of records with the same value of a unique field, given by its place: some.
    fn duplicates(
        &self,
        collection: CollectionIx,
        field: usize,
    ) -> Result<Vec<(String, String)>, Error>;

    /// Names the timers of a collection by the states of the new schema.
    fn rename_timers(&self, old: &model::Collection, collection: CollectionIx)
    -> Result<(), Error>;

    /// Events that were written under a version, after a sequence, oldest first: a page, bounded in
    /// rows and bytes; none at the end.
    fn events_of(&self, date: &str, after: i64) -> Result<Vec<EventTexts>, Error>;

    fn set_event(&self, version: &str, event: &EventTexts) -> Result<(), Error>;

    /// Stored responses with a text of their own that were written under a version, after a number,
    /// oldest first: a page, bounded in rows and bytes; none at the end.
    fn responses_of(&self, date: &str, after: i64) -> Result<Vec<ResponseTexts>, Error>;

    fn set_response(
        &self,
        number: i64,
        version: &str,
        texts: (&str, Option<&str>),
    ) -> Result<(), Error>;
}

/// The schema that was served last, as this release reads it.
pub fn served_before(text: &str) -> Option<Schema> {
    let read = parse::parse(text).ok();
    if read.is_none() {
        // A release served it that accepted what this one does not.
        tracing::warn!("the schema that was last served cannot be read; edits are not compared");
    }
    read
}

/// Refuses edits of the schema file that are neither safe, nor declared, nor accepted, and says why
/// the data does not fit, if it does not. Returns those that were accepted.
pub fn review(
    tables: &impl Tables,
    before: &Schema,
    versions: &Versions,
    edition: &ServedSchema,
    (stored, planned): (Option<&Stored>, &Result<Plan, Vec<String>>),
) -> Result<Vec<plan::Edit>, Error> {
    let edits = plan::plan(before, versions.kept());
    let accepted = match edition.accept {
        Accept::Nothing => plan::Class::Safe,
        Accept::Changes => plan::Class::NeedsVersion,
        Accept::Loss => plan::Class::Destructive,
    };
    if edits.iter().any(|edit| edit.class > accepted) {
        let misfits = misfits(tables, stored, versions, planned)?;
        return Err(Error::Refused(plan::refusal(&edits, before, &misfits)));
    }
    Ok(edits.into_iter().filter(|edit| edit.class != plan::Class::Safe).collect())
}

/// Why the data does not fit: what a flag would delete, and what no flag would change.
fn misfits(
    tables: &impl Tables,
    stored: Option<&Stored>,
    versions: &Versions,
    plan: &Result<Plan, Vec<String>>,
) -> Result<Vec<String>, Error> {
    let mut found = plan.as_ref().err().cloned().unwrap_or_default();
    match evolve(stored, versions, Accept::Loss) {
        Ok(plan) => {
            for check in &plan.checks {
                found.extend(broken(tables, versions.kept(), check)?);
            }
        }
        Err(refusals) => {
            let new: Vec<_> = refusals.into_iter().filter(|one| !found.contains(one)).collect();
            found.extend(new);
        }
    }
    Ok(found)
}

/// Refuses a plan whose checks the data breaks.
pub fn check(tables: &impl Tables, schema: &Schema, plan: &Plan) -> Result<(), Error> {
    let mut refusals = Vec::new();
    for check in &plan.checks {
        refusals.extend(broken(tables, schema, check)?);
    }
    refuse(refusals)
}

/// Why the data breaks a check, if it does.
fn broken(tables: &impl Tables, schema: &Schema, check: &Check) -> Result<Option<String>, Error> {
    let collection = &schema.collections[check.collection].name;
    let mut found: Vec<String> = Vec::new();
    let mut seen: HashMap<(Scope, String), u32> = HashMap::new();
    let mut rows = 0u64;
    tables.each_row(collection, &mut |row| {
        rows += 1;
        match &check.rule {
            CheckRule::Empty => {}
            CheckRule::NoNulls { field } => {
                if row.value(field).is_none_or(|value| value.is_null()) {
                    found.push(row.id);
                }
            }
            CheckRule::Unused { field, value } => {
                if row.value(field).is_some_and(|found| found == value.as_str()) {
                    found.push(row.id);
                }
            }
            CheckRule::Among { field, values } => {
                let value = row.value(field).filter(|value| !value.is_null());
                let known = |value: &Value| values.iter().any(|one| *value == one.as_str());
                if value.is_some_and(|value| !known(&value)) {
                    found.push(row.id);
                }
            }
            CheckRule::NoDuplicates { field } => {
                if let Some(value) = row.value(field).filter(|value| !value.is_null()) {
                    let times = seen.entry((row.scope, value.to_string())).or_default();
                    *times += 1;
                    if *times == 2 {
                        found.push(value.to_string());
                    }
                }
            }
            CheckRule::Resolves { field, target } => {
                if let Some(Value::String(named)) = row.value(field)
                    && !tables.exists(*target, row.scope, &named)?
                {
                    found.push(named);
                }
            }
        }
        found.truncate(EXAMPLES);
        Ok(())
    })?;
    if matches!(check.rule, CheckRule::Empty) {
        return Ok((rows > 0).then(|| check.message.clone()));
    }
    Ok((!found.is_empty()).then(|| format!("{} Found: {}.", check.message, found.join(", "))))
}

/// Takes the steps of a plan.
pub fn carry_out(tables: &impl Tables, versions: &Versions, plan: &Plan) -> Result<(), Error> {
    let schema = &**versions.kept();
    let mut refusals = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Create(ix) => tables.create(*ix)?,
            Step::AddColumn { collection, field } => {
                add_column(tables, schema, *collection, field)?;
            }
            Step::DropColumn { collection, field } => tables.drop_column(*collection, field)?,
            Step::Delete(name) => {
                tables.drop(name)?;
                tracing::warn!(collection = %name, "deleted with its records, as accepted");
            }
            Step::Forget { collection, field } => {
                forget(tables, schema, *collection, field)?;
                // A version may rename the field in the same step.
                let is_hidden = |schema: &Schema| {
                    schema.collections[*collection].field(field).is_some_and(|f| f.write_only)
                };
                if is_hidden(schema) || versions.iter().any(|view| is_hidden(&view.schema)) {
                    conversion::hide(tables, versions, *collection)?;
                }
                let name = &schema.collections[*collection].name;
                tracing::warn!(collection = %name, %field, "values are deleted, as accepted");
            }
            Step::FillState(ix) => {
                fill_state(tables, schema, *ix)?;
                if searches_states(&schema.collections[*ix]) {
                    tables.rebuild_search(*ix)?;
                }
            }
            Step::RebuildSearch(ix) => tables.rebuild_search(*ix)?,
            Step::DropSearch(ix) => tables.drop_search(*ix)?,
            Step::Rewrite(ix) => {
                let Some(view) = versions.get(plan.from) else { continue };
                refusals.extend(rewrite::collection(tables, schema, view, *ix)?);
                tables.rebuild_search(*ix)?;
            }
        }
    }
    refuse(refusals)
}

fn add_column(
    tables: &impl Tables,
    schema: &Schema,
    ix: CollectionIx,
    name: &str,
) -> Result<(), Error> {
    let collection = &schema.collections[ix];
    let Some(field) = collection.field(name) else { return Ok(()) };
    tables.add_column(ix, name)?;
    let absent = collection.absent(field);
    tables.each_row(&collection.name, &mut |row| {
        let value = row.value(name).unwrap_or_else(|| absent.clone());
        let scalar = to_scalar(&field.kind, &value);
        match scalar {
            Scalar::Null => Ok(()),
            scalar => tables.set_column(ix, name, row.number, &scalar),
        }
    })
}

/// Gives the initial state to rows in which the field of the state is null. Rows that were written
/// without the field need nothing: they are read with it.
fn fill_state(tables: &impl Tables, schema: &Schema, ix: CollectionIx) -> Result<(), Error> {
    let name = &schema.collections[ix].name;
    tables.each_row(name, &mut |row| fill_row(tables, schema, ix, &row).map(drop))
}

/// Whether the search index holds the states of records.
pub fn searches_states(collection: &Collection) -> bool {
    let states = collection.states.as_ref();
    let field = states.and_then(|states| collection.field(&states.field));
    field.is_some_and(|field| field.search)
}

/// Gives the initial state to a row; false if it needs none.
pub fn fill_row(
    tables: &impl Tables,
    schema: &Schema,
    ix: CollectionIx,
    row: &Row,
) -> Result<bool, Error> {
    let collection = &schema.collections[ix];
    let Some(states) = &collection.states else { return Ok(false) };
    let Some(field) = collection.field(&states.field) else { return Ok(false) };
    let initial = Value::from(states.initial.as_str());
    let mut fields = parse_object(&row.body);
    match fields.get_mut(&states.field) {
        Some(value) if value.is_null() => *value = initial.clone(),
        _ => return Ok(false),
    }
    let body = Value::Object(fields).to_string();
    tables.set_texts(ix, row.number, &body, row.hidden.as_deref())?;
    if field.has_column() {
        let state = to_scalar(&field.kind, &initial);
        tables.set_column(ix, &states.field, row.number, &state)?;
    }
    Ok(true)
}

/// Removes a field from every row.
fn forget(
    tables: &impl Tables,
    schema: &Schema,
    ix: CollectionIx,
    field: &str,
) -> Result<(), Error> {
    let without = |text: &str| {
        let mut fields = parse_object(text);
        fields.remove(field).map(|_| Value::Object(fields).to_string())
    };
    tables.each_row(&schema.collections[ix].name, &mut |row| {
        let (body, hidden) = (without(&row.body), row.hidden.as_deref().and_then(without));
        if body.is_none() && hidden.is_none() {
            return Ok(());
        }
        let hidden = hidden.or(row.hidden);
        tables.set_texts(ix, row.number, &body.unwrap_or(row.body), hidden.as_deref())
    })
}

pub fn refuse(refusals: Vec<String>) -> Result<(), Error> {
    match refusals.is_empty() {
        true => Ok(()),
        false => Err(Error::Refused(refusals)),
    }
}
