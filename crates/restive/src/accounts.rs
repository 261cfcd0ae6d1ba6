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

/// The account with this id, or the first one.
pub async fn choose(keyring: &Keyring<'_>, id: Option<&str>) -> anyhow::Result<Record> {
    let accounts = keyring.accounts().await?;
    let known = || accounts.iter().map(|a| a.id.as_str()).collect::<Vec<_>>().join(", ");
    match id {
        Some(id) => accounts
            .iter()
            .find(|account| account.id == id)
            .cloned()
            .ok_or_else(|| anyhow::anyhow!("there is no account {id}; there are: {}", known())),
        None => accounts.first().cloned().ok_or_else(|| {
            anyhow::anyhow!("there is no account; create one: restive accounts create")
        }),
    }
}
