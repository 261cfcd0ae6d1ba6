//! Our reading of requests against hyper's, over the corpus and over requests made by chance; what
//! they are held to stands in `hyper_reading`.

use wire::Limits;
use wire::offline::{self, Verdict};

use crate::chance::Chance;
use crate::corpus::corpus;
use crate::hyper_reading::{compare, hyper_reads};

const CASES: usize = 20_000;

#[test]
fn two_parsers_agree_on_every_request_that_both_accept() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let files: Vec<Vec<u8>> = corpus().into_iter().map(|(_, bytes)| bytes).collect();
    let mut chance = Chance::new(3);
    let (mut accepted, mut refused) = (0, 0);
    for case in 0..CASES {
        let bytes = match files.get(case) {
            Some(bytes) => bytes.clone(),
            None => request(&mut chance, &files),
        };
        let pieces = chance.cut(&bytes);
        let ours = offline::read(pieces, &Limits::default());
        let theirs = runtime.block_on(hyper_reads(&bytes));
        if let Err(difference) = compare(&bytes, &ours, &theirs) {
            panic!("{difference}\ncase {case}: {}\nours: {ours:#?}", bytes.escape_ascii());
        }
        match ours.first() {
            Some(Verdict::Read(_)) => accepted += 1,
            _ => refused += 1,
        }
    }
    // The comparison is worth something only if both kinds are common.
    assert!(accepted > CASES / 10 && refused > CASES / 10, "{accepted} to {refused}");
}

const METHODS: [&str; 7] =
    ["GET", "POST", "PUT", "OPTIONS", "get", "X-1", "A-METHOD-THAT-IS-LONGER-THAN-ANY-KNOWN"];
const TARGETS: [&str; 9] =
    ["/", "/a/b?c=d", "*", "http://a/x", "http://b/", "a:80", "//x", "/%zz?", "/a{}|b"];
const VERSIONS: [&str; 6] =
    ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "http/1.1"];
const LINES: [&str; 22] = [
    "Host: a",
    "host:a",
    "Host: b",
    "Content-Length: 0",
    "Content-Length: 3",
    "content-length:\t3 ",
    "Content-Length: 3, 3",
    "Content-Length: +3",
    "Transfer-Encoding: chunked",
    "transfer-encoding: CHUNKED",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: upgrade, keep-alive",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "X-Empty:",
    "X-Text: a, b;c=\"d\"",
    "X-Text: a, b;c=\"d\"",
    "Cookie: a=b",
    "x_y: z",
];
const BODIES: [&str; 12] = [
    "",
    "",
    "abc",
    "3\r\nabc\r\n0\r\n\r\n",
    "3;x=y\r\nabc\r\n0\r\n\r\n",
    "03\r\nabc\r\n00\r\nX-Sum: 1\r\n\r\n",
    "3 \r\nabc\r\n0\r\n\r\n",
    "3\nabc\r\n0\r\n\r\n",
    "3\r\nabcd\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nabc",
    "0\r\nContent-Length: 3\r\n\r\n",
    "\r\n",
];
/// What is put in, over or out at chance places.
const TOKENS: [&str; 18] = [
    "\r\n", "\n", "\r", " ", "\t", "\0", ":", ";", ",", "0", "a", "\r\n ", "\u{7f}", "#", "/", "?",
    "\r\n\r\n", "ü",
];

/// A request, well formed or not quite.
fn request(chance: &mut Chance, files: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = match chance.once_in(3) {
        true => files[chance.below(files.len())].clone(),
        false => {
            let count = 1 + chance.below(2);
            (0..count).flat_map(|_| structured(chance)).collect()
        }
    };
    let changes = [0, 0, 1, 1, 2, 4][chance.below(6)];
    for _ in 0..changes {
        let start = chance.below(bytes.len() + 1);
        let end = (start + [0, 1, 1, 2][chance.below(4)]).min(bytes.len());
        let token = if chance.once_in(4) { "" } else { chance.one_of(&TOKENS) };
        bytes.splice(start..end, token.bytes());
    }
    bytes
}

fn structured(chance: &mut Chance) -> Vec<u8> {
    let target = if chance.once_in(3) { chance.one_of(&TARGETS) } else { "/usual?a=b" };
    let version = chance.one_of(&VERSIONS);
    let mut text = "\r\n".repeat(if chance.once_in(9) { chance.below(9) } else { 0 });
    text.push_str(&format!("{} {target} {version}\r\n", chance.one_of(&METHODS)));
    if !chance.once_in(8) {
        text.push_str("Host: a\r\n");
    }
    for _ in 0..chance.below(4) {
        text.push_str(chance.one_of(&LINES));
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.push_str(chance.one_of(&BODIES));
    text.into_bytes()
}
