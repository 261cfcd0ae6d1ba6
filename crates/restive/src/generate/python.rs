//! Generates Python: one module over the package `restive_client`, with a sync and an async client.

use super::contract::{Action, Contract, Event, Input, Note, Resource, Type};
use super::names::{Scope, literal, one_line, snake};
use super::text::Text;

/// Names of the module itself, those that it imports, and words of the language.
pub const RESERVED: &[&str] = &[
    "Any",
    "AsyncClient",
    "AsyncIterator",
    "AsyncList",
    "Client",
    "D",
    "Enum",
    "False",
    "Filter",
    "Generic",
    "Iterator",
    "K",
    "List",
    "Literal",
    "LiveMessage",
    "Mapping",
    "NULL",
    "None",
    "Null",
    "RequestOptions",
    "Sequence",
    "T",
    "True",
    "TypedDict",
    "TypeVar",
    "Union",
    "WriteOptions",
];

/// Words of the language that cannot be the name of a member or an argument.
const KEYWORDS: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Types that annotations name: a member with such a name would hide the type from those after it.
const TYPES: &[&str] = &["bool", "dict", "float", "int", "list", "str"];

const OF_CLIENT: &[&str] = &["client", "close", "follow"];
/// The types are here because annotations of later methods name them.
const OF_RESOURCE: &[&str] = &[
    "list", "get", "create", "replace", "update", "delete", "poll", "bool", "dict", "float", "int",
    "str",
];

/// Columns of a line of code.
const WIDTH: usize = 100;

/// Whether the class is the one of the async client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sync,
    Async,
}

impl Mode {
    fn class(self, name: &str) -> String {
        match self {
            Mode::Sync => name.to_owned(),
            Mode::Async => format!("Async{name}"),
        }
    }

    fn def(self) -> &'static str {
        match self {
            Mode::Sync => "def",
            Mode::Async => "async def",
        }
    }

    fn wait(self) -> &'static str {
        match self {
            Mode::Sync => "",
            Mode::Async => "await ",
        }
    }
}

pub fn generate(contract: &Contract) -> String {
    let mut text = Text::new("    ");
    head(&mut text, contract);
    for resource in &contract.resources {
        models(&mut text, resource);
    }
    events(&mut text, contract);
    for mode in [Mode::Sync, Mode::Async] {
        // A method names the class of its children, which annotations may do before it is defined.
        for resource in &contract.resources {
            class(&mut text, contract, resource, mode);
        }
        client(&mut text, contract, mode);
    }
    helpers(&mut text);
    text.finish()
}

fn quoted(text: &str) -> String {
    literal(text, |code| match code {
        0..=0xff => format!("\\x{code:02x}"),
        _ => format!("\\u{code:04x}"),
    })
}

fn head(text: &mut Text, contract: &Contract) {
    text.comment(
        "#",
        &format!(
            "Made by `restive generate python` for the service {}, version {}. Do not edit: \
             generate it again when the schema changes.",
            contract.service, contract.version
        ),
    );
    let lines = r#"
from __future__ import annotations

from enum import Enum
from typing import (
    Any,
    AsyncIterator,
    Generic,
    Iterator,
    Literal,
    Mapping,
    Sequence,
    TypedDict,
    TypeVar,
    Union,
    cast as _cast,
)

from restive_client import AsyncClient, AsyncList, Client, List, path

T = TypeVar("T")
K = TypeVar("K")
D = TypeVar("D")


class Null(Enum):
    """In a filter: finds records without a value."""

    NULL = "null"


NULL = Null.NULL

# A filter: one value or several.
Filter = Union[T, Null, Sequence[Union[T, Null]]]


class RequestOptions(TypedDict, total=False):
    headers: Mapping[str, str]
    timeout: float
    max_retries: int
    version: str


class WriteOptions(RequestOptions, total=False):
    idempotency_key: str
    # An ETag, or a record that was read: write only if it has not changed since.
    if_match: Any


class LiveMessage(Generic[K, D]):
    """A message of the live channels."""

    type: K
    data: D
    position: str"#;
    text.lines(lines);
}

