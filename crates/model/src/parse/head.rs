//! Reads the head of every collection: its names and its place under a parent. Done for all
//! collections before any body is read, so that a body may refer to any of them. Knows no fields.

use super::naming;
use super::reader::{Report, Table, Text, expected};
use crate::schema::{CollectionIx, builtin};
use crate::spelling;

/// Most collections of a file.
const COLLECTIONS: usize = 64;

/// Longest chain of collections in a path: `a/{id}/b/{id}/c`.
const LEVELS: usize = 3;

pub(super) struct CollectionTable<'t> {
    pub name: Text<'t>,
    pub object: String,
    pub object_at: usize,
    pub id_prefix: String,
    pub parent: Option<CollectionIx>,
    pub feed: bool,
    pub table: Table<'t>,
}

pub(super) fn read<'t>(report: &mut Report<'_>, file: &Table<'t>) -> Vec<CollectionTable<'t>> {
    let what = "`collections`".to_owned();
    let Some(collections) = file.table(report, "collections", what) else {
        if file.get("collections").is_none() {
            report.say(0, "the file declares no collection; begin with [collections.<name>]");
        }
        return Vec::new();
    };
    if collections.entries.is_empty() {
        report.say(collections.at, "the file declares no collection; add [collections.<name>]");
    }
    let mut heads = Vec::new();
    for (name, value) in &collections.entries {
        let Some(table) = value.get_ref().as_table() else {
            expected(report, value, name.value, "a table");
            continue;
        };
        if heads.len() == COLLECTIONS {
            report.say(name.at, format!("a schema has at most {COLLECTIONS} collections"));
            break;
        }
        let table = Table::new(format!("collection `{}`", name.value), name.at, table);
        heads.push(read_one(report, *name, table));
    }
    find_parents(report, &mut heads);
    check_nesting(report, &heads);
    check_distinct(report, &heads);
    heads
}

fn read_one<'t>(report: &mut Report<'_>, name: Text<'t>, table: Table<'t>) -> CollectionTable<'t> {
    let declared = table.text(report, "object");
    check_name(report, name, declared.is_some());
    let object = match declared {
        Some(text) => text.value.to_owned(),
        None => naming::singular(name.value).unwrap_or_else(|| name.value.replace('-', "_")),
    };
    let object_at = declared.map_or(name.at, |text| text.at);
    if declared.is_some() && !naming::is_snake(&object) {
        report.say(object_at, "`object` must be lower-case words joined by underscores");
    }
    if naming::OBJECTS.contains(&object.as_str()) {
        report.say(
            object_at,
            format!("the object name `{object}` is taken by the service; declare another `object`"),
        );
    }
    // `feed = false` says what leaving it out says.
    let feed = table.get("feed").is_some_and(|feed| feed.get_ref().as_bool() != Some(false));
    let id_prefix = read_prefix(report, &table, name, &object, feed);
    CollectionTable { name, object, object_at, id_prefix, parent: None, feed, table }
}

/// Parts of the reference that are no collections.
const PAGES: [&str; 2] = ["service", "live"];

fn check_name(report: &mut Report<'_>, name: Text<'_>, has_object: bool) {
    if builtin::RESERVED.contains(&name.value) {
        report.say(
            name.at,
            format!("`{}` is a collection of the service itself; choose another name", name.value),
        );
    } else if PAGES.contains(&name.value) {
        report.say(
            name.at,
            format!("`{}` is a part of the API's reference; choose another name", name.value),
        );
    } else if !naming::is_path_segment(name.value) {
        report.say(
            name.at,
            format!(
                "the collection name `{}` must be lower-case words joined by single hyphens, at \
                 most {} characters",
                name.value,
                naming::NAME_CHARS
            ),
        );
    } else if !has_object && naming::singular(name.value).is_none() {
        report.say(
            name.at,
            format!(
                "the collection name `{}` must be a plural; if it is one, declare its singular \
                 with `object`",
                name.value
            ),
        );
    }
}

