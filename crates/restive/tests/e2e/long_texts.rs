//! Long texts in fields that have an index: unique, found by their whole value, sorted, and read
//! page by page. The index of one engine takes far less than a field does.

use crate::database;
use crate::harness::{Server, Start};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

pub const NOTES: &str = r#"
[collections.notes]
indexes = [["title", "kind"]]
[collections.notes.fields]
code = { type = "string", max_length = 65536, unique = true }
title = { type = "string", max_length = 65536, filter = true, sort = true }
kind = { type = "string", filter = true, sort = true }
text = { type = "string", search = true }
"#;

/// Characters without order, of as many bytes each: nothing can be compressed.
pub fn noise(seed: u64, count: usize, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state >> 40).unwrap()
    };
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let one = |drawn: u32| match bytes {
        1 => char::from(alphabet[drawn as usize % alphabet.len()]),
        _ => char::from_u32(0x20000 + drawn % 0xa000).unwrap(),
    };
    (0..count).map(|_| one(draw())).collect()
}

fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    let escape = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[track_caller]
fn found(server: &Server, field: &str, value: &str) -> Vec<Value> {
    server.get(&format!("/v1/notes?{field}={}", encode(value))).column("id")
}

#[test]
fn a_long_text_is_unique_by_its_whole_value() {
    let server = Start::schema(NOTES).go();
    let start = noise(1, 3_000, 1);
    let shortened = format!("{}{}", &start[..60], hex(&start));
    let codes = [
        format!("{start}a"),
        format!("{start}b"),
        format!("{start}\\x\u{1}é"),
        format!("{}{start}", "\u{1}".repeat(100)),
        shortened,
        start,
        noise(2, 700, 4),
        noise(3, 65_536, 1),
    ];
    let taken = |code: &str| {
        let refused = server.post("/v1/notes", json!({"code": code}));
        refused.error(422, "validation_failed")["errors"][0]["code"] == "not_unique"
    };
    let make = |code: &str| server.make("/v1/notes", json!({"code": code}));
    let ids: Vec<String> = codes.iter().map(|code| make(code)).collect();
    for (code, id) in codes.iter().zip(&ids) {
        assert!(taken(code));
        assert_eq!(server.get(&format!("/v1/notes/{id}")).expect(200)["code"], **code);
        // A URL has an end.
        if code.len() < 3_200 && code.is_ascii() {
            assert_eq!(found(&server, "code", code), [json!(id)]);
        }
    }
    // Another long value leaves the first one to others, and so does the end of its record.
    let other = noise(4, 3_000, 1);
    let path = format!("/v1/notes/{}", ids[0]);
    server.patch(&path, json!({"code": codes[1]})).error(422, "validation_failed");
    server.patch(&path, json!({"code": other})).expect(200);
    assert!(taken(&other) && found(&server, "code", &codes[0]).is_empty());
    let again = make(&codes[0]);
    server.delete(&format!("/v1/notes/{again}")).expect(200);
    make(&codes[0]);
    assert!(taken(&codes[0]));
}

