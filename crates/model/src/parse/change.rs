//! Reads one change of a version: the collection, and the one thing that was done to it. Knows the
//! form of each operation; whether its fields exist is for `history`.

use super::field::{self, Targets};
use super::reader::{self, Node, Report, Table, Text};
use super::{behaviour, expression, field_check, keys};
use crate::schema::{Break, Change, Collection, Field, Formula, Kind, Limits, Operation, Path};
use crate::spelling;
use serde_json::Value;

/// `plan` proposes it where only the author knows the expression.
pub(crate) const PLACEHOLDER: &str = "TODO";
/// Values of one map.
const PAIRS: usize = 1000;

/// Characters of an edit that `breaks` names.
const EDIT_CHARS: usize = 1000;

/// Says why a field, or a parameter, cannot have had this name.
type NameCheck = fn(&mut Report<'_>, Text<'_>);

/// The change, and the place of its operation in the file.
pub(super) fn read(
    report: &mut Report<'_>,
    table: &Table<'_>,
    collections: &[Collection],
) -> Option<(Change, usize)> {
    table.allow(report, keys::CHANGE);
    let wanted = table.need_text(report, "collection");
    let found = wanted.and_then(|name| find(report, name, collections));
    let said: Vec<Text<'_>> = table
        .entries
        .iter()
        .map(|(key, _)| *key)
        .filter(|key| keys::CHANGE_OPERATIONS.contains(&key.value))
        .collect();
    let operation = match said.as_slice() {
        [] => {
            // A misspelt one has been reported.
            if table.entries.iter().all(|(key, _)| keys::CHANGE.contains(&key.value)) {
                let known = keys::CHANGE_OPERATIONS.join(", ");
                report.say(table.at, format!("change needs one operation: {known}"));
            }
            None
        }
        [first, rest @ ..] => {
            for extra in rest {
                report.say(
                    extra.at,
                    format!(
                        "a change does one thing, and this one has `{}` already; begin another \
                         [[versions.changes]]",
                        first.value
                    ),
                );
            }
            read_operation(report, table, first.value).map(|operation| (operation, first.at))
        }
    };
    let description = table.owned_text(report, "description");
    let action = table.text(report, "action");
    let (operation, at) = operation?;
    let collection = found?;
    let action = match action {
        Some(name) => Some(find_action(report, name, &collections[collection], &operation)?),
        None => None,
    };
    Some((Change { collection, action, description, operation }, at))
}

/// An edit that no operation undoes: `breaks` alone, which names its place itself.
pub(super) fn read_break(report: &mut Report<'_>, table: &Table<'_>) -> Option<Break> {
    table.allow(report, keys::CHANGE);
    for (key, _) in table.entries.iter().filter(|(key, _)| !keys::BREAK.contains(&key.value)) {
        if keys::CHANGE.contains(&key.value) {
            let message =
                format!("`breaks` stands alone, and names its place; remove `{}`", key.value);
            report.say(key.at, message);
        }
    }
    let edit = table.text(report, "breaks")?;
    if !edit.value.contains(": ") || edit.value.chars().count() > EDIT_CHARS {
        report.say(
            edit.at,
            format!(
                "`breaks` repeats an edit as `restive plan` words it, such as \"books.isbn: became \
                 `unique`\", in at most {EDIT_CHARS} characters"
            ),
        );
    }
    let description = table.owned_text(report, "description");
    Some(Break { edit: edit.value.to_owned(), description })
}

/// The action whose parameters are changed: they are sent and never shown.
fn find_action(
    report: &mut Report<'_>,
    name: Text<'_>,
    collection: &Collection,
    operation: &Operation,
) -> Option<usize> {
    let found = collection.action(name.value);
    if found.is_none() {
        let hint = spelling::hint(name.value, collection.actions.iter().map(|a| a.name.as_str()));
        let message = format!("`{}` is no action of `{}`{hint}", name.value, collection.name);
        report.say(name.at, message);
    }
    if let Operation::Rename { beside: true, .. } = operation {
        report.say(
            name.at,
            "`beside` is for fields: a parameter is sent by the name of its version alone; \
             remove the word",
        );
        return None;
    }
    if operation.declared().iter().any(|field| field.filter || field.sort) {
        report.say(name.at, "`filter` and `sort` are for fields: a parameter is only sent");
    }
    let fits = matches!(
        operation,
        Operation::Rename { .. }
            | Operation::Convert { .. }
            | Operation::EnumMap { .. }
            | Operation::Default { .. }
            | Operation::Limits { .. }
            | Operation::Optional { .. }
            | Operation::Required { .. }
            | Operation::Gone { .. }
    );
    if !fits {
        report.say(
            name.at,
            "parameters can be changed by rename, convert, enum_map, default, limits, optional, \
             required, and removed with a declared field",
        );
    }
    found.filter(|_| fits)
}

