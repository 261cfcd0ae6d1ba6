//! Paths and operations: the six resource operations and the actions of each routed collection,
//! then the routes of the service itself.

use super::errors::{self, Facets};
use super::names::{self, Names, pascal};
use super::operation::{
    JSON, Operation, SERVICE_TAG, answer, body, unchanged, unchanged_components, unchanged_list,
};
use super::{activity, admin, channels, parameters, reference, versions};
use model::schema::{Action, Builtin, Collection, CollectionIx, Field, Native, OnDelete, Schema};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

pub fn all(schema: &Schema, names: &Names) -> Map<String, Value> {
    let mut paths = Map::new();
    for (index, collection) in schema.routed() {
        let routed = RoutedCollection::new(schema, names, index, collection);
        routed.insert(&mut paths, &routed.path, routed.outer(), routed.on_collection());
        routed.insert(&mut paths, &routed.item_path(), &routed.chain, routed.on_record());
        for action in &collection.actions {
            let path = format!("{}/{}", routed.item_path(), action.name);
            let mut operations = Map::new();
            operations.insert("post".into(), routed.act(action));
            routed.insert(&mut paths, &path, &routed.chain, operations);
        }
    }
    paths.extend(channels::paths(schema, names));
    paths.extend(versions::paths(schema));
    paths.extend(admin::paths(schema, names));
    paths.extend(activity::paths(schema));
    paths.extend(service(schema));
    paths
}

/// The responses that several operations of a collection share.
pub fn response_components(schema: &Schema, names: &Names) -> Map<String, Value> {
    let mut all = unchanged_components();
    let deleted = answer("The record is deleted.", &[], reference("schemas", "Deleted"));
    all.insert("Deleted".into(), deleted);
    for (index, collection) in schema.routed() {
        let headers = ["ETag", "Last-Modified", "Content-Location", "Idempotent-Replayed"];
        let record = reference("schemas", names.record(index));
        all.insert(names.one(index), answer("The record.", &headers, record));
        let mut headers = vec!["ETag", "X-Stream-Position", "Link"];
        if collection.fields.iter().any(|field| field.search) {
            headers.push("Restive-Search-Behind");
        }
        let page = reference("schemas", &names.list(index));
        all.insert(names.page(index), answer("A page of records.", &headers, page));
    }
    all
}

/// A collection with its path.
struct RoutedCollection<'a> {
    schema: &'a Schema,
    names: &'a Names,
    index: CollectionIx,
    collection: &'a Collection,
    /// Ancestors, outermost first, and the collection itself.
    chain: Vec<CollectionIx>,
    path: String,
}

