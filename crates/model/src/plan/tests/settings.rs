//! How edits of settings, offers and descriptions are reported.

use super::*;
use Class::{NeedsVersion, Safe};

const SHOP: &str = "[service]
version = '2026-01-01'
rate_limit = { requests = 100, window = '10s' }
[collections.notes.fields]
text = 'string'
[collections.books]
states = { names = ['new', 'old', 'lost'] }
[collections.books.fields]
title = { type = 'string', search = true }
nick = 'string'
[collections.books.actions.sell]
from = ['new']
[collections.books.actions.lend]
handler = 'https://a.example/lend'
[[versions]]
date = '2026-01-01'
[[versions]]
date = '2025-01-01'
";

#[track_caller]
fn one(old: &str, from: &str, to: &str, class: Class, told: &str) {
    let edits = plan(&read(old), &read(&replaced(old, from, to)));
    let [edit] = &edits[..] else { panic!("{to}: {edits:#?}") };
    assert!(edit.class == class && edit.to_string().contains(told), "{to}: {edit}");
}

#[test]
fn a_version_that_changes_nothing_is_reported() {
    let old = SHOP.replace("version = '2026-01-01'\n", "");
    let (from, to) = ("[[versions]]\ndate = '2026", "[[versions]]\ndate = '2027-01-01'\n");
    let to = format!("{to}{from}");
    one(&old, from, &to, Safe, "version 2027-01-01 is new and changes nothing");
}

#[test]
fn every_edit_of_a_setting_is_reported() {
    for (from, to, told) in [
        ("[collections.books]", "[collections.books]\ndeprecated = '2026-01-01'", "books: dep"),
        ("[collections.books]", "[collections.books]\nsunset = '2026-01-01'", "books: dep"),
        ("'2025-01-01'", "'2025-01-01'\ndeprecated = '2026-01-01'", "version 2025-01-01 is dep"),
        ("'2025-01-01'", "'2025-01-01'\nlink = 'https://a.example'", "version 2025-01-01 is dep"),
        ("'2025-01-01'", "'2025-01-01'\ndescription = 'Old.'", "version 2025-01-01 is described"),
        ("from = ['new']", "from = ['new']\ndescription = 'Sells.'", "sell: described otherwise"),
        ("from = ['new']", "from = ['new', 'lost']", "sell: allowed in more states"),
        ("from = ['new']\n", "", "sell: allowed in more states"),
        ("requests = 100", "requests = 200", "service.rate_limit"),
        ("100, window = '10s'", "300, window = '25s'", "service.rate_limit"),
        ("100, window = '10s'", "100, window = '5s'", "service.rate_limit"),
    ] {
        one(SHOP, from, to, Safe, told);
    }
}

#[test]
fn a_limit_that_allows_less_needs_a_version() {
    for (from, to, told) in [
        ("requests = 100", "requests = 99", "allows 99 requests in 10s, which is less"),
        ("window = '10s'", "window = '11s'", "allows 100 requests in 11s, which is less"),
        ("100, window = '10s'", "299, window = '25s'", "allows 299 requests in 25s, which is less"),
    ] {
        one(SHOP, from, to, NeedsVersion, &format!("service.rate_limit: {told}"));
    }
}

#[test]
fn adding_or_removing_a_handler_needs_a_version() {
    let handled = "from = ['new']\nhandler = 'https://a.example/sell'";
    one(SHOP, "from = ['new']", handled, NeedsVersion, "sell: has a handler now (what it does is");
    let from = "handler = 'https://a.example/lend'";
    one(SHOP, from, "", NeedsVersion, "lend: has no handler any more (what it does is");
    one(SHOP, "/lend'", "/borrow'", Safe, "lend: is handled elsewhere");
    let slow = "handler = { url = 'https://a.example/lend', timeout = '20s' }";
    one(SHOP, from, slow, Safe, "lend: waits for its handler for 20s, not 10s");
}

#[test]
fn a_limit_that_asks_for_nothing_is_no_edit() {
    for to in ["nick = { type = 'string', min_length = 0 }", "nick = 'string'"] {
        let new = SHOP.replace("nick = 'string'", to);
        assert_eq!(plan(&read(SHOP), &read(&new)), []);
        assert_eq!(plan(&read(&new), &read(SHOP)), []);
    }
}
