//! The reference model: the effect of one change of the schema file, as documented, on a shape and
//! on a record, one change and one field at a time. Shares no code with the product.

use super::shape::{Field, Fields, Kind, Shape, hundredths, instant_of, iso};
use serde_json::{Value, json};

/// "Old" is before the change, "new" after it.
#[derive(Clone, Debug)]
pub enum Change {
    Rename {
        from: String,
        to: String,
        /// Newer versions also accept the old name.
        beside: bool,
    },
    /// A field became a member of an object, which is new unless it is `existing`.
    Enter {
        from: Field,
        object: String,
        member: String,
        existing: bool,
        must: bool,
    },
    /// A member of an object became a field.
    Leave {
        object: String,
        member: String,
        to: Field,
        must: bool,
    },
    Retype {
        field: String,
        from: Field,
        how: How,
    },
    EnumMap {
        field: String,
        old: Vec<String>,
        up: (String, String),
        down: Option<(String, String)>,
    },
    Default {
        field: String,
        was: Option<Value>,
    },
    Optional {
        field: String,
        fill: Value,
    },
    Required {
        field: String,
        fill: Value,
    },
    /// There were no limits before.
    Limits {
        field: String,
    },
    Removed {
        field: String,
    },
    Gone {
        field: Field,
        value: Value,
    },
    /// The code of a refusal was renamed.
    Code {
        from: String,
        to: String,
    },
    CollectionAdded,
    CollectionRemoved,
}

/// How old values of a field were converted to new ones.
#[derive(Clone, Debug)]
pub enum How {
    /// Whole numbers became their texts.
    Texts,
    /// Booleans became their texts.
    FlagTexts,
    /// Texts of digits became numbers.
    Numbers,
    /// Ticks of this many milliseconds became timestamps.
    Instants(i64),
    /// Timestamps became milliseconds.
    Milliseconds,
    /// A value became a list of that value.
    Lists,
    /// A list of one became its value.
    Items,
    /// New values are this many times the old ones; both are whole numbers.
    Times(i64),
    /// New values are a hundred times the old ones, which had fractions.
    Cents,
    /// Old and new values.
    Map(Vec<(Value, Value)>),
}

/// A field, or a member of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub field: String,
    pub member: Option<String>,
}

impl Place {
    fn whole(field: &str) -> Place {
        Place { field: field.to_owned(), member: None }
    }

    pub fn path(self) -> String {
        match self.member {
            Some(member) => format!("{}.{member}", self.field),
            None => self.field,
        }
    }
}

/// A value that the new version cannot represent.
#[derive(Debug)]
pub struct Unsayable;

impl Change {
    /// The older shape.
    pub fn undo(&self, shape: &mut Shape) {
        match self {
            Change::Rename { from, to, .. } => shape.field(to).name.clone_from(from),
            Change::Enter { from, object, member, existing, .. } => {
                if let Kind::Object(members) = &mut shape.field(object).kind {
                    members.retain(|(name, _)| name != member);
                }
                if !existing {
                    shape.take(object);
                }
                shape.fields.push(from.clone());
            }
            Change::Leave { object, member, to, .. } => {
                let field = shape.take(&to.name);
                if let Kind::Object(members) = &mut shape.field(object).kind {
                    members.push((member.clone(), field.kind));
                }
            }
            Change::Retype { field, from, .. } => *shape.field(field) = from.clone(),
            Change::EnumMap { field, old, .. } => {
                let default = shape.field(field).default.take();
                let default = default.map(|value| self.value_down(&value));
                let field = shape.field(field);
                (field.kind, field.default) = (Kind::Word(old.clone()), default);
            }
            Change::Default { field, was } => shape.field(field).default.clone_from(was),
            Change::Optional { field, .. } => shape.field(field).required = true,
            Change::Required { field, .. } => {
                let field = shape.field(field);
                (field.required, field.filled) = (false, true);
            }
            Change::Limits { field } => {
                let field = shape.field(field);
                (field.kind, field.choosy) = (field.kind.unlimited(), false);
            }
            Change::Removed { field } => shape.field(field).hidden = false,
            Change::Gone { field, value } => {
                let fixed = Some(value.clone());
                shape.fields.push(Field { fixed, ..field.clone() });
            }
            Change::Code { from, .. } => shape.code = Some(from.clone()),
            Change::CollectionAdded => shape.served = false,
            Change::CollectionRemoved => shape.served = true,
        }
    }

