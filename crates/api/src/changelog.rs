//! The page `/changelog`: what each version changed, newest first, as Markdown. Pure: a schema goes
//! in, text comes out.

use model::schema::{Break, Change, Deprecation, Operation, Schema, Version};
use serde_json::Value;

pub fn markdown(schema: &Schema) -> String {
    let mut text = format!("# Changes of {}\n\n", schema.service.name);
    text.push_str(
        "A request names its version with `Restive-Version: YYYY-MM-DD`; without it the \
         account's pin holds (`GET` and `POST` of `account`).\n",
    );
    push_deprecated(&mut text, schema);
    for (index, version) in schema.versions.iter().enumerate() {
        push_version(&mut text, schema, index, version);
    }
    text
}

/// Collections and fields that will go, also those that only older versions have.
fn push_deprecated(text: &mut String, schema: &Schema) {
    let mut lines = Vec::new();
    let who = |removed: bool| if removed { ", in older versions" } else { "" };
    for collection in schema.collections.iter().filter(|one| !one.internal) {
        let (name, who_has) = (&collection.name, who(collection.removed));
        let of = |it| format!("- `{name}`{who_has}: {}\n", told(it));
        lines.extend(collection.deprecated.iter().map(of));
        for field in &collection.fields {
            let who_has = who(field.removed || collection.removed);
            let of = |it| format!("- `{}` of `{name}`{who_has}: {}\n", field.name, told(it));
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
        text.push_str(&format!("\n{}\n", told(deprecated)));
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
        let told = match description {
            Some(description) => format!("{description} ({edit})"),
            None => format!("{edit}."),
        };
        text.push_str(&format!("- **For all versions**: {told}\n"));
    }
    if index + 1 == schema.versions.len() {
        text.push_str("\nThe oldest version that is served.\n");
    }
}

fn told(deprecated: &Deprecation) -> String {
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

/// What the schema says of a change, else what it is.
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
            format!("`{from}` is now `{to}`; the old name stays beside it.")
        }
        Operation::Move { from, to, .. } => format!("`{from}` moved to `{to}`."),
        Operation::Convert { field, from, lossy, .. } => {
            let lossy = if *lossy { ", not always exactly" } else { "" };
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
            let told = was.entries();
            let told = told.iter().map(|(key, limit)| format!("`{key}` {}", code(limit)));
            match told.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => format!("`{field}` had no limits."),
                were => format!("`{field}` had other limits: {were}."),
            }
        }
        Operation::Optional { field, fill } => {
            format!("`{field}` is no longer required; older versions read `{fill}` without it.")
        }
        Operation::Required { field, fill } => {
            format!("`{field}` is required; older requests without it mean `{fill}`.")
        }
        Operation::Removed { field } => format!("`{field}` is gone."),
        Operation::Gone { field, .. } => format!("`{}` is gone.", field.name),
        Operation::CollectionAdded => "new.".to_owned(),
        Operation::CollectionRemoved => "gone.".to_owned(),
        Operation::Code { from, to } => format!("the error code `{from}` is now `{to}`."),
    }
}

fn code(value: &Value) -> String {
    format!("`{value}`")
}
