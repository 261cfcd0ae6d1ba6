//! The routes for keys and accounts, which need the scope `admin`.

use super::errors::{self, Facets};
use super::names::{ACCOUNT, ACCOUNT_CHANGE, ACCOUNT_LIST, ACCOUNT_NAME, NEW_KEY, Names, ROLL};
use super::operation::{self, JSON, Operation, SERVICE_TAG, answer};
use super::requests::{self, TEXT};
use super::{parameters, reference};
use crate::admin::{DIGEST, MAX_NAME_CHARS, MAX_OVERLAP_HOURS, MAX_SCOPES};
use crate::route::Own;
use crate::scope;
use model::schema::{Builtin, CollectionIx, Schema};
use serde_json::{Map, Value, json};

pub fn paths(schema: &Schema, names: &Names) -> Map<String, Value> {
    let routes = Routes { schema, names, keys: schema.own(Builtin::Key) };
    let path = |own: Own| format!("{}/{}", schema.service.mount, own.template());
    let with_id = |mut operations: Value, name: &str| {
        operations["parameters"] = json!([id(name)]);
        operations
    };
    Map::from_iter([
        (path(Own::Keys), json!({ "get": routes.list_keys(), "post": routes.create_key() })),
        (path(Own::Key), with_id(routes.one_key(), "key")),
        (path(Own::KeyRoll), with_id(json!({ "post": routes.roll_key() }), "key")),
        (path(Own::Accounts), routes.accounts()),
        (path(Own::OneAccount), with_id(routes.one_account(), "account")),
    ])
}

pub fn schemas(schema: &Schema, names: &Names) -> Map<String, Value> {
    let keys = schema.own(Builtin::Key);
    let list = |of: &str| {
        json!({
            "type": "object",
            "description": "A page of a list.",
            "properties": {
                "object": { "type": "string", "const": "list" },
                "data": { "type": "array", "items": reference("schemas", of) },
                "pagination": reference("schemas", "Pagination"),
            },
            "required": ["data", "pagination"],
        })
    };
    let mut name = name();
    name["type"] = "string".into();
    let account = |required: &[&str]| {
        json!({
            "type": "object",
            "description": "The fields of an account that can be set.",
            "properties": { "name": name },
            "required": required,
            "additionalProperties": false,
        })
    };
    Map::from_iter([
        (names.record(keys).to_owned(), key()),
        (names.list(keys), list(names.record(keys))),
        (names.create(keys), key_body(schema, true)),
        (names.update(keys), key_body(schema, false)),
        (NEW_KEY.to_owned(), new_key(names.record(keys))),
        (ROLL.to_owned(), roll()),
        (ACCOUNT_LIST.to_owned(), list(ACCOUNT)),
        (ACCOUNT_NAME.to_owned(), account(&["name"])),
        (ACCOUNT_CHANGE.to_owned(), account(&[])),
    ])
}

struct Routes<'a> {
    schema: &'a Schema,
    names: &'a Names,
    keys: CollectionIx,
}

/// The facets of routes for administrators.
fn facets() -> Facets<'static> {
    Facets { resource: true, ..Facets::default() }
}

fn operation(
    (id, summary, description): (&str, &str, &str),
    mut parameters: Vec<Value>,
    body: Option<&str>,
    (status, shown): (&str, Value),
    facets: &Facets<'_>,
) -> Value {
    parameters.push(parameters::shared("RestiveVersion"));
    let mut responses = errors::responses(facets);
    responses.insert(status.to_owned(), shown);
    let body = body.map(|name| operation::body("The fields.", &[JSON], name, name != ROLL));
    let operation = Operation {
        id: id.to_owned(),
        summary: summary.to_owned(),
        description: description.to_owned(),
        parameters,
        body,
        responses,
    };
    operation.into_value(SERVICE_TAG)
}

