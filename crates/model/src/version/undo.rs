//! Taking one change back: what the older shape looks like, how its fields are made from the newer
//! ones, and how the newer ones are made from its own. Each operation checks that it can.

use super::convert::{Conversion, Declared};
use super::expr::Expr;
use super::scale::Scale;
use super::shape::{Fault, Shape};
use crate::schema::{Field, Kind, Limits, Operation, Path, Retyping};
use crate::validate;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

type Done = Result<(), Fault>;

fn wrong(message: impl Into<String>) -> Fault {
    Fault::Wrong(message.into())
}

impl Shape {
    /// `seen`: of a move, that the object moved into is one of the older shape, too.
    pub(super) fn undo_one(&mut self, operation: &Operation, seen: bool) -> Done {
        let removal = matches!(operation, Operation::CollectionRemoved);
        if !self.served && !removal {
            return Err(wrong(
                "no newer version serves the collection, so nothing of it can have changed",
            ));
        }
        match operation {
            Operation::Rename { from, to, .. } => self.undo_rename(from, to),
            Operation::Move { from, to, field, .. } => {
                self.undo_move((from, to), field.as_deref(), seen)
            }
            Operation::Split { from, to, by } => self.undo_split(from, to, by),
            Operation::Merge { from, to, by } => self.undo_merge(from, to, by),
            Operation::Retype { field, from, by } => self.undo_retype(field, from, by),
            Operation::EnumMap { field, values, down } => self.undo_enum_map(field, values, down),
            Operation::Default { field, was } => self.undo_default(field, was.as_ref()),
            Operation::Limits { field, was } => self.undo_limits(field, was),
            Operation::Optional { field, fill } => self.undo_optional(field, fill),
            Operation::Required { field, fill } => self.undo_required(field, fill),
            Operation::Removed { field } => self.undo_removed(field),
            Operation::Gone { field, value } => self.undo_gone(field, value),
            Operation::Code { from, to } => self.undo_code(from, to),
            Operation::CollectionAdded => {
                self.served = false;
                Ok(())
            }
            Operation::CollectionRemoved if self.served => {
                Err(wrong("a newer version serves the collection, so this one did not remove it"))
            }
            Operation::CollectionRemoved => {
                self.served = true;
                Ok(())
            }
        }
    }

    fn undo_rename(&mut self, from: &str, to: &str) -> Done {
        let place = self.place(to)?;
        self.free(from)?;
        from.clone_into(&mut self.fields[place].name);
        let expr = self.lowered(to);
        self.down.remove(to);
        self.down.insert(from.to_owned(), expr);
        if let Some(states) = self.states.as_mut().filter(|states| states.field == to) {
            from.clone_into(&mut states.field);
        }
        self.substitute(&BTreeMap::from([(to.to_owned(), Expr::sent(from))]));
        Ok(())
    }