fn find(report: &mut Report<'_>, name: Text<'_>, collections: &[Collection]) -> Option<usize> {
    let found = collections.iter().position(|collection| collection.name == name.value);
    if found.is_none() {
        let hint = spelling::hint(name.value, collections.iter().map(|c| c.name.as_str()));
        report.say(
            name.at,
            format!("`collection` names `{}`, which is not declared{hint}", name.value),
        );
    }
    found
}

fn read_operation(report: &mut Report<'_>, table: &Table<'_>, key: &str) -> Option<Operation> {
    if let "collection_added" | "collection_removed" = key {
        if !table.flag(report, key)? {
            report.say(table.value_at(key), format!("`{key}` can only be true; or leave it out"));
        }
        return Some(match key {
            "collection_added" => Operation::CollectionAdded,
            _ => Operation::CollectionRemoved,
        });
    }
    let inner = table.table(report, key, format!("`{key}`"))?;
    let check: NameCheck = match table.get("action") {
        Some(_) => behaviour::check_param_name,
        None => field::check_name,
    };
    match key {
        "rename" => rename(report, &inner, check),
        "move" => read_move(report, &inner),
        "convert" => convert(report, &inner),
        "enum_map" => enum_map(report, &inner),
        "default" => {
            inner.allow(report, keys::CHANGED_DEFAULT);
            let field = owned(report, &inner, "field")?;
            let was = inner.get("was").map(|value| reader::json(report, value));
            Some(Operation::Default { field, was: was.flatten() })
        }
        "limits" => limits(report, &inner),
        "optional" | "required" => {
            inner.allow(report, keys::FILLED);
            let field = owned(report, &inner, "field");
            let fill = json(report, &inner, "fill");
            let (field, fill) = (field?, fill?);
            Some(match key {
                "optional" => Operation::Optional { field, fill },
                _ => Operation::Required { field, fill },
            })
        }
        "removed" => removed(report, &inner, check),
        _ => {
            inner.allow(report, keys::CODE);
            let (from, to) = (owned(report, &inner, "from"), owned(report, &inner, "to"));
            Some(Operation::Code { from: from?, to: to? })
        }
    }
}

fn owned(report: &mut Report<'_>, table: &Table<'_>, key: &str) -> Option<String> {
    Some(table.need_text(report, key)?.value.to_owned())
}

fn json(report: &mut Report<'_>, table: &Table<'_>, key: &str) -> Option<Value> {
    let Some(value) = table.get(key) else {
        report.say(table.at, format!("{} needs `{key}`", table.what));
        return None;
    };
    reader::json(report, value)
}

fn rename(report: &mut Report<'_>, table: &Table<'_>, check: NameCheck) -> Option<Operation> {
    table.allow(report, keys::RENAME);
    let from = table.need_text(report, "from");
    let to = owned(report, table, "to");
    let beside = table.flag(report, "beside").unwrap_or(false);
    let (from, to) = (from?, to?);
    check(report, from);
    if from.value == to {
        report.say(from.at, "`from` and `to` are the same name");
        return None;
    }
    Some(Operation::Rename { from: from.value.to_owned(), to, beside })
}

/// `from` is a path, or the declaration of a field that is not a member of an object.
fn read_move(report: &mut Report<'_>, table: &Table<'_>) -> Option<Operation> {
    table.allow(report, keys::MOVE);
    let declared = table.get("from").filter(|value| value.get_ref().is_table());
    let (from, field) = match declared {
        Some(value) => {
            let field = old_field(report, value, field::check_name);
            let path = field.as_ref().map(|field| Path::parse(&field.name));
            (path, field.map(Box::new))
        }
        None => (path(report, table, "from", true), None),
    };
    let to = path(report, table, "to", false);
    let existing = table.flag(report, "existing").unwrap_or(false);
    let (from, to) = (from?, to?);
    if from.member.is_none() && to.member.is_none() {
        report.say(table.at, "`move` is for members of objects; use `rename` between fields");
        return None;
    }
    if existing && to.member.is_none() {
        report.say(table.value_at("existing"), "`existing` is for moves into an object");
    }
    if from == to {
        report.say(table.at, "`from` and `to` are the same place");
        return None;
    }
    Some(Operation::Move { from, to, field, existing })
}

/// A field or a member of one. A new field's name is checked where it is declared.
fn path(report: &mut Report<'_>, table: &Table<'_>, key: &str, names: bool) -> Option<Path> {
    let text = table.need_text(report, key)?;
    let path = Path::parse(text.value);
    if let Some(member) = &path.member
        && (member.is_empty() || member.contains('.') || member.chars().any(char::is_control))
    {
        report.say(text.at, format!("`{key}` must be a field, or a field and one member: a.b"));
        return None;
    }
    if names && path.member.is_none() {
        field::check_name(report, text);
    }
    Some(path)
}

