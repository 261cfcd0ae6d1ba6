//! `restive keys create|list|revoke|roll`: changes the keys in the database. A running server
//! notices the change within a moment.

use crate::accounts::{self, choose, text_of};
use crate::args::{AsJson, Keys, KeysCommand, Mode};
use crate::data;
use crate::output::print_json;
use crate::output::tell;
use crate::outside::System;
use anyhow::bail;
use api::Outside as _;
use api::keys::{Keyring, MadeKey, NewKey, Rights, mode, shown, state};
use model::caller::Scope;
use model::record::{Fields, Record};
use model::{Schema, Timestamp};
use serde_json::json;
use store::Store;

pub fn run(keys: Keys) -> anyhow::Result<()> {
    match keys.command {
        KeysCommand::Create { data, of, name, scopes, admin, rate_limit, expires_at, output } => {
            let expires_at = expires_at.map(|text| expiry(&text)).transpose()?;
            let (schema, store) = data::attach(&data)?;
            api::keys::check_scopes(&scopes, store.collections())?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            let restricted = !scopes.is_empty();
            let new = NewKey {
                name,
                restricted,
                scopes,
                admin,
                rate_limit,
                expires_at,
                ..NewKey::default()
            };
            data::block_on(async {
                let account = choose(&keyring, of.account.as_deref()).await?;
                let livemode = of.mode == Mode::Live;
                let key = keyring.create_key(&account, livemode, new).await?;
                announce(Keyring::scope(&account, livemode), &key, output)
            })
        }
        KeysCommand::List { data, account, output } => {
            let (schema, store) = data::attach(&data)?;
            data::block_on(list(&schema, &*store, account.as_deref(), output))
        }
        KeysCommand::Revoke { data, id, output } => {
            let (schema, store) = data::attach(&data)?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            data::block_on(async {
                let (scope, _) = find(&keyring, &id).await?;
                let key = keyring.revoke(scope, &id).await?;
                if output.json {
                    return print_json(&shown(scope, &key, None));
                }
                tell!("revoked {id}")?;
                Ok(())
            })
        }
        KeysCommand::Roll { data, id, overlap, output } => {
            let (schema, store) = data::attach(&data)?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            data::block_on(roll(&keyring, &id, overlap, output))
        }
    }
}

fn announce(scope: Scope, key: &MadeKey, output: AsJson) -> anyhow::Result<()> {
    if output.json {
        let mut object = shown(scope, &key.record, None);
        object["secret"] = key.secret.as_str().into();
        return print_json(&object);
    }
    tell!("{}  {}", key.record.id, key.secret)?;
    tell!("The key is shown only once; the server stores only its digest.")?;
    Ok(())
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

async fn list(
    schema: &Schema,
    store: &dyn Store,
    account: Option<&str>,
    output: AsJson,
) -> anyhow::Result<()> {
    let outside = System::new();
    let keyring = Keyring { schema, store, outside: &outside };
    let account = choose(&keyring, account).await?;
    let used = keyring.last_uses(&account.id).await?;
    let mut all = Vec::new();
    for livemode in [false, true] {
        let scope = Keyring::scope(&account, livemode);
        all.extend(keyring.keys(scope).await?.into_iter().map(|key| (scope, key)));
    }
    if output.json {
        let object =
            |(scope, key): &(Scope, Record)| shown(*scope, key, used.get(&key.id).copied());
        return print_json(&accounts::list(all.iter().map(object).collect()));
    }
    tell!("{:<36}{:<6}{:<12}{:<20}{:<26}SCOPES", "ID", "MODE", "STATUS", "KEY", "NAME")?;
    for (scope, key) in &all {
        let fields = key.fields();
        tell!(
            "{:<36}{:<6}{:<12}{:<20}{:<26}{}",
            key.id,
            mode(*scope),
            status(&fields, outside.now()),
            text_of(&fields, "hint"),
            text_of(&fields, "name"),
            scopes(&fields),
        )?;
    }
    Ok(())
}

/// What a key may do, in a table.
fn scopes(fields: &Fields) -> String {
    match Rights::of(fields) {
        Some(Rights { scopes: None, admin: Some(_) }) => "everything, admin".to_owned(),
        Some(Rights { scopes: None, admin: None }) => "everything".to_owned(),
        Some(Rights { scopes: Some(scopes), .. }) => scopes.join(","),
        None => "nothing: its scopes cannot be read".to_owned(),
    }
}

/// As the key is when it is used; a key with an expiry in the future is `expiring`.
fn status(fields: &Fields, now: Timestamp) -> &'static str {
    match state(fields, now) {
        "active" if api::auth::expiry(fields).is_some() => "expiring",
        state => state,
    }
}

/// Finds a key by its id, in any account and mode.
async fn find(keyring: &Keyring<'_>, id: &str) -> anyhow::Result<(Scope, Record)> {
    let found = keyring.find_key(id).await?;
    found.ok_or_else(|| anyhow::anyhow!("there is no key {id}; `restive keys list` shows them"))
}

async fn roll(
    keyring: &Keyring<'_>,
    id: &str,
    overlap_hours: u32,
    output: AsJson,
) -> anyhow::Result<()> {
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
    let new = NewKey::like(id, &fields)?;
    let key = keyring.create_key(&account, scope.livemode(), new).await?;
    let overlap = Timestamp(now.0 + i64::from(overlap_hours) * 3_600_000);
    let until = expires.map_or(overlap, |expires| expires.min(overlap)).to_iso();
    keyring.expire(scope, id, &until).await?;
    if output.json {
        let mut object = shown(scope, &key.record, None);
        object["secret"] = key.secret.into();
        object["replaces"] = json!({ "id": id, "expires_at": until });
        return print_json(&object);
    }
    announce(scope, &key, output)?;
    tell!("The old key {id} works until {until}.")?;
    if let Some(expires) = expires {
        tell!("The new key expires at {}, as the old key did.", expires.to_iso())?;
    }
    Ok(())
}