    fn undo_move(&mut self, (from, to): (&Path, &Path), field: Option<&Field>, seen: bool) -> Done {
        let mut sent = BTreeMap::new();
        // What the new place holds, and the new place without it.
        let value = match &to.member {
            Some(member) => {
                let hollow = self.object(&to.field)?;
                let whole = self.lowered(&to.field);
                let rest = whole.clone().without(member, hollow);
                self.down.insert(to.field.clone(), rest);
                whole.member(member)
            }
            None => {
                let place = self.place(&to.field)?;
                if self.fields[place].reference.is_some() {
                    return Err(wrong(format!("`{}` is a reference, which cannot move", to.field)));
                }
                self.lowered(&to.field)
            }
        };
        let old = match &from.member {
            Some(member) => {
                let hollow = self.object(&from.field)?;
                self.alike(&[&from.field, &to.field])?;
                let object = self.lowered(&from.field);
                // What newer clients have there since, this version does not see: it stays.
                let unseen = object.clone().member(member);
                self.down.insert(from.field.clone(), object.with(member, value, hollow));
                let rest = Expr::sent(&from.field).with(member, unseen, hollow);
                sent.insert(from.field.clone(), rest);
                Expr::sent(&from.field).member(member)
            }
            None => {
                self.free(&from.field)?;
                let place = self.place(&to.field)?;
                let plain = Field::new(&from.field, Kind::String);
                let mut field = field.cloned().unwrap_or(plain);
                let object = &self.fields[place];
                (field.write_only, field.read_only) = (object.write_only, object.read_only);
                field.deprecated = object.deprecated.clone();
                // A newer client may put anything into an object: what the field cannot say is
                // null to older ones, and stays when they write null back.
                let kind = field.kind.clone();
                let shown = known(value.clone(), &field);
                self.fields.insert(place + 1, field);
                self.down.insert(from.field.clone(), shown);
                Expr::sent(&from.field).or(value.lowered(Conversion::NotOfKind(kind)))
            }
        };
        match &to.member {
            Some(member) => {
                let hollow = self.object(&to.field)?;
                let base = sent.remove(&to.field).unwrap_or_else(|| Expr::sent(&to.field));
                // Of an object that the older shape cannot see, the kept member is replaced.
                let whole = match seen {
                    true => base.with_fresh(member, old, hollow),
                    false => base.with(member, old, hollow),
                };
                sent.insert(to.field.clone(), whole);
            }
            None => {
                self.place(&to.field)?;
                sent.insert(to.field.clone(), self.held(&to.field, old));
                self.forget(&to.field);
            }
        }
        self.substitute(&sent);
        Ok(())
    }

    /// What becomes a field of this shape, if the field takes it: newer ones that are made of it
    /// may take more, or take it for another value. Where it is kept as it is, the newest version
    /// sees to it.
    fn held(&self, name: &str, value: Expr) -> Expr {
        let kept = self.up.values().any(|expr| *expr == Expr::sent(name));
        match self.field(name).filter(|_| !kept) {
            Some(field) => value.raised(Conversion::Takes(Declared::new(field))),
            None => value,
        }
    }

    /// What no client may read or write must not become part of what they may.
    fn alike(&self, names: &[&str]) -> Done {
        let places = names.iter().map(|name| self.place(name)).collect::<Result<Vec<_>, _>>()?;
        let access =
            |place: &usize| (self.fields[*place].write_only, self.fields[*place].read_only);
        match places.iter().all(|place| access(place) == access(&places[0])) {
            true => Ok(()),
            false => Err(wrong(format!(
                "{} must be alike in `write_only` and `read_only`",
                names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
            ))),
        }
    }

    /// Checks that the field is an object; says whether it has to be one always.
    fn object(&self, name: &str) -> Result<bool, Fault> {
        let field = &self.fields[self.place(name)?];
        match field.kind {
            Kind::Object => Ok(field.required),
            _ => Err(wrong(format!("`{name}` must be of type object to have members"))),
        }
    }

    /// Checks that the field is a plain text.
    fn text(&self, name: &str) -> Result<usize, Fault> {
        let place = self.place(name)?;
        let field = &self.fields[place];
        if field.kind != Kind::String || field.reference.is_some() {
            return Err(wrong(format!("`{name}` must be of type string and no reference")));
        }
        if self.states.as_ref().is_some_and(|states| states.field == name) {
            return Err(wrong(format!("`{name}` is the state, which is one word")));
        }
        Ok(place)
    }

