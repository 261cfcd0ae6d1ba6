//! The shape of a collection in some version: its fields, and the stages between the newest shape
//! and this one. It begins as the newest shape; `go_back` takes the changes of one version back.
//! Each operation checks that it can be taken back without loss.

use super::step::{Convert, Move, Place, Stage, Stages, Step, head, translated};
use crate::problem::Violation;
use crate::schema::{Change, Collection, Field, Kind, Limits, Operation, Path, States};
use crate::validate;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub fields: Vec<Field>,
    pub states: Option<States>,
    /// Whether this version has the collection at all.
    pub served: bool,
    pub(super) stages: Stages,
    /// Codes of rules: the newest and this version's.
    pub codes: BTreeMap<String, String>,
    /// Stored fields for which bodies of this shape have other limits.
    limits: BTreeMap<String, Limits>,
    /// The collection in the newest version.
    pub(super) newest: Arc<Collection>,
}

/// Why a change cannot be taken back.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    /// No field of this name.
    Missing(String),
    /// Anything else, as a sentence.
    Wrong(String),
}

type Done = Result<(), Fault>;

/// Refuses a change on a condition, with the reason.
fn refuse_if(condition: bool, message: impl FnOnce() -> String) -> Done {
    if condition { Err(Fault::Wrong(message())) } else { Ok(()) }
}

impl Shape {
    pub fn newest(collection: Collection) -> Shape {
        let rules = collection.actions.iter().flat_map(|action| &action.rules);
        Shape {
            fields: collection.fields.clone(),
            states: collection.states.clone(),
            served: !collection.removed,
            stages: Stages::default(),
            codes: rules.map(|rule| (rule.code.clone(), rule.code.clone())).collect(),
            limits: BTreeMap::new(),
            newest: Arc::new(collection),
        }
    }

