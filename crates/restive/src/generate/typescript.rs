//! Generates TypeScript: one module over the package `restive-client`.

use super::contract::{Action, Contract, Input, Member, Note, Resource, Type};
use super::names::{Scope, camel, literal, one_line};
use super::text::Text;

/// Names of the module itself, and those of the language that it uses.
pub const RESERVED: &[&str] = &[
    "AsyncIterable",
    "Array",
    "BigInt",
    "Boolean",
    "Change",
    "Data",
    "Envelope",
    "Client",
    "ClientOptions",
    "Date",
    "Embedded",
    "Error",
    "Filter",
    "FollowOptions",
    "Function",
    "InEvent",
    "Infinity",
    "Iterable",
    "Iterator",
    "JSON",
    "List",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Omit",
    "Partial",
    "Pick",
    "Promise",
    "PromiseLike",
    "Proxy",
    "Readonly",
    "Record",
    "RequestOptions",
    "Required",
    "Set",
    "Sort",
    "String",
    "Symbol",
    "With",
    "WriteOptions",
];

/// Members of the client's class, and of every object.
const OF_CLIENT: &[&str] = &["client", "constructor", "follow", "then", "toString", "valueOf"];
const OF_RESOURCE: &[&str] = &[
    "client",
    "constructor",
    "path",
    "then",
    "toString",
    "valueOf",
    "list",
    "get",
    "create",
    "replace",
    "update",
    "delete",
    "poll",
];

pub fn generate(contract: &Contract) -> String {
    let mut text = Text::new("  ");
    head(&mut text, contract);
    for resource in &contract.resources {
        models(&mut text, contract, resource);
        class(&mut text, contract, resource);
    }
    events(&mut text, contract);
    client(&mut text, contract);
    text.finish()
}

fn quoted(text: &str) -> String {
    literal(text, |code| format!("\\u{{{code:x}}}"))
}

fn head(text: &mut Text, contract: &Contract) {
    text.comment(
        "//",
        &format!(
            "Made by `restive generate typescript` for the service {}, version {}. Do not edit: \
             generate it again when the schema changes.",
            contract.service, contract.version
        ),
    );
    text.line("");
    text.line("import {");
    text.inside(|text| {
        text.line("Client,");
        text.line("path,");
        for name in ["ClientOptions", "FollowOptions", "List", "RequestOptions", "WriteOptions"] {
            text.line(&format!("type {name},"));
        }
    });
    text.line("} from \"restive-client\";");
    text.line("");
    text.line("/** A filter: one value or several. `null` finds records without a value. */");
    text.line("export type Filter<T> = T | null | readonly (T | null)[];");
    text.line("");
    text.line("/** An order: the name of a field, with `-` before it for descending. */");
    text.line("export type Sort<K extends string> = K | `-${K}` | readonly (K | `-${K}`)[];");
    text.line("");
    text.line("/** Children that are embedded in a record: the newest of them. */");
    text.line("export interface Embedded<T> {");
    text.inside(|text| {
        text.line("object: \"list\";");
        text.line("url: string;");
        text.line("data: T[];");
        text.line("pagination: { next_cursor: string | null; has_more: boolean };");
    });
    text.line("}");
    text.line("");
    text.line("/** A record with embedded ones in place of their ids. */");
    text.line("export type With<T, X, E extends keyof X> = Omit<T, E> & Pick<X, E>;");
    text.line("");
    text.line("/** A record in an event. */");
    text.line("export type InEvent<T> = T & {");
    text.inside(|text| {
        text.line("/** The record was erased: only `id` and `object` are there. */");
        text.line("erased?: true;");
    });
    text.line("};");
}

fn type_of(kind: &Type) -> String {
    match kind {
        Type::Text | Type::Timestamp | Type::Date => "string".to_owned(),
        Type::Integer | Type::Number => "number".to_owned(),
        Type::Boolean => "boolean".to_owned(),
        Type::Object => "Record<string, unknown>".to_owned(),
        Type::List(items) => format!("{}[]", type_of(items)),
        Type::Word(word) => quoted(word),
        Type::Enum(name) => name.clone(),
    }
}

/// What a client may send: a `Date` becomes a timestamp.
fn input_type(kind: &Type) -> String {
    match kind {
        Type::Timestamp => "string | Date".to_owned(),
        Type::List(items) => match **items {
            Type::Timestamp => "readonly (string | Date)[]".to_owned(),
            _ => format!("readonly {}[]", type_of(items)),
        },
        kind => type_of(kind),
    }
}

fn document(text: &mut Text, note: &Note) {
    let mut words = note.text.as_deref().map(comment_text).unwrap_or_default();
    if note.deprecated {
        words = format!("{words} @deprecated").trim().to_owned();
    }
    if !words.is_empty() {
        text.line(&format!("/** {words} */"));
    }
}