    fn undo_split(&mut self, from: &Field, to: &[String], by: &str) -> Done {
        self.free(&from.name)?;
        let places = to.iter().map(|name| self.text(name)).collect::<Result<Vec<_>, _>>()?;
        self.alike(&to.iter().map(String::as_str).collect::<Vec<_>>())?;
        let parts: Vec<&Field> = places.iter().map(|place| &self.fields[*place]).collect();
        let mut field = from.clone();
        (field.write_only, field.read_only) = (parts[0].write_only, parts[0].read_only);
        field.search = parts.iter().any(|part| part.search);
        // Whoever writes it writes them all.
        field.deprecated = parts.iter().find_map(|part| part.deprecated.clone());
        let first = places.iter().copied().min().unwrap_or(0);
        let parts = to.iter().map(|name| self.lowered(name)).collect();
        let whole = Expr::Join { parts, by: by.to_owned() };
        self.down.insert(field.name.clone(), worded(whole.clone(), &field));
        let (whole, count) = (Arc::new(whole), to.len());
        let piece = |place| {
            let (of, whole) = (Box::new(Expr::sent(&from.name)), Some(whole.clone()));
            Expr::Part { of, by: by.to_owned(), place, count, whole }
        };
        let sent = to.iter().enumerate();
        let sent = sent.map(|(place, name)| (name.clone(), self.held(name, piece(place))));
        self.substitute(&sent.collect());
        self.fields.insert(first, field);
        to.iter().for_each(|name| self.forget(name));
        Ok(())
    }

    fn undo_merge(&mut self, from: &[Field], to: &str, by: &str) -> Done {
        let place = self.text(to)?;
        from.iter().try_for_each(|field| self.free(&field.name))?;
        let whole = self.lowered(to);
        let new = self.fields[place].clone();
        for (piece, field) in from.iter().enumerate() {
            let (of, by, count) = (Box::new(whole.clone()), by.to_owned(), from.len());
            let expr = Expr::Part { of, by, place: piece, count, whole: None };
            self.down.insert(field.name.clone(), worded(expr, field));
            let mut field = field.clone();
            (field.search, field.deprecated) = (new.search, new.deprecated.clone());
            (field.write_only, field.read_only) = (new.write_only, new.read_only);
            self.fields.insert(place + piece, field);
        }
        let parts = from.iter().map(|field| Expr::sent(&field.name)).collect();
        let joined = self.held(to, Expr::Join { parts, by: by.to_owned() });
        self.forget(to);
        self.substitute(&BTreeMap::from([(to.to_owned(), joined)]));
        Ok(())
    }

    /// Values of a field that keeps its name are converted both ways.
    fn convert_down(&mut self, name: &str, down: Conversion) {
        let expr = self.lowered(name).lowered(down);
        self.down.insert(name.to_owned(), expr);
    }

    fn convert_up(&mut self, name: &str, up: Conversion) {
        let expr = Expr::sent(name).raised(up);
        self.substitute(&BTreeMap::from([(name.to_owned(), expr)]));
    }

    fn undo_retype(&mut self, name: &str, from: &Field, by: &Retyping) -> Done {
        let place = self.place(name)?;
        let new = &self.fields[place];
        if new.reference.is_some() || self.states.as_ref().is_some_and(|s| s.field == name) {
            return Err(wrong(format!("`{name}` holds an id or a state; its type is fixed")));
        }
        if let (Retyping::Factor { nearest: true, .. }, true) = (by, new.unique) {
            return Err(wrong(format!(
                "`{name}` is `unique`, so no two values may become one; remove `nearest`"
            )));
        }
        let (up, down) = conversions(by, from, new)?;
        let raised = self.held(name, Expr::sent(name).raised(up));
        let mut old = from.clone();
        name.clone_into(&mut old.name);
        let scalar = old.kind.is_scalar();
        (old.filter, old.sort) = (old.filter || new.filter, old.sort || new.sort);
        (old.filter, old.sort) = (old.filter && scalar, old.sort && scalar);
        old.unique = new.unique && scalar;
        (old.search, old.deprecated) = (new.search, new.deprecated.clone());
        (old.write_only, old.read_only) = (new.write_only, new.read_only);
        let shown = worded(self.lowered(name).lowered(down), &old);
        self.down.insert(name.to_owned(), shown);
        self.fields[place] = old;
        self.substitute(&BTreeMap::from([(name.to_owned(), raised)]));
        Ok(())
    }

