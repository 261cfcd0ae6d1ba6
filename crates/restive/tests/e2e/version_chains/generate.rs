//! Random schema files with a random history. Starts with the newest shape and reverts one random
//! change after the other, as the file is read. The result is valid, so if a server refuses it,
//! either the server or this generator has a bug.

use super::change::{Change, How};
use super::history::{Action, Collection, Plan, traced};
use super::shape::{Field, Kind, Shape};
use crate::chance::Chance;
use serde_json::{Value, json};

const DATES: [&str; 6] =
    ["2026-06-01", "2026-01-01", "2025-06-01", "2025-01-01", "2024-06-01", "2024-01-01"];
/// Names, objects, whether it is a feed, and the index of the parent.
const COLLECTIONS: [(&str, &str, bool, Option<usize>); 4] = [
    ("books", "book", false, None),
    ("notes", "note", true, None),
    ("orders", "order", false, None),
    ("reviews", "review", false, Some(0)),
];
/// Maximum collections in one file, to limit the run time.
const MOST: usize = 3;
pub const ACTION: &str = "mark";
/// An action that is always refused.
pub const VETO: &str = "veto";
/// Prefix of the names of members that became fields.
const MOVED: &str = "moved_";

pub fn plan(seed: u64) -> Plan {
    let mut chance = Chance::new(seed);
    let versions = 2 + chance.below(DATES.len() - 1);
    let turn = chance.percent(30).then(|| 1 + chance.below(versions - 1));
    let mut chosen = vec![COLLECTIONS[0]];
    for other in &COLLECTIONS[1..] {
        if chosen.len() < MOST && chance.percent(50) {
            chosen.push(*other);
        }
    }
    let owns = chosen.iter().any(|(.., parent)| parent.is_some());
    let collections = chosen.iter().enumerate().map(|(place, &(name, object, feed, parent))| {
        let form = (!feed && chance.percent(50)).then(|| form(versions, &mut chance));
        let mut maker = Maker { chance: &mut chance, names: 0, busy: Vec::new(), form: false };
        let role = Role { stays: place == 0 && owns, refers: place > 0 };
        let mut newest = maker.newest();
        newest.code = (!feed).then(|| maker.fresh_code());
        let action = form.map(|form| maker.action(form, &mut newest));
        let (shapes, steps) = maker.history(versions, newest, role);
        Collection { name, object, feed, parent, shapes, steps, action }.with_aliases()
    });
    let collections = collections.collect();
    Plan { dates: DATES[..versions].to_vec(), turn, collections }
}

/// The parameters of an action. They are sent and never shown: none is hidden, filtered or fixed.
fn form(versions: usize, chance: &mut Chance) -> Collection {
    let mut maker = Maker { chance, names: 0, busy: Vec::new(), form: true };
    let mut newest = maker.newest();
    for field in &mut newest.fields {
        (field.filter, field.sort, field.search) = (false, false, false);
    }
    let role = Role { stays: true, refers: false };
    let (shapes, steps) = maker.history(versions, newest, role);
    let (name, object, feed, parent, action) = (ACTION, ACTION, false, None, None);
    Collection { name, object, feed, parent, shapes, steps, action }
}

struct Maker<'c> {
    chance: &'c mut Chance,
    /// Number of names used.
    names: usize,
    /// Fields that the version has already changed: a field is changed once per date.
    busy: Vec<String>,
    /// Whether it generates parameters.
    form: bool,
}

/// The relations of a collection to others.
struct Role {
    /// All versions have it.
    stays: bool,
    /// It may refer to the first collection.
    refers: bool,
}

/// When a collection was added and removed, by the index of the version.
struct Life {
    added: Option<usize>,
    removed: Option<usize>,
}

