//! Which operations of the API cause an event of a type.

use model::Schema;
use model::schema::{Action, Collection, CollectionIx};
use model::webhook::pattern;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

pub enum Cause<'a> {
    /// The application publishes it.
    Publish,
    /// A new record, and then these steps. The last one causes the event.
    Record { collection: CollectionIx, steps: Vec<Step<'a>>, delay: Duration },
}

#[derive(Clone)]
pub enum Step<'a> {
    Update,
    Delete,
    Act(&'a Action),
    /// A timed transition moves the record to this state.
    Wait {
        after: Duration,
        to: &'a str,
    },
}

impl Cause<'_> {
    /// How long after the last request the event happens.
    pub fn delay(&self) -> Duration {
        match self {
            Cause::Publish => Duration::ZERO,
            Cause::Record { delay, .. } => *delay,
        }
    }
}

/// What causes an event of this type, if it can be caused with sample data.
pub fn cause<'a>(schema: &'a Schema, kind: &str) -> Option<Cause<'a>> {
    if schema.events.published.iter().any(|published| published.name == kind) {
        return Some(Cause::Publish);
    }
    let collections = schema.routed().filter(|(_, collection)| collection.builtin.is_none());
    collections.into_iter().find_map(|(place, collection)| of_collection(place, collection, kind))
}

/// All types that can be caused.
pub fn causes(schema: &Schema) -> Vec<&str> {
    let all = pattern::catalogue(schema).into_iter();
    all.filter(|kind| cause(schema, kind).is_some()).collect()
}

fn of_collection<'a>(
    place: CollectionIx,
    collection: &'a Collection,
    kind: &str,
) -> Option<Cause<'a>> {
    let operations = &collection.operations;
    if !operations.create {
        return None;
    }
    let record = |steps| Some(Cause::Record { collection: place, steps, delay: Duration::ZERO });
    if collection.events.created == kind {
        return record(Vec::new());
    }
    if let Some(action) = collection.actions.iter().find(|action| action.event == kind) {
        let mut steps = match action.from.is_empty() {
            true => Vec::new(),
            false => path(collection, |state| action.from.iter().any(|from| from == state))?,
        };
        steps.push(Step::Act(action));
        return record(steps);
    }
    if let Some(timed) = collection.timed.iter().find(|timed| timed.event == kind) {
        let mut steps = path(collection, |state| timed.from == state)?;
        steps.push(Step::Wait { after: timed.after, to: &timed.to });
        return record(steps);
    }
    if collection.events.updated == kind && operations.update {
        return record(vec![Step::Update]);
    }
    if collection.events.deleted == kind && operations.delete {
        return record(vec![Step::Delete]);
    }
    None
}

/// The shortest way from the first state to one of those wanted.
fn path<'a>(collection: &'a Collection, wanted: impl Fn(&str) -> bool) -> Option<Vec<Step<'a>>> {
    let states = collection.states.as_ref()?;
    let mut queue = VecDeque::from([(states.initial.as_str(), Vec::new())]);
    let mut seen = HashSet::from([states.initial.as_str()]);
    while let Some((state, steps)) = queue.pop_front() {
        if wanted(state) {
            return Some(steps);
        }
        let actions = collection.actions.iter().filter(|action| {
            action.from.is_empty() || action.from.iter().any(|from| from == state)
        });
        let acts = actions.filter_map(|action| Some((action.to.as_deref()?, Step::Act(action))));
        let timed = collection.timed.iter().filter(|timed| timed.from == state);
        let waits =
            timed.map(|timed| (&*timed.to, Step::Wait { after: timed.after, to: &timed.to }));
        for (to, step) in acts.chain(waits) {
            if seen.insert(to) {
                let steps = steps.iter().cloned().chain([step]).collect();
                queue.push_back((to, steps));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{parse, schema};

    fn shown(schema: &Schema, kind: &str) -> Option<String> {
        Some(match cause(schema, kind)? {
            Cause::Publish => "publish".to_owned(),
            Cause::Record { collection, steps, .. } => {
                let steps = steps.iter().map(|step| match step {
                    Step::Update => "update".to_owned(),
                    Step::Delete => "delete".to_owned(),
                    Step::Act(action) => action.name.clone(),
                    Step::Wait { to, .. } => format!("wait for {to}"),
                });
                let all = [schema.collections[collection].name.clone()].into_iter().chain(steps);
                all.collect::<Vec<_>>().join(", ")
            }
        })
    }

    #[test]
    fn each_type_of_the_bookshop_has_its_cause() {
        let schema = parse::parse(schema::BOOKSHOP).unwrap_or_else(|_| panic!("the bookshop"));
        for (kind, expected) in [
            ("book.created", Some("books")),
            ("book.updated", Some("books, update")),
            ("book.deleted", Some("books, delete")),
            ("review.created", Some("reviews")),
            ("order.paid", Some("orders, pay")),
            ("order.shipped", Some("orders, pay, ship")),
            ("payment_intent.succeeded", Some("payment-intents, confirm, wait for succeeded")),
            ("report.ready", Some("publish")),
            ("payment_intent.payment_failed", None),
            ("webhook_endpoint.disabled", None),
            ("nonsense", None),
        ] {
            assert_eq!(shown(&schema, kind).as_deref(), expected, "{kind}");
        }
        assert!(causes(&schema).contains(&"message.created"));
    }
}