/// Text that cannot end the comment.
fn comment_text(text: &str) -> String {
    one_line(text).replace("*/", "*\\/")
}

fn describe(text: &mut Text, words: &str) {
    text.line(&format!("/** {} */", comment_text(words)));
}

fn models(text: &mut Text, contract: &Contract, resource: &Resource) {
    let base = &resource.base;
    for one in &resource.enums {
        let values: Vec<String> = one.values.iter().map(|value| quoted(value)).collect();
        text.line("").line(&format!("export type {} = {};", one.name, values.join(" | ")));
    }
    text.line("");
    let about = format!("A record of `{}`.", resource.collection);
    describe(text, resource.description.as_deref().unwrap_or(&about));
    text.line(&format!("export interface {base} {{"));
    text.inside(|text| resource.members.iter().for_each(|member| member_line(text, member)));
    text.line("}");
    if !resource.expansions.is_empty() {
        text.line("").line(&format!("/** What `expand` embeds in {} {base}. */", article(base)));
        text.line(&format!("export interface {base}Expansions {{"));
        text.inside(|text| {
            for expansion in &resource.expansions {
                let target = &contract.resources[expansion.target].base;
                let kind = match (expansion.many, expansion.nullable) {
                    (true, _) => format!("Embedded<{target}>"),
                    (false, true) => format!("{target} | null"),
                    (false, false) => target.clone(),
                };
                text.line(&format!("{}: {kind};", expansion.name));
            }
        });
        text.line("}");
    }
    if resource.operations.create || resource.operations.replace {
        let about = format!("A new {}.", resource.object.replace('_', " "));
        inputs(text, &format!("{base}Create"), &about, &resource.inputs, true);
    }
    if resource.operations.update {
        let about = "The fields to change; null clears a field.";
        inputs(text, &format!("{base}Update"), about, &resource.inputs, false);
    }
    for action in resource.actions.iter().filter(|action| !action.params.is_empty()) {
        let about = format!("Parameters of `{}`.", action.name);
        inputs(text, &action.params_type, &about, &action.params, true);
    }
    if resource.operations.list {
        query(text, resource);
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" }
}

fn member_line(text: &mut Text, member: &Member) {
    document(text, &member.note);
    let null = if member.nullable { " | null" } else { "" };
    text.line(&format!("{}: {}{null};", member.name, type_of(&member.kind)));
}

fn inputs(text: &mut Text, name: &str, about: &str, inputs: &[Input], whole: bool) {
    text.line("");
    describe(text, about);
    text.line(&format!("export interface {name} {{"));
    text.inside(|text| {
        for input in inputs {
            document(text, &input.note);
            let optional = if whole && input.required { "" } else { "?" };
            let null = if input.nullable { " | null" } else { "" };
            text.line(&format!("{}{optional}: {}{null};", input.name, input_type(&input.kind)));
        }
    });
    text.line("}");
}

fn query(text: &mut Text, resource: &Resource) {
    text.line("").line(&format!("export interface {}Query {{", resource.base));
    text.inside(|text| {
        for filter in &resource.filters {
            text.line(&format!("{}?: Filter<{}>;", filter.name, input_type(&filter.kind)));
        }
        for bound in &resource.bounds {
            text.line(&format!("{}?: {};", bound.name, input_type(&bound.kind)));
        }
        if resource.searchable {
            text.line("/** Words that must all occur in the record. */").line("q?: string;");
        }
        let keys: Vec<String> = resource.sort.iter().map(|key| quoted(key)).collect();
        text.line(&format!("sort?: Sort<{}>;", keys.join(" | ")));
        text.line("/** Records per page. */").line("limit?: number;");
        text.line("/** Number of an offset page, from 1. */").line("page?: number;");
        text.line("/** Cursor of a page. */").line("after?: string;");
    });
    text.line("}");
}

fn class(text: &mut Text, contract: &Contract, resource: &Resource) {
    let class = &resource.class;
    text.line("").line(&format!("/** The operations on `{}`. */", resource.collection));
    text.line(&format!("export class {class} {{"));
    text.inside(|text| {
        text.line("readonly client: Client;");
        text.line("readonly path: string;");
        text.line("");
        text.line("constructor(client: Client, path: string) {");
        text.inside(|text| {
            text.line("this.client = client;").line("this.path = path;");
        });
        text.line("}");
        operations(text, resource);
        let mut scope = Scope::new(OF_RESOURCE);
        for action in &resource.actions {
            act(text, resource, action, &scope.name(&camel(&action.name), "Action"));
        }
        for child in resource.children.iter().map(|child| &contract.resources[*child]) {
            let name = scope.name(&camel(&child.collection), "Of");
            text.line("").line(&format!("/** The `{}` of one record. */", child.collection));
            text.line(&format!("{name}(id: {}): {} {{", id_type(resource), child.class));
            text.inside(|text| {
                let path = format!("this.path + path`/${{id}}/{}`", child.path);
                text.line(&format!("return new {}(this.client, {path});", child.class));
            });
            text.line("}");
        }
    });
    text.line("}");
}

fn id_type(resource: &Resource) -> &'static str {
    if resource.poll.is_some() { "number" } else { "string" }
}