impl Routes<'_> {
    /// The parameters of every list. These lists show whole objects.
    fn listing(&self, builtin: Builtin) -> Vec<Value> {
        let collection = self.schema.own(builtin);
        let fields = reference("parameters", &self.names.fields(collection));
        let all = parameters::list(self.schema, self.names, collection);
        all.into_iter().filter(|one| *one != fields && one["name"] != DIGEST).collect()
    }

    fn shown(&self, about: &str, name: &str) -> (&'static str, Value) {
        ("200", answer(about, &["ETag"], reference("schemas", name)))
    }

    fn list_keys(&self) -> Value {
        let mut query = self.listing(Builtin::Key);
        let about = "Keys of this account; by default those of the account of the key.";
        query.push(parameters::query("account", about, json!({ "type": "string" })));
        let about = "Lists the keys of an account in the mode of the key that asks, without their \
                     texts. Needs the scope `admin:read`.";
        let facets = Facets { list: true, addressed: true, ..facets() };
        let shown = self.shown("A page of keys.", &self.names.list(self.keys));
        operation(("listKeys", "List keys", about), query, None, shown, &facets)
    }

    fn create_key(&self) -> Value {
        let about = "Creates a key in the mode of the key that asks. The text of the key is in \
                     this response only; a repetition of the request does not show it again. No \
                     key creates a key that may do more than itself. An account has at most 1000 \
                     keys in each mode that are not revoked. Needs the scope `admin:write`.";
        let headers = ["ETag", "Location", "Idempotent-Replayed"];
        let shown = answer("The new key.", &headers, reference("schemas", NEW_KEY));
        let facets =
            Facets { body: true, write: true, counted: true, idempotency: Some(false), ..facets() };
        let query = vec![parameters::shared(parameters::idempotency_key_name(false))];
        let body = self.names.create(self.keys);
        operation(("createKey", "Create a key", about), query, Some(&body), ("201", shown), &facets)
    }

    fn one_key(&self) -> Value {
        let name = self.names.record(self.keys);
        let read = Facets { addressed: true, ..facets() };
        let write = Facets { write: true, if_match: Some(false), ..read };
        let if_match = || vec![parameters::shared(parameters::if_match_name(false))];
        let shown = self.shown("The key.", name);
        let about = "Returns one key, without its text.";
        let get = operation(("getKey", "Get a key", about), Vec::new(), None, shown, &read);
        let update = self.names.update(self.keys);
        let about = "Changes the name, the scopes, the limit or the expiry of a key. A key gives \
                     up rights or time of its own only with `self=true`.";
        let facets = Facets { body: true, invalid_state: true, own_access: true, ..write };
        let shown = self.shown("The current key.", name);
        let confirm = json!({ "type": "string", "const": "true" });
        let mut query = if_match();
        let confirms = "Confirms that the key gives up rights or time of its own.";
        query.push(parameters::query("self", confirms, confirm));
        let patch =
            operation(("updateKey", "Update a key", about), query, Some(&update), shown, &facets);
        let about = "Revokes a key at once: it is refused from now on, and its open connections \
                     end. The key stays in the list. A key can revoke itself only with \
                     `self=true`.";
        let facets = Facets { own_access: true, ..write };
        let mut query = if_match();
        let confirm = json!({ "type": "string", "const": "true" });
        query.push(parameters::query("self", "Confirms that the key revokes itself.", confirm));
        let shown = ("200", answer("The key is revoked.", &[], reference("schemas", "Deleted")));
        let delete = operation(("deleteKey", "Revoke a key", about), query, None, shown, &facets);
        json!({ "get": get, "patch": patch, "delete": delete })
    }

    fn roll_key(&self) -> Value {
        let about = "Creates a key with the properties of this one and lets this one expire after \
                     `overlap_hours`, 24 by default. The text of the new key is in this response \
                     only.";
        let headers = ["ETag", "Location", "Idempotent-Replayed"];
        let shown = answer("The new key.", &headers, reference("schemas", NEW_KEY));
        let facets = Facets {
            addressed: true,
            body: true,
            write: true,
            if_match: Some(false),
            idempotency: Some(false),
            counted: true,
            invalid_state: true,
            own_access: true,
            ..facets()
        };
        let query = vec![
            parameters::shared(parameters::if_match_name(false)),
            parameters::shared(parameters::idempotency_key_name(false)),
        ];
        operation(("rollKey", "Roll a key", about), query, Some(ROLL), ("201", shown), &facets)
    }

    fn accounts(&self) -> Value {
        let about = "Lists the accounts that the key manages: all of them for an admin key of the \
                     first account, its own for any other. Needs the scope `admin:read`.";
        let facets_of_list = Facets { list: true, ..facets() };
        let shown = self.shown("A page of accounts.", ACCOUNT_LIST);
        let query = self.listing(Builtin::Account);
        let list = operation(
            ("listAccounts", "List accounts", about),
            query,
            None,
            shown,
            &facets_of_list,
        );
        let about = "Creates an account, without keys. Needs an admin key of the first account.";
        let headers = ["ETag", "Location", "Idempotent-Replayed"];
        let shown = answer("The new account.", &headers, reference("schemas", ACCOUNT));
        let facets = Facets { body: true, write: true, idempotency: Some(false), ..facets() };
        let query = vec![parameters::shared(parameters::idempotency_key_name(false))];
        let create = operation(
            ("createAccount", "Create an account", about),
            query,
            Some(ACCOUNT_NAME),
            ("201", shown),
            &facets,
        );
        json!({ "get": list, "post": create })
    }

    fn one_account(&self) -> Value {
        let read = Facets { addressed: true, ..facets() };
        let write = Facets { write: true, if_match: Some(false), ..read };
        let if_match = || vec![parameters::shared(parameters::if_match_name(false))];
        let shown = self.shown("The account.", ACCOUNT);
        let names = ("getAccount", "Get an account", "Returns one account.");
        let get = operation(names, Vec::new(), None, shown, &read);
        let facets = Facets { body: true, ..write };
        let shown = self.shown("The current account.", ACCOUNT);
        let names = ("updateAccount", "Rename an account", "Changes the name of an account.");
        let patch = operation(names, if_match(), Some(ACCOUNT_CHANGE), shown, &facets);
        let about = "Deletes an account that has no records and no active keys, and is not the \
                     account of the key.";
        let facets = Facets { own_access: true, account_in_use: true, ..write };
        let shown =
            ("200", answer("The account is deleted.", &[], reference("schemas", "Deleted")));
        let names = ("deleteAccount", "Delete an account", about);
        let delete = operation(names, if_match(), None, shown, &facets);
        json!({ "get": get, "patch": patch, "delete": delete })
    }
}