fn hex(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_filter_finds_the_whole_value_of_a_long_text() {
    let server = Start::schema(NOTES).go();
    let start = noise(1, 3_000, 1);
    let titles = [
        start.clone(),
        format!("{start}a"),
        format!("{start}b"),
        format!("{}{}", &start[..60], hex(&start)),
        start[..60].to_owned(),
        noise(2, 500, 4),
    ];
    let make = |title: &String| server.make("/v1/notes", json!({"title": title}));
    let ids: Vec<String> = titles.iter().map(make).collect();
    let second = make(&titles[0]);
    let nothing = server.make("/v1/notes", json!({}));
    assert_eq!(found(&server, "title", &titles[0]), [json!(second), json!(ids[0])]);
    for (title, id) in titles.iter().zip(&ids).skip(1) {
        assert_eq!(found(&server, "title", title), [json!(id)]);
    }
    let several = format!("{},{},null", titles[1], titles[2]);
    let several = server.get(&format!("/v1/notes?title={several}&sort=created_at"));
    assert_eq!(several.column("id"), [json!(ids[1]), json!(ids[2]), json!(nothing)]);
    assert_eq!(server.get("/v1/notes?title=null").column("id"), [json!(nothing)]);
    let changed = noise(5, 2_000, 1);
    server.patch(&format!("/v1/notes/{}", ids[1]), json!({"title": changed})).expect(200);
    assert_eq!(found(&server, "title", &changed), [json!(ids[1])]);
    assert!(found(&server, "title", &titles[1]).is_empty());
}

/// The ids of a list, page by page; `between` runs after each page.
#[track_caller]
fn walk(server: &Server, list: &str, mut between: impl FnMut(usize)) -> Vec<Value> {
    let (mut ids, mut path, mut pages) = (Vec::new(), list.to_owned(), 0);
    loop {
        let page = server.get(&path);
        ids.extend(page.column("id"));
        let Some(cursor) = page.json["pagination"]["next_cursor"].as_str() else { return ids };
        path = format!("{list}&after={cursor}");
        between(pages);
        pages += 1;
    }
}

#[test]
fn long_texts_with_one_beginning_are_paged_without_gaps() {
    let server = Start::schema(NOTES).go();
    let start = noise(1, 600, 1);
    let mut ids = HashSet::new();
    for n in 0..20_u64 {
        let title = format!("{start}{}", noise(100 + n, 600, 1 + 3 * (n as usize % 2)));
        let kind = if n % 3 == 0 { format!("k{}", n % 2) } else { title.clone() };
        ids.insert(json!(server.make("/v1/notes", json!({"title": title, "kind": kind}))));
    }
    let below = server.make("/v1/notes", json!({"title": start[..40]}));
    let above = server.make("/v1/notes", json!({"title": "~"}));
    let none = server.make("/v1/notes", json!({"kind": "k0"}));
    let all = |sort: &str| {
        let ids = walk(&server, &format!("/v1/notes?sort={sort}&limit=3"), |_| ());
        let whole = server.get(&format!("/v1/notes?sort={sort}&limit=100"));
        assert_eq!(ids, whole.column("id"), "{sort}");
        let paged = server.get(&format!("/v1/notes?sort={sort}&limit=100&page=1"));
        assert_eq!(ids, paged.column("id"), "{sort}");
        let different: HashSet<&Value> = ids.iter().collect();
        assert_eq!((ids.len(), different.len()), (23, 23), "{sort}");
        ids
    };
    let mut ascending = all("title");
    assert_eq!(ascending[..2], [json!(none), json!(below)]);
    assert_eq!(ascending[22], json!(above));
    let mut descending = all("-title");
    descending.reverse();
    assert_eq!(ascending, descending);
    for sort in ["title,kind", "-title,-kind", "kind,-title", "-kind,title,updated_at"] {
        all(sort);
    }
    // Rows that change while a list is read keep their places in it.
    let list = "/v1/notes?sort=title&limit=3";
    let seen = walk(&server, list, |page| {
        for id in [&ascending[2 + page], &ascending[21 - page]] {
            let path = format!("/v1/notes/{}", id.as_str().unwrap());
            let title = format!("{start}{}", noise(500 + page as u64, 700, 1));
            server.patch(&path, json!({"title": title})).expect(200);
        }
    });
    assert_eq!(seen, ascending);
    ascending = all("title");
    assert_ne!(seen, ascending, "they have moved");
}

#[test]
fn an_index_takes_eight_long_texts() {
    let names: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
    let fields: String = names
        .iter()
        .map(|name| format!("{name} = {{ type = \"string\", sort = true, filter = true }}\n"))
        .collect();
    let server = Start::schema(&format!(
        "[collections.shelves]\nid_prefix = \"shelf_of_20_letters_\"\n\
         [collections.shelves.fields]\nname = \"string\"\n\
         [collections.notes]\nparent = \"shelves\"\nindexes = {names:?}\n\
         [collections.notes.fields]\n{fields}",
        names = [&names]
    ))
    .go();
    let shelf = server.make("/v1/shelves", json!({"name": "a"}));
    let path = format!("/v1/shelves/{shelf}/notes");
    for n in 0..10 {
        // Two of them share all texts but the last one.
        let text = |place: u64| noise(100 * place + if place < 7 { n / 2 } else { n }, 100, 4);
        let fields = names.iter().zip(0..).map(|(name, place)| (name.clone(), json!(text(place))));
        server.make(&path, Value::Object(fields.collect()));
    }
    for sort in [names.join(","), format!("-{}", names.join(",-"))] {
        let ids = walk(&server, &format!("{path}?sort={sort}&limit=3"), |_| ());
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 10);
        assert_eq!(ids, server.get(&format!("{path}?sort={sort}")).column("id"));
    }
}

