//! Finds an event by its id, in any account and mode.

use api::keys::Keyring;
use model::record::Record;
use model::schema::Builtin;
use model::{Schema, Scope, id};
use store::Records;

/// Prefix of event ids.
pub const PREFIX: &str = "evt";
/// Accounts read in one query.
const PAGE: usize = 500;

/// Finds an event by its id, in any account and mode.
pub async fn find(
    schema: &Schema,
    store: &dyn Records,
    id: &str,
) -> anyhow::Result<(Scope, Record)> {
    let (accounts, events) = (schema.own(Builtin::Account), schema.own(Builtin::Event));
    let mut after = 0;
    loop {
        let page = store.every(accounts, after, PAGE).await?;
        for (_, account) in &page {
            for livemode in [false, true] {
                let scope = Keyring::scope(account, livemode);
                if let Some(event) = store.record(scope, events, None, id).await? {
                    return Ok((scope, event));
                }
            }
        }
        match page.last() {
            Some((_, last)) if page.len() == PAGE => after = last.number,
            _ => anyhow::bail!(unknown(id)),
        }
    }
}

/// The error, with advice, for an id without an event.
fn unknown(id: &str) -> String {
    let shown: String = id.chars().take(100).collect();
    if id::is_well_formed(PREFIX, id) {
        return format!(
            "there is no event {shown}; it may be older than `retention`. \
             `restive events tail --since 1h` shows the newest"
        );
    }
    let rest = id.rsplit('_').next().unwrap_or_default();
    let meant = format!("{PREFIX}_{rest}");
    let about = "restive events tail --since 30d --no-follow --resource";
    match id::is_well_formed(PREFIX, &meant) {
        true => format!(
            "`{shown}` is not an event id: event ids begin with {PREFIX}_. Did you mean {meant}? \
             If it is the id of a record: `{about} {shown}` shows its events"
        ),
        false => format!(
            "`{shown}` is not an event id such as evt_06gxtz49bwd063fdqws53xvgbj3rg. \
             `restive events tail --since 1h` shows the newest"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_names_no_event_gets_a_hint() {
        for (id, hint) in [
            ("evt_06gxtz49bwd063fdqws53xvgbj3rg", "older than `retention`"),
            ("event_06gxtz49bwd063fdqws53xvgbj3rg", "mean evt_06gxtz49bwd063fdqws53xvgbj3rg?"),
            ("06gxtz49bwd063fdqws53xvgbj3rg", "mean evt_06gxtz49bwd063fdqws53xvgbj3rg?"),
            ("book_06gxtz49bwd063fdqws53xvgbj3rg", "--resource book_06gxtz49bwd063fdqws53xvgbj3rg"),
            ("evt_06gxtz", "is not an event id such as"),
            ("", "is not an event id such as"),
        ] {
            assert!(unknown(id).contains(hint), "{id}: {}", unknown(id));
        }
    }
}