fn id(object: &str) -> Value {
    json!({
        "name": format!("{object}_id"),
        "in": "path",
        "required": true,
        "description": format!("Id of the {object}."),
        "schema": { "type": "string", "minLength": 1 },
    })
}

fn name() -> Value {
    json!({
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": MAX_NAME_CHARS,
        "pattern": TEXT,
    })
}

fn instant(about: &str) -> Value {
    json!({ "type": ["string", "null"], "format": "date-time", "description": about })
}

fn key() -> Value {
    let text = json!({ "type": "string" });
    let properties = json!({
        "object": { "type": "string", "const": "key" },
        "id": text,
        "name": { "type": ["string", "null"] },
        "account": { "type": "string", "description": "Id of the account." },
        "mode": { "type": "string", "enum": ["test", "live"] },
        "scopes": {
            "type": ["array", "null"],
            "items": text,
            "description": "What a restricted key may do; null: everything.",
        },
        "admin": { "type": "boolean", "description": "Whether it manages keys and accounts." },
        "rate_limit": { "type": ["integer", "null"], "description": "Requests per window." },
        "hint": { "type": "string", "description": "The first and last characters of the key." },
        "created_at": { "type": "string", "format": "date-time" },
        "updated_at": { "type": "string", "format": "date-time" },
        "last_used_at": instant("To the second; after a restart, to the minute."),
        "expires_at": instant("When it stops working."),
        "revoked_at": instant("When it was revoked."),
    });
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({
        "type": "object",
        "description": "An API key, without its text.",
        "required": required,
        "properties": properties,
    })
}

fn new_key(key: &str) -> Value {
    let replaces = json!({
        "type": "object",
        "description": "The key that this one replaces.",
        "properties": {
            "id": { "type": "string" },
            "expires_at": { "type": "string", "format": "date-time" },
        },
        "required": ["id", "expires_at"],
    });
    json!({
        "description": "A new key.",
        "allOf": [reference("schemas", key)],
        "properties": {
            "secret": { "type": "string", "description": "The key itself, shown only once." },
            "replaces": replaces,
        },
    })
}

fn key_body(schema: &Schema, is_new: bool) -> Value {
    let collections = schema.collections.iter().filter(|collection| !collection.internal);
    let names: Vec<&str> =
        collections.map(|collection| collection.name.as_str()).chain(scope::OTHER_SCOPES).collect();
    let pattern = format!("^(?:\\*|{}):(?:read|write)$", names.join("|"));
    let mut expiry = requests::nullable(reference("schemas", "Timestamp"));
    expiry["description"] = "In the future.".into();
    let mut body = json!({
        "type": "object",
        "description": "The fields of a key that can be set.",
        "properties": {
            "name": name(),
            "scopes": {
                "type": ["array", "null"],
                "items": { "type": "string", "pattern": pattern },
                "minItems": 1,
                "maxItems": MAX_SCOPES,
                "description": "What the key may do; null: everything.",
            },
            "admin": {
                "type": ["boolean", "null"],
                "description": "Whether a key without scopes manages keys and accounts.",
            },
            "rate_limit": { "type": ["integer", "null"], "minimum": 1, "maximum": u32::MAX },
            "expires_at": expiry,
        },
        "additionalProperties": false,
    });
    if is_new {
        let about = "Id of the account; by default that of the key that asks.";
        body["properties"]["account"] = json!({ "type": ["string", "null"], "description": about });
        let about = "The mode of the key that asks.";
        let modes = json!(["test", "live", null]);
        body["properties"]["mode"] =
            json!({ "type": ["string", "null"], "enum": modes, "description": about });
        body["required"] = json!(["scopes"]);
    }
    body
}

fn roll() -> Value {
    json!({
        "type": "object",
        "description": "How a key is rolled.",
        "properties": {
            "overlap_hours": {
                "type": ["integer", "null"],
                "minimum": 0,
                "maximum": MAX_OVERLAP_HOURS,
                "description": "Hours during which both keys work; 24 by default.",
            },
        },
        "additionalProperties": false,
    })
}
