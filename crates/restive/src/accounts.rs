//! `restive accounts create|list`.

use crate::args::{Accounts, AccountsCommand};
use crate::data;
use crate::outside::System;
use api::keys::{Keyring, NewKey};
use model::record::Record;
use serde_json::Value;

pub fn run(accounts: Accounts) -> anyhow::Result<()> {
    match accounts.command {
        AccountsCommand::Create { data, name } => {
            let (schema, store) = data::attach(&data.data)?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            data::block_on(async {
                let account = keyring.create_account(&name).await?;
                println!("account  {}  {name}", account.id);
                for (mode, livemode) in [("test", false), ("live", true)] {
                    let key = keyring.create_key(&account, livemode, NewKey::default()).await?;
                    println!("{mode} key {}", key.secret);
                }
                println!("The keys are shown only once; the server stores only their digests.");
                Ok(())
            })
        }
        AccountsCommand::List { data } => {
            let (schema, store) = data::attach(&data.data)?;
            let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
            data::block_on(async {
                println!("{:<36}{:<26}NAME", "ID", "CREATED");
                for account in keyring.accounts().await? {
                    let fields = account.fields();
                    let text = |name: &str| text_of(&fields, name);
                    println!("{:<36}{:<26}{}", account.id, text("created_at"), text("name"));
                }
                Ok(())
            })
        }
    }
}

/// The text of a field in a table.
pub fn text_of(fields: &model::record::Fields, name: &str) -> String {
    match fields.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
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
