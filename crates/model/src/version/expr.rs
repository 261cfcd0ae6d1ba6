//! How one field of a shape is made from the fields of another. Expressions are built once, by
//! substitution through all changes between two versions, so what a record costs depends on how
//! much its fields changed, not on how many versions lie between.

use super::convert::Conversion;
use crate::record::Fields;
use crate::schema::Kind;
use crate::validate::{self, MAX_INTEGER};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a missing field says.
pub(super) static NULL: Value = Value::Null;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// A field as it was sent, in the shape of the version.
    Sent(String),
    /// A field of the kept record, in the newest shape.
    Kept(String),
    Fixed(Value),
    Member {
        of: Box<Expr>,
        name: String,
    },
    /// The object with this member; without it where the value is null. `hollow`: what is no
    /// object becomes one without members, not null. `fresh`: an object that has such a member
    /// already is marked, since one of the two would be lost.
    With {
        of: Box<Expr>,
        name: String,
        value: Box<Expr>,
        hollow: bool,
        fresh: bool,
    },
    /// The one, or the other where that is null.
    Or {
        of: Box<Expr>,
        other: Box<Expr>,
    },
    /// The texts that are not null, joined.
    Join {
        parts: Vec<Expr>,
        by: String,
    },
    /// One of `count` pieces of a text; the last one is the rest. `whole`: on the way up, the text
    /// that the kept pieces make, shared by all of them.
    Part {
        of: Box<Expr>,
        by: String,
        place: usize,
        count: usize,
        whole: Option<Arc<Expr>>,
    },
    /// A value without counterpart becomes null on the way down, and is marked on the way up.
    Convert {
        of: Box<Expr>,
        by: Conversion,
        marks: bool,
    },
}

/// What parts of a text that a write leaves alone are.
#[derive(Clone, Copy)]
pub(super) enum Rest {
    /// Those of the kept text.
    Kept,
    /// Those that the client was shown.
    Shown,
}

/// Where the fields come from.
pub(super) trait Source {
    fn sent(&self, name: &str) -> Cow<'_, Value>;
    fn kept(&self, name: &str) -> Cow<'_, Value>;
}

/// A kept record, and perhaps what was sent to change it.
pub(super) struct Parsed<'a> {
    pub sent: Option<&'a Fields>,
    pub kept: Option<&'a Fields>,
}

impl Source for Parsed<'_> {
    fn sent(&self, name: &str) -> Cow<'_, Value> {
        Cow::Borrowed(self.sent.and_then(|fields| fields.get(name)).unwrap_or(&NULL))
    }

    fn kept(&self, name: &str) -> Cow<'_, Value> {
        Cow::Borrowed(self.kept.and_then(|fields| fields.get(name)).unwrap_or(&NULL))
    }
}

impl Expr {
    pub fn sent(name: &str) -> Expr {
        Expr::Sent(name.to_owned())
    }

    pub fn kept(name: &str) -> Expr {
        Expr::Kept(name.to_owned())
    }

    /// Of an object, whatever becomes of its other members: many may move into it.
    pub fn member(self, name: &str) -> Expr {
        match self {
            Expr::With { of, name: other, .. } if other != name => of.member(name),
            Expr::With { value, fresh: false, .. } => *value,
            of => Expr::Member { of: Box::new(of), name: name.to_owned() },
        }
    }

    pub fn with(self, name: &str, value: Expr, hollow: bool) -> Expr {
        let (of, value) = (Box::new(self), Box::new(value));
        Expr::With { of, name: name.to_owned(), value, hollow, fresh: false }
    }

    /// The same for a member that the object cannot have yet.
    pub fn with_fresh(self, name: &str, value: Expr, hollow: bool) -> Expr {
        let (of, value) = (Box::new(self), Box::new(value));
        Expr::With { of, name: name.to_owned(), value, hollow, fresh: true }
    }

