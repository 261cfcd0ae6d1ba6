//! One collection seen from one older version. Records go down through it, requests go up. Built
//! once; knows nothing of other versions, since everything between is in its expressions.

use super::expr::{Expr, Parsed, Rest};
use super::raw::Raw;
use super::scale;
use super::settle;
use super::shape::Shape;
use crate::record::{Fields, Record, push_json};
use crate::schema::{Collection, Field, Kind};
use crate::validate::{self, ASSIGNED};
use crate::value;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub struct Lens {
    /// Place of the version.
    pub(super) version: usize,
    /// Fields of the version, in the order they are served.
    pub(super) lines: Vec<Line>,
    /// Kept fields, and how they are made from what is sent.
    pub(super) lifts: Vec<Lift>,
    /// Old names, and the fields of the version that they are beside of.
    aliases: Vec<(String, String)>,
    /// Kept names, and the field of the version that tells of them.
    names: BTreeMap<String, String>,
    /// Kept fields that no field of the version tells of.
    unseen: BTreeSet<String>,
    /// Whether removed fields are shown, which are kept apart.
    reveals: bool,
    /// The newest collection with other limits, which hold for what is sent in this version.
    held_to: Option<Box<Collection>>,
}

/// A field of the version.
#[derive(Debug)]
pub(super) struct Line {
    pub name: String,
    /// What stands before its value in the text of a record.
    key: String,
    pub expr: Expr,
    /// None: assigned by the service.
    pub field: Option<Field>,
    /// The kept fields it is made from.
    pub kept: BTreeSet<String>,
}

/// A kept field.
#[derive(Debug)]
pub(super) struct Lift {
    pub field: Field,
    pub expr: Expr,
    /// The fields of the version it is made from.
    pub sent: Vec<String>,
    /// What of them is in another unit.
    pub multiplied: Vec<Expr>,
    /// What of them is a part of a text.
    pub joined: Vec<Expr>,
    /// Whether the nearest number in the newest unit will do, for each change on the way.
    pub nearest: bool,
}

impl Lens {
    pub(super) fn new(
        version: usize,
        newest: &Collection,
        old: &Collection,
        shape: &Shape,
    ) -> Lens {
        let lines = lines(old, shape);
        let held_to = shape.held_to(newest);
        let lifts: Vec<Lift> = held_to
            .as_ref()
            .unwrap_or(newest)
            .fields
            .iter()
            .filter_map(|field| {
                let expr = shape.up.get(&field.name)?.clone();
                let sent = expr.sent_names();
                let (multiplied, joined) = (expr.multiplied(), expr.joined());
                let nearest = scale::finds_nearest(&expr.scales());
                Some(Lift { field: field.clone(), expr, sent, multiplied, joined, nearest })
            })
            .collect();
        let hidden = |name: &String| newest.field(name).is_some_and(|f| f.removed && !f.write_only);
        let names = names(&lines, &lifts);
        let kept = newest.fields.iter().map(|field| field.name.clone());
        Lens {
            version,
            unseen: kept.filter(|name| !names.contains_key(name)).collect(),
            names,
            reveals: lines.iter().any(|line| line.is_served() && line.kept.iter().any(hidden)),
            aliases: old
                .fields
                .iter()
                .filter_map(|field| Some((field.name.clone(), field.alias_of.clone()?)))
                .collect(),
            lines,
            lifts,
            held_to: held_to.map(Box::new),
        }
    }

    /// Whether the version shows the collection as it is kept.
    pub(super) fn is_plain(&self, newest: &Collection, old: &Collection) -> bool {
        self.lines.iter().all(|line| line.expr == Expr::kept(&line.name))
            && self.lifts.iter().all(|lift| lift.expr == Expr::sent(&lift.field.name))
            && newest.public_names().eq(old.public_names())
            && self.held_to.is_none()
    }