    /// The places in the old version of a place in the new one.
    pub fn places(&self, new: Place) -> Vec<Place> {
        match self {
            Change::Rename { from, to, .. } if *to == new.field => {
                vec![Place { field: from.clone(), ..new }]
            }
            Change::Enter { from, object, member, existing, .. } if *object == new.field => {
                let concerned = new.member.as_ref().is_none_or(|one| one == member);
                let stays = *existing && new.member.as_ref() != Some(member);
                let entered = concerned.then(|| Place::whole(&from.name));
                entered.into_iter().chain(stays.then_some(new)).collect()
            }
            Change::Leave { object, member, to, .. } if to.name == new.field => {
                vec![Place { field: object.clone(), member: Some(member.clone()) }]
            }
            _ => vec![new],
        }
    }

    /// Converts a record of the new version to the old one.
    pub fn down(&self, record: &mut Fields) {
        match self {
            Change::Rename { from, to, .. } => {
                let value = take(record, to);
                record.insert(from.clone(), value);
            }
            Change::Enter { from, object, member, existing, must } => {
                let value = take_member(record, object, member, *must);
                if !existing {
                    record.remove(object);
                }
                record.insert(from.name.clone(), value);
            }
            Change::Leave { object, member, to, must } => {
                let value = take(record, &to.name);
                put_member(record, object, member, value, *must);
            }
            Change::Gone { field, value } => {
                record.insert(field.name.clone(), value.clone());
            }
            Change::Retype { field, .. }
            | Change::EnumMap { field, .. }
            | Change::Optional { field, .. }
            | Change::Required { field, .. } => {
                let value = self.value_down(&take(record, field));
                record.insert(field.clone(), value);
            }
            Change::Default { .. }
            | Change::Limits { .. }
            | Change::Removed { .. }
            | Change::Code { .. }
            | Change::CollectionAdded
            | Change::CollectionRemoved => {}
        }
    }

    /// Converts a record of an old client to the new version.
    pub fn up(&self, record: &mut Fields) -> Result<(), Unsayable> {
        match self {
            Change::Rename { from, to, .. } => {
                let value = take(record, from);
                record.insert(to.clone(), value);
            }
            Change::Enter { from, object, member, must, .. } => {
                let value = take(record, &from.name);
                put_member(record, object, member, value, *must);
            }
            Change::Leave { object, member, to, must } => {
                let value = take_member(record, object, member, *must);
                record.insert(to.name.clone(), value);
            }
            Change::Gone { field, .. } => drop(record.remove(&field.name)),
            Change::Retype { field, .. }
            | Change::EnumMap { field, .. }
            | Change::Required { field, .. } => {
                let value = self.value_up(&take(record, field))?;
                record.insert(field.clone(), value);
            }
            Change::Optional { .. }
            | Change::Default { .. }
            | Change::Limits { .. }
            | Change::Removed { .. }
            | Change::Code { .. }
            | Change::CollectionAdded
            | Change::CollectionRemoved => {}
        }
        Ok(())
    }

    /// The old fields that a new field is computed from.
    pub fn sources(&self, new: &str) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        match self {
            Change::Rename { from, to, .. } if to == new => names(&[from]),
            Change::Enter { from, object, .. } if object == new => names(&[object, &from.name]),
            Change::Leave { object, to, .. } if to.name == new => names(&[object]),
            _ => names(&[new]),
        }
    }

    /// Whether an old field still exists, under this name or another.
    pub fn keeps(&self, old: &str) -> bool {
        match self {
            Change::Enter { from, .. } => from.name != old,
            _ => true,
        }
    }

    /// The new record after the write of an old client: fields that depend on a changed value. All
    /// others stay, visible or not; so does an object whose only changed member is the one that
    /// left it.
    pub fn write(
        &self,
        current: &Fields,
        shown: &Fields,
        wanted: &Fields,
    ) -> Result<Fields, Unsayable> {
        let mut raised = wanted.clone();
        if let Change::Enter { object, existing: false, .. } = self {
            raised.insert(object.clone(), of(current, object));
        }
        self.up(&mut raised)?;
        let differs = |name: &String| of(shown, name) != of(wanted, name);
        let touched = |name: &String| match self {
            Change::Leave { object, member, .. } if object == name => {
                let rest = |fields: &Fields| {
                    let mut rest = of(fields, object);
                    let member = rest.as_object_mut().and_then(|members| members.remove(member));
                    (rest, member.is_some())
                };
                rest(shown) != rest(wanted)
            }
            _ => self.sources(name).iter().any(differs),
        };
        let value = |name: &String| of(if touched(name) { &raised } else { current }, name);
        Ok(current.keys().map(|name| (name.clone(), value(name))).collect())
    }

    /// The old value of a new one, if the field exists in both versions.
    pub fn value_down(&self, new: &Value) -> Value {
        match self {
            Change::Retype { how, .. } => how.down(new),
            Change::EnumMap { up: (old, is), down, .. } => match down {
                Some((unknown, seen)) if new == unknown => json!(seen),
                _ if new == is => json!(old),
                _ => new.clone(),
            },
            Change::Optional { fill, .. } if new.is_null() => fill.clone(),
            _ => new.clone(),
        }
    }

    fn value_up(&self, old: &Value) -> Result<Value, Unsayable> {
        match self {
            Change::Retype { how, .. } => how.up(old),
            Change::EnumMap { up: (was, new), .. } if old == was => Ok(json!(new)),
            Change::Required { fill, .. } if old.is_null() => Ok(fill.clone()),
            _ => Ok(old.clone()),
        }
    }
}

