//! `POST /v1/keys/{id}/roll`: a new key in the place of another one, which works for some hours
//! more. The new key is created first, so that a server that stops in between locks nobody out; its
//! text leaves the server only once the old key ends.

use super::Administration;
use super::accounts::unexpected;
use super::keys::text;
use crate::error::Failure;
use crate::keys::{self, NewKey};
use crate::respond::Reply;
use crate::route::{Own, refuse_parameters};
use crate::{auth, body};
use model::problem::{Code, Problem};
use model::record::{Fields, Record};
use model::schema::{Builtin, Field, Kind};
use model::write::{Change, Precondition, Response};
use model::{Scope, Timestamp, validate};
use serde_json::{Value, json};

/// Hours during which a rolled key and its successor both work, as with `restive keys roll`.
const OVERLAP_HOURS: i64 = 24;
/// The longest overlap: a month is enough to reach every client of a key.
pub const MAX_OVERLAP_HOURS: i32 = 720;
/// How often the old key is read again because another request has changed it.
const ATTEMPTS: usize = 5;

impl Administration<'_> {
    pub(super) async fn roll_key(&self, id: &str) -> Result<Reply, Failure> {
        refuse_parameters(self.query)?;
        let (scope, old) = self.key(id).await?;
        let sent = body::object(self.body, true)?;
        let params = validate::params(&[overlap_field()], sent)?;
        let hours = params.get("overlap_hours").and_then(Value::as_i64).unwrap_or(OVERLAP_HOURS);
        if let Some(before) = self.created_before(scope).await? {
            return self.rolled_before(scope, old, &before, hours).await;
        }
        if hours == 0 {
            self.check_not_itself(id, false)?;
        }
        model::decide::check_precondition(&self.precondition()?, &old)?;
        let fields = old.fields();
        self.check_active(&fields)?;
        let new = NewKey::like(id, &fields)
            .map_err(|error| Problem::new(Code::InvalidState, error.to_string()))?;
        // The text of the new key is shown to the caller, who may then use it.
        let is_unlimited = self.is_unlimited().await?;
        self.check_covered(&new, is_unlimited)?;
        // A key and its successors have one quota, unless the operator makes them.
        let own = (!is_unlimited).then(|| id.to_owned());
        let new = NewKey { quota_of: new.quota_of.clone().or(own), ..new };
        let account = text(&fields, "account").unwrap_or_default();
        let (key, secret) = self.make(scope, &account, &new).await?;
        let Some(secret) = secret else {
            return self.rolled_before(scope, old, &key, hours).await;
        };
        let until = match self.end(scope, old, self.made(&key), hours).await {
            Ok(until) => until,
            Err(failure) => {
                // Another request has revoked or rolled the old key: this one makes no other key.
                let patch =
                    Fields::from_iter([("revoked_at".to_owned(), self.now().to_iso().into())]);
                let place = (Builtin::Key, scope);
                let change = Change::Merge { patch };
                self.commit(place, Some(&key.id), change, Precondition::None).await?;
                return Err(failure);
            }
        };
        let mut object = self.object(scope, &key).await?;
        object["secret"] = secret.into();
        object["replaces"] = json!({ "id": id, "expires_at": until });
        Ok(self.created(&key, &object, Own::Keys, false))
    }

    /// The response to a repetition. It lets the old key expire if the first request did not come
    /// that far.
    async fn rolled_before(
        &self,
        scope: Scope,
        old: Record,
        new: &Record,
        hours: i64,
    ) -> Result<Reply, Failure> {
        let fields = old.fields();
        let is_revoked = !new.fields().get("revoked_at").is_none_or(Value::is_null);
        if is_revoked {
            self.check_active(&fields)?;
        }
        let id = old.id.clone();
        let until = match keys::state(&fields, self.now()) == "active" && !is_revoked {
            true => Some(self.end(scope, old, self.made(new), hours).await?.into()),
            false => fields.get("expires_at").cloned().filter(|at| !at.is_null()),
        };
        let mut object = self.object(scope, new).await?;
        // A key that was revoked before its end has none.
        let until = until.or_else(|| fields.get("revoked_at").cloned());
        object["replaces"] = json!({ "id": id, "expires_at": until });
        Ok(self.created(new, &object, Own::Keys, true))
    }

    /// When a key was made: a repetition counts the hours from the same time.
    fn made(&self, key: &Record) -> Timestamp {
        let fields = key.fields();
        let made = fields.get("created_at").and_then(Value::as_str).and_then(Timestamp::parse);
        made.unwrap_or_else(|| self.now())
    }

    /// Lets a key expire some hours after a time, unless it expires earlier. Returns when it does.
    async fn end(
        &self,
        scope: Scope,
        old: Record,
        since: Timestamp,
        hours: i64,
    ) -> Result<String, Failure> {
        let end = Timestamp(since.0.saturating_add(hours * 3_600_000));
        let (id, mut old) = (old.id.clone(), old);
        for _ in 0..ATTEMPTS {
            let fields = old.fields();
            self.check_active(&fields)?;
            let until = match auth::expiry(&fields) {
                Some(expires) if expires <= end => return Ok(expires.to_iso()),
                _ => end.to_iso(),
            };
            let patch = Fields::from_iter([("expires_at".to_owned(), Value::from(until.as_str()))]);
            let unchanged = Precondition::Versions(vec![old.version]);
            let change = Change::Merge { patch };
            let place = (Builtin::Key, scope);
            match self.commit(place, Some(&id), change, unchanged).await {
                Ok((Response::Updated(_), _)) => return Ok(until),
                Ok(_) => return Err(unexpected().into()),
                Err(Failure::Problem(problem)) if problem.code == Code::PreconditionFailed => {
                    old = self.key(&id).await?.1;
                }
                Err(failure) => return Err(failure),
            }
        }
        let message = "The key is being changed by other requests. Try again.";
        Err(Problem::new(Code::InvalidState, message).extra("current_state", "active").into())
    }

    /// Refuses to roll a key that is revoked or expired.
    fn check_active(&self, key: &Fields) -> Result<(), Problem> {
        let state = keys::state(key, self.now());
        if state == "active" {
            return Ok(());
        }
        let message = format!("The key is {state}; create a new one.");
        Err(Problem::new(Code::InvalidState, message).extra("current_state", state))
    }
}

fn overlap_field() -> Field {
    let mut field = Field::new("overlap_hours", Kind::Integer);
    (field.min, field.max) = (Some(0.0), Some(f64::from(MAX_OVERLAP_HOURS)));
    field
}
