//! `restive keys create|list|revoke|roll`: changes the keys in the database. A running server
//! notices the change within a moment.

use crate::accounts::{choose, text_of};
use crate::args::{Keys, KeysCommand, Mode};
use crate::data;
use crate::outside::System;
use anyhow::bail;
use api::Outside as _;
use api::keys::{Keyring, NewKey};
use model::caller::{Grant, Scope};
use model::record::{Fields, Record};
use model::{Schema, Timestamp};
use serde_json::Value;
use store::Store;

pub fn run(keys: Keys) -> anyhow::Result<()> {
    match keys.command {
        KeysCommand::Create { data, of, name, scopes, rate_limit, expires_at } => {
            let expires_at = expires_at.map(|text| expiry(&text)).transpose()?;
            let (schema, store) = data::attach(&data.data)?;
            api::keys::check_scopes(&scopes, store.collections())?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            let restricted = !scopes.is_empty();
            let new = NewKey { name, restricted, scopes, rate_limit, expires_at, secret: None };
            data::block_on(async {
                let account = choose(&keyring, of.account.as_deref()).await?;
                let key = keyring.create_key(&account, of.mode == Mode::Live, new).await?;
                announce(&key.record, &key.secret);
                Ok(())
            })
        }
        KeysCommand::List { data, account } => {
            let (schema, store) = data::attach(&data.data)?;
            data::block_on(list(&schema, &*store, account.as_deref()))
        }
        KeysCommand::Revoke { data, id } => {
            let (schema, store) = data::attach(&data.data)?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            data::block_on(async {
                let (scope, _) = find(&keyring, &id).await?;
                keyring.revoke(scope, &id).await?;
                println!("revoked {id}");
                Ok(())
            })
        }
        KeysCommand::Roll { data, id, overlap } => {
            let (schema, store) = data::attach(&data.data)?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            data::block_on(roll(&keyring, &id, overlap))
        }
    }
}

fn announce(record: &Record, secret: &str) {
    println!("{}  {secret}", record.id);
    println!("The key is shown only once; the server stores only its digest.");
}

/// The expiry of a new key, which must be in the future.
fn expiry(text: &str) -> anyhow::Result<String> {
    let parsed = Timestamp::parse(text);
    let parsed = parsed
        .ok_or_else(|| anyhow::anyhow!("`{text}` is not a time such as 2027-01-31T00:00:00Z"))?;
    if parsed <= System::new().now() {
        bail!("--expires-at {text} is in the past: the key would never be valid");
    }
    Ok(parsed.to_iso())
}

async fn list(schema: &Schema, store: &dyn Store, account: Option<&str>) -> anyhow::Result<()> {
    let outside = System::new();
    let keyring = Keyring { schema, store, outside: &outside };
    let account = choose(&keyring, account).await?;
    println!("{:<36}{:<6}{:<12}{:<20}{:<26}SCOPES", "ID", "MODE", "STATUS", "KEY", "NAME");
    for (mode, livemode) in [("test", false), ("live", true)] {
        for key in keyring.keys(Keyring::scope(&account, livemode)).await? {
            let fields = key.fields();
            let scopes = match text_of(&fields, "scopes").as_str() {
                "" | "-" => "everything".to_owned(),
                scopes => scopes.to_owned(),
            };
            println!(
                "{:<36}{mode:<6}{:<12}{:<20}{:<26}{scopes}",
                key.id,
                status(&fields, outside.now()),
                text_of(&fields, "hint"),
                text_of(&fields, "name"),
            );
        }
    }
    Ok(())
}

/// A time that cannot be parsed counts as passed, as it does when the key is used.
fn status(fields: &Fields, now: Timestamp) -> &'static str {
    let revoked = fields.get("revoked_at").is_some_and(|at| !at.is_null());
    match api::auth::expiry(fields) {
        _ if revoked => "revoked",
        Some(expires) if expires <= now => "expired",
        Some(_) => "expiring",
        None => "active",
    }
}

/// Finds a key by its id, in any account and mode.
async fn find(keyring: &Keyring<'_>, id: &str) -> anyhow::Result<(Scope, Record)> {
    let found = keyring.find_key(id).await?;
    found.ok_or_else(|| anyhow::anyhow!("there is no key {id}; `restive keys list` shows them"))
}

async fn roll(keyring: &Keyring<'_>, id: &str, overlap_hours: u32) -> anyhow::Result<()> {
    let (scope, old) = find(keyring, id).await?;
    let fields = old.fields();
    let now = keyring.outside.now();
    let status = status(&fields, now);
    if matches!(status, "revoked" | "expired") {
        bail!("{id} is {status}; create a new key: restive keys create");
    }
    let account = keyring.account(&text_of(&fields, "account")).await?;
    let account = account.filter(|account| account.number == scope.account_number());
    let account = account.ok_or_else(|| anyhow::anyhow!("the account of {id} does not exist"))?;
    // The new key expires when the old one was to: a rotation does not extend a key.
    let expires = api::auth::expiry(&fields);
    let restricted = fields.get("kind").and_then(Value::as_str) != Some("secret");
    let new = NewKey {
        name: fields.get("name").and_then(Value::as_str).map(str::to_owned),
        restricted,
        scopes: scopes(id, &fields, restricted)?,
        rate_limit: fields
            .get("rate_limit")
            .and_then(Value::as_u64)
            .and_then(|limit| u32::try_from(limit).ok()),
        expires_at: expires.map(Timestamp::to_iso),
        secret: None,
    };
    let key = keyring.create_key(&account, scope.livemode(), new).await?;
    let overlap = Timestamp(now.0 + i64::from(overlap_hours) * 3_600_000);
    let until = expires.map_or(overlap, |expires| expires.min(overlap)).to_iso();
    keyring.expire(scope, id, &until).await?;
    announce(&key.record, &key.secret);
    println!("The old key {id} works until {until}.");
    if let Some(expires) = expires {
        println!("The new key expires at {}, as the old key did.", expires.to_iso());
    }
    Ok(())
}

/// The scopes that the new key of a rotation has. A scope that cannot be read must not get lost on
/// the way: the new key would have other permissions than the old one.
fn scopes(id: &str, fields: &Fields, restricted: bool) -> anyhow::Result<Vec<String>> {
    let scopes = match fields.get("scopes") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        }
        Some(_) => None,
    };
    let is_scope = |text: &String| Grant::parse(text).is_some();
    match scopes {
        Some(scopes) if !restricted => Ok(scopes),
        Some(scopes) if !scopes.is_empty() && scopes.iter().all(is_scope) => Ok(scopes),
        _ => bail!(
            "the scopes of {id} cannot be read, so it cannot be rolled; revoke it and create a new \
             key with the scopes that it needs: restive keys create --scope …"
        ),
    }
}