impl How {
    fn up(&self, old: &Value) -> Result<Value, Unsayable> {
        if old.is_null() {
            return Ok(Value::Null);
        }
        Ok(match self {
            How::Texts | How::FlagTexts => json!(old.to_string()),
            How::Numbers => json!(old.as_str().unwrap().parse::<i64>().unwrap()),
            How::Instants(tick) => json!(iso(old.as_i64().unwrap() * tick).ok_or(Unsayable)?),
            How::Milliseconds => json!(instant_of(old.as_str().unwrap())),
            How::Lists => json!([old]),
            How::Items => old[0].clone(),
            How::Times(factor) => json!(old.as_i64().unwrap() * factor),
            How::Cents => {
                let cents = old.as_f64().unwrap() * 100.0;
                let whole = cents.round();
                if (cents - whole).abs() > 1e-6 {
                    return Err(Unsayable);
                }
                json!(whole as i64)
            }
            How::Map(pairs) => {
                let found = pairs.iter().find(|(was, _)| was == old);
                found.ok_or(Unsayable)?.1.clone()
            }
        })
    }

    /// Null if the old version cannot represent it.
    fn down(&self, new: &Value) -> Value {
        if new.is_null() {
            return Value::Null;
        }
        match self {
            // Only canonical texts: no old client has sent "007".
            How::Texts => {
                let text = new.as_str().unwrap();
                let number = text.parse::<i64>().ok();
                json!(number.filter(|number| number.to_string() == text))
            }
            How::FlagTexts => json!(new.as_str().unwrap().parse::<bool>().ok()),
            How::Numbers => json!(new.to_string()),
            How::Instants(tick) => json!(instant_of(new.as_str().unwrap()).div_euclid(*tick)),
            How::Milliseconds => json!(iso(new.as_i64().unwrap())),
            How::Lists => new.get(0).cloned().unwrap_or_default(),
            How::Items => json!([new]),
            How::Times(factor) => {
                json!((new.as_i64().unwrap() as f64 / *factor as f64).round() as i64)
            }
            How::Cents => hundredths(new.as_i64().unwrap()),
            How::Map(pairs) => {
                let found = pairs.iter().find(|(_, is)| is == new);
                found.map(|(was, _)| was.clone()).unwrap_or_default()
            }
        }
    }
}

/// A missing field is null.
pub fn of(fields: &Fields, name: &str) -> Value {
    fields.get(name).cloned().unwrap_or_default()
}

fn take(fields: &mut Fields, name: &str) -> Value {
    fields.remove(name).unwrap_or_default()
}

/// Removes a member. If there is no object, there is an empty one if it must exist.
fn take_member(record: &mut Fields, object: &str, member: &str, must: bool) -> Value {
    let mut members = match take(record, object) {
        Value::Object(members) => Some(members),
        _ => must.then(Fields::new),
    };
    let value = members.as_mut().and_then(|members| members.remove(member));
    record.insert(object.to_owned(), members.map_or(Value::Null, Value::Object));
    value.unwrap_or_default()
}

/// Sets a member; null removes it.
fn put_member(record: &mut Fields, object: &str, member: &str, value: Value, must: bool) {
    take_member(record, object, member, must);
    if !value.is_null() {
        let mut members = take(record, object).as_object().cloned().unwrap_or_default();
        members.insert(member.to_owned(), value);
        record.insert(object.to_owned(), Value::Object(members));
    }
}