fn type_of(kind: &Type) -> String {
    match kind {
        Type::Text | Type::Timestamp | Type::Date => "str".to_owned(),
        Type::Integer => "int".to_owned(),
        Type::Number => "float".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::Object => "dict[str, Any]".to_owned(),
        Type::List(items) => format!("list[{}]", type_of(items)),
        Type::Word(word) => format!("Literal[{}]", quoted(word)),
        Type::Enum(name) => name.clone(),
    }
}

/// What a client may send.
fn input_type(kind: &Type) -> String {
    match kind {
        Type::Object => "Mapping[str, Any]".to_owned(),
        Type::List(items) => format!("Sequence[{}]", type_of(items)),
        kind => type_of(kind),
    }
}

fn optional(kind: String, nullable: bool) -> String {
    if nullable { format!("{kind} | None") } else { kind }
}

/// A type as a string, since names in it may be defined later.
fn quoted_type(kind: &str) -> String {
    match kind.contains(['\'', '\\']) {
        true => quoted(kind),
        false => format!("'{kind}'"),
    }
}

/// One key of a TypedDict.
struct Key<'a> {
    name: &'a str,
    kind: String,
    note: Option<&'a Note>,
}

/// A TypedDict. Keys that cannot be members of a class need the other form of the declaration.
fn typed_dict(text: &mut Text, name: &str, bases: &str, about: Option<&str>, keys: &[Key<'_>]) {
    let is_member = |key: &Key<'_>| !KEYWORDS.contains(&key.name) && !TYPES.contains(&key.name);
    text.line("").line("");
    if !keys.iter().all(is_member) {
        if let Some(about) = about {
            text.comment("#", about);
        }
        text.line(&format!("{name} = TypedDict("));
        text.inside(|text| {
            text.line(&format!("{},", quoted(name)));
            text.line("{");
            text.inside(|text| {
                for key in keys {
                    comment(text, key);
                    text.line(&format!("{}: {},", quoted(key.name), quoted_type(&key.kind)));
                }
            });
            text.line("},");
            if bases.contains("total=False") {
                text.line("total=False,");
            }
        });
        text.line(")");
        return;
    }
    text.line(&format!("class {name}({bases}):"));
    text.inside(|text| {
        if let Some(about) = about {
            text.line(&docstring(about));
            if !keys.is_empty() {
                text.line("");
            }
        }
        for key in keys {
            comment(text, key);
            text.line(&format!("{}: {}", key.name, key.kind));
        }
        if keys.is_empty() && about.is_none() {
            text.line("pass");
        }
    });
}

fn comment(text: &mut Text, key: &Key<'_>) {
    let Some(note) = key.note else { return };
    let words = note.text.as_deref().map(one_line).unwrap_or_default();
    let old = if note.deprecated { " Deprecated." } else { "" };
    text.comment("#", format!("{words}{old}").trim());
}

fn docstring(words: &str) -> String {
    let words = one_line(words).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"\"\"{words}\"\"\"")
}

fn models(text: &mut Text, resource: &Resource) {
    let base = &resource.base;
    for one in &resource.enums {
        let values: Vec<String> = one.values.iter().map(|value| quoted(value)).collect();
        words(text, &one.name, &values);
    }
    if resource.operations.list {
        let keys = resource.sort.iter().flat_map(|key| [quoted(key), quoted(&format!("-{key}"))]);
        words(text, &format!("{base}Sort"), &keys.collect::<Vec<_>>());
    }
    let about = format!("A record of `{}`.", resource.collection);
    let about = resource.description.as_deref().unwrap_or(&about);
    let members = resource.members.iter().map(|member| Key {
        name: &member.name,
        kind: optional(type_of(&member.kind), member.nullable),
        note: Some(&member.note),
    });
    typed_dict(text, base, "TypedDict", Some(about), &members.collect::<Vec<_>>());
    if resource.operations.create || resource.operations.replace {
        let about = format!("A new {}.", resource.object.replace('_', " "));
        inputs(text, &format!("{base}Create"), &about, &resource.inputs, true);
    }
    if resource.operations.update {
        let about = "The fields to change; None clears a field.";
        inputs(text, &format!("{base}Update"), about, &resource.inputs, false);
    }
    for action in resource.actions.iter().filter(|action| !action.params.is_empty()) {
        let about = format!("Parameters of `{}`.", action.name);
        inputs(text, &action.params_type, &about, &action.params, true);
    }
}

