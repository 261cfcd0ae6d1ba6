//! `restive keys create|list|revoke|roll`: changes the keys in the database. A running server
//! notices the change within a moment.

use crate::accounts::{choose, text_of};
use crate::args::{Keys, KeysCommand, Mode};
use crate::data;
use crate::outside::System;
use anyhow::bail;
use api::Outside as _;
use api::keys::{Keyring, NewKey};
use model::caller::Scope;
use model::record::Record;
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
            let new = NewKey { name, scopes, rate_limit, expires_at, secret: None };
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
                let (_, scope, _) = find(&keyring, &id).await?;
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

fn status(fields: &model::record::Fields, now: Timestamp) -> &'static str {
    let at = |name: &str| fields.get(name).and_then(Value::as_str).and_then(Timestamp::parse);
    match (at("revoked_at"), at("expires_at")) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if expires <= now => "expired",
        (None, Some(_)) => "expiring",
        (None, None) => "active",
    }
}

/// Finds a key by its id, in any account and mode.
async fn find(keyring: &Keyring<'_>, id: &str) -> anyhow::Result<(Record, Scope, Record)> {
    for account in keyring.accounts().await? {
        for livemode in [false, true] {
            let scope = Keyring::scope(&account, livemode);
            let keys = keyring.keys(scope).await?;
            if let Some(key) = keys.into_iter().find(|key| key.id == id) {
                return Ok((account, scope, key));
            }
        }
    }
    anyhow::bail!("there is no key {id}; `restive keys list` shows them")
}

async fn roll(keyring: &Keyring<'_>, id: &str, overlap_hours: u32) -> anyhow::Result<()> {
    let (account, scope, old) = find(keyring, id).await?;
    let fields = old.fields();
    if status(&fields, keyring.outside.now()) == "revoked" {
        anyhow::bail!("{id} is revoked; create a new key: restive keys create");
    }
    let strings = |name: &str| -> Vec<String> {
        let items = fields.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let new = NewKey {
        name: fields.get("name").and_then(Value::as_str).map(str::to_owned),
        scopes: strings("scopes"),
        rate_limit: fields
            .get("rate_limit")
            .and_then(Value::as_u64)
            .and_then(|limit| u32::try_from(limit).ok()),
        expires_at: None,
        secret: None,
    };
    let key = keyring.create_key(&account, scope.livemode(), new).await?;
    let until = Timestamp(keyring.outside.now().0 + i64::from(overlap_hours) * 3_600_000).to_iso();
    keyring.expire(scope, id, &until).await?;
    announce(&key.record, &key.secret);
    println!("The old key {id} works until {until}.");
    Ok(())
}
