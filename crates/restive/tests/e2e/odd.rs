//! Unusual input for the tests in `hostile`: bodies, queries and headers that a client could send.

use crate::chance::Chance;

const NAMES: &[&str] = &[
    "title",
    "author",
    "price",
    "isbn",
    "rating",
    "text",
    "book",
    "quantity",
    "amount",
    "currency",
    "payment_method",
    "reason",
    "from",
    "id",
    "created_at",
    "status",
    "object",
    "",
    "\u{0}",
    "__proto__",
];

const SCALARS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-0.0",
    "1e308",
    "1e309",
    "-1e999",
    "1e-400",
    "NaN",
    "Infinity",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "0.1e",
    "01",
    "+1",
    "1.",
    ".5",
    "0x10",
    "1_000",
    "123456789012345678901234567890123456789012345678901234567890",
    r#""""#,
    r#""\u0000""#,
    r#""\ud800""#,
    r#""\udc00\ud800""#,
    r#""\uD83D\uDE00""#,
    r#""\x41""#,
    r#""'; DROP TABLE books; --""#,
    r#""a\"b\\c""#,
    "\"\u{202e}\u{feff}\u{fffd}\"",
    "\"\t\"",
    r#""pm_card_declined""#,
    r#""eur""#,
    r#""book_""#,
    r#""2026-02-30""#,
    "nul",
    "\"open",
    "'x'",
];

const WORDS: &[&str] = &[
    "dune",
    "\"",
    "*",
    "NEAR(",
    "AND",
    "OR NOT",
    "title:x",
    "^",
    "-",
    "%25",
    "%00",
    "%ff",
    "%F0%9F",
    "%",
    "%zz",
    "' OR 1=1 --",
    "../..",
    "\\",
    "null",
    "1e309",
    "-1",
    "0",
    "999999999999999999999",
    "2026-02-30",
    "a,b,,c",
    "\"a",
    "%22a%22b",
    "id,id,id",
    "-created_at",
    "rank",
    "book.book.book",
    "🦀",
    "%E2%80%AE",
    "=",
    "&",
    ";",
    "#",
    "+",
    "[]",
    "data.book",
    "reviews",
    "{",
    "true",
];

const PARAMETERS: &[&str] = &[
    "q",
    "page",
    "limit",
    "after",
    "sort",
    "include",
    "expand",
    "expand[]",
    "fields",
    "id",
    "title",
    "author",
    "price",
    "min_price",
    "max_price",
    "created_at",
    "min_created_at",
    "max_updated_at",
    "book",
    "quantity",
    "min_id",
    "rating",
    "unknown",
    "min_title",
    "",
    "%00",
    "title[]",
    "$where",
];

const HEADERS: &[&str] = &[
    "Accept",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "If-Modified-Since",
    "If-Unmodified-Since",
    "Restive-Version",
    "Authorization",
    "Accept-Encoding",
    "Range",
    "Expect",
    "Connection",
    "Upgrade",
    "Cookie",
    "X-Forwarded-For",
    "Origin",
    "TE",
    "X-HTTP-Method-Override",
];

const VALUES: &[&str] = &[
    "",
    "*",
    "*/*",
    "text/html",
    "application/json;q=0",
    "application/problem+json",
    "\"",
    "\"1-a\"",
    "W/\"1-a\", \"2,b\"",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "yesterday",
    "2026-11-01",
    "Basic",
    "Bearer",
    "Basic AAAA",
    "bytes=0-1",
    "100-continue",
    "close",
    "keep-alive, te",
    "h2c",
    "gzip, br;q=9",
    "a,b;c=d",
];

/// A body: mostly an object with known fields, sometimes anything.
pub fn body(chance: &mut Chance) -> Vec<u8> {
    match chance.below(10) {
        0 => chance.bytes(200),
        1 => nested(chance).into_bytes(),
        2 => value(chance, 0).into_bytes(),
        3 => {
            let mut bytes = object(chance, 0).into_bytes();
            let end = chance.below(bytes.len() + 1);
            bytes.truncate(end);
            bytes
        }
        4 => wide(chance).into_bytes(),
        _ => object(chance, 0).into_bytes(),
    }
}

fn nested(chance: &mut Chance) -> String {
    let depth = 1 + chance.below(300);
    let (open, close) = chance.pick(&[&("[", "]"), &("{\"a\":", "}")]);
    let mut text = open.repeat(depth);
    text.push_str(chance.pick(SCALARS));
    text.push_str(&close.repeat(if chance.percent(80) { depth } else { depth - 1 }));
    if chance.percent(50) { format!("{{\"title\":{text},\"author\":\"a\"}}") } else { text }
}

fn wide(chance: &mut Chance) -> String {
    let members: Vec<String> =
        (0..chance.below(3000)).map(|number| format!("\"k{number}\":{number}")).collect();
    format!("{{{}}}", members.join(","))
}

fn object(chance: &mut Chance, depth: usize) -> String {
    let members: Vec<String> = (0..chance.below(7))
        .map(|_| {
            let name = serde_json::to_string(chance.pick(NAMES)).unwrap();
            format!("{name}:{}", value(chance, depth + 1))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn value(chance: &mut Chance, depth: usize) -> String {
    match chance.below(12) {
        0 if depth < 4 => object(chance, depth),
        1 if depth < 4 => {
            let items: Vec<String> =
                (0..chance.below(4)).map(|_| value(chance, depth + 1)).collect();
            format!("[{}]", items.join(","))
        }
        2 => serde_json::to_string(&"é".repeat(chance.below(6000))).unwrap(),
        3 => {
            let text: String = (0..chance.below(30))
                .filter_map(|_| char::from_u32(chance.below(0x11_0000) as u32))
                .collect();
            serde_json::to_string(&text).unwrap()
        }
        _ => chance.pick(SCALARS).to_owned(),
    }
}

/// A query string for a request line: without spaces and control characters, which end the line.
pub fn query(chance: &mut Chance) -> String {
    let pairs: Vec<String> = (0..chance.below(6))
        .map(|_| {
            let mut value = chance.pick(WORDS).to_owned();
            if chance.percent(20) {
                value = value.repeat(1 + chance.below(200));
            }
            format!("{}={value}", chance.pick(PARAMETERS))
        })
        .collect();
    pairs.join("&").replace(' ', "+").chars().take(2000).collect()
}

/// A header line with a known name and an unusual value.
pub fn header(chance: &mut Chance) -> Vec<u8> {
    let mut line = format!("{}: ", chance.pick(HEADERS)).into_bytes();
    if chance.percent(70) {
        line.extend_from_slice(chance.pick(VALUES).as_bytes());
    } else {
        let visible = chance.bytes(60).into_iter().filter(|byte| *byte >= 0x20 && *byte != 0x7f);
        line.extend(visible);
    }
    line.extend_from_slice(b"\r\n");
    line
}