impl<'a> RoutedCollection<'a> {
    fn new(
        schema: &'a Schema,
        names: &'a Names,
        index: CollectionIx,
        collection: &'a Collection,
    ) -> RoutedCollection<'a> {
        let mut chain = vec![index];
        let mut child = collection;
        while let Some(parent) = child.parent.filter(|parent| !chain.contains(parent)) {
            chain.insert(0, parent);
            child = &schema.collections[parent];
        }
        let mut path = schema.service.mount.trim_end_matches('/').to_owned();
        for ancestor in chain[..chain.len() - 1].iter().map(|at| &schema.collections[*at]) {
            path.push_str(&format!("/{}/{{{}_id}}", ancestor.name, ancestor.object));
        }
        path.push_str(&format!("/{}", collection.name));
        RoutedCollection { schema, names, index, collection, chain, path }
    }

    fn item_path(&self) -> String {
        format!("{}/{{{}_id}}", self.path, self.collection.object)
    }

    /// The ancestors, whose ids are in the path of the collection.
    fn outer(&self) -> &[CollectionIx] {
        &self.chain[..self.chain.len() - 1]
    }

    fn insert(
        &self,
        paths: &mut Map<String, Value>,
        path: &str,
        ids: &[CollectionIx],
        mut operations: Map<String, Value>,
    ) {
        if operations.is_empty() {
            return;
        }
        let mut parameters = parameters::path(self.names, ids);
        parameters.push(parameters::shared("RestiveVersion"));
        operations.insert("parameters".into(), parameters.into());
        paths.insert(path.to_owned(), Value::Object(operations));
    }

    fn on_collection(&self) -> Map<String, Value> {
        let offered = self.collection.operations;
        let mut operations = Map::new();
        if offered.list {
            operations.insert("get".into(), self.list());
        }
        if offered.create {
            operations.insert("post".into(), self.create());
        }
        operations
    }

    fn on_record(&self) -> Map<String, Value> {
        let offered = self.collection.operations;
        let mut operations = Map::new();
        if offered.get {
            operations.insert("get".into(), self.get());
        }
        if offered.replace {
            operations.insert("put".into(), self.replace());
        }
        if offered.update {
            operations.insert("patch".into(), self.update());
        }
        if offered.delete {
            operations.insert("delete".into(), self.delete());
        }
        operations
    }

    fn list(&self) -> Value {
        let name = &self.collection.name;
        let mut query = parameters::list(self.schema, self.names, self.index);
        query.push(parameters::shared("IfNoneMatch"));
        let mut responses = Map::new();
        responses.insert("200".into(), reference("responses", &self.names.page(self.index)));
        responses.insert("304".into(), unchanged_list());
        let addressed = !self.outer().is_empty();
        responses.extend(errors::responses(&Facets {
            resource: true,
            list: true,
            addressed,
            ..Facets::default()
        }));
        self.operation(Operation {
            id: self.names.operation("list", self.index),
            summary: format!("List {name}"),
            description: format!(
                "Lists `{name}`, newest first unless `sort` sets another order. All filters must \
                 match."
            ),
            parameters: query,
            body: None,
            responses,
        })
    }

    fn create(&self) -> Value {
        let object = &self.collection.object;
        let needs_key = self.collection.require_idempotency_key;
        let headers = ["ETag", "Location", "Idempotent-Replayed"];
        let record = reference("schemas", self.names.record(self.index));
        let mut created = answer("The new record.", &headers, record);
        let links = self.links();
        if !links.is_empty() {
            created["links"] = links.into();
        }
        let mut responses = Map::new();
        responses.insert("201".into(), created);
        responses.extend(errors::responses(&Facets {
            resource: true,
            addressed: !self.outer().is_empty(),
            body: true,
            write: true,
            idempotency: Some(needs_key),
            counted: matches!(self.collection.builtin, Some(Builtin::Endpoint | Builtin::Replay)),
            ..Facets::default()
        }));
        self.operation(Operation {
            id: self.names.operation("create", self.index),
            summary: format!("Create a {object}"),
            description: format!(
                "Creates a {object} and returns the full record. With an `Idempotency-Key` \
                 the request can be repeated safely."
            ),
            parameters: vec![parameters::shared(parameters::idempotency_key_name(needs_key))],
            body: Some(body("The new record.", &[JSON], &self.names.create(self.index), true)),
            responses,
        })
    }

    fn get(&self) -> Value {
        let object = &self.collection.object;
        let mut query = parameters::view(self.schema, self.names, self.index);
        query.push(parameters::shared("IfNoneMatch"));
        let mut responses = Map::new();
        responses.insert("200".into(), self.record());
        responses.insert("304".into(), unchanged());
        let facets = Facets { resource: true, addressed: true, ..Facets::default() };
        responses.extend(errors::responses(&facets));
        self.operation(Operation {
            id: self.names.operation("get", self.index),
            summary: format!("Get a {object}"),
            description: format!("Returns one {object}."),
            parameters: query,
            body: None,
            responses,
        })
    }

    fn replace(&self) -> Value {
        let object = &self.collection.object;
        let mut responses = Map::new();
        responses.insert("200".into(), self.record());
        responses.extend(errors::responses(&Facets { body: true, ..self.change() }));
        self.operation(Operation {
            id: self.names.operation("replace", self.index),
            summary: format!("Replace a {object}"),
            description: format!(
                "Replaces the whole {object}: omitted fields get their default or \
                 null. Fields that the service assigns may be sent back unchanged."
            ),
            parameters: vec![self.if_match()],
            body: Some(body("The whole record.", &[JSON], &self.names.create(self.index), true)),
            responses,
        })
    }

    fn update(&self) -> Value {
        let object = &self.collection.object;
        let mut responses = Map::new();
        responses.insert("200".into(), self.record());
        let facets = Facets { body: true, idempotency: Some(false), ..self.change() };
        responses.extend(errors::responses(&facets));
        let types = &["application/merge-patch+json", JSON];
        self.operation(Operation {
            id: self.names.operation("update", self.index),
            summary: format!("Update a {object}"),
            description: format!(
                "Changes the fields of the {object} that are sent, as a JSON merge patch \
                 (RFC 7396): null erases, objects merge, arrays are replaced."
            ),
            parameters: vec![
                self.if_match(),
                parameters::shared(parameters::idempotency_key_name(false)),
            ],
            body: Some(body("The fields to change.", types, &self.names.update(self.index), true)),
            responses,
        })
    }

    /// Whether a delete also deletes other records, whether some may prevent it, and the sentences
    /// that describe them.
    fn deleted_with(&self) -> (bool, bool, String) {
        let schema = self.schema;
        let (mut takes_others, mut restricted) = (false, false);
        for target in schema.deletes(self.index) {
            takes_others |= schema.children(target).next().is_some();
            for (_, _, field) in schema.referrers(target) {
                takes_others = true;
                restricted |= field.on_delete() == OnDelete::Restrict;
            }
        }
        let mut effects = String::new();
        for (ix, _, field) in schema.referrers(self.index) {
            let collection = &schema.collections[ix];
            if collection.removed || field.removed || field.write_only {
                continue;
            }
            let what = match field.on_delete() {
                OnDelete::Restrict => "prevent it with 409 `still_referenced`",
                OnDelete::Cascade => "are deleted with it",
                OnDelete::SetNull => "get null instead",
            };
            // Writing to a String cannot fail.
            let _ = write!(
                effects,
                " Records of `{}` that refer to it by `{}` {what}.",
                collection.name, field.name
            );
        }
        (takes_others, restricted, effects)
    }

    fn delete(&self) -> Value {
        let object = &self.collection.object;
        let (takes_others, restricted, effects) = self.deleted_with();
        let mut responses = Map::new();
        responses.insert("200".into(), reference("responses", "Deleted"));
        responses.extend(errors::responses(&Facets { takes_others, restricted, ..self.change() }));
        self.operation(Operation {
            id: self.names.operation("delete", self.index),
            summary: format!("Delete a {object}"),
            description: format!(
                "Deletes the {object}. A repetition is safe and returns the same response.{effects}"
            ),
            parameters: vec![self.if_match()],
            body: None,
            responses,
        })
    }

    fn act(&self, action: &Action) -> Value {
        let object = &self.collection.object;
        let needs_key = self.collection.require_idempotency_key;
        let mut responses = Map::new();
        let done = match action.native {
            Some(Native::Ping) => {
                let outcome = reference("schemas", names::PING_OUTCOME);
                answer("The result of the ping.", &["Idempotent-Replayed"], outcome)
            }
            _ => self.record(),
        };
        responses.insert("200".into(), done);
        responses.extend(errors::responses(&Facets {
            body: true,
            idempotency: Some(needs_key),
            counted: action.native == Some(Native::RotateSecret),
            action: Some(action),
            ..self.change()
        }));
        let required = action.params.iter().any(Field::must_be_sent);
        let params = self.names.params(self.index, action);
        let about = action.description.clone();
        let about = about.unwrap_or_else(|| format!("Runs `{}` on the {object}.", action.name));
        let allowed = match action.from.as_slice() {
            [] => String::new(),
            states => format!(" Possible while it is {}.", quoted(states)),
        };
        let leads = action.to.as_ref().map(|to| format!(" Afterwards it is `{to}`."));
        self.operation(Operation {
            id: self.names.action(self.index, action),
            summary: format!("{} a {object}", pascal(&action.name)),
            description: format!("{about}{allowed}{}", leads.unwrap_or_default()),
            parameters: vec![
                self.if_match(),
                parameters::shared(parameters::idempotency_key_name(needs_key)),
            ],
            body: (!action.params.is_empty())
                .then(|| body("The parameters.", &[JSON], &params, required)),
            responses,
        })
    }

    /// The properties of every change of an existing record.
    fn change(&self) -> Facets<'a> {
        Facets {
            resource: true,
            addressed: true,
            write: true,
            if_match: Some(self.collection.require_if_match),
            ..Facets::default()
        }
    }

    fn if_match(&self) -> Value {
        parameters::shared(parameters::if_match_name(self.collection.require_if_match))
    }

    /// A response with one record.
    fn record(&self) -> Value {
        reference("responses", &self.names.one(self.index))
    }

    fn operation(&self, operation: Operation) -> Value {
        let mut value = operation.into_value(&self.collection.name);
        let version = &self.schema.service.version;
        let version = self.schema.versions.iter().find(|one| one.date == *version);
        let old = version.is_some_and(|version| version.deprecated.is_some());
        if old || self.collection.deprecated.is_some() {
            value["deprecated"] = true.into();
        }
        value
    }

    /// Links to the operations that take the id of a new record.
    fn links(&self) -> Map<String, Value> {
        let offered = self.collection.operations;
        let resource = [
            ("get", offered.get),
            ("replace", offered.replace),
            ("update", offered.update),
            ("delete", offered.delete),
        ];
        let verbs = resource.into_iter().filter(|(_, offered)| *offered);
        let resource = verbs.map(|(verb, _)| self.names.operation(verb, self.index));
        let actions = self.collection.actions.iter();
        let actions = actions.map(|action| self.names.action(self.index, action));
        let served = |child: &Collection| !child.internal && !child.removed;
        let children = self.schema.children(self.index).filter(|(_, child)| served(child));
        let children = children.flat_map(|(child, declared)| {
            let offered = declared.operations;
            let verbs = [("list", offered.list), ("create", offered.create)];
            let verbs = verbs.into_iter().filter(|(_, offered)| *offered);
            verbs.map(move |(verb, _)| self.names.operation(verb, child))
        });
        let mut ids: Map<String, Value> = Map::new();
        for ancestor in self.outer().iter().map(|at| &self.schema.collections[*at]) {
            let name = format!("{}_id", ancestor.object);
            ids.insert(name.clone(), format!("$request.path.{name}").into());
        }
        ids.insert(format!("{}_id", self.collection.object), "$response.body#/id".into());
        let operations = resource.chain(actions).chain(children);
        let by_path =
            operations.map(|id| (id.clone(), json!({ "operationId": id, "parameters": ids })));
        by_path.chain(self.links_to_referrers()).collect()
    }

    /// Links to creates of records that refer to the new one: its id goes into their body.
    fn links_to_referrers(&self) -> impl Iterator<Item = (String, Value)> {
        let others = self.schema.routed().filter(|(_, other)| {
            // Below a parent, the parent's id would also be needed.
            other.parent.is_none() && other.operations.create
        });
        others.filter_map(|(index, other)| {
            let refers = |field: &&Field| {
                field.reference == Some(self.index) && !field.read_only && !field.removed
            };
            let field = other.fields.iter().find(refers)?;
            let id = self.names.operation("create", index);
            let mut body = Map::new();
            body.insert(field.name.clone(), "$response.body#/id".into());
            Some((id.clone(), json!({ "operationId": id, "requestBody": body })))
        })
    }
}