impl Maker<'_> {
    /// The shapes of all versions, newest first, and the changes from each to the next older one.
    fn history(
        &mut self,
        versions: usize,
        mut shape: Shape,
        role: Role,
    ) -> (Vec<Shape>, Vec<Vec<Change>>) {
        if role.refers && self.chance.percent(60) {
            let name = self.fresh();
            shape.fields.push(Field { filter: true, ..Field::new(&name, Kind::Ref) });
        }
        let life = match role.stays {
            true => Life { added: None, removed: None },
            false => self.life(versions),
        };
        shape.served = life.removed.is_none();
        let hidden = !self.form && self.chance.percent(40);
        let mut secret = hidden.then(|| self.hide(&mut shape, versions));
        let (mut shapes, mut steps) = (vec![shape.clone()], Vec::new());
        for version in 0..versions - 1 {
            // A version that adds or removes a collection changes nothing else of it.
            let mut step = match (life.removed == Some(version), life.added == Some(version)) {
                (true, _) => vec![Change::CollectionRemoved],
                (_, true) => vec![Change::CollectionAdded],
                _ if !shape.served => Vec::new(),
                _ => {
                    let due = secret.take_if(|(_, when)| *when <= version);
                    self.step(&shape, due.map(|(name, _)| name))
                }
            };
            step.iter().for_each(|change| change.undo(&mut shape));
            step.iter_mut().for_each(|change| self.stay_beside(change, &shapes, &steps));
            shapes.push(shape.clone());
            steps.push(step);
        }
        // A field that no version removed is a normal field.
        if let Some((name, _)) = secret {
            shapes.iter_mut().for_each(|shape| shape.field(&name).hidden = false);
        }
        (shapes, steps)
    }

    /// Keeps the old name of a field, if the field was only renamed since, still exists, and no
    /// other field has had the name.
    fn stay_beside(&mut self, change: &mut Change, newer: &[Shape], steps: &[Vec<Change>]) {
        let Change::Rename { from, to, beside } = change else { return };
        let now = traced(to, steps).map(|name| newer[0].get(name));
        let free = newer.iter().all(|shape| !shape.has(from));
        let may = !self.form && free && now.is_some_and(Field::is_plain);
        *beside = may && self.chance.percent(30);
    }

    fn life(&mut self, versions: usize) -> Life {
        let steps = versions - 1;
        let removed = self.chance.percent(10).then(|| self.chance.below(steps));
        let earliest = removed.map_or(0, |removed| removed + 1);
        let added = self.chance.percent(15) && earliest < steps;
        let added = added.then(|| earliest + self.chance.below(steps - earliest));
        Life { added, removed }
    }

    /// The changes of one version.
    fn step(&mut self, newer: &Shape, removed: Option<String>) -> Vec<Change> {
        self.busy.clear();
        let mut shape = newer.clone();
        let mut step: Vec<Change> =
            removed.map(|field| Change::Removed { field }).into_iter().collect();
        step.iter().for_each(|change| self.take_back(change, &mut shape));
        for _ in 0..1 + self.chance.below(6) {
            if let Some(change) = self.change(&shape, newer) {
                self.take_back(&change, &mut shape);
                step.push(change);
            }
        }
        step
    }

    fn take_back(&mut self, change: &Change, shape: &mut Shape) {
        let before: Vec<String> = shape.fields.iter().map(|field| field.name.clone()).collect();
        change.undo(shape);
        self.busy.extend(touched(change));
        let now = shape.fields.iter().map(|field| field.name.clone());
        self.busy.extend(now.filter(|name| !before.contains(name)));
    }

    fn newest(&mut self) -> Shape {
        let count = 3 + self.chance.below(5);
        let fields = (0..count).map(|_| {
            let name = self.fresh();
            let kind = self.kind();
            let mut field = Field::new(&name, kind);
            if field.kind.is_scalar() {
                field.filter = self.chance.percent(60);
                field.sort = self.chance.percent(60);
            }
            field.search = field.kind == Kind::Text && self.chance.percent(50);
            field.choosy = field.kind != field.kind.unlimited();
            match self.chance.below(4) {
                0 => field.required = true,
                1 if field.kind.is_scalar() => {
                    field.default = Some(field.kind.value(self.chance));
                }
                _ => {}
            }
            field
        });
        Shape { fields: fields.collect(), served: true, code: None }
    }

    /// An action that copies some of its parameters into fields.
    fn action(&mut self, form: Collection, shape: &mut Shape) -> Action {
        let mut takes = Vec::new();
        for param in &form.shapes[0].fields {
            let name = self.fresh();
            shape.fields.push(Field::new(&name, param.kind.unlimited()));
            takes.push((param.name.clone(), name));
        }
        Action { form: Box::new(form), takes }
    }

    fn kind(&mut self) -> Kind {
        let words = || ["open", "paid", "gone"].map(str::to_owned).to_vec();
        let members = || {
            let kinds = [("m_text", Kind::Text), ("m_count", Kind::Whole), ("m_flag", Kind::Flag)];
            kinds.map(|(name, kind)| (name.to_owned(), kind)).to_vec()
        };
        let item = if self.chance.percent(50) { Kind::Text } else { Kind::Whole };
        let kinds: [&dyn Fn() -> Kind; 15] = [
            &|| Kind::Text,
            &|| Kind::Text,
            &|| Kind::Text,
            &|| Kind::Whole,
            &|| Kind::Whole,
            &|| Kind::Short,
            &|| Kind::Short,
            &|| Kind::Small,
            &|| Kind::Number,
            &|| Kind::Flag,
            &|| Kind::Moment,
            &|| Kind::Day,
            &|| Kind::Word(words()),
            &|| Kind::Object(members()),
            &|| Kind::List(Box::new(item.clone())),
        ];
        let ticks = self.chance.percent(8);
        if ticks { Kind::Ticks(1) } else { kinds[self.chance.below(kinds.len())]() }
    }

    /// A field that no client of the newest version knows, and the version that removed it.
    fn hide(&mut self, shape: &mut Shape, versions: usize) -> (String, usize) {
        let name = self.fresh();
        let kind = if self.chance.percent(50) { Kind::Text } else { Kind::Whole };
        let mut field = Field::new(&name, kind);
        (field.hidden, field.filter) = (true, self.chance.percent(50));
        field.search = field.kind == Kind::Text && self.chance.percent(50);
        shape.fields.push(field);
        (name, self.chance.below(versions - 1))
    }

    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("f{}", self.names)
    }

    fn fresh_code(&mut self) -> String {
        format!("refused_{}", self.fresh())
    }

    /// A name for a field of the older shape: an unused one, or one that a newer version gave to
    /// another field.
    fn older_name(&mut self, shape: &Shape, newer: &Shape) -> String {
        if self.chance.percent(30) {
            let name = format!("f{}", 1 + self.chance.below(self.names));
            let taken = shape.has(&name) || newer.has(&name) || self.busy.contains(&name);
            if !taken {
                return name;
            }
        }
        self.fresh()
    }

    /// A matching field among those that may still change.
    fn find(&mut self, shape: &Shape, fits: impl Fn(&Field) -> bool) -> Option<Field> {
        let fits = |field: &&Field| !self.busy.contains(&field.name) && fits(field);
        let found: Vec<&Field> = shape.fields.iter().filter(fits).collect();
        if found.is_empty() { None } else { Some(found[self.chance.below(found.len())].clone()) }
    }

    /// A random change that led to this shape; `None` if the chosen kind is not possible.
    fn change(&mut self, shape: &Shape, newer: &Shape) -> Option<Change> {
        match self.chance.below(17) {
            // Parameters are sent unchanged.
            2 | 3 | 13 if self.form => None,
            0 | 1 => {
                let to = self.find(shape, |field| !field.hidden)?.name;
                let from = self.older_name(shape, newer);
                Some(Change::Rename { from, to, beside: false })
            }
            2 => self.enter(shape, newer),
            3 => self.leave(shape),
            4..=8 => self.retype(shape),
            9 => self.enum_map(shape),
            10 => {
                let fits =
                    |field: &Field| field.is_plain() && !field.required && field.kind.is_scalar();
                let field = self.find(shape, fits)?;
                let was = (field.default.is_none() || self.chance.percent(70))
                    .then(|| field.kind.value(self.chance));
                Some(Change::Default { field: field.name, was })
            }
            11 => {
                let fits =
                    |field: &Field| field.is_free() && field.kind.is_scalar() && !field.filled;
                let field = self.find(shape, fits)?;
                let fill = field.kind.value(self.chance);
                Some(Change::Optional { field: field.name, fill })
            }
            12 => {
                let fits =
                    |field: &Field| field.is_plain() && field.required && field.kind.is_scalar();
                let field = self.find(shape, fits)?;
                let fill = field.kind.value(self.chance);
                Some(Change::Required { field: field.name, fill })
            }
            15 | 16 => {
                let fits = |field: &Field| field.is_plain() && field.kind != field.kind.unlimited();
                Some(Change::Limits { field: self.find(shape, fits)?.name })
            }
            14 => {
                let to = shape.code.clone().filter(|code| !self.busy.contains(code))?;
                Some(Change::Code { from: self.fresh_code(), to })
            }
            _ => {
                let name = self.older_name(shape, newer);
                let kind = if self.chance.percent(50) { Kind::Text } else { Kind::Whole };
                let value = kind.value(self.chance);
                Some(Change::Gone { field: Field::new(&name, kind), value })
            }
        }
    }

    fn enter(&mut self, shape: &Shape, newer: &Shape) -> Option<Change> {
        let is_object = |field: &Field| field.is_plain() && matches!(field.kind, Kind::Object(_));
        let object = self.find(shape, is_object)?;
        let Kind::Object(members) = &object.kind else { return None };
        // A member that was a field in between would be two things with one name.
        let own: Vec<&(String, Kind)> =
            members.iter().filter(|(name, _)| !name.starts_with(MOVED)).collect();
        let (member, kind) = own.get(self.chance.below(own.len().max(1)))?;
        let mut from = Field::new(&self.older_name(shape, newer), kind.clone());
        from.converted = !self.form;
        let (object, member, must) = (object.name.clone(), member.clone(), object.required);
        Some(Change::Enter { from, object, member, existing: self.chance.percent(50), must })
    }

    fn leave(&mut self, shape: &Shape) -> Option<Change> {
        let object =
            self.find(shape, |field| field.is_plain() && matches!(field.kind, Kind::Object(_)))?;
        let fits = |field: &Field| field.is_free() && field.kind.is_scalar() && !field.choosy;
        let to = self.find(shape, fits)?;
        let member = format!("{MOVED}{}", self.fresh());
        Some(Change::Leave { object: object.name, member, to, must: object.required })
    }

    fn retype(&mut self, shape: &Shape) -> Option<Change> {
        let fits = |field: &Field| {
            let known = !matches!(
                field.kind,
                Kind::Short
                    | Kind::Small
                    | Kind::Digits
                    | Kind::UpTo(_)
                    | Kind::Number
                    | Kind::Flag
                    | Kind::Day
                    | Kind::Object(_)
                    | Kind::Single(_)
                    | Kind::Ref
            );
            field.is_plain() && field.default.is_none() && known
        };
        let new = self.find(shape, fits)?;
        let (kind, how) = self.retyping(&new.kind)?;
        let mut from = Field { kind, ..new.clone() };
        from.choosy |= matches!(how, How::Numbers | How::Map(_));
        (from.filter, from.sort, from.converted) = (false, false, !self.form);
        Some(Change::Retype { field: new.name, from, how })
    }

    /// The old kind for a new one, and the conversion of its values.
    fn retyping(&mut self, new: &Kind) -> Option<(Kind, How)> {
        let single = |kind: &Kind| (Kind::Single(Box::new(kind.clone())), How::Items);
        Some(match (new, self.chance.below(4)) {
            (Kind::Text, 0 | 1) => (Kind::Whole, How::Texts),
            (Kind::Text, 2) => (Kind::Flag, How::FlagTexts),
            (Kind::Whole, 0) => (Kind::Digits, How::Numbers),
            (Kind::Whole, 1) => (Kind::Whole, How::Times(10)),
            (Kind::Whole, 2) => (Kind::Number, How::Cents),
            (Kind::Text | Kind::Whole, _) => single(new),
            (Kind::Moment, 0 | 1) => (Kind::Ticks(1_000), How::Instants(1_000)),
            (Kind::Moment, _) => (Kind::Ticks(1), How::Instants(1)),
            (Kind::Ticks(1), _) => (Kind::Moment, How::Milliseconds),
            (Kind::List(item), _) => ((**item).clone(), How::Lists),
            (Kind::Word(words), _) => {
                let pairs = words.iter().enumerate().map(|(place, word)| (place + 1, word));
                let pairs = pairs.map(|(number, word)| (json!(number), json!(word)));
                (Kind::UpTo(words.len()), How::Map(pairs.collect()))
            }
            _ => return None,
        })
    }

    fn enum_map(&mut self, shape: &Shape) -> Option<Change> {
        let fits = |field: &Field| {
            field.is_plain() && matches!(&field.kind, Kind::Word(words) if words.len() > 1)
        };
        let field = self.find(shape, fits)?;
        let Kind::Word(words) = &field.kind else { return None };
        let new = words[self.chance.below(words.len())].clone();
        let was = format!("was_{new}");
        let unknown = words.iter().find(|word| **word != new && self.chance.percent(40)).cloned();
        let mut old: Vec<String> = words.clone();
        old.retain(|word| Some(word) != unknown.as_ref());
        old.iter_mut().filter(|word| **word == new).for_each(|word| word.clone_from(&was));
        let down = unknown.map(|unknown| (unknown, old[self.chance.below(old.len())].clone()));
        Some(Change::EnumMap { field: field.name, old, up: (was, new), down })
    }
}

