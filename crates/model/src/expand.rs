//! The records that `include` and `expand` embed: a tree of references and child collections, at
//! most three levels deep. Parses only; `api::operation::expand` fetches the records.

use crate::schema::{Collection, CollectionIx, Field, Schema};

/// Levels of nesting, `a.b.c`.
pub const MAX_DEPTH: usize = 3;
/// Paths in one request.
pub const MAX_PATHS: usize = 20;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expand {
    pub nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the member in the JSON.
    pub name: String,
    pub target: Target,
    pub inner: Expand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The field holds an id; the record takes its place.
    Reference(CollectionIx),
    /// The newest children are added under the collection's name.
    Children(CollectionIx),
}

impl Target {
    pub fn collection(self) -> CollectionIx {
        match self {
            Target::Reference(collection) | Target::Children(collection) => collection,
        }
    }
}

impl Expand {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a dotted path; the error lists the names that are possible there.
    pub fn add(&mut self, schema: &Schema, from: CollectionIx, path: &str) -> Result<(), String> {
        let names: Vec<&str> = path.split('.').collect();
        if names.len() > MAX_DEPTH {
            return Err(format!("`{path}` goes deeper than {MAX_DEPTH} levels"));
        }
        self.add_names(schema, from, &names)
    }

    fn add_names(
        &mut self,
        schema: &Schema,
        from: CollectionIx,
        names: &[&str],
    ) -> Result<(), String> {
        let Some((&name, rest)) = names.split_first() else { return Ok(()) };
        let target = target(schema, from, name).ok_or_else(|| {
            let known = expandable(schema, from);
            let object = &schema.collections[from].object;
            let hint = match known.as_slice() {
                [] => "it has none".to_owned(),
                known => format!("it has: {}", known.join(", ")),
            };
            let shown: String = name.chars().take(60).collect();
            format!("a {object} has nothing to expand called `{shown}`; {hint}")
        })?;
        let place = self.nodes.iter().position(|node| node.name == name).unwrap_or_else(|| {
            self.nodes.push(Node { name: name.to_owned(), target, inner: Expand::default() });
            self.nodes.len() - 1
        });
        self.nodes[place].inner.add_names(schema, target.collection(), rest)
    }

    /// Every collection whose records may be in the result.
    pub fn collections(&self) -> Vec<CollectionIx> {
        let mut all = Vec::new();
        for node in &self.nodes {
            all.push(node.target.collection());
            all.extend(node.inner.collections());
        }
        all
    }
}

/// The JSON name under which a child collection is embedded.
pub fn child_name(collection: &str) -> String {
    collection.replace('-', "_")
}

/// Everything that can be expanded on a record of this collection.
pub fn expandable(schema: &Schema, from: CollectionIx) -> Vec<String> {
    let fields = schema.collections[from].fields.iter();
    let references = fields.filter(|field| refers(schema, field).is_some());
    let names = references.map(|field| field.name.clone());
    names.chain(children(schema, from).map(|(_, child)| child_name(&child.name))).collect()
}

fn target(schema: &Schema, from: CollectionIx, name: &str) -> Option<Target> {
    let field = schema.collections[from].field(name);
    if let Some(collection) = field.and_then(|field| refers(schema, field)) {
        return Some(Target::Reference(collection));
    }
    let child = children(schema, from)
        .find(|(_, child)| child_name(&child.name) == name || child.name == name);
    child.map(|(collection, _)| Target::Children(collection))
}

/// The collection whose records may take the place of the field's value. A collection that offers
/// neither `get` nor `list` cannot be read this way either.
fn refers(schema: &Schema, field: &Field) -> Option<CollectionIx> {
    let readable = |to: &Collection| !to.removed && (to.operations.get || to.operations.list);
    field.reference.filter(|to| field.is_served() && readable(&schema.collections[*to]))
}

/// The collections whose records may be listed below a record. Without views: a delivery counts its
/// attempts under the name they would have.
fn children(
    schema: &Schema,
    from: CollectionIx,
) -> impl Iterator<Item = (CollectionIx, &Collection)> {
    let listed = |child: &Collection| !child.removed && child.operations.list;
    schema.children(from).filter(move |(_, child)| !child.is_view() && listed(child))
}
