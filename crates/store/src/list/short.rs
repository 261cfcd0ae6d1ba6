//! Which lists an index serves without looking at other rows than the page has.

use super::sorts_by_creation;
use model::query::{Query, Test};
use model::record::Scalar;
use model::{CollectionIx, Schema};

/// Whether one index gives the rows that are wanted and no others, in order. Every field with a
/// column has an index by owner, and so has every declared index.
pub fn has_index(schema: &Schema, ix: CollectionIx, query: &Query) -> bool {
    if query.sort.iter().any(|key| key.shown.is_some()) {
        return false;
    }
    let is_indexed = |field: &str| is_indexed(schema, ix, field);
    match query.filters.as_slice() {
        [] => match query.sort.as_slice() {
            [] => false,
            [only] => is_indexed(&only.field),
            [first, rest @ ..] => {
                let collection = &schema.collections[ix];
                // One with further fields would give equal rows in their order.
                let declared = |index: &model::schema::Index| {
                    index.fields.iter().eq(query.sort.iter().map(|key| &key.field))
                };
                rest.iter().all(|key| key.descending == first.descending)
                    && collection.indexes.iter().any(declared)
            }
        },
        // So many rows are read as there are ids. A range of ids has no end.
        [only] if only.field == "id" => match &only.test {
            Test::AnyOf(values) => !values.contains(&Scalar::Null),
            _ => false,
        },
        [only] => match &only.test {
            Test::AnyOf(values) => match values.as_slice() {
                [Scalar::Null] => sorts_by_creation(query) && is_indexed(&only.field),
                [_] => {
                    let field = schema.collections[ix].field(&only.field);
                    let unique = field.is_some_and(|field| field.unique);
                    sorts_by_creation(query) && (unique || is_indexed(&only.field))
                }
                _ => false,
            },
            _ => false,
        },
        _ => false,
    }
}

/// Whether an index has all rows of an owner by this field. That of a unique field lacks the nulls.
fn is_indexed(schema: &Schema, ix: CollectionIx, field: &str) -> bool {
    let collection = &schema.collections[ix];
    if matches!(field, "created_at" | "updated_at") {
        return true;
    }
    let declared = collection.field(field).filter(|field| field.has_column());
    let owns = schema.parent_field(ix).is_none_or(|parent| parent != field);
    owns && declared.is_some_and(|field| !field.unique || field.sort)
}
