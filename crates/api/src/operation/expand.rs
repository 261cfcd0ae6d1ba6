//! Builds responses that differ from the stored records: embedded references and children, selected
//! fields. One query per level and target, independent of the number of records.

use super::Operation;
use crate::error::Failure;
use crate::route;
use model::CollectionIx;
use model::caller::Access;
use model::expand::{Expand, Node, Target};
use model::problem::{Code, Problem};
use model::query::View;
use model::record::{Fields, Record};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

/// Maximum children embedded per record; the list of children has the rest.
const CHILDREN: u32 = 10;
/// Bytes that are parsed, copied or written before other requests of the thread have their turn:
/// half a millisecond of work.
const TURN_BYTES: usize = 64 << 10;
/// Maximum records embedded in one response.
const MAX_EMBEDDED: usize = 10_000;

/// The records as JSON texts in the requested view.
pub async fn show(
    operation: Operation<'_>,
    collection: CollectionIx,
    records: Vec<Record>,
    view: &View,
) -> Result<Vec<String>, Failure> {
    check(operation, &view.expand)?;
    let mut shown = parsed(operation, collection, records).await;
    embed(operation, collection, &mut shown, &view.expand).await?;
    let (mut texts, mut turn) = (Vec::with_capacity(shown.len()), Turn::default());
    for record in shown {
        let kept = match &view.fields {
            None => record,
            Some(chosen) => {
                let keep = |name: &str| {
                    chosen.iter().any(|field| field == name)
                        || view.expand.nodes.iter().any(|node| node.name == name)
                };
                record.into_iter().filter(|(name, _)| keep(name)).collect()
            }
        };
        let text = text(operation, collection, kept, &view.expand);
        turn.worked(text.len()).await;
        texts.push(text);
    }
    Ok(texts)
}

/// Refuses expansions of collections that the key may not read.
pub fn check(operation: Operation<'_>, expand: &Expand) -> Result<(), Problem> {
    for node in &expand.nodes {
        let other = &operation.services.schema.collections[node.target.collection()];
        if !operation.request.caller().may(&other.name, Access::Read) {
            let message =
                format!("Expanding `{}` needs the scope `{}:read`.", node.name, other.name);
            return Err(Problem::new(Code::PermissionDenied, message));
        }
        check(operation, &node.inner)?;
    }
    Ok(())
}

/// Counts the bytes of work since other requests of the thread had their turn.
#[derive(Default)]
struct Turn(usize);

impl Turn {
    async fn worked(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= TURN_BYTES {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// The fields that the version shows.
async fn parsed(
    operation: Operation<'_>,
    collection: CollectionIx,
    records: Vec<Record>,
) -> Vec<Fields> {
    let texts = operation.texts(collection, records).await;
    let (mut parsed, mut turn) = (Vec::with_capacity(texts.len()), Turn::default());
    for text in texts {
        parsed.push(serde_json::from_str(&text).unwrap_or_default());
        turn.worked(text.len()).await;
    }
    parsed
}

/// The fields in the order of the schema, then the embedded records.
fn text(
    operation: Operation<'_>,
    collection: CollectionIx,
    mut record: Fields,
    expand: &Expand,
) -> String {
    let names = operation.request.version.schema.collections[collection].public_names();
    let embedded = expand.nodes.iter().map(|node| node.name.as_str());
    let mut out = String::from("{");
    for name in names.chain(embedded) {
        if let Some(value) = record.remove(name) {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&Value::from(name).to_string());
            out.push(':');
            out.push_str(&value.to_string());
        }
    }
    out.push('}');
    out
}

type Embedding<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

fn embed<'a>(
    operation: Operation<'a>,
    collection: CollectionIx,
    records: &'a mut [Fields],
    expand: &'a Expand,
) -> Embedding<'a> {
    Box::pin(async move {
        // For this level. What is embedded into embedded records counts again where these are.
        let mut room = Room(store::EMBEDDED_BYTES);
        for node in &expand.nodes {
            match node.target {
                Target::Reference(to) => {
                    references(operation, to, records, node, &mut room).await?;
                }
                Target::Children(to) => {
                    children(operation, (collection, to), records, node, &mut room).await?;
                }
            }
        }
        Ok(())
    })
}

/// Bytes that may still be embedded.
struct Room(usize);

impl Room {
    /// Takes the bytes of a copy before it is made: one record may be embedded many times.
    fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }
}

/// The length of the JSON text, or a little more.
fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => size_of_text(text),
        Value::Array(items) => items.iter().map(|item| size_of(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => size_of_fields(fields),
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 24,
    }
}

fn size_of_text(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    text.bytes().map(escaped).sum::<usize>() + 2
}

fn size_of_fields(fields: &Fields) -> usize {
    fields.iter().map(|(name, value)| size_of_text(name) + size_of(value) + 2).sum::<usize>() + 2
}

