//! The text of a kept record, taken apart at its commas only: what is shown as it is kept is
//! copied.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Name and text of each member, in the order of the text.
pub(super) struct Raw<'t> {
    members: Vec<(&'t str, &'t RawValue)>,
}

impl<'t> Raw<'t> {
    /// Kept text is our own; a damaged row reads as empty, as in `record::parse_object`.
    pub fn read(body: &'t str, hidden: Option<&'t str>) -> Raw<'t> {
        let mut members = Vec::with_capacity(16);
        for text in std::iter::once(body).chain(hidden) {
            let mut reader = serde_json::Deserializer::from_str(text);
            if let Ok(read) = (&mut reader).deserialize_map(Members) {
                members.extend(read);
            }
        }
        Raw { members }
    }

    pub fn text(&self, name: &str) -> &'t str {
        self.find(name).unwrap_or("null")
    }

    pub fn find(&self, name: &str) -> Option<&'t str> {
        self.members().find(|(member, _)| *member == name).map(|(_, value)| value)
    }

    pub fn members(&self) -> impl Iterator<Item = (&'t str, &'t str)> + '_ {
        self.members.iter().map(|(name, value)| (*name, value.get()))
    }
}

struct Members;

impl<'t> Visitor<'t> for Members {
    type Value = Vec<(&'t str, &'t RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a record")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(16);
        // Names of fields are plain, so they can be borrowed.
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}
