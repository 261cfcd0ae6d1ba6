//! The history of a schema: date versions, the changes of each, the URL versions that serve them,
//! and deprecations. Data only; `crate::version` applies changes to shapes and records.

use super::{CollectionIx, Field, Formula, Kind, Pattern, Service};
use crate::value::plain_number;
use serde_json::{Number, Value};

/// One date version. `changes` are what it changed: clients of older versions see the old shape.
#[derive(Clone, Debug)]
pub struct Version {
    pub date: String,
    pub description: Option<String>,
    pub deprecated: Option<Deprecation>,
    pub changes: Vec<Change>,
    pub breaks: Vec<Break>,
}

/// A notice that something should not be used any more, and until when it works. Dates are
/// `YYYY-MM-DD`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deprecation {
    pub since: Option<String>,
    pub sunset: Option<String>,
    /// Where it is explained.
    pub link: Option<String>,
}

/// A URL version: a path and the date versions that are served below it, by their places in
/// `Schema::versions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub path: String,
    pub newest: usize,
    pub oldest: usize,
}

impl Mount {
    /// Whether the version at this place is served below it.
    pub fn serves(&self, version: usize) -> bool {
        (self.newest..=self.oldest).contains(&version)
    }
}

/// One thing a version changed.
#[derive(Clone, Debug)]
pub struct Change {
    pub collection: CollectionIx,
    /// Place of the action whose parameters it is about; none: the fields of the collection.
    pub action: Option<usize>,
    pub description: Option<String>,
    pub operation: Operation,
}

/// An edit that clients of older versions notice, in the words of `plan`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// Where, and what: "books.isbn: became `unique`".
    pub edit: String,
    pub description: Option<String>,
}

/// The operation of a change. "Old" is the shape before the version, "new" the one from it on.
#[derive(Clone, Debug)]
pub enum Operation {
    /// `beside`: from the version on, the old name is still shown and accepted next to the new one.
    Rename {
        from: String,
        to: String,
        beside: bool,
    },
    /// `field` is the old field, if the value was not a member of an object. `existing`: the object
    /// that the value moves into existed before.
    Move {
        from: Path,
        to: Path,
        field: Option<Box<Field>>,
        existing: bool,
    },
    /// Another type or unit: `up` makes the new value from the old one, `down` the other way.
    /// `only_type`: nothing but the old type is declared. `lossy`: a value need not come back as it
    /// was.
    Convert {
        field: String,
        from: Box<Field>,
        only_type: bool,
        up: Formula,
        down: Formula,
        lossy: bool,
    },
    /// Old values to new ones, and new values that old clients do not know to old ones.
    EnumMap {
        field: String,
        values: Vec<(String, String)>,
        down: Vec<(String, String)>,
    },
    Default {
        field: String,
        was: Option<Value>,
    },
    /// Old clients may send values within these limits; new ones, values within those of the field.
    Limits {
        field: String,
        was: Limits,
    },
    /// Was required, is not any more.
    Optional {
        field: String,
        fill: Value,
    },
    /// Was optional, is required now.
    Required {
        field: String,
        fill: Value,
    },
    /// Still declared and stored, hidden from new clients.
    Removed {
        field: String,
    },
    /// Not stored any more; old clients read a constant.
    Gone {
        field: Box<Field>,
        value: Value,
    },
    CollectionAdded,
    CollectionRemoved,
    /// The code of a rule has another name.
    Code {
        from: String,
        to: String,
    },
}

/// How large, long and in which form the values of a field may be.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub pattern: Option<Pattern>,
}

/// A field, or a member of an object field: `isbn`, `details.isbn`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub field: String,
    pub member: Option<String>,
}

impl Version {
    /// A version that changed nothing.
    pub fn new(date: &str) -> Version {
        let date = date.to_owned();
        let (changes, breaks) = (Vec::new(), Vec::new());
        Version { date, description: None, deprecated: None, changes, breaks }
    }
}

impl Limits {
    pub fn of(field: &Field) -> Limits {
        let Field { min, max, min_length, max_length, pattern, .. } = field;
        let (min_length, max_length) = (*min_length, *max_length);
        Limits { min: *min, max: *max, min_length, max_length, pattern: pattern.clone() }
    }

