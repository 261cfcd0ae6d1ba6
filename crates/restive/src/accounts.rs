//! `restive accounts create|list`.

use crate::args::{Accounts, AccountsCommand};
use crate::data;
use crate::output::print_json;
use crate::output::tell;
use crate::outside::System;
use crate::text::printable;
use api::keys::{Keyring, NewKey};
use model::record::Record;
use serde_json::{Value, json};

pub fn run(accounts: Accounts) -> anyhow::Result<()> {
    match accounts.command {
        AccountsCommand::Create { data, name, output } => {
            let (schema, store) = data::attach(&data)?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            data::block_on(async {
                let account = keyring.create_account(&name).await?;
                let test = keyring.create_key(&account, false, NewKey::default()).await?.secret;
                let live = keyring.create_key(&account, true, NewKey::default()).await?.secret;
                if output.json {
                    let mut shown = object(&account);
                    shown["keys"] = json!({ "test": test, "live": live });
                    return print_json(&shown);
                }
                tell!("account  {}  {}", account.id, printable(&name))?;
                tell!("test key {test}\nlive key {live}")?;
                tell!("The keys are shown only once; the server stores only their digests.")?;
                Ok(())
            })
        }
        AccountsCommand::List { data, output } => {
            let (schema, store) = data::attach(&data)?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            data::block_on(async {
                let accounts = keyring.accounts().await?;
                if output.json {
                    return print_json(&list(accounts.iter().map(object).collect()));
                }
                tell!("{:<36}{:<26}NAME", "ID", "CREATED")?;
                for account in accounts {
                    let fields = account.fields();
                    let text = |name: &str| text_of(&fields, name);
                    tell!("{:<36}{:<26}{}", account.id, text("created_at"), text("name"))?;
                }
                Ok(())
            })
        }
    }
}

fn object(account: &Record) -> Value {
    Value::Object(account.fields())
}

/// A list in JSON, as the API writes it.
pub fn list(data: Vec<Value>) -> Value {
    json!({ "object": "list", "data": data })
}

/// The text of a field in a table.
pub fn text_of(fields: &model::record::Fields, name: &str) -> String {
    match fields.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => printable(text),
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        }
        Some(other) => other.to_string(),
    }
}

/// Accounts that an error message names.
const SHOWN_ACCOUNTS: usize = 10;

/// The account with this id, or the first one.
pub async fn choose(keyring: &Keyring<'_>, id: Option<&str>) -> anyhow::Result<Record> {
    let Some(id) = id else {
        return keyring.first_account().await?.ok_or_else(|| {
            anyhow::anyhow!("there is no account; create one: restive accounts create")
        });
    };
    if let Some(account) = keyring.account(id).await? {
        return Ok(account);
    }
    let accounts = keyring.accounts().await?;
    let mut known: Vec<&str> = accounts.iter().map(|account| account.id.as_str()).collect();
    if known.len() > SHOWN_ACCOUNTS {
        known.truncate(SHOWN_ACCOUNTS);
        known.push("…");
    }
    anyhow::bail!("there is no account {id}; there are: {}", known.join(", "))
}
