//! Translates list queries of an older version into the words of the newest: names and values of
//! filters, and names of sort keys. Fields that are converted or moved cannot be filtered or sorted
//! by. The schema of the version says so, and the parser of the query refuses such requests.

use super::lens::{Lens, Line};
use crate::query::{Filter, Query, Shown, Test};
use crate::record::{Scalar, to_scalar};
use crate::schema::Field;
use serde_json::Value;

impl Lens {
    /// Turns names and values of filters and sort keys into those of the newest version.
    pub fn query(&self, query: &mut Query) {
        for filter in &mut query.filters {
            if let Some((line, kept)) = self.column(&filter.field) {
                self.filter(line, kept, filter);
            }
        }
        for key in &mut query.sort {
            if let Some((line, kept)) = self.column(&key.field) {
                kept.name.clone_into(&mut key.field);
                key.shown = self.shown(line, kept);
            }
        }
        query.revealed = self.revealed();
    }

    /// The removed fields that this version searches.
    fn revealed(&self) -> Vec<String> {
        let searched =
            self.lines.iter().filter(|line| line.field.as_ref().is_some_and(|field| field.search));
        let kept = searched.filter_map(|line| self.kept_field(line));
        let removed = kept.filter(|field| field.removed && field.search);
        removed.map(|field| field.name.clone()).collect()
    }

    fn kept_field(&self, line: &Line) -> Option<&Field> {
        let place = line.place.as_ref()?;
        self.stored.field(place.field())
    }

    /// A declared field of this version, and the stored one that it shows.
    fn column(&self, name: &str) -> Option<(&Line, &Field)> {
        let line = self.line(name).filter(|line| line.field.is_some())?;
        Some((line, self.kept_field(line)?))
    }

    fn filter(&self, line: &Line, kept: &Field, filter: &mut Filter) {
        kept.name.clone_into(&mut filter.field);
        let Some(shown) = self.shown(line, kept) else { return };
        if let Test::AnyOf(values) = &mut filter.test {
            // The stored values that are shown as these: an index can serve that.
            let mut found = values.clone();
            if !shown.words.is_empty() {
                let words = kept.choices.iter().map(|word| Scalar::Text(word.clone()));
                found = words.filter(|word| values.contains(&shown.of(word.clone()))).collect();
                found.extend(values.contains(&Scalar::Null).then_some(Scalar::Null));
            }
            if let Some(fill) = &shown.fill {
                found.retain(|value| *value != Scalar::Null);
                found.extend(values.contains(fill).then_some(Scalar::Null));
            }
            *values = found;
        } else {
            let test = Box::new(filter.test.clone());
            filter.test = Test::Shown { by: shown, test };
        }
    }

    /// How the column is shown, if differently from how it is stored.
    fn shown(&self, line: &Line, kept: &Field) -> Option<Shown> {
        let place = line.place.as_ref().filter(|place| place.worded || place.filled)?;
        let show = |value: Value| {
            let shown = self.stages.show(&place.path, value, &line.of);
            to_scalar(&kept.kind, &shown.unwrap_or_default())
        };
        let words = kept
            .choices
            .iter()
            .map(|word| (Scalar::Text(word.clone()), show(Value::from(word.as_str()))));
        let fill = Some(show(Value::Null)).filter(|fill| *fill != Scalar::Null);
        Some(Shown { words: words.filter(|(from, to)| from != to).collect(), fill })
    }
}