/// Replaces ids by the records that they name; the id of a deleted record stays.
async fn references(
    operation: Operation<'_>,
    to: CollectionIx,
    records: &mut [Fields],
    node: &Node,
    room: &mut Room,
) -> Result<(), Failure> {
    let mut ids: Vec<String> = records
        .iter()
        .filter_map(|record| record.get(&node.name)?.as_str().map(str::to_owned))
        .collect();
    ids.sort();
    ids.dedup();
    check_count(ids.len())?;
    let scope = operation.request.caller().scope;
    let found = operation.services.store.by_ids(scope, to, &ids).await.map_err(failure)?;
    let keys: Vec<String> = found.iter().map(|record| record.id.clone()).collect();
    let mut shown = parsed(operation, to, found).await;
    embed(operation, to, &mut shown, &node.inner).await?;
    let sized = shown.into_iter().map(|record| (size_of_fields(&record), record));
    let by_id: HashMap<String, (usize, Fields)> = keys.into_iter().zip(sized).collect();
    let mut turn = Turn::default();
    for record in records {
        if let Some(value) = record.get_mut(&node.name)
            && let Some((bytes, found)) = value.as_str().and_then(|id| by_id.get(id))
        {
            room.take(*bytes)?;
            *value = Value::Object(found.clone());
            turn.worked(*bytes).await;
        }
    }
    Ok(())
}

/// The newest children of each record, as a list body.
async fn children(
    operation: Operation<'_>,
    (parent, to): (CollectionIx, CollectionIx),
    records: &mut [Fields],
    node: &Node,
    room: &mut Room,
) -> Result<(), Failure> {
    let id_of = |record: &Fields| record.get("id").and_then(Value::as_str).map(str::to_owned);
    let mut ids: Vec<String> = records.iter().filter_map(id_of).collect();
    ids.sort();
    ids.dedup();
    let found = operation
        .services
        .store
        .children(operation.request.caller().scope, to, &ids, CHILDREN)
        .await
        .map_err(failure)?;
    check_count(found.len())?;
    let (owners, found): (Vec<String>, Vec<Record>) =
        found.into_iter().map(|child| (child.parent, child.record)).unzip();
    let mut shown = parsed(operation, to, found).await;
    embed(operation, to, &mut shown, &node.inner).await?;
    let mut by_parent: HashMap<String, Vec<Value>> = HashMap::new();
    for (owner, child) in owners.into_iter().zip(shown) {
        by_parent.entry(owner).or_default().push(Value::Object(child));
    }
    let mut turn = Turn::default();
    for record in records {
        let Some(id) = id_of(record) else { continue };
        let found = by_parent.get(&id).map_or(&[][..], Vec::as_slice);
        let bytes = found.iter().map(size_of).sum();
        room.take(bytes)?;
        let mut data = found.to_vec();
        let has_more = data.len() > CHILDREN as usize;
        data.truncate(CHILDREN as usize);
        let url = children_url(operation, parent, record, to);
        let list = json!({
            "object": "list", "url": url, "data": data,
            "pagination": { "next_cursor": Value::Null, "has_more": has_more },
        });
        record.insert(node.name.clone(), list);
        turn.worked(bytes).await;
    }
    Ok(())
}

/// The URL of the list of a record's children. Paths have at most three collections, so the record
/// has one parent or none.
fn children_url(
    operation: Operation<'_>,
    collection: CollectionIx,
    record: &Fields,
    children: CollectionIx,
) -> String {
    let schema = &operation.request.version.schema;
    let mount = route::mount_of(schema, &operation.request.target);
    let name = |index: CollectionIx| schema.collections[index].name.as_str();
    let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
    let own = format!("{}/{id}/{}", name(collection), name(children));
    let above = schema.collections[collection].parent.zip(schema.parent_field(collection));
    let Some((parent, field)) = above else {
        return format!("{mount}/{own}");
    };
    // The parent may already be expanded.
    let parent_id = record.get(field).map(|value| value.get("id").unwrap_or(value));
    let parent_id = parent_id.and_then(Value::as_str).unwrap_or_default();
    format!("{mount}/{}/{parent_id}/{own}", name(parent))
}

fn failure(error: store::Error) -> Failure {
    match error {
        store::Error::TooLarge => too_large().into(),
        other => other.into(),
    }
}

fn too_large() -> Problem {
    let message = format!(
        "The response would embed more than {} bytes of records; request fewer records with \
         `limit`, or expand less.",
        store::EMBEDDED_BYTES
    );
    Problem::new(Code::InvalidParameter, message).param("expand")
}

fn check_count(count: usize) -> Result<(), Problem> {
    if count <= MAX_EMBEDDED {
        return Ok(());
    }
    let message =
        format!("The response would embed more than {MAX_EMBEDDED} records; request fewer.");
    Err(Problem::new(Code::InvalidParameter, message).param("expand"))
}
