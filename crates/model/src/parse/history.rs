//! Checks the changes of all versions against the collections and against each other: takes them
//! back, newest first, and reports a change that does not fit, or that would lose what older
//! clients send. Knows the place of each change in the file.

use super::reader::Report;
use super::versions::Past;
use super::{collection, typing};
use crate::schema::{Change, Collection, Field, Operation};
use crate::spelling;
use crate::version::shape::{self, Fault, Shape};
use crate::version::{Part, changes_of, conversion_fault, head};
use std::collections::BTreeSet;

/// Complains about changes that cannot be taken back.
pub(super) fn walk(report: &mut Report<'_>, past: &Past, collections: &[Collection]) {
    for (ix, collection) in collections.iter().enumerate() {
        walk_part(report, past, (ix, None), collection);
        for action in 0..collection.actions.len() {
            let part = (ix, Some(action));
            if past.versions.iter().any(|version| !changes_of(version, part).is_empty()) {
                walk_part(report, past, part, &collection.form(action));
            }
        }
    }
}

/// The fields of a collection, or the parameters of an action as if they were a collection.
fn walk_part(report: &mut Report<'_>, past: &Past, part: Part, collection: &Collection) {
    let mut shape = Shape::newest(collection.clone());
    // Fields that an earlier finding leaves open: each fault is reported once.
    let mut doubtful = BTreeSet::new();
    for (index, version) in past.versions.iter().enumerate() {
        let changes = changes_of(version, part);
        let places = places_of(past, index, part);
        let clashing = clashes(report, &changes, &places);
        let mut clear = Vec::new();
        for (place, change) in changes.iter().enumerate() {
            let new = change.operation.new_place();
            match clashing.contains(&place) || new.is_some_and(|p| doubtful.contains(head(&p))) {
                true => doubt(&mut doubtful, change),
                false => clear.push((*change, places[place])),
            }
        }
        let taken: Vec<&Change> = clear.iter().map(|(change, _)| *change).collect();
        let before = shape.clone();
        let mut wrong = BTreeSet::new();
        for (place, fault) in shape.go_back(&taken) {
            let (change, at) = clear[place];
            report.say(at, explain(fault, &before, collection, &version.date));
            doubt(&mut doubtful, change);
            wrong.insert(at);
        }
        clear.retain(|(_, at)| !wrong.contains(at));
        check_conversions(report, &clear, &before, &shape);
        check_beside(report, past, part, index, &changes, &places, &before);
        if part.1.is_none() {
            let shapes = [&before, &shape].map(|shape| shape.collection().fields);
            check_range_names(report, &shapes, &clear);
        }
    }
}

/// `min_price` and the range filter of `price` would be one query parameter of the older version,
/// and of the newer one, too, if it has an old name next to the new one.
fn check_range_names(
    report: &mut Report<'_>,
    [newer, older]: &[Vec<Field>; 2],
    changes: &[(&Change, usize)],
) {
    for (change, at) in changes {
        let old = change.operation.old_place();
        let name = old.filter(|name| newer.iter().all(|field| field.name != *name));
        let beside = matches!(&change.operation, Operation::Rename { beside: true, .. });
        let fields = || older.iter().chain(newer.iter().filter(|_| beside));
        let found = fields().find_map(|field| {
            let of = |base: &String| collection::is_range_of(&field.name, base);
            // Either of the two may be the one that this change made.
            let made = name.as_ref() == Some(&field.name);
            let mut bases = fields().filter(|base| base.filterable()).map(|base| &base.name);
            let base = bases.find(|base| of(base) && (made || name.as_ref() == Some(*base)));
            let base = base.map(String::as_str);
            let assigned = || collection::range_of_assigned(&field.name).filter(|_| made);
            Some((&field.name, base.or_else(assigned)?))
        });
        if let Some((name, base)) = found {
            report.say(*at, collection::range_clash(name, base));
        }
    }
}

fn doubt(doubtful: &mut BTreeSet<String>, change: &Change) {
    doubtful.extend(change.operation.places().map(|place| head(&place).to_owned()));
}

/// The places of the changes of one collection in the file.
fn places_of(past: &Past, index: usize, part: Part) -> Vec<usize> {
    let changes = past.versions[index].changes.iter().zip(&past.places[index]);
    let here = |change: &Change| (change.collection, change.action) == part;
    changes.filter(|(change, _)| here(change)).map(|(_, at)| *at).collect()
}