    fn undo_enum_map(
        &mut self,
        name: &str,
        values: &[(String, String)],
        down: &[(String, String)],
    ) -> Done {
        let place = self.place(name)?;
        let new = &self.fields[place].choices;
        if new.is_empty() {
            return Err(wrong(format!("`{name}` has no `enum`; use `retype` with a map")));
        }
        let unknown = values.iter().map(|(_, to)| to).chain(down.iter().map(|(new, _)| new));
        if let Some(unknown) = unknown.into_iter().find(|value| !new.contains(value)) {
            return Err(wrong(format!(
                "`{unknown}` is no value of `{name}` in the newer version; there are: {}",
                new.join(", ")
            )));
        }
        let old = old_choices(new, values, down);
        if let Some((_, to)) = down.iter().find(|(_, to)| !old.contains(to)) {
            return Err(wrong(format!(
                "`{to}` is no value of `{name}` in the older versions; there are: {}",
                old.join(", ")
            )));
        }
        if let Some(states) = self.states.as_mut().filter(|states| states.field == name) {
            let known = down.iter().find(|(new, _)| *new == states.initial).map(|(_, old)| old);
            let was = values.iter().find(|(_, new)| *new == states.initial).map(|(old, _)| old);
            if let Some(was) = known.or(was) {
                states.initial = was.clone();
            }
            states.names = old.clone();
        }
        let lowered = values.iter().map(|(old, new)| (new, old));
        let lowered = table(down.iter().map(|(new, old)| (new, old)).chain(lowered));
        let lowered = Conversion::Table(lowered);
        let raised = Conversion::Table(table(values.iter().map(|(old, new)| (old, new))));
        let field = &mut self.fields[place];
        field.default = field.default.take().and_then(|default| lowered.apply(&default));
        field.choices = old;
        self.convert_down(name, lowered);
        self.convert_up(name, raised);
        Ok(())
    }

    fn undo_default(&mut self, name: &str, was: Option<&Value>) -> Done {
        let place = self.place(name)?;
        let was = was.map(|was| fits(&self.fields[place], was, "was")).transpose()?;
        self.shared(place, was.is_some())?;
        let field = &mut self.fields[place];
        // What had a default need not be sent; what has one still is always there if it is now.
        field.required &= was.is_none() || field.default.is_some();
        field.default = was;
        Ok(())
    }

    /// What old clients send is held to the old limits alone, so to no others on the way.
    fn undo_limits(&mut self, name: &str, was: &Limits) -> Done {
        let place = self.place(name)?;
        let mut field = self.fields[place].clone();
        self.can_limit(&field, was)?;
        was.set(&mut field);
        field.default = field.default.take().map(|it| fits(&field, &it, "default")).transpose()?;
        let takes =
            |choice: &String| validate::value(&field, &mut Value::from(choice.as_str())).is_ok();
        if !field.choices.is_empty() && !field.choices.iter().any(takes) {
            return Err(wrong(format!("`was` takes no value of the `enum` of `{name}`")));
        }
        for (kept, expr) in &mut self.up {
            if !expr.sent_names().iter().any(|sent| sent == name) {
                continue;
            }
            // In other units there is nothing to compare with: what the old field takes is taken.
            let limits = if expr.is_as_sent() { was.clone() } else { Limits::default() };
            *expr = expr.unlimited(name);
            self.limits.insert(kept.clone(), limits);
        }
        self.fields[place] = field;
        Ok(())
    }