    /// Whether something is kept that no field of the version tells of.
    pub(super) fn is_blind(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// What holds for kept fields that were made from what is sent in this version.
    pub(crate) fn held_to<'a>(&'a self, newest: &'a Collection) -> &'a Collection {
        self.held_to.as_deref().unwrap_or(newest)
    }

    /// Kept fields as this version has them. Write-only ones come along where they are given:
    /// whoever encodes the result leaves them out.
    pub fn down(&self, fields: &Fields) -> Fields {
        let source = Parsed { sent: None, kept: Some(fields) };
        let mut shown = Fields::new();
        for line in &self.lines {
            let value = line.expr.eval(&source);
            if !value.is_null() || line.is_shown_as_null() {
                shown.insert(line.name.clone(), value.into_owned());
            }
        }
        shown
    }

    /// The text of a record in this version: `record::encode` of `down`, without building either.
    pub fn show(&self, record: &Record) -> String {
        let hidden = record.hidden.as_deref().filter(|_| self.reveals);
        self.show_text(&record.body, hidden)
    }

    /// The same for the text of an event's object.
    pub fn show_text(&self, body: &str, hidden: Option<&str>) -> String {
        let raw = Raw::read(body, hidden);
        let mut out = String::with_capacity(body.len() + 64);
        out.push('{');
        for line in self.lines.iter().filter(|line| line.is_served()) {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&line.key);
            match &line.expr {
                Expr::Kept(name) => out.push_str(raw.text(name)),
                other => push_json(&mut out, &other.eval(&raw)),
            }
        }
        out.push('}');
        out
    }

    /// A whole record or body of this version in the newest shape.
    pub fn up(&self, fields: &Fields) -> Fields {
        self.raise_all(&self.fold(fields))
    }

    fn raise_all(&self, sent: &Fields) -> Fields {
        let source = Parsed { sent: Some(sent), kept: None };
        // A parameter may be called like what every record has.
        let declared =
            |name: &str| self.lines.iter().any(|line| line.name == name && line.field.is_some());
        let assigned = ASSIGNED.iter().filter(|name| !declared(name));
        let assigned = assigned.filter_map(|name| sent.get_key_value(*name));
        let mut raised: Fields = assigned.map(|(name, v)| (name.clone(), v.clone())).collect();
        for lift in &self.lifts {
            let value = lift.expr.eval(&source);
            if !value.is_null() || lift.sent.iter().any(|name| sent.contains_key(name)) {
                raised.insert(lift.field.name.clone(), value.into_owned());
            }
        }
        self.settle(&mut raised, sent, None);
        raised
    }

    /// PATCH: the kept fields that change, with their whole new values.
    pub fn merge(&self, current: &Fields, patch: &Fields) -> Fields {
        let shown = self.down(current);
        let mut wanted = shown.clone();
        for (name, change) in self.fold(patch) {
            let object = change.is_object() && self.is_object(&name);
            let target = wanted.entry(name).or_insert(Value::Null);
            match object {
                true => value::merge(target, change),
                false => *target = change,
            }
        }
        self.raise(&shown, &wanted, current)
    }

    /// PUT: the kept fields that change. What this version cannot see stays as it is.
    pub fn replace(&self, current: &Fields, sent: &Fields) -> Fields {
        let shown = self.down(current);
        self.raise(&shown, &self.fold(sent), current)
    }

    /// Only what depends on a field that differs from what the client was shown: sending back what
    /// was read changes nothing, also where several kept values look alike in this version.
    fn raise(&self, shown: &Fields, wanted: &Fields, current: &Fields) -> Fields {
        let was = Parsed { sent: Some(shown), kept: Some(current) };
        let is = Parsed { sent: Some(wanted), kept: Some(current) };
        let lifts = self.lifts.iter().filter(|lift| !lift.field.read_only);
        let touched = lifts.filter(|lift| lift.expr.differs(&was, &is));
        let mut raised: Fields = touched
            .map(|lift| {
                let name = &lift.field.name;
                (name.clone(), lift.expr.changed(&was, &is, value_of(current, name), Rest::Kept))
            })
            .collect();
        self.rejoin(&mut raised, (&was, &is), (wanted, current));
        self.settle(&mut raised, wanted, Some(current));
        self.spare(&mut raised, current);
        raised.retain(|name, value| value_of(current, name) != value);
        raised
    }

