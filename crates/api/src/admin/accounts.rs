//! `/v1/accounts`: list, create, rename and delete.

use super::paging::{PARAMETERS, check_names};
use super::{Administration, form, name_field, read_only};
use crate::body;
use crate::error::Failure;
use crate::respond::{self, Reply};
use crate::route::{Own, refuse_parameters};
use http::StatusCode;
use model::Scope;
use model::problem::{Code, Problem};
use model::record::{Fields, Record};
use model::schema::{Builtin, Collection, Kind};
use model::validate::{self, Mode};
use model::write::{Change, Precondition, Response};
use serde_json::{Value, json};

impl Administration<'_> {
    /// An admin key of another account than the first sees its own account only.
    pub(super) async fn list_accounts(&self) -> Result<Reply, Failure> {
        let pairs = self.pairs()?;
        check_names(&pairs, &PARAMETERS)?;
        if self.is_operator().await? {
            return self.page((Builtin::Account, Scope::SYSTEM), &pairs, shown).await;
        }
        let own = self.account(&self.identity.caller.account).await?;
        self.page_of_one(Builtin::Account, &pairs, &own, &shown(&own))
    }

    pub(super) async fn show_account(&self, id: &str) -> Result<Reply, Failure> {
        refuse_parameters(self.query)?;
        let account = self.account(id).await?;
        Ok(self.shown(&account, &shown(&account)))
    }

    pub(super) async fn create_account(&self) -> Result<Reply, Failure> {
        refuse_parameters(self.query)?;
        self.check_unconditional()?;
        if !self.is_operator().await? {
            let message = "Only admin keys of the first account of the service create accounts.";
            return Err(Problem::new(Code::PermissionDenied, message).into());
        }
        let sent = body::object(self.body, false)?;
        let fields = validate::body(&self.account_form(true), sent, Mode::Create)?;
        let change = Change::Create { fields };
        let place = (Builtin::Account, Scope::SYSTEM);
        let (response, before) = self.commit(place, None, change, Precondition::None).await?;
        let Response::Created(account) = response else { return Err(unexpected().into()) };
        Ok(self.created(&account, &shown(&account), Own::Accounts, before.is_some()))
    }

    pub(super) async fn update_account(&self, id: &str) -> Result<Reply, Failure> {
        refuse_parameters(self.query)?;
        let account = self.account(id).await?;
        let form = self.account_form(false);
        let patch = validate::body(&form, body::object(self.body, false)?, Mode::Merge)?;
        Self::check_assigned(&patch, &shown(&account), &form)?;
        let patch: Fields = patch.into_iter().filter(|(name, _)| name == "name").collect();
        let change = Change::Merge { patch };
        let (place, condition) = ((Builtin::Account, Scope::SYSTEM), self.precondition()?);
        let (response, _) = self.commit(place, Some(id), change, condition).await?;
        let Response::Updated(account) = response else { return Err(unexpected().into()) };
        Ok(self.written(&account, &shown(&account)))
    }

    /// Deletes an account that holds nothing: no record, no active key. Deleting it with its data
    /// would be one request that destroys the live records of a customer.
    pub(super) async fn delete_account(&self, id: &str) -> Result<Reply, Failure> {
        refuse_parameters(self.query)?;
        let account = self.account(id).await?;
        if id == self.identity.caller.account {
            let message = "A key cannot delete its own account.";
            return Err(Problem::new(Code::OwnAccess, message).into());
        }
        for livemode in [false, true] {
            self.check_empty(Scope::new(account.number, livemode)).await?;
        }
        let (place, condition) = ((Builtin::Account, Scope::SYSTEM), self.precondition()?);
        self.commit(place, Some(id), Change::Delete, condition).await?;
        let body = json!({ "id": id, "object": "account", "deleted": true });
        Ok(respond::no_store(Reply::json(StatusCode::OK, body.to_string())))
    }

    async fn check_empty(&self, scope: Scope) -> Result<(), Failure> {
        let mode = if scope.livemode() { "live" } else { "test" };
        let in_use = |what: String| Problem::new(Code::AccountInUse, what);
        if self.has_active_key(scope).await? {
            let message = format!("The account has active {mode} keys. Revoke them first.");
            return Err(in_use(message).into());
        }
        // What is below a parent goes with it; what the service keeps of itself does not count.
        let holds = |one: &Collection| {
            let is_counted = matches!(one.builtin, None | Some(Builtin::Endpoint));
            is_counted && one.parent.is_none()
        };
        let stored = self.services.schema.collections.iter().enumerate();
        for (place, collection) in stored.filter(|(_, one)| holds(one)) {
            if self.has_any(scope, place).await? {
                let name = &collection.name;
                let message =
                    format!("The account has {mode} records of `{name}`. Delete them first.");
                return Err(in_use(message).into());
            }
        }
        Ok(())
    }

    /// An account that the caller may see, or 404.
    async fn account(&self, id: &str) -> Result<Record, Failure> {
        let found = self.managed_account(id).await?;
        found.ok_or_else(|| self.not_found(Builtin::Account, id))
    }

    fn account_form(&self, is_new: bool) -> Collection {
        let mut name = name_field();
        name.required = true;
        let mut fields = vec![name];
        if !is_new {
            fields.push(read_only("api_version", Kind::String));
        }
        form(self.collection(Builtin::Account).1, "accounts", fields)
    }
}

fn shown(account: &Record) -> Value {
    Value::Object(account.fields())
}

pub(super) fn unexpected() -> Problem {
    Problem::new(Code::Internal, "The store gave an unexpected response.")
}
