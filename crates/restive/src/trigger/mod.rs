//! `restive trigger TYPE`: causes an event of a type on a running server. Where possible it does
//! what a client would do (create, change, delete a sample record, run an action); types that
//! applications publish are published. It prints each request.

mod sample;
mod steps;

use crate::args::Trigger;
use crate::text::printable;
use crate::{data, output, remote};
use anyhow::{Context as _, bail};
use model::Schema;
use model::schema::{Collection, CollectionIx};
use restive_kit::client::{Client, Method, Response};
use sample::Sample;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::time::Duration;
use steps::{Cause, Step, cause, causes};

/// Records that a sample refers to, one below the other; a schema whose references form a cycle
/// has no end.
const MAX_DEPTH: usize = 6;
/// How long the command looks for the event.
const LOOK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

pub fn run(trigger: &Trigger) -> anyhow::Result<()> {
    let schema = data::schema(&trigger.schema.or_local())?;
    let Some(cause) = cause(&schema, &trigger.kind) else {
        let known = causes(&schema).join(", ");
        bail!("`{}` cannot be triggered with this schema; types that can: {known}", trigger.kind);
    };
    check_values(&schema, &cause, &trigger.values)?;
    let client = remote::client(&trigger.remote)?;
    let mut job = Job { schema: &schema, client, values: &trigger.values, report: String::new() };
    let done = data::block_on(async {
        let resource = job.perform(&cause, &trigger.kind).await?;
        job.find(&trigger.kind, &resource, cause.delay()).await
    });
    // Also what was done before an error.
    if trigger.output.json {
        let steps: Vec<&str> = job.report.lines().collect();
        let ok = done.is_ok();
        output::print_json(&json!({ "type": trigger.kind, "ok": ok, "steps": steps }))?;
    } else {
        output::print(&job.report)?;
    }
    done
}

/// Refuses values that nothing would use.
fn check_values(
    schema: &Schema,
    cause: &Cause<'_>,
    values: &[(String, Value)],
) -> anyhow::Result<()> {
    let Cause::Record { collection, steps, .. } = cause else { return Ok(()) };
    let collection = &schema.collections[*collection];
    let params = steps.iter().flat_map(|step| match step {
        Step::Act(action) => action.params.as_slice(),
        _ => &[],
    });
    let known: Vec<&str> =
        collection.fields.iter().chain(params).map(|field| field.name.as_str()).collect();
    match values.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, _)) => bail!(
            "`{}` has no field `{name}` for --set; it has: {}",
            collection.name,
            known.join(", ")
        ),
    }
}

struct Job<'a> {
    schema: &'a Schema,
    client: Client,
    values: &'a [(String, Value)],
    /// What was done, for the user.
    report: String,
}