const ONE: &str = "this.path + path`/${id}`";

/// Columns of a line of code.
const WIDTH: usize = 98;

/// A method: its name with type parameters, its parameters, its result and what it returns.
fn method(text: &mut Text, about: &str, name: &str, parameters: &[&str], result: &str, call: &str) {
    text.line("");
    describe(text, about);
    let parameters: Vec<&str> = parameters.iter().copied().filter(|one| !one.is_empty()).collect();
    let line = format!("{name}({}): {result} {{", parameters.join(", "));
    if line.len() <= WIDTH {
        text.line(&line);
    } else {
        text.line(&format!("{name}("));
        text.inside(|text| {
            for parameter in parameters {
                text.line(&format!("{parameter},"));
            }
        });
        text.line(&format!("): {result} {{"));
    }
    text.inside(|text| {
        text.line(&format!("return {call};"));
    });
    text.line("}");
}

fn operations(text: &mut Text, resource: &Resource) {
    let (base, id) = (&resource.base, id_type(resource));
    let offered = resource.operations;
    // Without anything to expand there are no type parameters.
    let (generic, expand, one) = match resource.expansions.is_empty() {
        true => (String::new(), String::new(), base.clone()),
        false => (
            format!("<E extends keyof {base}Expansions = never>"),
            "expand?: readonly E[]".to_owned(),
            format!("With<{base}, {base}Expansions, E>"),
        ),
    };
    let read = "options?: RequestOptions";
    if offered.list {
        let query = match expand.is_empty() {
            true => format!("query: {base}Query = {{}}"),
            false => format!("query: {base}Query & {{ {expand} }} = {{}}"),
        };
        method(
            text,
            "All records that match: `for await` reads them page by page, `await` reads one page.",
            &format!("list{generic}"),
            &[&query, read],
            &format!("List<{one}>"),
            "this.client.list(this.path, query, options)",
        );
    }
    if offered.get {
        let (query, sent) = match expand.is_empty() {
            true => (String::new(), "{}"),
            false => (format!("query: {{ {expand} }} = {{}}"), "query"),
        };
        method(
            text,
            "One record.",
            &format!("get{generic}"),
            &[&format!("id: {id}"), &query, read],
            &format!("Promise<{one}>"),
            &format!("this.client.get({ONE}, {sent}, options)"),
        );
    }
    writes(text, resource);
    poll(text, resource);
}

const WRITE: &str = "options?: WriteOptions";

fn writes(text: &mut Text, resource: &Resource) {
    let base = &resource.base;
    let (id, result) = (format!("id: {}", id_type(resource)), format!("Promise<{base}>"));
    let (whole, changes) = (format!("body: {base}Create"), format!("changes: {base}Update"));
    let offered = resource.operations;
    if offered.create {
        let call = "this.client.post(this.path, body, options)";
        method(text, "Creates a record.", "create", &[&whole, WRITE], &result, call);
    }
    if offered.replace {
        let about = "Replaces a record: fields that are omitted get their default or null.";
        let call = format!("this.client.put({ONE}, body, options)");
        method(text, about, "replace", &[&id, &whole, WRITE], &result, &call);
    }
    if offered.update {
        let about = "Changes some fields of a record.";
        let call = format!("this.client.patch({ONE}, changes, options)");
        method(text, about, "update", &[&id, &changes, WRITE], &result, &call);
    }
    if offered.delete {
        let call = format!("this.client.delete({ONE}, options)");
        method(text, "Deletes a record.", "delete", &[&id, WRITE], "Promise<void>", &call);
    }
}

fn poll(text: &mut Text, resource: &Resource) {
    let Some(poll) = resource.poll.as_ref().filter(|_| resource.operations.list) else { return };
    method(
        text,
        "The records after a position, oldest first; with `wait`, as soon as there are some.",
        "poll",
        &[
            "query: { since?: number | string; wait?: boolean; limit?: number } = {}",
            "options?: RequestOptions",
        ],
        &format!("Promise<{}[]>", resource.base),
        &format!("this.client.get({}, query, options)", quoted(poll)),
    );
}