    /// Takes back what one version did to the collection. Returns the changes that could not be
    /// taken back, by their place, with the reason; the shape ignores them.
    pub fn go_back(&mut self, changes: &[&Change]) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        let newer = self.known_fields();
        let mut stage = Stage::default();
        for (place, change) in changes.iter().enumerate() {
            let before = self.clone();
            match self.take_back(&change.operation, changes) {
                Ok(step) => stage.0.extend(step),
                Err(fault) => {
                    *self = before;
                    faults.push((place, fault));
                }
            }
        }
        self.hide_new_objects(&mut stage);
        let older = self.known_fields();
        for step in &mut stage.0 {
            if let Step::Convert(it) = step {
                it.old_fields.clone_from(&older);
                it.new_fields.clone_from(&newer);
            }
        }
        if !stage.0.is_empty() {
            self.stages.0.push(stage);
        }
        faults
    }

    /// The fields that clients of this version know.
    pub fn known_fields(&self) -> Vec<Field> {
        self.fields.iter().filter(|field| !field.removed).cloned().collect()
    }

    /// The field of this name that clients of this version know.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name && !field.removed)
    }

    /// Objects that came with the version.
    fn hide_new_objects(&mut self, stage: &mut Stage) {
        let moved = stage.0.iter().filter_map(|step| match step {
            Step::Move(it) if it.new.contains('.') && !it.shared => {
                Some((head(&it.new).to_owned(), it.old.clone()))
            }
            _ => None,
        });
        // If several fields moved into an object, the first names it.
        let hidden: BTreeMap<String, String> = moved.rev().collect();
        for (object, shown_as) in hidden {
            self.fields.retain(|field| field.name != object);
            stage.0.push(Step::Hide { object, shown_as });
        }
    }

    fn take_back(&mut self, operation: &Operation, all: &[&Change]) -> Result<Option<Step>, Fault> {
        let removal = matches!(operation, Operation::CollectionRemoved);
        refuse_if(self.served == removal, || match removal {
            true => "a newer version serves the collection, so this one did not remove it".into(),
            false => "no newer version serves the collection, so nothing of it changed".into(),
        })?;
        Ok(match operation {
            Operation::Rename { from, to, .. } => Some(self.rename(from, to)?),
            Operation::Move { from, to, field, .. } => {
                let shared = is_shared(all, &to.field);
                Some(self.move_back((from, to), field.as_deref(), shared)?)
            }
            Operation::Convert { field, from, only_type, up, down, lossy } => {
                let (old, new) = self.convert(field, from, (*only_type, *lossy))?;
                let (up, down, lossy) = (up.clone(), down.clone(), *lossy);
                let (old_fields, new_fields) = (Vec::new(), Vec::new());
                let it = Convert { old, new, up, down, lossy, old_fields, new_fields };
                Some(Step::Convert(Box::new(it)))
            }
            Operation::EnumMap { field, values, down } => Some(self.words(field, values, down)?),
            Operation::Default { field, was } => self.default(field, was.as_ref())?,
            Operation::Limits { field, was } => self.limit(field, was)?,
            Operation::Optional { field, fill } => Some(self.optional(field, fill)?),
            Operation::Required { field, fill } => Some(self.required(field, fill)?),
            Operation::Removed { field } => self.removed(field)?,
            Operation::Gone { field, value } => Some(self.gone(field, value)?),
            Operation::Code { from, to } => self.code(from, to)?,
            Operation::CollectionAdded | Operation::CollectionRemoved => {
                self.served = removal;
                None
            }
        })
    }

    /// The place of a field that a change may touch.
    fn place(&self, name: &str) -> Result<usize, Fault> {
        self.not_fixed(name)?;
        let found = self.fields.iter().position(|field| field.name == name && !field.removed);
        found.ok_or_else(|| Fault::Missing(name.to_owned()))
    }

    fn field_mut(&mut self, name: &str) -> Result<&mut Field, Fault> {
        self.place(name).map(|place| &mut self.fields[place])
    }

    fn not_fixed(&self, name: &str) -> Done {
        let first = self.newest.fields.first().filter(|_| self.newest.parent.is_some());
        refuse_if(first.is_some_and(|parent| parent.name == name), || {
            format!("`{name}` is the reference to the parent, which cannot change")
        })
    }

    /// Complains when the name is taken in the newer shape.
    fn free(&self, name: &str) -> Done {
        refuse_if(self.fields.iter().any(|field| field.name == name), || {
            format!("`{name}` is a field of the newer version, too; the old one needs another name")
        })
    }

    fn holds_state(&self, name: &str) -> bool {
        self.states.as_ref().is_some_and(|states| states.field == name)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<Step, Fault> {
        let place = self.place(to)?;
        self.free(from)?;
        from.clone_into(&mut self.fields[place].name);
        if let Some(states) = self.states.as_mut().filter(|states| states.field == to) {
            from.clone_into(&mut states.field);
        }
        Ok(Step::Rename { old: from.to_owned(), new: to.to_owned() })
    }

    /// `shared`: the object moved into is one of the older shape, too.
    fn move_back(
        &mut self,
        (from, to): (&Path, &Path),
        declared: Option<&Field>,
        shared: bool,
    ) -> Result<Step, Fault> {
        let place = self.place(&to.field)?;
        let new = self.fields[place].clone();
        let mut required = (false, false);
        match &to.member {
            Some(_) => required.1 = self.object(&to.field)?,
            None => {
                refuse_if(new.reference.is_some(), || {
                    format!("`{}` is a reference, which cannot move", to.field)
                })?;
                refuse_if(new.required && !new.read_only && new.default.is_none(), || {
                    format!(
                        "this change refuses what older clients may send: `{}` is required, and a \
                         member of an object may be missing; declare `required` with a `fill` in a \
                         newer version of its own, or make it optional",
                        to.field
                    )
                })?;
            }
        }
        let field = match &from.member {
            Some(_) => {
                required.0 = self.object(&from.field)?;
                // A value that no client may read or write must not move into an object that they
                // may.
                let object = &self.fields[self.place(&from.field)?];
                let alike =
                    (object.write_only, object.read_only) == (new.write_only, new.read_only);
                refuse_if(!alike, || {
                    let (from, to) = (&from.field, &to.field);
                    format!("`{from}` and `{to}` must be alike in `write_only` and `read_only`")
                })?;
                None
            }
            None => {
                self.free(&from.field)?;
                let plain = Field::new(&from.field, Kind::String);
                let mut field = declared.cloned().unwrap_or(plain);
                (field.write_only, field.read_only) = (new.write_only, new.read_only);
                field.deprecated = new.deprecated.clone();
                self.fields.insert(place + 1, field.clone());
                Some(field)
            }
        };
        if to.member.is_none() {
            self.fields.retain(|field| field.name != to.field);
        }
        let new_field = to.member.is_none().then_some(new);
        let (old, new) = (from.to_string(), to.to_string());
        Ok(Step::Move(Box::new(Move { old, new, field, new_field, shared, required })))
    }

    /// Checks that the field is an object; says whether it has to be one always.
    fn object(&self, name: &str) -> Result<bool, Fault> {
        let field = &self.fields[self.place(name)?];
        let message = || format!("`{name}` must be of type object to have members");
        refuse_if(field.kind != Kind::Object, message)?;
        Ok(field.required)
    }

    /// The old and the new field.
    fn convert(
        &mut self,
        name: &str,
        from: &Field,
        (only_type, lossy): (bool, bool),
    ) -> Result<(Field, Field), Fault> {
        let place = self.place(name)?;
        let new = self.fields[place].clone();
        refuse_if(new.reference.is_some() || self.holds_state(name), || {
            format!("`{name}` holds an id or a state; its type is fixed")
        })?;
        refuse_if(new.unique && lossy, || {
            format!("`{name}` is `unique`, so no two values may become one; remove `lossy`")
        })?;
        let mut old = from.clone();
        old.required |= only_type && new.required;
        let refuses = new.required && !old.required && old.default.is_none() && !new.read_only;
        refuse_if(refuses, || {
            format!(
                "this change refuses what older clients may send: `{name}` is required, and `from` \
                 is not; declare `required` with a `fill` in a newer version of its own"
            )
        })?;
        name.clone_into(&mut old.name);
        (old.filter, old.sort) = (false, false);
        old.unique = new.unique && old.kind.is_scalar();
        (old.search, old.deprecated) = (new.search, new.deprecated.clone());
        (old.write_only, old.read_only) = (new.write_only, new.read_only);
        self.fields[place] = old.clone();
        Ok((old, new))
    }

    fn words(
        &mut self,
        name: &str,
        values: &[(String, String)],
        down: &[(String, String)],
    ) -> Result<Step, Fault> {
        let place = self.place(name)?;
        let new = &self.fields[place].choices;
        refuse_if(new.is_empty(), || format!("`{name}` has no `enum`; use `convert`"))?;
        let unknown = values.iter().map(|(_, to)| to).chain(down.iter().map(|(new, _)| new));
        if let Some(unknown) = unknown.into_iter().find(|value| !new.contains(value)) {
            return Err(Fault::Wrong(format!(
                "`{unknown}` is no value of `{name}` in the newer version; there are: {}",
                new.join(", ")
            )));
        }
        let old = old_choices(new, values, down);
        if let Some((_, to)) = down.iter().find(|(_, to)| !old.contains(to)) {
            return Err(Fault::Wrong(format!(
                "`{to}` is no value of `{name}` in the older versions; there are: {}",
                old.join(", ")
            )));
        }
        let up = values.to_vec();
        let mut lowered = down.to_vec();
        lowered.extend(values.iter().map(|(old, new)| (new.clone(), old.clone())));
        for word in &old {
            let back = translated(translated(word, &up), &lowered);
            refuse_if(back != word, || {
                format!(
                    "this change loses data: `{word}`, sent by an older client, comes back as \
                     `{back}`; let each old value become a new one of its own"
                )
            })?;
        }
        if let Some(states) = self.states.as_mut().filter(|states| states.field == name) {
            states.initial = translated(&states.initial, &lowered).to_owned();
            states.names.clone_from(&old);
        }
        let field = &mut self.fields[place];
        if let Some(Value::String(default)) = &mut field.default {
            *default = translated(default, &lowered).to_owned();
        }
        field.choices = old;
        Ok(Step::Words { field: name.to_owned(), up, down: lowered })
    }

    fn default(&mut self, name: &str, was: Option<&Value>) -> Result<Option<Step>, Fault> {
        let field = self.field_mut(name)?;
        let was = was.map(|was| fits(field, was, "was")).transpose()?;
        not_unique(field, was.is_some())?;
        // A field that had a default was not required. With a default in both versions it always
        // has a value.
        field.required &= was.is_none() || field.default.is_some();
        field.default = was;
        Ok(None)
    }

    /// Old limits alone apply to what old clients send.
    fn limit(&mut self, name: &str, was: &Limits) -> Result<Option<Step>, Fault> {
        let place = self.place(name)?;
        let mut field = self.fields[place].clone();
        self.can_limit(&field, was)?;
        was.set(&mut field);
        field.default = field.default.take().map(|it| fits(&field, &it, "default")).transpose()?;
        let takes =
            |choice: &String| validate::value(&field, &mut Value::from(choice.as_str())).is_ok();
        refuse_if(!field.choices.is_empty() && !field.choices.iter().any(takes), || {
            format!("`was` takes no value of the `enum` of `{name}`")
        })?;
        if let Some(kept) = self.stages.newer(name) {
            // Limits in other units cannot be compared: the old limits of the old field apply.
            let same = !kept.converted && !kept.path.contains('.');
            let limits = if same { was.clone() } else { Limits::default() };
            self.limits.insert(kept.field().to_owned(), limits);
        }
        self.fields[place] = field;
        Ok(None)
    }

    fn can_limit(&self, field: &Field, was: &Limits) -> Done {
        let (name, kind) = (&field.name, field.kind.name());
        refuse_if(field.reference.is_some() || self.holds_state(name), || {
            format!("`{name}` holds an id or a state, which has no limits")
        })?;
        refuse_if(
            !["min", "min_length"].iter().any(|key| Limits::suits(key, &field.kind)),
            || format!("`{name}` is of type {kind}, which has no limits"),
        )?;
        for (key, value) in was.entries() {
            let whole = field.kind != Kind::Integer || !value.is_f64();
            if !Limits::suits(key, &field.kind) || !whole {
                return Err(Fault::Wrong(format!("`{key}` = {value} is no limit of type {kind}")));
            }
        }
        refuse_if(was.entries() == Limits::of(field).entries(), || {
            format!("`{name}` has these limits in the newer version, too")
        })
    }

    fn optional(&mut self, name: &str, fill: &Value) -> Result<Step, Fault> {
        let field = self.field_mut(name)?;
        refuse_if(field.required, || format!("`{name}` is required in the newer version, too"))?;
        let fill = fits(field, fill, "fill")?;
        (field.required, field.default) = (!field.read_only, None);
        Ok(Step::Fill { field: name.to_owned(), fill, down: true })
    }

    fn required(&mut self, name: &str, fill: &Value) -> Result<Step, Fault> {
        let field = self.field_mut(name)?;
        refuse_if(!field.required, || format!("`{name}` is not required in the newer version"))?;
        not_unique(field, true)?;
        refuse_if(field.reference.is_some(), || {
            format!(
                "`{name}` is a reference, and no record is there in every account for `fill` to \
                 name; leave it optional"
            )
        })?;
        let fill = fits(field, fill, "fill")?;
        field.required = false;
        Ok(Step::Fill { field: name.to_owned(), fill, down: false })
    }

    fn removed(&mut self, name: &str) -> Result<Option<Step>, Fault> {
        self.not_fixed(name)?;
        let found = self.fields.iter_mut().find(|field| field.name == name);
        let field = found.ok_or_else(|| Fault::Missing(name.to_owned()))?;
        refuse_if(!field.removed, || format!("`{name}` is a field of a newer version, too"))?;
        field.removed = false;
        Ok(None)
    }

    fn gone(&mut self, field: &Field, value: &Value) -> Result<Step, Fault> {
        self.free(&field.name)?;
        let mut old = field.clone();
        (old.read_only, old.required, old.default) = (true, false, None);
        let value = match value {
            Value::Null => Value::Null,
            value => fits(field, value, "value")?,
        };
        let name = old.name.clone();
        self.fields.push(old);
        Ok(Step::Constant { field: name, value })
    }

    fn code(&mut self, from: &str, to: &str) -> Result<Option<Step>, Fault> {
        let mut found = false;
        for code in self.codes.values_mut().filter(|code| *code == to) {
            from.clone_into(code);
            found = true;
        }
        refuse_if(!found, || format!("no rule of the collection answers with the code `{to}`"))?;
        Ok(None)
    }
}

