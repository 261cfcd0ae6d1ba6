//! The paths that `include` and `expand` accept on a collection: references and children, as deep
//! as `model::expand` allows. References can be circular, so the list is bounded.

use model::expand::{self, MAX_DEPTH};
use model::schema::{CollectionIx, Schema};

/// A longer list helps no reader. Levels that would exceed it are omitted, but they work.
const MAX_LISTED: usize = 200;

/// Every path, short ones first.
pub fn paths(schema: &Schema, from: CollectionIx) -> Vec<String> {
    let mut all = Vec::new();
    let mut level = vec![(String::new(), from)];
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for (path, collection) in level {
            for name in expand::expandable(schema, collection) {
                let Some(target) = target(schema, collection, &name) else { continue };
                let dot = if path.is_empty() { "" } else { "." };
                next.push((format!("{path}{dot}{name}"), target));
            }
        }
        if all.len() + next.len() > MAX_LISTED {
            break;
        }
        all.extend(next.iter().map(|(path, _)| path.clone()));
        level = next;
    }
    all
}

fn target(schema: &Schema, from: CollectionIx, name: &str) -> Option<CollectionIx> {
    let field = schema.collections[from].field(name).and_then(|field| field.reference);
    field.or_else(|| {
        let mut children = schema.children(from);
        children.find(|(_, child)| expand::child_name(&child.name) == name).map(|(index, _)| index)
    })
}