/// Each name once: an older version may have one word for several states.
fn quoted(names: &[String]) -> String {
    let mut quoted: Vec<String> = Vec::new();
    for name in names.iter().map(|name| format!("`{name}`")) {
        if !quoted.contains(&name) {
            quoted.push(name);
        }
    }
    quoted.join(" or ")
}

/// The routes of the service itself: public, for probes, scrapers and tools.
fn service(schema: &Schema) -> Map<String, Value> {
    let mut paths = Map::new();
    let about = "Reports whether this instance can handle requests; 503 if not.";
    let health = reference("schemas", "Health");
    let mut state = page("health", "Health", about, JSON, health.clone());
    state["get"]["responses"]["503"] = json!({
        "description": "The service drains, is overloaded or stuck, or its store fails.",
        "content": {
            JSON: { "schema": { "anyOf": [health, reference("schemas", errors::shape(schema))] } },
        },
    });
    paths.insert("/health".into(), state);
    let text = || json!({ "type": "string" });
    let about = "Counters and gauges in the text format of Prometheus.";
    paths.insert("/metrics".into(), page("metrics", "Metrics", about, "text/plain", text()));
    let about = "The catalogue of error codes, to which every error body links.";
    paths.insert("/errors".into(), page("errors", "Error codes", about, "text/markdown", text()));
    let about = "The changes of each version.";
    let changelog = page("changelog", "Changes", about, "text/markdown", text());
    paths.insert("/changelog".into(), changelog);
    for (id, summary, about) in [
        ("openapi", "Description", "This document."),
        ("asyncapi", "Description of the live channels", "The messages, as AsyncAPI 3.0."),
    ] {
        let mut contract = page(id, summary, about, JSON, json!({ "type": "object" }));
        contract["get"]["parameters"] = json!([versions::chosen(schema)]);
        paths.insert(format!("/{id}.json"), contract);
    }
    paths
}

fn page(id: &str, summary: &str, description: &str, kind: &str, schema: Value) -> Value {
    let mut responses = errors::responses(&Facets::default());
    let success = json!({
        "description": description,
        "content": { kind: { "schema": schema } },
    });
    responses.insert("200".into(), success);
    let operation = Operation {
        id: id.to_owned(),
        summary: summary.to_owned(),
        description: description.to_owned(),
        parameters: Vec::new(),
        body: None,
        responses,
    };
    let mut operation = operation.into_value(SERVICE_TAG);
    operation["security"] = json!([]);
    json!({ "get": operation })
}
