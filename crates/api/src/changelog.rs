//! The page `/changelog`: the changes of each version, newest first, as Markdown. Pure: takes a
//! schema, returns text.

use model::schema::{Break, Change, Deprecation, Operation, Schema, Version};
use serde_json::Value;

pub fn markdown(schema: &Schema) -> String {
    let mut text = format!("# Changes of {}\n\n", schema.service.name);
    text.push_str(
        "A request names its version with `Restive-Version: YYYY-MM-DD`; without it, the \
         request uses the version that the account is pinned to (`GET` and `POST` of `account`).\n",
    );
    push_deprecated(&mut text, schema);
    for (index, version) in schema.versions.iter().enumerate() {
        push_version(&mut text, schema, index, version);
    }
    text
}

/// Deprecated collections and fields, including those that only older versions have.
fn push_deprecated(text: &mut String, schema: &Schema) {
    let mut lines = Vec::new();
    let suffix = |removed: bool| if removed { ", in older versions" } else { "" };
    for collection in schema.collections.iter().filter(|one| !one.internal) {
        let (name, suffix_text) = (&collection.name, suffix(collection.removed));
        let of = |it| format!("- `{name}`{suffix_text}: {}\n", describe(it));
        lines.extend(collection.deprecated.iter().map(of));
        for field in &collection.fields {
            let suffix_text = suffix(field.removed || collection.removed);
            let of =
                |it| format!("- `{}` of `{name}`{suffix_text}: {}\n", field.name, describe(it));
            lines.extend(field.deprecated.iter().map(of));
        }
    }
    if !lines.is_empty() {
        text.push_str(&format!("\n{}", lines.concat()));
    }
}

fn push_version(text: &mut String, schema: &Schema, index: usize, version: &Version) {
    text.push_str(&format!("\n## {}\n", version.date));
    let mount = schema.mounts.iter().find(|mount| mount.serves(index));
    if let Some(mount) = mount {
        text.push_str(&format!("\nServed below `{}`.", mount.path));
        text.push_str(&format!(" [OpenAPI](/openapi.json?version={})\n", version.date));
    }
    if let Some(deprecated) = &version.deprecated {
        text.push_str(&format!("\n{}\n", describe(deprecated)));
    }
    if let Some(description) = &version.description {
        text.push_str(&format!("\n{description}\n"));
    }
    if !version.changes.is_empty() || !version.breaks.is_empty() {
        text.push('\n');
    }
    for change in &version.changes {
        let collection = &schema.collections[change.collection];
        let action = change.action.map(|action| collection.actions[action].name.as_str());
        let of = action.map(|name| format!(", parameters of `{name}`")).unwrap_or_default();
        text.push_str(&format!("- `{}`{of}: {}\n", collection.name, sentence(change)));
    }
    for Break { edit, description } in &version.breaks {
        let text_of_break = match description {
            Some(description) => format!("{description} ({edit})"),
            None => format!("{edit}."),
        };
        text.push_str(&format!("- **For all versions**: {text_of_break}\n"));
    }
    if index + 1 == schema.versions.len() {
        text.push_str("\nThe oldest version that is served.\n");
    }
}

fn describe(deprecated: &Deprecation) -> String {
    let mut parts = vec!["**Deprecated**".to_owned()];
    if let Some(since) = &deprecated.since {
        parts.push(format!("since {since}"));
    }
    if let Some(sunset) = &deprecated.sunset {
        parts.push(format!("served until {sunset}"));
    }
    if let Some(link) = &deprecated.link {
        parts.push(format!("see <{link}>"));
    }
    format!("{}.", parts.join(", "))
}

/// The description from the schema, or else a generated sentence.
fn sentence(change: &Change) -> String {
    let what = operation(&change.operation);
    match &change.description {
        Some(description) => format!("{description} ({})", what.trim_end_matches('.')),
        None => what,
    }
}

// tidy: table
fn operation(operation: &Operation) -> String {
    match operation {
        Operation::Rename { from, to, beside: false } => format!("`{from}` is now `{to}`."),
        Operation::Rename { from, to, beside: true } => {
            format!("`{from}` is now `{to}`; the old name still works too.")
        }
        Operation::Move { from, to, .. } => format!("`{from}` moved to `{to}`."),
        Operation::Convert { field, from, lossy, .. } => {
            let lossy = if *lossy { ", not always without loss" } else { "" };
            format!("`{field}` was of type {}; its values are converted{lossy}.", from.kind.name())
        }
        Operation::EnumMap { field, values, down } => {
            let pairs = values.iter().map(|(old, new)| format!("`{old}` is now `{new}`"));
            let shown =
                down.iter().map(|(new, old)| format!("`{new}` is new, older versions see `{old}`"));
            let all: Vec<String> = pairs.chain(shown).collect();
            format!("values of `{field}`: {}.", all.join(", "))
        }
        Operation::Default { field, was } => match was {
            Some(was) => format!("`{field}` has another default; it was `{was}`."),
            None => format!("`{field}` has a default; it had none."),
        },
        Operation::Limits { field, was } => {
            let entries = was.entries();
            let limits = entries.iter().map(|(key, limit)| format!("`{key}` {}", code(limit)));
            match limits.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => format!("`{field}` had no limits."),
                were => format!("`{field}` had other limits: {were}."),
            }
        }
        Operation::Optional { field, fill } => {
            format!(
                "`{field}` is no longer required; older versions show `{fill}` for a missing value."
            )
        }
        Operation::Required { field, fill } => {
            format!("`{field}` is required; requests of older versions without it get `{fill}`.")
        }
        Operation::Removed { field } => format!("`{field}` was removed."),
        Operation::Gone { field, .. } => format!("`{}` was removed.", field.name),
        Operation::CollectionAdded => "new.".to_owned(),
        Operation::CollectionRemoved => "removed.".to_owned(),
        Operation::Code { from, to } => format!("the error code `{from}` is now `{to}`."),
    }
}

fn code(value: &Value) -> String {
    format!("`{value}`")
}
