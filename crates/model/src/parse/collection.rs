//! Reads the body of a collection: settings, fields, feed, events and indexes; behaviour is read by
//! `behaviour`. Knows the heads of all collections and the body of this one.

use super::behaviour::{self, NamedEvent};
use super::field::{self, Targets};
use super::head::CollectionTable;
use super::naming;
use super::reader::{self, Report, Table, Text};
use super::{deprecation, hints, keys, states};
use crate::schema::{
    Collection, CollectionIx, EventNames, Feed, Field, Index, Kind, Operations, States,
};
use crate::spelling;

/// Most fields of a collection.
const FIELDS: usize = 100;

/// Most declared indexes of a collection, and fields of one: each slows every write down.
const INDEXES: usize = 16;
const INDEX_FIELDS: usize = 8;

/// How long caches may keep a read. By default they revalidate each time.
const CACHE_CONTROL: &str = "private, no-cache";

pub(super) fn read(
    report: &mut Report<'_>,
    heads: &[CollectionTable<'_>],
    ix: CollectionIx,
    named: &mut Vec<NamedEvent>,
) -> Collection {
    let head = &heads[ix];
    let table = &head.table;
    table.allow(report, keys::COLLECTION);
    let states = states::read(report, table);
    let mut feed = read_feed(report, head);
    let fields = read_fields(report, heads, ix, states.as_ref());
    if let Some(feed) = &mut feed {
        feed.author = read_author(report, head, &fields);
    }
    let events = read_events(report, head, ix, named);
    let mut collection = Collection {
        name: head.name.value.to_owned(),
        object: head.object.clone(),
        id_prefix: head.id_prefix.clone(),
        description: table.owned_text(report, "description"),
        parent: head.parent,
        fields,
        states,
        actions: Vec::new(),
        timed: Vec::new(),
        events,
        operations: read_operations(report, table, feed.is_some()),
        feed,
        indexes: Vec::new(),
        require_if_match: table.flag(report, "require_if_match").unwrap_or(false),
        require_idempotency_key: table.flag(report, "require_idempotency_key").unwrap_or(false),
        cache_control: read_cache_control(report, table),
        early_hints: hints::read(report, table),
        internal: false,
        removed: false,
        deprecated: deprecation::read(report, table),
        builtin: None,
    };
    collection.indexes = read_indexes(report, table, &collection);
    let children: Vec<&str> = heads
        .iter()
        .filter(|other| other.parent == Some(ix))
        .map(|other| other.name.value)
        .collect();
    behaviour::read(report, table, &mut collection, &children, ix, named);
    collection
}

fn read_fields(
    report: &mut Report<'_>,
    heads: &[CollectionTable<'_>],
    ix: CollectionIx,
    states: Option<&States>,
) -> Vec<Field> {
    let head = &heads[ix];
    let parent = head.parent.map(|parent| &heads[parent]);
    let mut fields: Vec<Field> =
        head.parent.map(|at| parent_field(heads, at)).into_iter().collect();
    let what = format!("the fields of `{}`", head.name.value);
    let declared = head.table.table(report, "fields", what);
    if let Some(declared) = &declared {
        let names: Vec<&str> = heads.iter().map(|head| head.name.value).collect();
        let feeds: Vec<bool> = heads.iter().map(|head| head.feed).collect();
        let targets = Targets { names: &names, feeds: &feeds };
        for (name, value) in &declared.entries {
            if fields.len() > FIELDS {
                report.say(name.at, format!("a collection has at most {FIELDS} fields"));
                break;
            }
            field::check_name(report, *name);
            if parent.is_some_and(|parent| parent.object == name.value) {
                report.say(
                    name.at,
                    format!(
                        "`{}` is the reference to the parent, which is there already",
                        name.value
                    ),
                );
                continue;
            }
            let field = match states.filter(|states| states.field == name.value) {
                Some(states) => states::declared_field(report, *name, value, states),
                None => field::read(report, *name, value, &targets, keys::FIELD),
            };
            if head.feed && field.unique {
                report.say(name.at, "a feed keeps everything it is sent; remove `unique`");
            }
            fields.push(field);
        }
        check_range_names(report, declared, &fields);
    }
    if let Some(states) = states
        && !fields.iter().any(|field| field.name == states.field)
    {
        fields.push(states::field(states));
    }
    fields
}

/// The first field of every child: which record it belongs to.
fn parent_field(heads: &[CollectionTable<'_>], parent: CollectionIx) -> Field {
    let mut field = Field::new(&heads[parent].object, Kind::String);
    field.read_only = true;
    field.reference = Some(parent);
    let object = heads[parent].object.replace('_', " ");
    field.description = Some(format!("The {object} this belongs to, from the path."));
    field
}

/// `max_price` as a field and as the range filter of `price` would be one query parameter.
fn check_range_names(report: &mut Report<'_>, declared: &Table<'_>, fields: &[Field]) {
    for (name, _) in &declared.entries {
        let filtered = fields.iter().filter(|field| field.filterable());
        let mut bases = filtered.map(|field| field.name.as_str());
        let base = bases.find(|base| is_range_of(name.value, base));
        if let Some(base) = base.or_else(|| range_of_assigned(name.value)) {
            report.say(name.at, range_clash(name.value, base));
        }
    }
}

pub(super) fn is_range_of(name: &str, base: &str) -> bool {
    range_base(name) == Some(base)
}

/// Lists can be filtered by these in every collection.
pub(super) fn range_of_assigned(name: &str) -> Option<&'static str> {
    ["created_at", "updated_at"].into_iter().find(|base| is_range_of(name, base))
}

pub(super) fn range_clash(name: &str, base: &str) -> String {
    format!("`{name}` is the range filter of `{base}`; choose another name")
}

fn range_base(name: &str) -> Option<&str> {
    name.strip_prefix("min_").or_else(|| name.strip_prefix("max_"))
}

fn read_feed(report: &mut Report<'_>, head: &CollectionTable<'_>) -> Option<Feed> {
    let value = head.table.get("feed")?;
    if value.get_ref().as_bool().is_none() && !value.get_ref().is_table() {
        reader::expected(report, value, "feed", "true or a table with `live_name`");
    }
    if !head.feed {
        return None;
    }
    for key in ["parent", "states", "timed"] {
        if let Some(at) = head.table.key_at(key) {
            report.say(at, format!("a feed has no `{key}`; remove it or the `feed`"));
        }
    }
    let mut live_name = head.object.clone();
    if value.get_ref().is_table() {
        let table = head.table.table(report, "feed", "`feed`".to_owned())?;
        table.allow(report, keys::FEED);
        if let Some(name) = table.text(report, "live_name") {
            if !naming::is_snake(name.value) {
                report.say(name.at, "`live_name` must be in snake_case, such as \"message\"");
            }
            live_name = name.value.to_owned();
        }
    }
    // Looked at when the fields are known.
    Some(Feed { live_name, author: None })
}

/// The field of a feed that says who sent a record: a text that a client may write, so that the
/// service can set it and an API key can as well.
fn read_author(
    report: &mut Report<'_>,
    head: &CollectionTable<'_>,
    fields: &[Field],
) -> Option<String> {
    let is_table = head.table.get("feed").is_some_and(|value| value.get_ref().is_table());
    if !head.feed || !is_table {
        return None;
    }
    let table = head.table.table(report, "feed", "`feed`".to_owned())?;
    let name = table.text(report, "author")?;
    let Some(field) = fields.iter().find(|field| field.name == name.value) else {
        let hint = spelling::hint(name.value, fields.iter().map(|field| field.name.as_str()));
        let message =
            format!("`author` names the field `{}`, which is not declared{hint}", name.value);
        report.say(name.at, message);
        return None;
    };
    let plain = field.kind == Kind::String && field.reference.is_none() && field.choices.is_empty();
    if !plain || field.required || field.read_only || field.write_only {
        let message = format!(
            "`author` names the field `{}`; it must be a string without `ref`, `enum`, `required`, \
             `read_only` and `write_only`",
            name.value
        );
        report.say(name.at, message);
    }
    Some(name.value.to_owned())
}

fn read_events(
    report: &mut Report<'_>,
    head: &CollectionTable<'_>,
    ix: CollectionIx,
    named: &mut Vec<NamedEvent>,
) -> EventNames {
    let what = format!("the events of `{}`", head.name.value);
    let table = head.table.table(report, "events", what);
    if let Some(table) = &table {
        table.allow(report, keys::EVENTS);
    }
    let mut found: Vec<String> = Vec::new();
    for key in keys::EVENTS {
        let default = format!("{}.{key}", head.object);
        let (kind, at) = match &table {
            Some(table) => behaviour::event(report, table, "", key, default),
            None => (default, head.name.at),
        };
        if found.contains(&kind) {
            report.say(at, format!("`{kind}` stands for two kinds of change; name them apart"));
        }
        named.push(NamedEvent { kind: kind.clone(), at, collection: ix });
        found.push(kind);
    }
    let mut found = found.into_iter();
    // One for each of the three keys, in their order.
    let mut next = || found.next().unwrap_or_default();
    EventNames { created: next(), updated: next(), deleted: next() }
}

fn read_operations(report: &mut Report<'_>, table: &Table<'_>, feed: bool) -> Operations {
    let Some(wanted) = table.texts(report, "operations") else {
        // The records of a feed do not change, unless the file says otherwise.
        let rest = !feed;
        return Operations { replace: rest, update: rest, delete: rest, ..Operations::ALL };
    };
    if wanted.is_empty() {
        report.say(table.value_at("operations"), "`operations` must name at least one");
    }
    for (place, name) in wanted.iter().enumerate() {
        if !keys::OPERATIONS.contains(&name.value) {
            let hint = spelling::hint(name.value, keys::OPERATIONS.iter().copied());
            report.say(
                name.at,
                format!(
                    "unknown operation `{}`{hint}; operations: {}",
                    name.value,
                    keys::OPERATIONS.join(", ")
                ),
            );
        } else if wanted[..place].iter().any(|earlier| earlier.value == name.value) {
            report.say(name.at, format!("`{}` stands twice in `operations`", name.value));
        }
    }
    let has = |name: &str| wanted.iter().any(|text| text.value == name);
    Operations {
        list: has("list"),
        get: has("get"),
        create: has("create"),
        replace: has("replace"),
        update: has("update"),
        delete: has("delete"),
    }
}

fn read_cache_control(report: &mut Report<'_>, table: &Table<'_>) -> String {
    let Some(text) = table.text(report, "cache_control") else { return CACHE_CONTROL.to_owned() };
    let value = text.value;
    let fits = (1..=200).contains(&value.len())
        && value.bytes().all(|b| (0x20..0x7f).contains(&b))
        && value.trim() == value;
    if !fits {
        report.say(
            text.at,
            "`cache_control` must be a header value of 1 to 200 plain characters, such as \
             \"private, max-age=60\"",
        );
    }
    value.to_owned()
}

fn read_indexes(report: &mut Report<'_>, table: &Table<'_>, collection: &Collection) -> Vec<Index> {
    let Some(value) = table.get("indexes") else { return Vec::new() };
    let Some(list) = value.get_ref().as_array() else {
        reader::expected(report, value, "indexes", "a list of lists of field names");
        return Vec::new();
    };
    if list.len() > INDEXES {
        report.say(value.span().start, format!("a collection has at most {INDEXES} indexes"));
    }
    let mut indexes: Vec<Index> = Vec::new();
    for item in list.iter().take(INDEXES) {
        let Some(names) = reader::texts(report, item, "indexes") else { continue };
        if names.is_empty() || names.len() > INDEX_FIELDS {
            report.say(item.span().start, format!("an index has 1 to {INDEX_FIELDS} fields"));
        }
        for (place, name) in names.iter().enumerate() {
            check_indexed(report, collection, *name);
            if names[..place].iter().any(|earlier| earlier.value == name.value) {
                report.say(name.at, format!("`{}` stands twice in this index", name.value));
            }
        }
        let index = Index { fields: names.iter().map(|name| name.value.to_owned()).collect() };
        if indexes.contains(&index) {
            report.say(item.span().start, "this index stands twice; remove one");
        }
        indexes.push(index);
    }
    indexes
}

fn check_indexed(report: &mut Report<'_>, collection: &Collection, name: Text<'_>) {
    match collection.field(name.value) {
        None => {
            let hint =
                spelling::hint(name.value, collection.fields.iter().map(|f| f.name.as_str()));
            report.say(name.at, format!("`{}` is not declared in fields{hint}", name.value));
        }
        Some(field) if !field.has_column() => report.say(
            name.at,
            format!("`{}` cannot be indexed; give it `filter` or `sort` first", name.value),
        ),
        Some(_) => {}
    }
}