impl Shape {
    /// The collection as this version shows it.
    pub fn collection(&self) -> Collection {
        let mut collection = Collection::clone(&self.newest);
        collection.removed = !self.served;
        collection.fields = self.fields.clone();
        let place = |name: &str| self.stages.newer(name);
        for field in &mut collection.fields {
            let name = field.alias_of.as_ref().unwrap_or(&field.name);
            let kept = place(name);
            let listable = kept.as_ref().is_some_and(Place::is_listable);
            field.voidable = !self.always_has_value(name, kept.as_ref());
            field.converted = kept.is_some() && !listable;
            // In a search, `rank` is the order of the results.
            field.sort &= listable && !field.write_only && field.name != "rank";
            field.filter &= listable && !field.write_only;
        }
        collection.states = self.states.clone();
        let is_kept =
            |name: &String| place(name).is_some_and(|place| place.path == *name && place.is_copy());
        collection.indexes.retain(|index| index.fields.iter().all(is_kept));
        self.translate_states(&mut collection);
        collection
    }

    /// The newest collection with the limits that apply to bodies of this shape.
    pub(super) fn stored(&self) -> Arc<Collection> {
        let mut stored = Arc::clone(&self.newest);
        for (name, limits) in &self.limits {
            let fields = Arc::make_mut(&mut stored).fields.iter_mut();
            fields.filter(|field| field.name == *name).for_each(|field| limits.set(field));
        }
        stored
    }