    pub fn without(self, name: &str, hollow: bool) -> Expr {
        self.with(name, Expr::Fixed(Value::Null), hollow)
    }

    pub fn or(self, other: Expr) -> Expr {
        Expr::Or { of: Box::new(self), other: Box::new(other) }
    }

    /// On the way to the newest shape, where types are checked afterwards.
    pub fn raised(self, by: Conversion) -> Expr {
        Expr::Convert { of: Box::new(self), by, marks: true }
    }

    /// On the way to an older shape, whose clients must be answered whatever the value is.
    pub fn lowered(self, by: Conversion) -> Expr {
        // Divided twice, a number would be rounded twice.
        if let Expr::Convert { of, by: Conversion::Over(newer), marks: false } = &self
            && let Conversion::Over(older) = &by
            && let Some(both) = newer.after(older)
        {
            return Expr::Convert { of: of.clone(), by: Conversion::Over(both), marks: false };
        }
        Expr::Convert { of: Box::new(self), by, marks: false }
    }

    pub fn eval<'a>(&'a self, source: &'a impl Source) -> Cow<'a, Value> {
        match self {
            Expr::Sent(name) => source.sent(name),
            Expr::Kept(name) => source.kept(name),
            Expr::Fixed(value) => Cow::Borrowed(value),
            Expr::Member { of, name } => match of.eval(source) {
                Cow::Borrowed(value) => Cow::Borrowed(value.get(name).unwrap_or(&NULL)),
                Cow::Owned(mut value) => {
                    Cow::Owned(value.get_mut(name).map(Value::take).unwrap_or_default())
                }
            },
            Expr::With { of, name, value, hollow, fresh } => {
                let of = of.eval(source).into_owned();
                let there = of.get(name).filter(|there| *fresh && !there.is_null());
                let value = match there {
                    Some(there) => validate::taken(there.clone()),
                    None => value.eval(source).into_owned(),
                };
                Cow::Owned(with(of, name, value, *hollow))
            }
            Expr::Or { of, other } => {
                let value = of.eval(source);
                if value.is_null() { other.eval(source) } else { value }
            }
            Expr::Join { parts, by } => {
                let values: Vec<_> = parts.iter().map(|part| part.eval(source)).collect();
                Cow::Owned(join(&values, by))
            }
            Expr::Part { of, by, place, count, .. } => part(of.eval(source), by, *place, *count),
            Expr::Convert { of, by, marks } => convert(by, *marks, of.eval(source)),
        }
    }

    /// A kept value after what was sent has changed from one to the other. Members and parts that
    /// come of what is the same stay as they are kept: this version may not see all of them.
    pub fn changed(&self, was: &impl Source, is: &impl Source, kept: &Value, rest: Rest) -> Value {
        match self {
            Expr::Join { parts, by } => return rejoined(parts, by, (was, is), kept, rest),
            Expr::With { of, name, value, hollow, fresh } => {
                let there = kept.get(name).unwrap_or(&NULL);
                let taken = *fresh && of.eval(is).get(name).is_some_and(|sent| !sent.is_null());
                let member = match value.differs(was, is) {
                    _ if taken => validate::taken(there.clone()),
                    true => value.changed(was, is, there, rest),
                    false => there.clone(),
                };
                let others = without(kept.clone(), name);
                let others = match rest_differs((of, name), *fresh, was, is) {
                    // Before the member left it, there was an object.
                    true if others.is_null() && of.eval(was).is_object() => {
                        of.changed(was, is, &Value::Object(Map::new()), rest)
                    }
                    true => of.changed(was, is, &others, rest),
                    false => others,
                };
                return with(others, name, member, *hollow);
            }
            Expr::Member { name, .. } => {
                if let Some((of, value)) = self.replacing()
                    && of.eval(is).get(name).is_none_or(Value::is_null)
                {
                    return value.changed(was, is, kept, rest);
                }
            }
            Expr::Part { of, by, place, count, whole: Some(whole) } if of.joins() => {
                let before = whole.eval(was);
                let value = Cow::Owned(of.changed(was, is, &before, rest));
                return part(value, by, *place, *count).into_owned();
            }
            Expr::Or { of, other } => {
                let value = of.changed(was, is, kept, rest);
                return if value.is_null() { other.eval(is).into_owned() } else { value };
            }
            Expr::Convert { of, by, marks } if of.joins() => {
                let before = by.taken_back(kept).unwrap_or_default();
                let value = Cow::Owned(of.changed(was, is, &before, rest));
                return convert(by, *marks, value).into_owned();
            }
            _ => {}
        }
        let (was, is) = (self.eval(was), self.eval(is).into_owned());
        let mut members = match (kept, is.is_object() || is.is_null()) {
            (Value::Object(members), true) => members.clone(),
            _ => return is,
        };
        let of = |object: &Value| object.as_object().cloned().unwrap_or_default();
        let (mut before, after) = (of(&was), of(&is));
        for (name, value) in after {
            if before.remove(&name).as_ref() != Some(&value) {
                members.insert(name, value);
            }
        }
        before.keys().for_each(|gone| drop(members.remove(gone)));
        if members.is_empty() { is } else { Value::Object(members) }
    }