/// The fields of the newer shape that a change affects.
fn touched(change: &Change) -> Vec<String> {
    match change {
        Change::Rename { to, .. } => vec![to.clone()],
        Change::Enter { object, .. } => vec![object.clone()],
        Change::Leave { object, to, .. } => vec![object.clone(), to.name.clone()],
        Change::Retype { field, .. }
        | Change::EnumMap { field, .. }
        | Change::Default { field, .. }
        | Change::Optional { field, .. }
        | Change::Required { field, .. }
        | Change::Limits { field }
        | Change::Removed { field } => vec![field.clone()],
        // Not twice on one date.
        Change::Code { from, .. } => vec![from.clone()],
        Change::Gone { .. } | Change::CollectionAdded | Change::CollectionRemoved => Vec::new(),
    }
}

impl Plan {
    /// The schema file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(turn) = self.turn {
            let (newest, old) = (self.dates[0], self.dates[turn]);
            text.push_str(&format!("[service]\nversion = '{newest}'\nmount = '/v2'\n"));
            text.push_str(&format!("[[mounts]]\npath = '/v1'\nversion = '{old}'\n"));
        }
        text.push_str("[webhooks]\ndevelopment = true\n");
        for (version, date) in self.dates.iter().enumerate() {
            text.push_str(&format!("[[versions]]\ndate = '{date}'\n"));
            for collection in &self.collections {
                let form =
                    collection.action.iter().map(|action| (&*action.form, "action = 'mark'\n"));
                for (part, which) in [(collection, "")].into_iter().chain(form) {
                    for change in part.steps.get(version).into_iter().flatten() {
                        let name = collection.name;
                        text.push_str("[[versions.changes]]\n");
                        let about = format!("collection = '{name}'\n{which}");
                        text.push_str(&format!("{about}{}\n", change.text()));
                    }
                }
            }
        }
        for collection in &self.collections {
            text.push_str(&format!("[collections.{}]\n", collection.name));
            if collection.feed {
                text.push_str("feed = true\n");
            }
            if let Some(parent) = collection.parent {
                text.push_str(&format!("parent = '{}'\n", self.collections[parent].name));
            }
            text.push_str(&format!("[collections.{}.fields]\n", collection.name));
            for field in collection.shapes[0].fields.iter().filter(|field| field.of.is_none()) {
                let flags = asked(field) + &flag("search", field.search);
                text.push_str(&format!("{} = {}\n", field.name, field.declared(&flags)));
            }
            if let Some(action) = &collection.action {
                text.push_str(&action.text(collection.name));
            }
            if let Some(code) = &collection.shapes[0].code {
                let (name, about) = (collection.name, &collection.shapes[0].fields[0].name);
                text.push_str(&format!("[[collections.{name}.actions.{VETO}.rules]]\n"));
                text.push_str(&format!("when = 'true'\ncode = '{code}'\nparam = '{about}'\n"));
                text.push_str(&format!("message = 'The `{about}` says no.'\n"));
            }
        }
        text
    }
}