    fn can_limit(&self, field: &Field, was: &Limits) -> Done {
        let (name, kind) = (&field.name, field.kind.name());
        if field.reference.is_some() || self.states.as_ref().is_some_and(|s| s.field == *name) {
            return Err(wrong(format!("`{name}` holds an id or a state, which has no limits")));
        }
        if !["min", "min_length"].iter().any(|key| Limits::suits(key, &field.kind)) {
            return Err(wrong(format!("`{name}` is of type {kind}, which has no limits")));
        }
        for (key, value) in was.told() {
            let whole = field.kind != Kind::Integer || !value.is_f64();
            if !Limits::suits(key, &field.kind) || !whole {
                return Err(wrong(format!("`{key}` = {value} is no limit of type {kind}")));
            }
        }
        match was.told() == Limits::of(field).told() {
            true => Err(wrong(format!("`{name}` has these limits in the newer version, too"))),
            false => Ok(()),
        }
    }

    fn undo_optional(&mut self, name: &str, fill: &Value) -> Done {
        let place = self.place(name)?;
        let field = &mut self.fields[place];
        if field.required {
            return Err(wrong(format!("`{name}` is required in the newer version, too")));
        }
        let fill = fits(field, fill, "fill")?;
        (field.required, field.default) = (!field.read_only, None);
        self.convert_down(name, Conversion::Fill(fill));
        Ok(())
    }

    fn undo_required(&mut self, name: &str, fill: &Value) -> Done {
        let place = self.place(name)?;
        if !self.fields[place].required {
            return Err(wrong(format!("`{name}` is not required in the newer version")));
        }
        self.shared(place, true)?;
        let field = &mut self.fields[place];
        if field.reference.is_some() {
            return Err(wrong(format!(
                "`{name}` is a reference, and no record is there in every account for `fill` to \
                 name; leave it optional"
            )));
        }
        let fill = fits(field, fill, "fill")?;
        field.required = false;
        // What is kept is shown: a client that sends the fill itself reads it again.
        self.convert_up(name, Conversion::Fill(fill));
        Ok(())
    }

    /// Complains of a value that many records would have of a field that no two may share.
    fn shared(&self, place: usize, given: bool) -> Done {
        let field = &self.fields[place];
        match field.unique && given {
            true => Err(wrong(format!(
                "`{}` is `unique`: two old requests without it would clash",
                field.name
            ))),
            false => Ok(()),
        }
    }

    fn undo_removed(&mut self, name: &str) -> Done {
        self.not_fixed(name)?;
        let found = self.fields.iter_mut().find(|field| field.name == name);
        let field = found.ok_or_else(|| Fault::Missing(name.to_owned()))?;
        if !field.removed {
            return Err(wrong(format!("`{name}` is a field of a newer version, too")));
        }
        field.removed = false;
        Ok(())
    }

    fn undo_gone(&mut self, field: &Field, value: &Value) -> Done {
        self.free(&field.name)?;
        let mut old = field.clone();
        (old.read_only, old.required, old.default) = (true, false, None);
        let value = match value {
            Value::Null => Value::Null,
            value => fits(field, value, "value")?,
        };
        self.down.insert(old.name.clone(), Expr::Fixed(value));
        self.fields.push(old);
        Ok(())
    }

    fn undo_code(&mut self, from: &str, to: &str) -> Done {
        let mut found = false;
        for code in self.codes.values_mut().filter(|code| *code == to) {
            from.clone_into(code);
            found = true;
        }
        match found {
            true => Ok(()),
            false => Err(wrong(format!("no rule of the collection answers with the code `{to}`"))),
        }
    }
}

/// What an old field can say of a value that may be anything.
fn known(value: Expr, field: &Field) -> Expr {
    worded(value.lowered(Conversion::OfKind(field.kind.clone())), field)
}

/// What of it an old field has a word for, where it has an `enum`.
fn worded(value: Expr, field: &Field) -> Expr {
    if field.choices.is_empty() {
        return value;
    }
    let choices = field.choices.iter().map(|choice| (choice, choice));
    value.lowered(Conversion::Only(table(choices)))
}

fn table<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<(Value, Value)> {
    pairs.map(|(from, to)| (Value::from(from.as_str()), Value::from(to.as_str()))).collect()
}