/// A type with these words as values.
fn words(text: &mut Text, name: &str, values: &[String]) {
    text.line("").line("");
    let line = format!("{name} = Literal[{}]", values.join(", "));
    if line.chars().count() <= WIDTH {
        text.line(&line);
        return;
    }
    text.line(&format!("{name} = Literal["));
    text.inside(|text| {
        for value in values {
            text.line(&format!("{value},"));
        }
    });
    text.line("]");
}

/// The fields of a body: those that it must have are in a class of their own, since a class has
/// either required or optional ones in Python 3.10.
fn inputs(text: &mut Text, name: &str, about: &str, inputs: &[Input], whole: bool) {
    let (required, rest): (Vec<&Input>, Vec<&Input>) =
        inputs.iter().partition(|input| whole && input.required);
    let required: Vec<Key<'_>> = required.into_iter().map(input_key).collect();
    let rest: Vec<Key<'_>> = rest.into_iter().map(input_key).collect();
    match (required.is_empty(), rest.is_empty()) {
        (true, _) => typed_dict(text, name, "TypedDict, total=False", Some(about), &rest),
        (false, true) => typed_dict(text, name, "TypedDict", Some(about), &required),
        (false, false) => {
            let (must, may) = (format!("_{name}Required"), format!("_{name}Optional"));
            typed_dict(text, &must, "TypedDict", None, &required);
            typed_dict(text, &may, "TypedDict, total=False", None, &rest);
            typed_dict(text, name, &format!("{must}, {may}"), Some(about), &[]);
        }
    }
}

fn input_key(input: &Input) -> Key<'_> {
    let kind = optional(input_type(&input.kind), input.nullable);
    Key { name: &input.name, kind, note: Some(&input.note) }
}

fn class(text: &mut Text, contract: &Contract, resource: &Resource, mode: Mode) {
    let class = mode.class(&resource.class);
    text.line("").line("").line(&format!("class {class}:"));
    text.inside(|text| {
        text.line(&docstring(&format!("The operations on `{}`.", resource.collection)));
        text.line("");
        let client = mode.class("Client");
        text.line(&format!("def __init__(self, client: {client}, path: str) -> None:"));
        text.inside(|text| {
            text.line("self._client = client").line("self._path = path");
        });
        operations(text, resource, mode);
        let mut scope = Scope::new(&[OF_RESOURCE, KEYWORDS].concat());
        for action in &resource.actions {
            act(text, resource, action, &scope.name(&snake(&action.name), "_"), mode);
        }
        for child in resource.children.iter().map(|child| &contract.resources[*child]) {
            let name = scope.name(&snake(&child.collection), "_");
            let class = mode.class(&child.class);
            text.line("");
            text.line(&format!("def {name}(self, id: {}) -> {class}:", id_type(resource)));
            text.inside(|text| {
                text.line(&docstring(&format!("The `{}` of one record.", child.collection)));
                let path = format!("self._path + path(\"/{{}}/{}\", id)", child.path);
                text.line(&format!("return {class}(self._client, {path})"));
            });
        }
    });
}

fn id_type(resource: &Resource) -> &'static str {
    if resource.poll.is_some() { "int" } else { "str" }
}

const ONE: &str = "self._path + path(\"/{}\", id)";

