//! The text of a stored record, split into its members only: values that are shown as they are
//! stored are copied.

use crate::record::push_text;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Name and text of each member, in the order of the text.
pub(crate) struct Raw<'t> {
    members: Vec<(&'t str, &'t RawValue)>,
}

impl<'t> Raw<'t> {
    /// The service wrote the text; a damaged row reads as empty, as in `record::parse_object`.
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

/// Adds a member to the text of an object that is not closed yet.
pub(crate) fn push_member(out: &mut String, name: &str, text: &str) {
    out.push(if out.is_empty() { '{' } else { ',' });
    push_text(out, name);
    out.push(':');
    out.push_str(text);
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