/// In the order of the new ones: every old value that became one, or the value itself where old
/// clients know it.
fn old_choices(
    new: &[String],
    values: &[(String, String)],
    down: &[(String, String)],
) -> Vec<String> {
    let mut old: Vec<String> = Vec::new();
    for choice in new {
        let mut were: Vec<&String> =
            values.iter().filter(|(_, to)| to == choice).map(|(from, _)| from).collect();
        if were.is_empty() && !down.iter().any(|(new, _)| new == choice) {
            were.push(choice);
        }
        for was in were {
            if !old.contains(was) {
                old.push(was.clone());
            }
        }
    }
    old
}

/// A value of the file in the form in which values of the field are kept.
fn fits(field: &Field, value: &Value, what: &str) -> Result<Value, Fault> {
    let mut value = value.clone();
    match validate::value(field, &mut value) {
        Ok(()) => Ok(value),
        Err(violation) => {
            Err(wrong(format!("`{what}`: {}", violation.message.trim_end_matches('.'))))
        }
    }
}

/// Up and down for a field of another type.
fn conversions(by: &Retyping, old: &Field, new: &Field) -> Result<(Conversion, Conversion), Fault> {
    use Conversion::{FromList, FromText, Only, Over, Times, ToInstant, ToList, ToText, ToTicks};
    let numeric = |kind: &Kind| matches!(kind, Kind::Integer | Kind::Number);
    let (from, to) = (&old.kind, &new.kind);
    let pair = match by {
        Retyping::Text => match (from, to) {
            (Kind::Integer | Kind::Number | Kind::Boolean, Kind::String) => {
                Some((ToText, FromText(from.clone())))
            }
            (Kind::String, Kind::Integer | Kind::Number | Kind::Boolean) => {
                Some((FromText(to.clone()), ToText))
            }
            _ => None,
        },
        Retyping::Seconds | Retyping::Milliseconds => {
            let tick = if *by == Retyping::Seconds { 1000 } else { 1 };
            match (from, to) {
                (Kind::Integer, Kind::Timestamp) => Some((ToInstant(tick), ToTicks(tick))),
                (Kind::Timestamp, Kind::Integer) => Some((ToTicks(tick), ToInstant(tick))),
                _ => None,
            }
        }
        Retyping::List => match (from, to) {
            (one, Kind::Array(item)) if **item == *one => Some((ToList, FromList)),
            (Kind::Array(item), one) if **item == *one => Some((FromList, ToList)),
            _ => None,
        },
        Retyping::Factor { times, nearest } if numeric(from) && numeric(to) => {
            let scale = Scale::new(*times, from.clone(), to.clone());
            let scale = scale.map(|scale| scale.with_nearest(*nearest));
            scale.map(|scale| (Times(scale.clone()), Over(scale)))
        }
        Retyping::Factor { .. } => None,
        Retyping::Map(pairs) => {
            let fit = |(was, is)| Ok((fits(old, was, "map")?, fits(new, is, "map")?));
            let pairs: Vec<_> =
                pairs.iter().map(|(was, is)| fit((was, is))).collect::<Result<_, _>>()?;
            let back = pairs.iter().map(|(was, is)| (is.clone(), was.clone())).collect();
            Some((Only(pairs), Only(back)))
        }
    };
    pair.ok_or_else(|| {
        let what = match by {
            Retyping::Text => "`text` turns an integer, number or boolean into a string, or back",
            Retyping::Seconds => "`seconds` turns an integer into a timestamp, or back",
            Retyping::Milliseconds => "`milliseconds` turns an integer into a timestamp, or back",
            Retyping::List => "`list` turns one value into an array of its type, or back",
            Retyping::Factor { .. } => "`factor` is for integers and numbers",
            Retyping::Map(_) => "`map` names values of both types",
        };
        wrong(format!("{what}; this is {} and was {}", to.name(), from.name()))
    })
}
