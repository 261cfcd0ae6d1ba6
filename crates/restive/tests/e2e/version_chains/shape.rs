//! A collection in one version: its fields, their kinds, and values for them.

use crate::chance::Chance;
use serde_json::{Map, Value, json};

/// A record or body. Records have every field of their shape, null where nothing is set.
pub type Fields = Map<String, Value>;

/// 2026-03-01T00:00:00Z. All timestamps are on that day, so no calendar is needed.
const MIDNIGHT_MS: i64 = 1_772_323_200_000;
const DAY_MS: i64 = 86_400_000;

/// The kind of a field: the types of the schema file, restricted to values that every change can
/// revert.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Text,
    /// A text of at most three characters.
    Short,
    /// A text that is a number from 1 to 99.
    Digits,
    /// One of these words.
    Word(Vec<String>),
    Whole,
    /// A whole number from -9 to 9.
    Small,
    /// A whole number from 1 to this.
    UpTo(usize),
    /// Ticks of this many milliseconds since 1970.
    Ticks(i64),
    Number,
    Flag,
    Moment,
    Day,
    /// These members, each optional.
    Object(Vec<(String, Kind)>),
    List(Box<Kind>),
    /// A list of exactly one.
    Single(Box<Kind>),
    /// The id of a record of the first collection. The caller sets the values.
    Ref,
}

impl Kind {
    /// As options of the schema file.
    pub fn declared(&self) -> String {
        match self {
            Kind::Text => "type = 'string'".to_owned(),
            Kind::Short => "type = 'string', max_length = 3".to_owned(),
            Kind::Small => "type = 'integer', min = -9, max = 9".to_owned(),
            Kind::Digits => "type = 'string', pattern = '^[1-9][0-9]?$'".to_owned(),
            Kind::Word(words) => format!("type = 'string', enum = {}", json!(words)),
            Kind::Whole | Kind::Ticks(_) => "type = 'integer'".to_owned(),
            Kind::UpTo(most) => format!("type = 'integer', min = 1, max = {most}"),
            Kind::Number => "type = 'number'".to_owned(),
            Kind::Flag => "type = 'boolean'".to_owned(),
            Kind::Moment => "type = 'timestamp'".to_owned(),
            Kind::Day => "type = 'date'".to_owned(),
            Kind::Object(_) => "type = 'object'".to_owned(),
            Kind::Ref => "ref = 'books'".to_owned(),
            Kind::List(item) => format!("type = 'array', items = {}", item.item()),
            Kind::Single(item) => {
                format!("type = 'array', items = {}, min_length = 1, max_length = 1", item.item())
            }
        }
    }

    /// The type alone, as the items of an array name it.
    fn item(&self) -> String {
        self.declared().replace("type = ", "").split(',').next().unwrap().to_owned()
    }

    pub fn is_scalar(&self) -> bool {
        !matches!(self, Kind::Object(_) | Kind::List(_) | Kind::Single(_) | Kind::Ref)
    }

    /// A value that the field accepts.
    pub fn value(&self, chance: &mut Chance) -> Value {
        const TEXTS: [&str; 10] =
            ["", "a", "Ada King", "x-y", "x-y z-", " b", "äöü ß", "日本語", "12", "true"];
        const DAYS: [&str; 3] = ["2026-01-31", "2024-02-29", "1999-12-31"];
        match self {
            Kind::Text => json!(chance.pick(&TEXTS)),
            Kind::Short => json!(chance.pick(&["", "a", "x-y", " b", "日本語", "12"])),
            Kind::Small => json!(chance.below(19) as i64 - 9),
            Kind::Digits => json!((chance.below(99) + 1).to_string()),
            Kind::Word(words) => json!(words[chance.below(words.len())]),
            Kind::Whole => json!(chance.below(2_000) as i64 - 1_000),
            Kind::UpTo(most) => json!(chance.below(*most) + 1),
            Kind::Ticks(tick) => json!(instant(chance).div_euclid(*tick)),
            Kind::Number => hundredths(chance.below(20_000) as i64 - 10_000),
            Kind::Flag => json!(chance.percent(50)),
            Kind::Moment => json!(iso(instant(chance)).unwrap()),
            Kind::Day => json!(chance.pick(&DAYS)),
            Kind::Object(members) => {
                let mut object = Fields::new();
                for (name, kind) in members {
                    if chance.percent(60) {
                        object.insert(name.clone(), kind.value(chance));
                    }
                }
                Value::Object(object)
            }
            Kind::List(item) => {
                (0..chance.below(3)).map(|_| item.value(chance)).collect::<Vec<_>>().into()
            }
            Kind::Single(item) => json!([item.value(chance)]),
            Kind::Ref => Value::Null,
        }
    }

    /// Without the limits that only newer versions have.
    pub fn unlimited(&self) -> Kind {
        match self {
            Kind::Short => Kind::Text,
            Kind::Small => Kind::Whole,
            other => other.clone(),
        }
    }