fn act(text: &mut Text, resource: &Resource, action: &Action, name: &str) {
    let needed = action.params.iter().any(|param| param.required);
    let params = match (action.params.is_empty(), needed) {
        (true, _) => String::new(),
        (false, true) => format!("params: {}", action.params_type),
        (false, false) => format!("params: {} = {{}}", action.params_type),
    };
    let sent = if action.params.is_empty() { "undefined" } else { "params" };
    let about = format!("Runs the action `{}`.", action.name);
    let path = format!("this.path + path`/${{id}}/{}`", action.name);
    method(
        text,
        action.description.as_deref().unwrap_or(&about),
        name,
        &[&format!("id: {}", id_type(resource)), &params, WRITE],
        &format!("Promise<{}>", resource.base),
        &format!("this.client.post({path}, {sent}, options)"),
    );
}

fn events(text: &mut Text, contract: &Contract) {
    text.line("").lines(ENVELOPE.trim());
    for event in &contract.events {
        let about = match (&event.description, event.resource) {
            (Some(description), _) => description.clone(),
            (None, Some(_)) => format!("The event `{}`.", event.name),
            (None, None) => format!("The event `{}`, published by an application.", event.name),
        };
        let record = event.resource.map(|place| contract.resources[place].base.as_str());
        let record = record.unwrap_or("Record<string, unknown>");
        let data = if event.has_previous { "Change" } else { "Data" };
        text.line("");
        describe(text, &about);
        let (class, name) = (&event.class, quoted(&event.name));
        text.line(&format!("export type {class} = Envelope<{name}, {data}<{record}>>;"));
    }
    let class = &contract.class;
    text.line("").line("/** Every event, told apart by `type`: in webhooks and in the log. */");
    let all: Vec<String> = contract.events.iter().map(|event| event.class.clone()).collect();
    union(text, &format!("{class}Event"), &all);
    text.line("");
    text.line(
        "/** Every message of the live channels that is in the log, told apart by `type`. */",
    );
    let all = contract.events.iter().map(|event| {
        let (name, data) = match (&event.live_name, event.resource) {
            (Some(live), Some(place)) => {
                (live, format!("InEvent<{}>", contract.resources[place].base))
            }
            _ => (&event.name, event.class.clone()),
        };
        format!("{{ type: {}; data: {data}; position: string }}", quoted(name))
    });
    union(text, &format!("{class}Message"), &all.collect::<Vec<_>>());
}

fn union(text: &mut Text, name: &str, types: &[String]) {
    if types.is_empty() {
        text.line(&format!("export type {name} = never;"));
        return;
    }
    text.line(&format!("export type {name} ="));
    text.inside(|text| {
        for (place, one) in types.iter().enumerate() {
            let end = if place + 1 == types.len() { ";" } else { "" };
            text.line(&format!("| {one}{end}"));
        }
    });
}

/// The parts that all events have.
const ENVELOPE: &str = r#"
export interface Envelope<K extends string, D> {
  /** The same each time the event is sent: skip ids that you have processed. */
  id: string;
  object: "event";
  type: K;
  api_version: string;
  /** Unix time in seconds. */
  created: number;
  livemode: boolean;
  pending_webhooks: number;
  data: D;
  request: { id: string | null; idempotency_key: string | null };
}

export interface Data<T> {
  object: InEvent<T>;
}

export interface Change<T> extends Data<T> {
  /** Old values of the fields that changed. */
  previous_attributes?: Partial<T>;
}
"#;

fn client(text: &mut Text, contract: &Contract) {
    let class = &contract.class;
    let mut scope = Scope::new(OF_CLIENT);
    let top: Vec<(String, &Resource)> = contract
        .resources
        .iter()
        .filter(|resource| resource.parent.is_none())
        .map(|resource| (scope.name(&camel(&resource.collection), "Collection"), resource))
        .collect();
    text.line("").line("/** The client of the service. */");
    text.line(&format!("export class {class} {{"));
    text.inside(|text| {
        text.line("/** For requests that have no method here. */");
        text.line("readonly client: Client;");
        for (name, resource) in &top {
            text.line(&format!("readonly {name}: {};", resource.class));
        }
        text.line("");
        text.line("constructor(options: ClientOptions) {");
        text.inside(|text| {
            let version = quoted(&contract.version);
            text.line(&format!("this.client = new Client({{ version: {version}, ...options }});"));
            for (name, resource) in &top {
                let path = quoted(&resource.path);
                let made = format!("new {}(this.client, {path})", resource.class);
                text.line(&format!("this.{name} = {made};"));
            }
        });
        text.line("}");
        text.line("");
        text.line(
            "/** Every committed change, as it happens. Ignore types that you do not know. */",
        );
        text.line(&format!("follow(options?: FollowOptions): AsyncIterable<{class}Message> {{"));
        text.inside(|text| {
            let cast = format!("as AsyncIterable<unknown> as AsyncIterable<{class}Message>");
            text.line(&format!("return this.client.follow(options) {cast};"));
        });
        text.line("}");
    });
    text.line("}");
}