#[test]
fn a_long_text_can_be_searched() {
    let server = Start::schema(NOTES).go();
    let words = |count: usize, bytes: usize| {
        let word = |n: usize| noise(n as u64, 7, bytes);
        (0..count).map(word).collect::<Vec<_>>().join(" ")
    };
    let make = |text: String| server.make("/v1/notes", json!({"text": format!("{text} end")}));
    let ids = [make(words(8_000, 1)), make(words(8_000, 4)), make(noise(1, 65_000, 4))];
    assert_eq!(server.get("/v1/notes?q=end&sort=created_at").column("id"), ids);
}

/// A database whose indexes were made before long texts had a shorter form in them.
#[test]
fn the_indexes_of_an_earlier_database_are_made_again() {
    if !database::is_postgres() {
        return;
    }
    let server = Start::schema(NOTES).go();
    let old = server.make("/v1/notes", json!({"code": noise(1, 2_000, 1), "title": "old"}));
    let (_, folder) = server.stop();
    database::change(
        folder.path(),
        "DROP INDEX \"u_notes+k_code\"; DROP INDEX \"i_notes+k_title\"; \
         DROP INDEX \"i_notes+title*kind*kk\"; \
         CREATE UNIQUE INDEX \"u_notes+f_code\" ON r_notes (scope, f_code) \
         WHERE f_code IS NOT NULL; \
         CREATE INDEX \"i_notes+f_title\" ON r_notes (scope, f_title NULLS FIRST, n); \
         CREATE INDEX \"i_notes+title*kind*\" ON r_notes (scope, f_title NULLS FIRST, \
         f_kind NULLS FIRST, n)",
    );
    let server = Start::schema(NOTES).on(&folder).go();
    let long = noise(2, 3_000, 1);
    let new = server.make("/v1/notes", json!({"code": long, "title": long, "kind": long}));
    assert_eq!(found(&server, "title", &long), [json!(new)]);
    assert_eq!(found(&server, "code", &noise(1, 2_000, 1)), [json!(old)]);
    let taken = json!({"code": noise(1, 2_000, 1)});
    server.post("/v1/notes", taken).error(422, "validation_failed");
}

/// An index over several fields is made again when one of them may be long from now on.
#[test]
fn an_index_follows_each_of_its_fields_to_another_form() {
    let with = |kind: &str| NOTES.replace("kind = { type", &format!("kind = {{ {kind}type"));
    let server = Start::schema(&with("enum = [\"a\", \"b\"], ")).go();
    let old = server.make("/v1/notes", json!({"title": "t", "kind": "a"}));
    let (_, folder) = server.stop();
    let server = Start::schema(NOTES).on(&folder).go();
    let long = noise(1, 3_000, 1);
    let new = server.make("/v1/notes", json!({"title": "t", "kind": long}));
    assert_eq!(found(&server, "kind", &long), [json!(new)]);
    let sorted = server.get("/v1/notes?title=t&sort=title,kind").column("id");
    let mut first = [old, new];
    first.sort_by_key(|id| server.get(&format!("/v1/notes/{id}")).json["kind"].to_string());
    assert_eq!(sorted, first);
}