fn need<'t>(report: &mut Report<'_>, table: &Table<'t>, key: &str) -> Option<Node<'t>> {
    let found = table.get(key);
    if found.is_none() {
        report.say(table.at, format!("{} needs `{key}`", table.what));
    }
    found
}

/// A field that is no more: its declaration with its name.
fn old_field(report: &mut Report<'_>, value: Node<'_>, check: NameCheck) -> Option<Field> {
    let Some(inner) = value.get_ref().as_table() else {
        reader::expected(report, value, "from", "a field: { name = \"…\", type = \"…\" }");
        return None;
    };
    let table = Table::new("the old field", value.span().start, inner);
    let name = table.need_text(report, "name")?;
    check(report, name);
    let targets = Targets { names: &[], feeds: &[] };
    Some(field::read(report, name, value, &targets, keys::OLD_FIELD))
}

fn convert(report: &mut Report<'_>, table: &Table<'_>) -> Option<Operation> {
    table.allow(report, keys::CONVERT);
    let name = table.need_text(report, "field");
    let from = need(report, table, "from");
    let (up, down) = (formula(report, table, "up"), formula(report, table, "down"));
    let lossy = table.flag(report, "lossy").unwrap_or(false);
    let (name, from) = (name?, from?);
    let field = name.value.to_owned();
    let before = report.count();
    let only_type = reader::text(from).is_some();
    if from.get_ref().as_table().is_some_and(|inner| inner.contains_key("name")) {
        report.say(from.span().start, "`convert` keeps the name of the field; remove `name`");
    }
    let targets = Targets { names: &[], feeds: &[] };
    let from = field::read(report, name, from, &targets, keys::OLD_FIELD);
    let (from, up, down) = (Box::new(from), up?, down?);
    (report.count() == before).then_some(Operation::Convert {
        field,
        from,
        only_type,
        up,
        down,
        lossy,
    })
}

fn formula(report: &mut Report<'_>, table: &Table<'_>, key: &str) -> Option<Formula> {
    let text = table.need_text(report, key)?;
    if text.value.trim() == PLACEHOLDER {
        let what = format!("`{key}` is to be written: a CEL expression over `value` and `record`");
        report.say(text.at, what);
        return None;
    }
    expression::compile(report, text).map(Formula::new)
}

fn count_pairs(report: &mut Report<'_>, table: &Table<'_>, key: &str) {
    if table.entries.is_empty() || table.entries.len() > PAIRS {
        report.say(table.at, format!("`{key}` must have 1 to {PAIRS} values"));
    }
}

fn enum_map(report: &mut Report<'_>, table: &Table<'_>) -> Option<Operation> {
    table.allow(report, keys::ENUM_MAP);
    let field = owned(report, table, "field");
    if table.get("values").is_none() && table.get("down").is_none() {
        report.say(table.at, "`enum_map` needs `values`, `down` or both");
    }
    let values = texts(report, table, "values");
    let down = texts(report, table, "down");
    Some(Operation::EnumMap { field: field?, values: values?, down: down? })
}

fn texts(report: &mut Report<'_>, table: &Table<'_>, key: &str) -> Option<Vec<(String, String)>> {
    if table.get(key).is_none() {
        return Some(Vec::new());
    }
    let inner = table.table(report, key, format!("`{key}`"))?;
    count_pairs(report, &inner, key);
    let mut pairs = Vec::new();
    for (from, value) in &inner.entries {
        match reader::text(value) {
            Some(to) => pairs.push((from.value.to_owned(), to.value.to_owned())),
            None => reader::expected(report, value, from.value, "a string"),
        }
    }
    (pairs.len() == inner.entries.len()).then_some(pairs)
}

/// Without `was` there were none.
fn limits(report: &mut Report<'_>, table: &Table<'_>) -> Option<Operation> {
    table.allow(report, keys::LIMITS);
    let field = owned(report, table, "field");
    let mut were = Field::new("was", Kind::Number);
    if table.get("was").is_some() {
        let inner = table.table(report, "was", "`was`".to_owned())?;
        inner.allow(report, keys::WERE);
        field::read_limits(report, &inner, &mut were);
        field_check::check_ranges(report, &inner, &were);
    }
    Some(Operation::Limits { field: field?, was: Limits::of(&were) })
}

fn removed(report: &mut Report<'_>, table: &Table<'_>, check: NameCheck) -> Option<Operation> {
    table.allow(report, keys::REMOVED);
    let field = need(report, table, "field")?;
    if let Some(name) = reader::text(field) {
        if let Some(at) = table.key_at("value") {
            report.say(
                at,
                "`value` is for fields that are declared here; what is kept has its own value",
            );
        }
        return Some(Operation::Removed { field: name.value.to_owned() });
    }
    let field = old_field(report, field, check)?;
    let value = match table.get("value") {
        Some(value) => reader::json(report, value)?,
        None => Value::Null,
    };
    Some(Operation::Gone { field: Box::new(field), value })
}
