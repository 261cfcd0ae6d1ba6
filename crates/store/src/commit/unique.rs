//! Unique values: a record whose value another one has is refused. A backend that loads writes one
//! by one finds out when it writes; a backend that loads a batch is asked before.

use super::effects::{Effect, Effects, Put};
use super::needs::{self, Claim, Needs};
use super::{Commit, Failure, Rows, refuse};
use model::{Code, Violation};

/// What was loaded about unique values.
pub struct Known<'a> {
    pub needs: &'a Needs<'a>,
    pub holders: Vec<Option<i64>>,
}

impl<R: Rows> Commit<'_, R> {
    /// Refuses a record with a unique value that another one has. Returns whether one of its values
    /// is of a record that gives it up in the same batch.
    pub fn refuse_taken(
        &mut self,
        known: &Known<'_>,
        effects: &Effects<'_>,
    ) -> Result<bool, Failure> {
        let Some(Effect::Put(put)) = effects.list.first() else { return Ok(false) };
        if put.columns.is_none() {
            return Ok(false);
        }
        let claims = needs::claims(self.schema, put.scope, put.collection, |f| put.fields.get(f));
        let loaded = |claim: &Claim| known.needs.claims.iter().position(|one| one == claim);
        let unknown: Vec<Claim> =
            claims.iter().filter(|claim| loaded(claim).is_none()).cloned().collect();
        let lookup = self.lookup();
        let mut found = match unknown.is_empty() {
            true => Vec::new(),
            false => lookup.rows.holders(&unknown)?,
        }
        .into_iter();
        let holders = claims.iter().map(|claim| match loaded(claim) {
            Some(place) => known.holders.get(place).copied().flatten(),
            None => found.next().flatten(),
        });
        let holders: Vec<Option<i64>> = holders.collect();
        let takes_over =
            holders.iter().any(|number| number.is_some_and(|n| n != put.record.number));
        let holders = lookup.holders_now(&claims, holders);
        self.refuse_holders(put, &claims, &holders)?;
        Ok(takes_over)
    }

    /// Turns a broken unique index into the violations it stands for: all of them, not the first.
    pub fn refuse_conflict(&mut self, effects: &Effects<'_>) -> Result<(), Failure> {
        let Some(Effect::Put(put)) = effects.list.first() else { return Ok(()) };
        let claims = needs::claims(self.schema, put.scope, put.collection, |f| put.fields.get(f));
        let holders = self.lookup().holders(&claims)?;
        self.refuse_holders(put, &claims, &holders)
    }

    fn refuse_holders(
        &self,
        put: &Put,
        claims: &[Claim],
        holders: &[Option<i64>],
    ) -> Result<(), Failure> {
        let collection = &self.schema.collections[put.collection];
        let mut violations = Vec::new();
        for (claim, holder) in claims.iter().zip(holders) {
            if holder.is_none_or(|number| !put.is_new && number == put.record.number) {
                continue;
            }
            let field = &collection.fields[claim.field];
            let message = format!("Another {} has this `{}`.", collection.object, field.name);
            let mut violation = Violation::new(&field.name, Code::NotUnique, message);
            if let Some(value) = put.fields.get(&field.name).filter(|_| !field.write_only) {
                violation = violation.value(value);
            }
            violations.push(violation);
        }
        refuse(violations)
    }
}