/// A method that sends one request.
struct Method<'a> {
    name: &'a str,
    about: &'a str,
    arguments: String,
    /// What it returns, and the call that returns it.
    result: &'a str,
    call: String,
}

fn method(text: &mut Text, method: &Method<'_>, mode: Mode) {
    let Method { name, about, arguments, result, call } = method;
    let (def, wait) = (mode.def(), mode.wait());
    text.line("");
    let line = format!("{def} {name}(self, {arguments}) -> {result}:");
    if line.len() + 4 <= WIDTH {
        text.line(&line);
    } else {
        text.line(&format!("{def} {name}("));
        text.inside(|text| {
            text.line(&format!("self, {arguments}"));
        });
        text.line(&format!(") -> {result}:"));
    }
    text.inside(|text| {
        text.line(&docstring(about));
        match *result {
            "None" => text.line(&format!("{wait}{call}")),
            result => text.line(&format!("return _cast({}, {wait}{call})", quoted(result))),
        };
    });
}

fn operations(text: &mut Text, resource: &Resource, mode: Mode) {
    let (base, id) = (&resource.base, id_type(resource));
    let offered = resource.operations;
    if offered.list {
        list(text, resource, mode);
    }
    let body = |argument: &str, kind: &str| {
        format!("{argument}: {base}{kind}, *, options: WriteOptions | None = None")
    };
    let table = [
        (
            offered.get,
            "get",
            "One record.",
            format!("id: {id}, *, options: RequestOptions | None = None"),
            format!("self._client.get({ONE}, **(options or {{}}))"),
        ),
        (
            offered.create,
            "create",
            "Creates a record.",
            body("body", "Create"),
            "self._client.post(self._path, body, **(options or {}))".to_owned(),
        ),
        (
            offered.replace,
            "replace",
            "Replaces a record: fields that are omitted get their default or None.",
            format!("id: {id}, {}", body("body", "Create")),
            format!("self._client.put({ONE}, body, **(options or {{}}))"),
        ),
        (
            offered.update,
            "update",
            "Changes some fields of a record.",
            format!("id: {id}, {}", body("changes", "Update")),
            format!("self._client.patch({ONE}, changes, **(options or {{}}))"),
        ),
        (
            offered.delete,
            "delete",
            "Deletes a record.",
            format!("id: {id}, *, options: WriteOptions | None = None"),
            format!("self._client.delete({ONE}, **(options or {{}}))"),
        ),
    ];
    for (_, name, about, arguments, call) in table.into_iter().filter(|(offered, ..)| *offered) {
        let result = if name == "delete" { "None" } else { base.as_str() };
        method(text, &Method { name, about, arguments, result, call }, mode);
    }
    if let Some(poll) = resource.poll.as_ref().filter(|_| offered.list) {
        let query = "{\"since\": since, \"wait\": wait, \"limit\": limit}";
        let arguments = "*, since: int | str | None = None, wait: bool | None = None, \
             limit: int | None = None, options: RequestOptions | None = None";
        let made = Method {
            name: "poll",
            about: "The records after a position, oldest first; with `wait`, as soon as there are \
                    some.",
            arguments: arguments.to_owned(),
            result: &format!("Sequence[{base}]"),
            call: format!(
                "self._client.get({}, _query({query}), **(options or {{}}))",
                quoted(poll)
            ),
        };
        method(text, &made, mode);
    }
}