    /// A value of another type.
    pub fn wrong(&self) -> Value {
        match self {
            Kind::Object(_) | Kind::List(_) | Kind::Single(_) => json!(true),
            _ => json!({ "of": "another type" }),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub required: bool,
    pub default: Option<Value>,
    pub filter: bool,
    pub sort: bool,
    pub search: bool,
    /// Stored, but unknown to clients of this version.
    pub hidden: bool,
    /// Shown but not stored: always this value.
    pub fixed: Option<Value>,
    /// Accepts only values with a counterpart in the newest version: a move into an object, which
    /// accepts everything, would lose the others.
    pub choosy: bool,
    /// Null and one of its values are stored as the same.
    pub filled: bool,
    /// The field of which this is an old name that still works.
    pub of: Option<String>,
    /// Newer versions store it in another form, so lists cannot filter or sort by it.
    pub converted: bool,
}

impl Field {
    pub fn new(name: &str, kind: Kind) -> Field {
        Field {
            name: name.to_owned(),
            kind,
            required: false,
            default: None,
            filter: false,
            sort: false,
            search: false,
            hidden: false,
            fixed: None,
            choosy: false,
            filled: false,
            of: None,
            converted: false,
        }
    }

    /// Whether a change may affect it without restrictions.
    pub fn is_plain(&self) -> bool {
        !self.hidden && self.fixed.is_none()
    }

    /// Neither required nor filled in.
    pub fn is_free(&self) -> bool {
        self.is_plain() && !self.required && self.default.is_none()
    }

    /// As an inline table of the schema file; `more` goes first.
    pub fn declared(&self, more: &str) -> String {
        let mut text = format!("{{ {more}{}", self.kind.declared());
        if self.required {
            text.push_str(", required = true");
        }
        if let Some(default) = &self.default {
            text.push_str(&format!(", default = {default}"));
        }
        text + " }"
    }
}

#[derive(Clone, Debug)]
pub struct Shape {
    pub fields: Vec<Field>,
    /// Whether the version has the collection at all.
    pub served: bool,
    /// The error code of its records, if they have a rule.
    pub code: Option<String>,
}

impl Shape {
    /// The fields that clients of the version see.
    pub fn visible(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.hidden)
    }

    /// The fields that they may send, each under its newest name.
    pub fn writable(&self) -> impl Iterator<Item = &Field> {
        self.visible().filter(|field| field.fixed.is_none() && field.of.is_none())
    }

    /// All names of a field: its own, and old ones that still work.
    pub fn names<'a>(&'a self, field: &'a Field) -> impl Iterator<Item = &'a String> {
        let old = self.aliases().filter(|(_, of)| **of == field.name).map(|(name, _)| name);
        std::iter::once(&field.name).chain(old)
    }

    /// Old names that still work, and their fields.
    pub fn aliases(&self) -> impl Iterator<Item = (&String, &String)> {
        self.fields.iter().filter_map(|field| Some((&field.name, field.of.as_ref()?)))
    }

    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }

    pub fn get(&self, name: &str) -> &Field {
        self.fields.iter().find(|field| field.name == name).unwrap()
    }

    pub fn field(&mut self, name: &str) -> &mut Field {
        self.fields.iter_mut().find(|field| field.name == name).unwrap()
    }

    pub fn take(&mut self, name: &str) -> Field {
        let place = self.fields.iter().position(|field| field.name == name).unwrap();
        self.fields.remove(place)
    }

    /// A body of a create that the version accepts.
    pub fn body(&self, chance: &mut Chance) -> Fields {
        let mut body = Fields::new();
        for field in self.writable() {
            if field.required || chance.percent(70) {
                let null = !field.required && field.default.is_none() && chance.percent(10);
                let value = if null { Value::Null } else { field.kind.value(chance) };
                body.insert(field.name.clone(), value);
            }
        }
        body
    }

    /// A body of a PATCH that the version accepts.
    pub fn patch(&self, chance: &mut Chance) -> Fields {
        let mut patch = Fields::new();
        for field in self.writable() {
            if chance.percent(40) {
                let null = !field.required && chance.percent(20);
                let value = if null { Value::Null } else { field.kind.value(chance) };
                patch.insert(field.name.clone(), value);
            }
        }
        patch
    }
}

fn instant(chance: &mut Chance) -> i64 {
    MIDNIGHT_MS + chance.below(DAY_MS as usize) as i64
}

/// The text of a timestamp of the one day.
pub fn iso(instant_ms: i64) -> Option<String> {
    let ms = instant_ms - MIDNIGHT_MS;
    let (seconds, ms) = (ms.div_euclid(1_000), ms.rem_euclid(1_000));
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    (0..86_400)
        .contains(&seconds)
        .then(|| format!("2026-03-01T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"))
}

/// The timestamp of such a text.
pub fn instant_of(iso: &str) -> i64 {
    let part = |from: usize, to: usize| iso[from..to].parse::<i64>().unwrap();
    let seconds = part(11, 13) * 3_600 + part(14, 16) * 60 + part(17, 19);
    MIDNIGHT_MS + seconds * 1_000 + part(20, 23)
}

/// So many hundredths as JSON writes them: whole numbers without a point.
pub fn hundredths(count: i64) -> Value {
    if count % 100 == 0 { json!(count / 100) } else { json!(count as f64 / 100.0) }
}