impl Job<'_> {
    /// Does everything; returns the id of the record.
    async fn perform(&mut self, cause: &Cause<'_>, kind: &str) -> anyhow::Result<String> {
        let (collection, steps) = match cause {
            Cause::Publish => return self.publish(kind).await,
            Cause::Record { collection, steps, .. } => (*collection, steps),
        };
        let (path, record) = self.create(collection, 0).await?;
        for step in steps {
            self.take(step, collection, &path, &record).await?;
        }
        Ok(id(&record))
    }

    async fn publish(&mut self, kind: &str) -> anyhow::Result<String> {
        let noun = kind.split('.').next().unwrap_or(kind);
        let id = format!("{noun}_sample_{}", Sample::token());
        let mut object = json!({ "id": id, "object": noun });
        for (name, value) in self.values {
            object[name] = value.clone();
        }
        let body = json!({ "type": kind, "resource": id, "data": { "object": object } });
        let path = format!("{}/events", self.schema.service.mount);
        let response = self.send(Method::POST, &path, Some(&body)).await?;
        let event = response.value()?;
        let _ = writeln!(self.report, "published {}", printable(&id_of(&event)));
        Ok(id)
    }

    /// Creates a sample record, and first those that it needs; returns its path.
    async fn create(
        &mut self,
        place: CollectionIx,
        depth: usize,
    ) -> anyhow::Result<(String, Value)> {
        if depth >= MAX_DEPTH {
            bail!("the sample refers to more than {MAX_DEPTH} records in a row; use --set");
        }
        let collection = &self.schema.collections[place];
        let list = match collection.parent {
            None => format!("{}/{}", self.schema.service.mount, collection.name),
            Some(parent) => {
                let (parent, _) = Box::pin(self.create(parent, depth + 1)).await?;
                format!("{parent}/{}", collection.name)
            }
        };
        let parent_field = self.schema.parent_field(place);
        let mut fields = Map::new();
        for field in &collection.fields {
            // Values of the user are for the record of the event, not for those it refers to.
            let given = self.values.iter().find(|(name, _)| depth == 0 && *name == field.name);
            if let Some((name, value)) = given {
                fields.insert(name.clone(), value.clone());
            } else if Some(&*field.name) == parent_field || !Sample::is_settable(field) {
            } else if let Some(other) = field.reference {
                if field.required {
                    let (_, record) = Box::pin(self.create(other, depth + 1)).await?;
                    fields.insert(field.name.clone(), record["id"].clone());
                }
            } else {
                match Sample::of(field) {
                    Some(value) => drop(fields.insert(field.name.clone(), value)),
                    None if !field.required => {}
                    None => bail!(
                        "no sample for the field `{}` of `{}`; give one with --set {}=VALUE",
                        field.name,
                        collection.name,
                        field.name
                    ),
                }
            }
        }
        let body = Value::Object(fields);
        let record = self.send(Method::POST, &list, Some(&body)).await?.value()?;
        Ok((format!("{list}/{}", id(&record)), record))
    }

    async fn take(
        &mut self,
        step: &Step<'_>,
        place: CollectionIx,
        path: &str,
        record: &Value,
    ) -> anyhow::Result<()> {
        let collection = &self.schema.collections[place];
        match step {
            Step::Update => {
                let change = change(collection, record).with_context(|| {
                    format!("`{}` has no field that a sample could change", collection.name)
                })?;
                self.send(Method::PATCH, path, Some(&change)).await?;
            }
            Step::Delete => {
                self.send(Method::DELETE, path, None).await?;
            }
            Step::Act(action) => {
                let mut params = Map::new();
                for field in &action.params {
                    let given = self.values.iter().find(|(name, _)| *name == field.name);
                    match given.map(|(_, value)| value.clone()).or_else(|| Sample::of(field)) {
                        Some(value) => drop(params.insert(field.name.clone(), value)),
                        None if !field.required => {}
                        None => bail!("give the parameter `{}` with --set", field.name),
                    }
                }
                let path = format!("{path}/{}", action.name);
                self.send(Method::POST, &path, Some(&Value::Object(params))).await?;
            }
            Step::Wait { after, to } => {
                let _ = writeln!(self.report, "the server moves it to `{to}` after {after:?}");
                self.until(path, collection, to, *after).await?;
            }
        }
        Ok(())
    }

    /// Waits until a timed transition has happened.
    async fn until(
        &self,
        path: &str,
        collection: &Collection,
        state: &str,
        after: Duration,
    ) -> anyhow::Result<()> {
        let field = collection.states.as_ref().map(|states| states.field.as_str());
        let deadline = tokio::time::Instant::now() + after + LOOK;
        loop {
            let record = self.client.get(path).send().await?.value()?;
            if field.is_none_or(|field| record[field] == state) {
                return Ok(());
            }
            if tokio::time::Instant::now() >= deadline {
                bail!("the record did not become `{state}` within {:?}", after + LOOK);
            }
            tokio::time::sleep(PAUSE).await; // waits for: the timed transition
        }
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response> {
        let mut request = self.client.request(method.clone(), path);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.with_context(|| format!("{method} {path} failed"))?;
        let made = response.value().map(|record| id(&record)).unwrap_or_default();
        let _ =
            writeln!(self.report, "{method} {path}  {}  {}", response.status(), printable(&made));
        Ok(response)
    }

    /// Shows the event that was caused.
    async fn find(&mut self, kind: &str, resource: &str, delay: Duration) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + delay + LOOK;
        loop {
            let path = format!("{}/events", self.schema.service.mount);
            let list = self.client.get(&path).query("type", kind).query("resource", resource);
            let list = list.query("limit", "1").send().await?.value()?;
            if let Some(event) = list["data"].get(0) {
                let _ = writeln!(self.report, "{kind}  {}", printable(&id_of(event)));
                return Ok(());
            }
            if tokio::time::Instant::now() >= deadline {
                bail!("the requests succeeded, but there is no event `{kind}` of {resource}");
            }
            tokio::time::sleep(PAUSE).await; // waits for: the event of a timed transition
        }
    }
}

/// A PATCH that changes one field.
fn change(collection: &Collection, record: &Value) -> Option<Value> {
    let fields = collection.fields.iter().filter(|field| Sample::is_settable(field));
    let mut fields = fields.filter(|field| field.reference.is_none());
    fields.find_map(|field| {
        let other = Sample::other(field, &record[&field.name])?;
        Some(json!({ &*field.name: other }))
    })
}

/// The id of a record; a feed has numbers.
fn id(record: &Value) -> String {
    match &record["id"] {
        Value::String(id) => id.clone(),
        Value::Null => String::new(),
        number => number.to_string(),
    }
}

fn id_of(event: &Value) -> String {
    event["id"].as_str().unwrap_or_default().to_owned()
}