    pub fn set(&self, field: &mut Field) {
        (field.min, field.max) = (self.min, self.max);
        (field.min_length, field.max_length) = (self.min_length, self.max_length);
        field.pattern.clone_from(&self.pattern);
    }

    /// The keys that say something, and what.
    pub fn entries(&self) -> Vec<(&'static str, Value)> {
        let mut entries = Vec::new();
        for (key, limit) in [("min", self.min), ("max", self.max)] {
            entries.extend(limit.map(|limit| (key, whole(limit))));
        }
        for (key, limit) in [("min_length", self.min_length), ("max_length", self.max_length)] {
            entries.extend(limit.map(|limit| (key, Value::from(limit))));
        }
        let pattern = self.pattern.as_ref().map(|pattern| Value::from(pattern.0.as_str()));
        entries.extend(pattern.map(|pattern| ("pattern", pattern)));
        entries
    }

    /// Whether a field of the type can have the limit.
    pub fn suits(key: &str, kind: &Kind) -> bool {
        match key {
            "min" | "max" => matches!(kind, Kind::Integer | Kind::Number),
            "min_length" | "max_length" => matches!(kind, Kind::String | Kind::Array(_)),
            _ => *kind == Kind::String,
        }
    }
}

/// A whole number as such, as far as a file has some.
fn whole(number: f64) -> Value {
    let whole = plain_number(number).filter(Number::is_i64);
    whole.map_or_else(|| Value::from(number), Value::Number)
}

impl Path {
    /// Reads `field` or `field.member`.
    pub fn parse(text: &str) -> Path {
        match text.split_once('.') {
            Some((field, member)) => {
                Path { field: field.to_owned(), member: Some(member.to_owned()) }
            }
            None => Path { field: text.to_owned(), member: None },
        }
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.member {
            Some(member) => write!(f, "{}.{member}", self.field),
            None => f.write_str(&self.field),
        }
    }
}

impl Operation {
    /// The key of the schema file that declares it.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Rename { .. } => "rename",
            Operation::Move { .. } => "move",
            Operation::Convert { .. } => "convert",
            Operation::EnumMap { .. } => "enum_map",
            Operation::Default { .. } => "default",
            Operation::Limits { .. } => "limits",
            Operation::Optional { .. } => "optional",
            Operation::Required { .. } => "required",
            Operation::Removed { .. } | Operation::Gone { .. } => "removed",
            Operation::CollectionAdded => "collection_added",
            Operation::CollectionRemoved => "collection_removed",
            Operation::Code { .. } => "code",
        }
    }

    /// Fields of the old shape that it declares.
    pub fn declared(&self) -> Vec<&Field> {
        match self {
            Operation::Move { field: Some(field), .. } | Operation::Gone { field, .. } => {
                vec![field]
            }
            Operation::Convert { from, .. } => vec![from],
            _ => Vec::new(),
        }
    }

    /// The place that it touches in the old shape.
    pub fn old_place(&self) -> Option<String> {
        match self {
            Operation::Rename { from, .. } => Some(from.clone()),
            Operation::Move { from, .. } => Some(from.to_string()),
            Operation::Gone { field, .. } => Some(field.name.clone()),
            other => other.same_place(),
        }
    }

    /// The place that it touches in the new shape.
    pub fn new_place(&self) -> Option<String> {
        match self {
            Operation::Rename { to, .. } => Some(to.clone()),
            Operation::Move { to, .. } => Some(to.to_string()),
            Operation::Gone { .. } => None,
            other => other.same_place(),
        }
    }

    /// Both places, the old one first.
    pub fn places(&self) -> impl Iterator<Item = String> {
        self.old_place().into_iter().chain(self.new_place())
    }

    /// The field that has one name in both shapes.
    fn same_place(&self) -> Option<String> {
        match self {
            Operation::Convert { field, .. }
            | Operation::EnumMap { field, .. }
            | Operation::Default { field, .. }
            | Operation::Limits { field, .. }
            | Operation::Optional { field, .. }
            | Operation::Required { field, .. }
            | Operation::Removed { field } => Some(field.clone()),
            _ => None,
        }
    }
}

/// The versions and mounts of a schema without a history: one each.
pub(crate) fn only(service: &Service) -> (Vec<Version>, Vec<Mount>) {
    let mount = Mount { path: service.mount.clone(), newest: 0, oldest: 0 };
    (vec![Version::new(&service.version)], vec![mount])
}