fn list(text: &mut Text, resource: &Resource, mode: Mode) {
    let base = &resource.base;
    let mut scope = Scope::new(&[KEYWORDS, &["self", "options"]].concat());
    let mut sent = Vec::new();
    text.line("").line("def list(");
    text.inside(|text| {
        text.line("self,").line("*,");
        for filter in &resource.filters {
            let name = scope.name(&filter.name, "_");
            let kind = type_of(&filter.kind);
            text.line(&format!("{name}: Filter[{kind}] | None = None,"));
            sent.push((filter.name.as_str(), name));
        }
        for bound in &resource.bounds {
            let name = scope.name(&bound.name, "_");
            text.line(&format!("{name}: {} | None = None,", type_of(&bound.kind)));
            sent.push((bound.name.as_str(), name));
        }
        let sort = format!("{base}Sort | Sequence[{base}Sort]");
        for (wanted, name, kind) in [
            (resource.searchable, "q", "str"),
            (true, "sort", sort.as_str()),
            (true, "limit", "int"),
            (true, "page", "int"),
            (true, "after", "str"),
        ] {
            if wanted {
                text.line(&format!("{name}: {kind} | None = None,"));
                sent.push((name, name.to_owned()));
            }
        }
        text.line("options: RequestOptions | None = None,");
    });
    let result = format!("{}[{base}]", mode.class("List"));
    text.line(&format!(") -> {result}:"));
    text.inside(|text| {
        text.line(&docstring("All records that match, read page by page."));
        // No argument begins with an underscore.
        text.line("_sent = _query(");
        text.inside(|text| {
            text.line("{");
            text.inside(|text| {
                for (parameter, name) in sent {
                    text.line(&format!("{}: {name},", quoted(parameter)));
                }
            });
            text.line("}");
        });
        text.line(")");
        let call = "self._client.list(self._path, _sent, **(options or {}))";
        text.line(&format!("return _cast({}, {call})", quoted(&result)));
    });
}

fn act(text: &mut Text, resource: &Resource, action: &Action, name: &str, mode: Mode) {
    let needed = action.params.iter().any(|param| param.required);
    let params = match (action.params.is_empty(), needed) {
        (true, _) => String::new(),
        (false, true) => format!("params: {}, ", action.params_type),
        (false, false) => format!("params: {} | None = None, ", action.params_type),
    };
    let sent = match (action.params.is_empty(), needed) {
        (true, _) => "None",
        (false, true) => "params",
        (false, false) => "params or {}",
    };
    let about = format!("Runs the action `{}`.", action.name);
    let path = format!("self._path + path(\"/{{}}/{}\", id)", action.name);
    let made = Method {
        name,
        about: action.description.as_deref().unwrap_or(&about),
        arguments: format!(
            "id: {}, {params}*, options: WriteOptions | None = None",
            id_type(resource)
        ),
        result: &resource.base,
        call: format!("self._client.post({path}, {sent}, **(options or {{}}))"),
    };
    method(text, &made, mode);
}

fn events(text: &mut Text, contract: &Contract) {
    let lines = r#"

class _Request(TypedDict):
    id: str | None
    idempotency_key: str | None


class _Envelope(TypedDict):
    id: str
    object: Literal["event"]
    api_version: str
    # Unix time in seconds.
    created: int
    livemode: bool
    pending_webhooks: int
    request: _Request"#;
    text.lines(lines);
    data(text, "_Any", "dict[str, Any]");
    for resource in &contract.resources {
        data(text, &format!("_{}", resource.base), &resource.base);
    }
    for event in &contract.events {
        text.line("").line("").line(&format!("class {}(_Envelope):", event.class));
        text.inside(|text| {
            let published = || format!("The event `{}`.", event.name);
            let about = event.description.clone().unwrap_or_else(published);
            text.line(&docstring(&about)).line("");
            text.line(&format!("type: Literal[{}]", quoted(&event.name)));
            text.line(&format!("data: {}", data_type(contract, event)));
        });
    }
    text.line("").line("");
    text.line("# Every event, told apart by `type`: in webhooks and in the log.");
    let all: Vec<String> = contract.events.iter().map(|event| event.class.clone()).collect();
    union(text, &format!("{}Event", contract.class), &all);
    text.line("");
    text.line("# Every message of the live channels that is in the log, told apart by `type`.");
    let all = contract.events.iter().map(|event| {
        let (name, data) = match (&event.live_name, event.resource) {
            (Some(live), Some(place)) => (live, contract.resources[place].base.clone()),
            _ => (&event.name, event.class.clone()),
        };
        format!("LiveMessage[Literal[{}], {data}]", quoted(name))
    });
    union(text, &format!("{}Message", contract.class), &all.collect::<Vec<_>>());
}