fn explain(fault: Fault, shape: &Shape, collection: &Collection, date: &str) -> String {
    match fault {
        Fault::Wrong(message) => message,
        Fault::Missing(name) => {
            let known = shape.fields.iter().filter(|field| !field.removed);
            let hint = spelling::hint(&name, known.map(|field| field.name.as_str()));
            format!("`{name}` is no field of `{}` in version {date}{hint}", collection.name)
        }
    }
}

/// Two changes of one field on one date have no order, so they must not meet.
fn clashes(report: &mut Report<'_>, changes: &[&Change], places: &[usize]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for (place, change) in changes.iter().enumerate() {
        for earlier in &changes[..place] {
            if let Some(what) = clash(&earlier.operation, &change.operation) {
                report.say(places[place], what);
                found.insert(place);
                break;
            }
        }
    }
    found
}

fn clash(one: &Operation, other: &Operation) -> Option<String> {
    use Operation::{Code, CollectionAdded, CollectionRemoved, Move, Rename};
    match (one, other) {
        (CollectionAdded | CollectionRemoved, _) | (_, CollectionAdded | CollectionRemoved) => {
            return Some(
                "a version that adds or removes a collection changes nothing else of it".to_owned(),
            );
        }
        (Code { from: a, to: b }, Code { from: c, to: d })
            if [a, b].iter().any(|code| [c, d].contains(code)) =>
        {
            return Some(
                "two changes of one code on one date; let one of them be older".to_owned(),
            );
        }
        (Rename { from: a, to: b, .. }, Rename { from: c, to: d, .. }) if a == d && b == c => {
            return Some(format!("`{a}` and `{b}` are renamed in a circle; use a third name"));
        }
        (Move { to: a, existing: x, .. }, Move { to: b, existing: y, .. })
            if a.field == b.field && a.member.is_some() && b.member.is_some() && x != y =>
        {
            return Some(format!("moves into `{}` must agree on `existing`", a.field));
        }
        _ => {}
    }
    let others: Vec<String> = other.places().collect();
    let meets = |a: &String, b: &String| {
        a == b || (head(a) == head(b) && (!a.contains('.') || !b.contains('.')))
    };
    let met = one.places().find(|place| others.iter().any(|other| meets(place, other)))?;
    Some(format!(
        "`{met}` is changed by another change of the same date; let one of them be of another \
         version"
    ))
}

/// An old name can stay next to a field as long as that is only renamed, and its name is free.
fn check_beside(
    report: &mut Report<'_>,
    past: &Past,
    part: Part,
    index: usize,
    changes: &[&Change],
    places: &[usize],
    newer: &Shape,
) {
    for (change, at) in changes.iter().zip(places) {
        let Operation::Rename { from, to, beside: true } = &change.operation else { continue };
        if shape::trace(&past.versions, part, to, index, 0).is_none() {
            report.say(*at, format!("`beside` has ended: a newer version did more to `{to}`"));
        }
        let taken = past.versions[..index].iter().flat_map(|version| changes_of(version, part));
        let mut names = taken.flat_map(|change| change.operation.places());
        if newer.field(from).is_none() && names.any(|name| name == *from) {
            let message = format!("`beside` needs `{from}` to be free in all newer versions");
            report.say(*at, message);
        }
    }
}

/// Reports formulas that use unknown names or do not convert the values of the field.
fn check_conversions(
    report: &mut Report<'_>,
    changes: &[(&Change, usize)],
    newer: &Shape,
    older: &Shape,
) {
    for (change, at) in changes {
        let Operation::Convert { field, up, down, .. } = &change.operation else { continue };
        let (Some(new), Some(old)) = (newer.field(field), older.field(field)) else { continue };
        let before = report.count();
        let complaints = up.check(old, &older.known_fields(), new, false);
        typing::say(report, &up.expression, complaints);
        // Older clients read null if there is no old value.
        let complaints = down.check(new, &newer.known_fields(), old, true);
        typing::say(report, &down.expression, complaints);
        if report.count() == before {
            let fault = conversion_fault(older, field);
            fault.into_iter().for_each(|what| report.say(*at, what));
        }
    }
}