    /// Leaves out of what changes what looks the same without, where the client may not see all of
    /// it: pieces of a split field, and what is filled where nothing is sent. What is taken away is
    /// gone, whatever it looked like.
    fn spare(&self, raised: &mut Fields, current: &Fields) {
        let is_piece = |lift: &&Lift| {
            let filled = lift.field.kind != Kind::Object && lift.expr.fills();
            (lift.is_part() || filled) && !value_of(raised, &lift.field.name).is_null()
        };
        let pieces: Vec<&Lift> = self.lifts.iter().filter(is_piece).collect();
        if pieces.is_empty() || raised.values().any(validate::is_marked) {
            return;
        }
        let mut after = settle::after(Some(current), raised);
        let wanted = self.down(&after);
        for name in pieces.iter().map(|lift| &lift.field.name) {
            let piece = after.insert(name.clone(), value_of(current, name).clone());
            match self.down(&after) == wanted {
                true => drop(raised.remove(name)),
                false => after.extend(piece.map(|piece| (name.clone(), piece))),
            }
        }
    }

    /// `previous_attributes` in this version, from the kept record after the change and the old
    /// values of what changed.
    pub fn previous(&self, after: &Fields, previous: &Fields) -> Fields {
        let mut before = after.clone();
        before.extend(previous.iter().map(|(name, value)| (name.clone(), value.clone())));
        let (before, after) = (Some(&before), Some(after));
        let was = Parsed { sent: None, kept: before };
        let is = Parsed { sent: None, kept: after };
        let lines = self.lines.iter().filter(|line| line.is_served() && line.name != "updated_at");
        let touched = lines.filter(|line| line.kept.iter().any(|name| previous.contains_key(name)));
        touched
            .filter(|line| line.expr.eval(&was) != line.expr.eval(&is))
            .map(|line| (line.name.clone(), line.expr.eval(&was).into_owned()))
            .collect()
    }

    /// The other way: `previous_attributes` that were written in this version, in the newest shape.
    pub fn previous_up(&self, after: &Fields, previous: &Fields) -> Fields {
        let mut before = after.clone();
        before.extend(previous.iter().map(|(name, value)| (name.clone(), value.clone())));
        let (was, is) = (self.raise_all(&before), self.raise_all(after));
        let names = was.keys().chain(is.keys()).filter(|name| *name != "updated_at");
        names
            .filter(|name| value_of(&was, name) != value_of(&is, name))
            .map(|name| (name.clone(), value_of(&was, name).clone()))
            .collect()
    }

    /// The field of this version that tells of a kept one or of a member of it: for the names in
    /// errors. None where no field does; what is no field is called the same.
    pub fn name_down(&self, newest: &str) -> Option<String> {
        let mut known = newest;
        let name = loop {
            match (self.names.get(known), known.rfind('.')) {
                (Some(name), _) => break name,
                (None, Some(dot)) => known = &known[..dot],
                (None, None) => return (!self.unseen.contains(known)).then(|| newest.to_owned()),
            }
        };
        if known == newest {
            return Some(name.clone());
        }
        let is_member = known.contains('.');
        let whole = match is_member {
            true => name.contains('.') || self.is_object(name),
            false => self.lines.iter().any(|line| line.expr.shows_whole(known)),
        };
        let path = format!("{name}{}", &newest[known.len()..]);
        let is_object = |lift: &Lift| lift.field.name == known && lift.field.kind == Kind::Object;
        match whole {
            // What stands there in this version may be something else.
            true => (!self.names.values().any(|other| *other == path)).then_some(path),
            // Of an object, other members are shown.
            false => (!is_member && !self.lifts.iter().any(is_object)).then(|| name.clone()),
        }
    }

    /// The kept field that a field of this version shows.
    pub fn name_up<'a>(&'a self, name: &'a str) -> &'a str {
        let line = self.lines.iter().find(|line| line.name == name);
        line.and_then(|line| line.kept.first()).map_or(name, String::as_str)
    }

    /// Whether the version shows the field, and nothing of it is kept.
    pub(crate) fn makes_up(&self, name: &str) -> bool {
        self.lines.iter().any(|line| line.name == name && matches!(line.expr, Expr::Fixed(_)))
    }

    /// Whether the version shows a value of the field where there is none.
    pub(crate) fn fills(&self, name: &str) -> bool {
        let fills = |expr: &Expr| matches!(expr, Expr::Convert { by, .. } if by.fills());
        self.lines.iter().any(|line| line.name == name && fills(&line.expr))
    }