fn flag(name: &str, on: bool) -> String {
    if on { format!("{name} = true, ") } else { String::new() }
}

/// The options that allow filtering and sorting.
fn asked(field: &Field) -> String {
    flag("filter", field.filter) + &flag("sort", field.sort)
}

impl Action {
    fn text(&self, collection: &str) -> String {
        let mut text = format!("[collections.{collection}.actions.{ACTION}.params]\n");
        for param in &self.form.shapes[0].fields {
            text.push_str(&format!("{} = {}\n", param.name, param.declared("")));
        }
        text.push_str(&format!("[collections.{collection}.actions.{ACTION}.set]\n"));
        for (param, field) in &self.takes {
            let value = format!("has(request.{param}) ? request.{param} : null");
            text.push_str(&format!("{field} = '={value}'\n"));
        }
        text
    }
}

impl Change {
    fn text(&self) -> String {
        let named =
            |field: &Field| field.declared(&format!("name = '{}', {}", field.name, asked(field)));
        match self {
            Change::Rename { from, to, beside } => {
                let beside = if *beside { ", beside = true" } else { "" };
                format!("rename = {{ from = '{from}', to = '{to}'{beside} }}")
            }
            Change::Enter { from, object, member, existing, .. } => format!(
                "move = {{ from = {}, to = '{object}.{member}', existing = {existing} }}",
                named(from)
            ),
            Change::Leave { object, member, to, .. } => {
                format!("move = {{ from = '{object}.{member}', to = '{}' }}", to.name)
            }
            Change::Retype { field, from, how } => {
                let from = from.declared(&asked(from));
                format!("convert = {{ field = '{field}', from = {from}, {} }}", how.text())
            }
            Change::EnumMap { field, up: (old, new), down, .. } => {
                let down = down
                    .as_ref()
                    .map_or(String::new(), |(new, old)| format!(", down = {{ {new} = '{old}' }}"));
                format!("enum_map = {{ field = '{field}', values = {{ {old} = '{new}' }}{down} }}")
            }
            Change::Default { field, was } => {
                let was = was.as_ref().map_or(String::new(), |was| format!(", was = {was}"));
                format!("default = {{ field = '{field}'{was} }}")
            }
            Change::Optional { field, fill } => {
                format!("optional = {{ field = '{field}', fill = {fill} }}")
            }
            Change::Required { field, fill } => {
                format!("required = {{ field = '{field}', fill = {fill} }}")
            }
            Change::Limits { field } => format!("limits = {{ field = '{field}' }}"),
            Change::Removed { field } => format!("removed = {{ field = '{field}' }}"),
            Change::Gone { field, value } => {
                format!("removed = {{ field = {}, value = {value} }}", named(field))
            }
            Change::Code { from, to } => format!("code = {{ from = '{from}', to = '{to}' }}"),
            Change::CollectionAdded => "collection_added = true".to_owned(),
            Change::CollectionRemoved => "collection_removed = true".to_owned(),
        }
    }
}