/// The data of an event about a record, without and with old values.
fn data(text: &mut Text, name: &str, record: &str) {
    let about = "If the record was erased, only `id`, `object` and `erased` are in `object`.";
    text.line("").line("").line(&format!("class {name}Data(TypedDict):"));
    text.inside(|text| {
        text.line(&docstring(about)).line("");
        text.line(&format!("object: {record}"));
    });
    text.line("").line("").line(&format!("class {name}Change({name}Data, total=False):"));
    text.inside(|text| {
        text.line("# Old values of the fields that changed.");
        text.line("previous_attributes: dict[str, Any]");
    });
}

fn data_type(contract: &Contract, event: &Event) -> String {
    let name = event.resource.map_or("Any", |place| &contract.resources[place].base);
    let kind = if event.has_previous { "Change" } else { "Data" };
    format!("_{name}{kind}")
}

fn union(text: &mut Text, name: &str, types: &[String]) {
    if types.is_empty() {
        text.line(&format!("{name} = Any"));
        return;
    }
    text.line(&format!("{name} = Union["));
    text.inside(|text| {
        for one in types {
            text.line(&format!("{one},"));
        }
    });
    text.line("]");
}

fn client(text: &mut Text, contract: &Contract, mode: Mode) {
    let (class, client) = (mode.class(&contract.class), mode.class("Client"));
    let mut scope = Scope::new(&[OF_CLIENT, KEYWORDS].concat());
    text.line("").line("").line(&format!("class {class}:"));
    text.inside(|text| {
        text.line(&docstring("The client; `client` sends requests that have no method here."));
        text.line("");
        text.line("def __init__(self, url: str, key: Any = None, **options: Any) -> None:");
        text.inside(|text| {
            text.line(&format!("options.setdefault(\"version\", {})", quoted(&contract.version)));
            text.line(&format!("self.client = {client}(url, key, **options)"));
            for resource in contract.resources.iter().filter(|one| one.parent.is_none()) {
                let name = scope.name(&snake(&resource.collection), "_");
                let class = mode.class(&resource.class);
                let path = quoted(&resource.path);
                text.line(&format!("self.{name} = {class}(self.client, {path})"));
            }
        });
        let iterator = match mode {
            Mode::Sync => "Iterator",
            Mode::Async => "AsyncIterator",
        };
        let result = format!("{iterator}[{}Message]", contract.class);
        text.line("").line(&format!("def follow(self, **options: Any) -> {result}:"));
        text.inside(|text| {
            let about = "Every committed change, as it happens. Ignore types that you do not know.";
            text.line(&docstring(about));
            text.line(&format!("return _cast({}, self.client.follow(**options))", quoted(&result)));
        });
        closing(text, &class, mode);
    });
}

/// The class as a context manager.
fn closing(text: &mut Text, class: &str, mode: Mode) {
    let (def, wait) = (mode.def(), mode.wait());
    let (enter, exit, close) = match mode {
        Mode::Sync => ("__enter__", "__exit__", "close"),
        Mode::Async => ("__aenter__", "__aexit__", "close"),
    };
    for (signature, call) in [
        (format!("{def} {close}(self) -> None:"), format!("{wait}self.client.{close}()")),
        (format!("{def} {enter}(self) -> {class}:"), "return self".to_owned()),
        (format!("{def} {exit}(self, *_: Any) -> None:"), format!("{wait}self.{close}()")),
    ] {
        text.line("").line(&signature);
        text.inside(|text| {
            text.line(&call);
        });
    }
}

const HELPERS: &str = r#"

def _query(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that were given. The client sends None as `null`."""
    return {name: _value(value) for name, value in parameters.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_value(one) for one in value]
    return None if value is NULL else value
"#;

fn helpers(text: &mut Text) {
    text.lines(HELPERS);
}