    /// Whether the field has a value in every record. A required field has one, unless newer
    /// clients do not know the field.
    fn always_has_value(&self, name: &str, kept: Option<&Place>) -> bool {
        match kept {
            None => self.constant(name).is_some_and(|value| !value.is_null()),
            Some(kept) if kept.certain => true,
            Some(kept) if !kept.is_listable() => false,
            Some(kept) => self.newest.known(&kept.path).is_some_and(|field| field.required),
        }
    }

    fn constant(&self, name: &str) -> Option<&Value> {
        let steps = self.stages.0.iter().flat_map(|stage| &stage.0);
        steps.rev().find_map(|step| match step {
            Step::Constant { field, value } if field == name => Some(value),
            _ => None,
        })
    }

    /// Actions name states in the words of the version, too.
    fn translate_states(&self, collection: &mut Collection) {
        let Some(states) = &self.states else { return };
        let Some(kept) = self.stages.newer(&states.field) else { return };
        let old = |state: &mut String| {
            let shown = self.stages.show(&kept.path, Value::from(state.as_str()), &states.field);
            if let Some(Value::String(text)) = shown {
                *state = text;
            }
        };
        for action in &mut collection.actions {
            let rules = action.rules.iter_mut().filter_map(|rule| rule.to.as_mut());
            action.from.iter_mut().chain(action.to.iter_mut()).chain(rules).for_each(old);
        }
        for timed in &mut collection.timed {
            [&mut timed.from, &mut timed.to].into_iter().for_each(old);
        }
    }