impl How {
    /// The formulas, and whether they may be lossy.
    fn text(&self) -> String {
        let (up, down, lossy) = match self {
            How::Texts => {
                let down = "string(int(value)) == value ? int(value) : null";
                ("string(value)".to_owned(), down.to_owned(), true)
            }
            How::FlagTexts => {
                let down = "value == 'true' ? true : (value == 'false' ? false : null)";
                ("string(value)".to_owned(), down.to_owned(), true)
            }
            How::Numbers => ("int(value)".to_owned(), "string(value)".to_owned(), false),
            How::Instants(tick) => {
                let down = format!("to_millis(value) / {tick}");
                (format!("from_millis(value * {tick})"), down, *tick > 1)
            }
            How::Milliseconds => {
                ("to_millis(value)".to_owned(), "from_millis(value)".to_owned(), false)
            }
            How::Lists => {
                let down = "size(value) > 0 ? value[0] : null";
                ("[value]".to_owned(), down.to_owned(), true)
            }
            How::Items => ("value[0]".to_owned(), "[value]".to_owned(), false),
            How::Times(factor) => {
                let down = format!("int(math.round(double(value) / {factor}.0))");
                (format!("value * {factor}"), down, true)
            }
            How::Cents => {
                let up = "int(math.round(value * 100.0))".to_owned();
                (up, "double(value) / 100.0".to_owned(), false)
            }
            How::Map(pairs) => {
                let back: Vec<_> =
                    pairs.iter().map(|(was, is)| (is.clone(), was.clone())).collect();
                let last = pairs.last().map_or_else(String::new, |(_, to)| to.to_string());
                (chosen(pairs, &last), chosen(&back, "null"), false)
            }
        };
        let lossy = if lossy { ", lossy = true" } else { "" };
        format!("up = {}, down = {}{lossy}", json!(up), json!(down))
    }
}

/// An expression that maps the first of each pair to the second.
fn chosen(pairs: &[(Value, Value)], otherwise: &str) -> String {
    let one =
        |rest: String, (from, to): &(Value, Value)| format!("value == {from} ? {to} : ({rest})");
    pairs.iter().rev().fold(otherwise.to_owned(), one)
}