    /// Whether a field, or a member of one, that it looks at has changed.
    pub fn differs(&self, was: &impl Source, is: &impl Source) -> bool {
        let differs = |of: &Expr| of.differs(was, is);
        match self {
            _ if self.is_place() => self.eval(was) != self.eval(is),
            Expr::Sent(_) | Expr::Kept(_) | Expr::Fixed(_) => false,
            Expr::Member { of, name } => match self.replacing() {
                Some((of, value)) => {
                    differs(value) || of.eval(was).get(name) != of.eval(is).get(name)
                }
                None => differs(of),
            },
            Expr::Part { of, .. } | Expr::Convert { of, .. } => differs(of),
            Expr::With { of, name, value, fresh, .. } => {
                differs(value) || rest_differs((of, name), *fresh, was, is)
            }
            Expr::Or { of, other } => differs(of) || differs(other),
            Expr::Join { parts, .. } => parts.iter().any(differs),
        }
    }

    /// Of a member that an object cannot have had: the object before, and the value.
    fn replacing(&self) -> Option<(&Expr, &Expr)> {
        match self {
            Expr::Member { of, name } => match &**of {
                Expr::With { of, name: there, value, .. } if there == name => Some((of, value)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it is put together from several texts.
    fn joins(&self) -> bool {
        let mut found = false;
        self.visit(&mut |part| found |= matches!(part, Expr::Join { .. }));
        found
    }

    /// What was sent, and is put together with others.
    pub(super) fn joined(&self) -> Vec<Expr> {
        let mut found = Vec::new();
        self.visit(&mut |part| {
            if let Expr::Join { parts, .. } = part {
                for part in parts {
                    part.visit(&mut |part| {
                        if part.is_place() && !found.contains(part) {
                            found.push(part.clone());
                        }
                    });
                }
            }
        });
        found
    }

    /// Whether nothing becomes something in it.
    pub(super) fn fills(&self) -> bool {
        let mut found = false;
        self.visit(&mut |part| {
            found |= matches!(part, Expr::Convert { by, .. } if by.fills());
        });
        found
    }

    /// Whether it is what was sent somewhere.
    pub fn is_place(&self) -> bool {
        match self {
            Expr::Sent(_) => true,
            Expr::Member { of, .. } => of.is_place(),
            _ => false,
        }
    }

    /// The same over another shape: fields that were sent are replaced by what makes them there.
    pub fn substitute(&self, sent: &BTreeMap<String, Expr>) -> Expr {
        let inner = |of: &Expr| Box::new(of.substitute(sent));
        match self {
            Expr::Sent(name) => sent.get(name).unwrap_or(self).clone(),
            Expr::Kept(_) | Expr::Fixed(_) => self.clone(),
            Expr::Member { of, name } => of.substitute(sent).member(name),
            Expr::With { of, name, value, hollow, fresh } => Expr::With {
                of: inner(of),
                name: name.clone(),
                value: inner(value),
                hollow: *hollow,
                fresh: *fresh,
            },
            Expr::Or { of, other } => Expr::Or { of: inner(of), other: inner(other) },
            Expr::Join { parts, by } => Expr::Join {
                parts: parts.iter().map(|part| part.substitute(sent)).collect(),
                by: by.clone(),
            },
            Expr::Part { of, by, place, count, whole } => {
                let (by, whole) = (by.clone(), whole.clone());
                Expr::Part { of: inner(of), by, place: *place, count: *count, whole }
            }
            Expr::Convert { of, by, marks } => {
                Expr::Convert { of: inner(of), by: by.clone(), marks: *marks }
            }
        }
    }

    /// The same where no version between holds the field that was sent to its limits.
    pub fn unlimited(&self, name: &str) -> Expr {
        let inner = |of: &Expr| Box::new(of.unlimited(name));
        match self {
            Expr::Sent(_) | Expr::Kept(_) | Expr::Fixed(_) => self.clone(),
            Expr::Member { of, name: member } => {
                Expr::Member { of: inner(of), name: member.clone() }
            }
            Expr::With { of, name: member, value, hollow, fresh } => Expr::With {
                of: inner(of),
                name: member.clone(),
                value: inner(value),
                hollow: *hollow,
                fresh: *fresh,
            },
            Expr::Or { of, other } => Expr::Or { of: inner(of), other: inner(other) },
            Expr::Join { parts, by } => Expr::Join {
                parts: parts.iter().map(|part| part.unlimited(name)).collect(),
                by: by.clone(),
            },
            Expr::Part { of, by, place, count, whole } => {
                let (by, whole) = (by.clone(), whole.clone());
                Expr::Part { of: inner(of), by, place: *place, count: *count, whole }
            }
            Expr::Convert { of, by, marks } => {
                let by = match by {
                    Conversion::Takes(declared) if of.sent_names().iter().any(|n| n == name) => {
                        Conversion::Takes(declared.unlimited())
                    }
                    other => other.clone(),
                };
                Expr::Convert { of: inner(of), by, marks: *marks }
            }
        }
    }

    /// Every part of it, itself first.
    pub fn visit<'a>(&'a self, see: &mut impl FnMut(&'a Expr)) {
        see(self);
        match self {
            Expr::Sent(_) | Expr::Kept(_) | Expr::Fixed(_) => {}
            Expr::Member { of, .. } | Expr::Part { of, .. } | Expr::Convert { of, .. } => {
                of.visit(see);
            }
            Expr::With { of, value: other, .. } | Expr::Or { of, other } => {
                of.visit(see);
                other.visit(see);
            }
            Expr::Join { parts, .. } => parts.iter().for_each(|part| part.visit(see)),
        }
    }

    /// The fields that were sent and that it looks at, in the order they are met.
    pub fn sent_names(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.visit(&mut |part| {
            if let Expr::Sent(name) = part
                && !found.contains(name)
            {
                found.push(name.clone());
            }
        });
        found
    }

    /// The first field that was sent and that it looks at, or the member that it takes of it.
    pub fn sent_path(&self) -> Option<String> {
        match self {
            Expr::Sent(name) => Some(name.clone()),
            Expr::Kept(_) | Expr::Fixed(_) => None,
            Expr::Member { of, name } => match &**of {
                Expr::With { name: there, value, .. } if there == name => value.sent_path(),
                of => Some(format!("{}.{name}", of.sent_path()?)),
            },
            Expr::Part { of, .. } | Expr::Convert { of, .. } => of.sent_path(),
            Expr::With { of, value, .. } => of.sent_path().or_else(|| value.sent_path()),
            Expr::Or { of, other } => of.sent_path().or_else(|| other.sent_path()),
            // Which of several members it is cannot be told.
            Expr::Join { .. } => self.sent_names().into_iter().next(),
        }
    }

    /// Whether it does more with a field that was sent than to put it elsewhere.
    pub fn looks_into(&self, sent: &str) -> bool {
        let mut found = false;
        self.visit(&mut |part| {
            let looks = match part {
                Expr::Join { .. } | Expr::Part { .. } => true,
                Expr::Convert { by, .. } => by.looks_into(),
                _ => false,
            };
            found |= looks && part.sent_names().iter().any(|name| name == sent);
        });
        found
    }

    pub fn kept_names(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        self.visit(&mut |part| {
            if let Expr::Kept(name) = part {
                found.insert(name.clone());
            }
        });
        found
    }

    /// Whether it has a value whatever a record keeps, given the fields that every record has.
    pub fn always_says(&self, kept: &impl Fn(&str) -> bool) -> bool {
        match self {
            Expr::Kept(name) => kept(name),
            Expr::Fixed(value) => !value.is_null(),
            Expr::With { of, value, hollow, .. } => {
                *hollow || of.always_says(kept) || value.always_says(kept)
            }
            Expr::Or { of, other } => of.always_says(kept) || other.always_says(kept),
            Expr::Join { parts, .. } => parts.iter().any(|part| part.always_says(kept)),
            Expr::Part { of, place: 0, .. } => of.always_says(kept),
            Expr::Convert { of, by, .. } => by.fills() || (by.finds_all() && of.always_says(kept)),
            Expr::Sent(_) | Expr::Member { .. } | Expr::Part { .. } => false,
        }
    }

    /// Whether it shows the least and the greatest number of the kept kind: an integer, or a float
    /// once it is multiplied, may have no room for them.
    pub fn has_room_for(&self, kind: &Kind) -> bool {
        let ends = match kind {
            Kind::Integer => [Value::from(-MAX_INTEGER), Value::from(MAX_INTEGER)],
            Kind::Number => [Value::from(f64::MIN), Value::from(f64::MAX)],
            _ => return true,
        };
        self.converted().is_none_or(|kept| {
            ends.iter().all(|end| !super::lens::show_one(self, kept, end).is_null())
        })
    }

    /// Whether it is a field as it was sent, but for what stands where nothing was.
    pub fn is_as_sent(&self) -> bool {
        match self {
            Expr::Sent(_) => true,
            Expr::Convert { of, by, .. } => by.fills() && of.is_as_sent(),
            _ => false,
        }
    }

    /// Whether it is a field, or a member, as it was sent.
    pub fn is_plain(&self) -> bool {
        match self {
            Expr::Sent(_) => true,
            Expr::Member { of, .. } | Expr::Or { of, .. } => of.is_plain(),
            Expr::Convert { of, by, .. } => by.keeps_values() && of.is_plain(),
            _ => false,
        }
    }

    /// The member of a kept object that it shows, as a path.
    pub fn kept_member(&self) -> Option<String> {
        let (of, name) = match self {
            Expr::Member { of, name } => (of, name),
            Expr::Convert { of, .. } => return of.kept_member(),
            _ => return None,
        };
        let mut object = &**of;
        while let Expr::With { of, .. } = object {
            object = of;
        }
        match object {
            Expr::Kept(field) => Some(format!("{field}.{name}")),
            _ => None,
        }
    }

    /// Whether a kept field is in it as it is, alone or beside others.
    pub fn shows_whole(&self, kept: &str) -> bool {
        match self {
            Expr::Kept(name) => name == kept,
            Expr::With { of, value, .. } => of.shows_whole(kept) || value.shows_whole(kept),
            Expr::Or { of, other } => of.shows_whole(kept) || other.shows_whole(kept),
            Expr::Convert { of, by, .. } => by.fills() && of.shows_whole(kept),
            Expr::Sent(_) | Expr::Fixed(_) => false,
            Expr::Member { .. } | Expr::Join { .. } | Expr::Part { .. } => false,
        }
    }

    /// How many parts it has.
    pub fn size(&self) -> usize {
        let mut count = 0;
        self.visit(&mut |_| count += 1);
        count
    }

    /// The one kept field it shows, where nothing but conversions lies between.
    pub fn converted(&self) -> Option<&str> {
        match self {
            Expr::Kept(name) => Some(name),
            Expr::Convert { of, .. } => of.converted(),
            _ => None,
        }
    }
}

fn join(values: &[Cow<'_, Value>], by: &str) -> Value {
    // What could not be converted before is no text, and must not get lost in one.
    if let Some(marked) = values.iter().find(|value| !value.is_null() && !value.is_string()) {
        return marked.clone().into_owned();
    }
    let texts: Vec<&str> = values.iter().filter_map(|value| value.as_str()).collect();
    match texts.is_empty() {
        true => Value::Null,
        false => Value::String(texts.join(by)),
    }
}

fn part<'v>(value: Cow<'v, Value>, by: &str, place: usize, count: usize) -> Cow<'v, Value> {
    match value.as_str() {
        Some(text) => {
            let piece = text.splitn(count, by).nth(place);
            Cow::Owned(piece.map(Value::from).unwrap_or_default())
        }
        None => value,
    }
}

fn convert<'v>(by: &Conversion, marks: bool, value: Cow<'v, Value>) -> Cow<'v, Value> {
    match by.apply(&value) {
        // It stays what could not be said before.
        _ if marks && validate::is_marked(&value) => value,
        Some(converted) => Cow::Owned(converted),
        None if marks => Cow::Owned(validate::marked(value.into_owned())),
        None => Cow::Borrowed(&NULL),
    }
}

fn rejoined(
    parts: &[Expr],
    by: &str,
    (was, is): (&impl Source, &impl Source),
    kept: &Value,
    rest: Rest,
) -> Value {
    let mut pieces = kept.as_str().into_iter().flat_map(|text| text.splitn(parts.len(), by));
    let mut values = Vec::new();
    for part in parts {
        let piece = pieces.next().map(Value::from).unwrap_or_default();
        values.push(match rest {
            Rest::Kept if !part.differs(was, is) => Cow::Owned(piece),
            _ => Cow::Owned(part.changed(was, is, &piece, rest)),
        });
    }
    let joined = join(&values, by);
    // What follows a part that is not there would be read as that part.
    let gap = values.windows(2).any(|two| two[0].is_null() && !two[1].is_null());
    if gap && !validate::is_marked(&joined) { validate::marked(joined) } else { joined }
}

/// Whether an object in which a member is replaced has changed in more than that member. One that
/// had nothing but the member, and lost it, is an empty one now.
fn rest_differs(
    (of, name): (&Expr, &str),
    fresh: bool,
    was: &impl Source,
    is: &impl Source,
) -> bool {
    let (was, is) = (of.eval(was).into_owned(), of.eval(is).into_owned());
    let has = |object: &Value| object.get(name).is_some_and(|member| !member.is_null());
    match fresh || has(&was) != has(&is) {
        true => was != is,
        false => without(was, name) != without(is, name),
    }
}

fn without(mut object: Value, name: &str) -> Value {
    if let Value::Object(members) = &mut object {
        members.remove(name);
    }
    object
}

fn with(of: Value, name: &str, value: Value, hollow: bool) -> Value {
    let mut members = match of {
        Value::Object(members) => members,
        // What is no object stays what could not be said.
        of if validate::is_marked(&of) => return of,
        _ if value.is_null() && !hollow => return Value::Null,
        _ => Map::new(),
    };
    match value.is_null() {
        true => drop(members.remove(name)),
        false => drop(members.insert(name.to_owned(), value)),
    }
    Value::Object(members)
}
