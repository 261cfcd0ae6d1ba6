//! The corpus: requests worth keeping, one file each in `tests/corpus`. The same bytes must mean
//! the same, however they are cut into reads: without sockets at every position, and over them.
//! Names begin with what must become of the first request: `ok`, `bad` (its head) or `body`.

use std::path::Path;

use wire::Limits;
use wire::offline::{self, Verdict};

use crate::chance::Chance;
use crate::server::Server;

/// Every file with its name.
pub fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    assert!(files.len() > 20, "the corpus is there");
    files
}

fn read(pieces: &[&[u8]]) -> Vec<Verdict> {
    offline::read(pieces.iter().copied(), &Limits::default())
}

/// Half a head may be refused for less than the whole one has wrong with it: the reason is not
/// compared, all else is.
fn same(one: &[Verdict], other: &[Verdict]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|pair| match pair {
            (Verdict::Refused(one), Verdict::Refused(other)) => one.status() == other.status(),
            (one, other) => one == other,
        })
}

#[test]
fn every_corpus_file_gets_the_result_that_its_name_says() {
    for (name, bytes) in corpus() {
        let verdicts = read(&[&bytes]);
        let right = match name.split('-').next().unwrap() {
            "ok" => verdicts.iter().all(|verdict| matches!(verdict, Verdict::Read(_))),
            "bad" => matches!(verdicts[..], [Verdict::Refused(_)]),
            "body" => matches!(verdicts[..], [Verdict::BadBody(..)]),
            other => panic!("{other}: the name must begin with ok, bad or body"),
        };
        assert!(right && !verdicts.is_empty(), "{name}: {verdicts:#?}");
    }
}

#[test]
fn the_meaning_of_requests_does_not_depend_on_how_bytes_are_split() {
    let mut chance = Chance::new(1);
    for (name, bytes) in corpus() {
        let whole = read(&[&bytes]);
        for place in 0..=bytes.len() {
            let (one, other) = bytes.split_at(place);
            let cut = read(&[one, other]);
            assert!(same(&whole, &cut), "{name} at {place}: {whole:#?} or {cut:#?}");
        }
        let singly: Vec<&[u8]> = bytes.chunks(1).collect();
        assert!(same(&whole, &read(&singly)), "{name} byte by byte");
        for _ in 0..100 {
            let pieces = chance.cut(&bytes);
            assert!(same(&whole, &read(&pieces)), "{name} as {pieces:?}");
        }
    }
}

#[test]
fn responses_do_not_depend_on_how_request_bytes_arrive() {
    let server = Server::start();
    let answer = |pieces: &[&[u8]]| {
        let mut wire = server.connect();
        wire.stream.set_nodelay(true).unwrap();
        for piece in pieces {
            wire.send(piece);
        }
        wire.finish_sending_if_open();
        let lines = wire.rest();
        let lines = lines.lines().filter(|line| !line.starts_with("date: "));
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut chance = Chance::new(2);
    for (name, bytes) in corpus() {
        // How early a body's client is invited, and which reason is seen first, may differ.
        if name == "ok-expect" || name.starts_with("bad-") {
            continue;
        }
        let whole = answer(&[&bytes]);
        assert!(whole.starts_with("HTTP/1.1 "), "{name}: {whole}");
        for _ in 0..5 {
            let pieces = chance.cut(&bytes);
            assert_eq!(whole, answer(&pieces), "{name} as {pieces:?}");
        }
    }
}