    /// What the version calls a kept field that is as it was but for its name.
    pub(crate) fn sent_as<'a>(&'a self, kept: &'a str) -> Option<&'a str> {
        match self.lifts.iter().find(|lift| lift.field.name == kept).map(|lift| &lift.expr) {
            Some(Expr::Sent(name)) => Some(name),
            Some(_) => None,
            None => Some(kept),
        }
    }

    /// Pairs of names that mean one field, the old one first.
    pub(super) fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.aliases.iter().map(|(name, of)| (name.as_str(), of.as_str()))
    }

    /// Old names that are taken beside new ones, as the new ones.
    pub(super) fn fold(&self, sent: &Fields) -> Fields {
        let mut folded = sent.clone();
        for (name, of) in &self.aliases {
            if let Some(value) = folded.remove(name) {
                folded.entry(of.clone()).or_insert(value);
            }
        }
        folded
    }

    /// The name by which a client has sent a field of this version, or a member of one.
    pub(super) fn name_sent(&self, name: &str, sent: &Fields) -> String {
        let head = name.split('.').next().unwrap_or(name);
        let said = |(old, of): &(&str, &str)| *of == head && sent.contains_key(*old);
        match sent.contains_key(head) {
            true => name.to_owned(),
            false => {
                let said = self.aliases().find(said).map_or(head, |(old, _)| old);
                format!("{said}{}", &name[head.len()..])
            }
        }
    }

    fn is_object(&self, name: &str) -> bool {
        let line = self.lines.iter().find(|line| line.name == name);
        line.and_then(|line| line.field.as_ref()).is_some_and(|field| field.kind == Kind::Object)
    }
}

impl Line {
    fn is_served(&self) -> bool {
        self.field.as_ref().is_none_or(Field::is_served)
    }

    fn is_shown_as_null(&self) -> bool {
        self.field.as_ref().is_some_and(Field::is_served)
    }
}

/// What an expression shows of one kept value, where it shows no more than one.
pub(super) fn show_one(expr: &Expr, kept: &str, value: &Value) -> Value {
    let record: Fields = std::iter::once((kept.to_owned(), value.clone())).collect();
    expr.eval(&Parsed { sent: None, kept: Some(&record) }).into_owned()
}

pub(super) fn value_of<'a>(fields: &'a Fields, name: &str) -> &'a Value {
    fields.get(name).unwrap_or(&super::expr::NULL)
}

/// Fields that clients of the version know, between those that the service assigns.
fn lines(old: &Collection, shape: &Shape) -> Vec<Line> {
    let line = |name: &str, field: Option<&Field>| {
        let expr = match field {
            Some(_) => shape.lowered(name),
            None => Expr::kept(name),
        };
        let kept = expr.kept_names();
        let key = format!("{}:", Value::from(name));
        Line { name: name.to_owned(), key, expr, field: field.cloned(), kept }
    };
    let known = old.fields.iter().filter(|field| !field.removed);
    let assigned = |names: &'static [&'static str]| names.iter().map(|name| line(name, None));
    assigned(&["id", "object"])
        .chain(known.map(|field| line(&field.name, Some(field))))
        .chain(assigned(old.timestamps()))
        .collect()
}

/// What a client did wrong lies in what it sent; what it only sees, in what shows it.
fn names(lines: &[Line], lifts: &[Lift]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for line in lines {
        for kept in &line.kept {
            names.entry(kept.clone()).or_insert_with(|| line.name.clone());
        }
        if let Some(member) = line.expr.kept_member() {
            names.insert(member, line.name.clone());
        }
        // Members of an object that stand elsewhere in what is kept.
        let mut object = &line.expr;
        while let Expr::With { of, name, value, .. } = object {
            let member =
                value.kept_member().map(|member| (member, format!("{}.{name}", line.name)));
            names.extend(member);
            object = of;
        }
    }
    for lift in lifts {
        let known = |path: &String| {
            let head = path.split('.').next();
            lines.iter().any(|line| head == Some(&line.name))
        };
        if let Some(first) = lift.expr.sent_path().filter(known) {
            names.insert(lift.field.name.clone(), first);
        }
    }
    names
}