    /// Shows and takes an old name next to a field of this shape.
    pub fn add_alias(&mut self, name: &str, of: &str) {
        let Some(place) = self.fields.iter().position(|field| field.name == of) else { return };
        let mut field = self.fields[place].clone();
        name.clone_into(&mut field.name);
        field.alias_of = Some(of.to_owned());
        self.fields.insert(place + 1, field);
    }
}

/// The name that a field, renamed to `name` by the version at `from`, has in the one at `to`; none
/// once it is more than renamed.
pub(crate) fn trace<'a>(
    versions: &'a [crate::schema::Version],
    part: super::Part,
    mut name: &'a str,
    from: usize,
    to: usize,
) -> Option<&'a str> {
    for version in versions[to..from].iter().rev() {
        for change in super::changes_of(version, part) {
            match &change.operation {
                Operation::Rename { from, to, .. } if from == name => name = to,
                operation if ends(operation, name) => return None,
                _ => {}
            }
        }
    }
    Some(name)
}

/// Whether the older shape has the object, too: it says so, or a member of it moves away.
fn is_shared(changes: &[&Change], object: &str) -> bool {
    changes.iter().any(|change| match &change.operation {
        Operation::Move { from, to, existing, .. } => {
            *existing && to.field == object || from.member.is_some() && from.field == object
        }
        _ => false,
    })
}

/// Whether the field becomes another one, or ends, with this operation.
fn ends(operation: &Operation, name: &str) -> bool {
    let is_it = |place: Option<String>| place.as_deref() == Some(name);
    let goes_on = is_it(operation.new_place()) && !matches!(operation, Operation::Removed { .. });
    is_it(operation.old_place()) && !goes_on
}

/// The old values in the order of the new ones. A new value that no old value became is an old one,
/// too, unless `down` says otherwise.
fn old_choices(
    new: &[String],
    values: &[(String, String)],
    down: &[(String, String)],
) -> Vec<String> {
    let mut old: Vec<&String> = Vec::new();
    for choice in new {
        let count = old.len();
        old.extend(values.iter().filter(|(_, to)| to == choice).map(|(from, _)| from));
        if old.len() == count && !down.iter().any(|(new, _)| new == choice) {
            old.push(choice);
        }
    }
    let mut seen = BTreeSet::new();
    old.into_iter().filter(|word| seen.insert(*word)).cloned().collect()
}

/// Refuses a value that many records would have of a field that no two may share.
fn not_unique(field: &Field, given: bool) -> Done {
    refuse_if(field.unique && given, || {
        format!("`{}` is `unique`: two old requests without it would clash", field.name)
    })
}

/// A value of the file in the form in which the field stores it.
fn fits(field: &Field, value: &Value, what: &str) -> Result<Value, Fault> {
    let mut value = value.clone();
    let wrong = |found: Violation| format!("`{what}`: {}", found.message.trim_end_matches('.'));
    validate::value(field, &mut value).map_err(|found| Fault::Wrong(wrong(found)))?;
    Ok(value)
}