fn read_prefix(
    report: &mut Report<'_>,
    table: &Table<'_>,
    name: Text<'_>,
    object: &str,
    feed: bool,
) -> String {
    let Some(prefix) = table.text(report, "id_prefix") else {
        if !feed && naming::is_snake(object) && !naming::is_id_prefix(object) {
            report.say(
                name.at,
                format!("`{object}` is too long to begin ids with; declare a short `id_prefix`"),
            );
        }
        return object.to_owned();
    };
    if feed {
        report.say(prefix.at, "the ids of a feed are whole numbers; remove `id_prefix`");
    } else if !naming::is_id_prefix(prefix.value) {
        report.say(
            prefix.at,
            "`id_prefix` must start with a letter and have at most 20 lower-case letters, digits \
             and underscores",
        );
    } else if naming::PREFIXES.contains(&prefix.value) {
        report.say(
            prefix.at,
            format!("ids of the service itself begin with `{}`; choose another", prefix.value),
        );
    }
    prefix.value.to_owned()
}

fn find_parents(report: &mut Report<'_>, heads: &mut [CollectionTable<'_>]) {
    for ix in 0..heads.len() {
        let Some(wanted) = heads[ix].table.text(report, "parent") else { continue };
        let found = heads.iter().position(|head| head.name.value == wanted.value);
        match found {
            None => {
                let hint = spelling::hint(wanted.value, heads.iter().map(|head| head.name.value));
                report.say(
                    wanted.at,
                    format!(
                        "`parent` names the collection `{}`, which is not declared{hint}",
                        wanted.value
                    ),
                );
            }
            Some(parent) if heads[parent].feed => {
                report.say(
                    wanted.at,
                    format!("`{}` is a feed and cannot have children", wanted.value),
                );
            }
            // The child's reference to it would take the place of an assigned field.
            Some(parent) if naming::ASSIGNED.contains(&heads[parent].object.as_str()) => {
                report.say(
                    wanted.at,
                    format!(
                        "children would have two fields named `{}`; declare another `object` for \
                         `{}`",
                        heads[parent].object, wanted.value
                    ),
                );
            }
            Some(_) => {}
        }
        heads[ix].parent = found;
    }
}

fn check_nesting(report: &mut Report<'_>, heads: &[CollectionTable<'_>]) {
    for (ix, head) in heads.iter().enumerate() {
        let mut levels = 1;
        let mut above = head.parent;
        while let Some(parent) = above {
            levels += 1;
            if parent == ix || levels > heads.len() {
                report.say(
                    head.table.value_at("parent"),
                    format!(
                        "`{}` is its own ancestor; break the circle of parents",
                        head.name.value
                    ),
                );
                break;
            }
            above = heads[parent].parent;
        }
        // NamedEvent for the first level too many only: its children would repeat it.
        if above.is_none() && levels == LEVELS + 1 {
            report.say(
                head.table.value_at("parent"),
                format!("paths nest at most {LEVELS} collections deep; use a `ref` field instead"),
            );
        }
    }
}

fn check_distinct(report: &mut Report<'_>, heads: &[CollectionTable<'_>]) {
    for (ix, head) in heads.iter().enumerate() {
        let earlier = &heads[..ix];
        if let Some(same) = earlier.iter().find(|other| other.object == head.object) {
            report.say(
                head.object_at,
                format!(
                    "the object name `{}` is that of `{}` already; declare another `object`",
                    head.object, same.name.value
                ),
            );
        } else if let Some(same) = earlier
            .iter()
            .find(|other| !other.feed && !head.feed && other.id_prefix == head.id_prefix)
        {
            let at = head.table.get("id_prefix").map_or(head.name.at, |value| value.span().start);
            report.say(
                at,
                format!(
                    "ids of `{}` begin with `{}` already; declare another `id_prefix`",
                    same.name.value, head.id_prefix
                ),
            );
        }
    }
}
