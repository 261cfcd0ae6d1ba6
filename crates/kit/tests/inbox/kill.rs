//! kill -9 of a process that receives and processes events: what it acknowledged is there, and
//! each effect happened once. The child is this test executable itself.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use restive_kit::inbox::{Inbox, rusqlite};

use crate::{Place, block_on, event, eventually, quick};

/// Set for the child: the file of its inbox.
const CHILD: &str = "RESTIVE_KIT_TEST_INBOX";
const ROUNDS: usize = 12;

fn open(path: &Path) -> Inbox {
    Inbox::open_with(path, quick(), |database, event| {
        database.execute_batch("CREATE TABLE IF NOT EXISTS effects (id TEXT)")?;
        database.execute("INSERT INTO effects VALUES (?1)", [&event.id])?;
        Ok(())
    })
    .unwrap()
}

/// Not a test of its own: accepts the ids on its input and prints those that are stored.
#[test]
fn child_process() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let inbox = open(Path::new(&path));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        inbox.accept_blocking(event(&line)).unwrap();
        println!("stored {line}");
        std::io::stdout().flush().unwrap();
    }
}

fn start(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kill::child_process", "--nocapture"]).env(CHILD, path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_kill_loses_no_acknowledged_event_and_repeats_no_effect() {
    let place = Place::default();
    let mut acknowledged: HashSet<String> = HashSet::new();
    let mut sent = 0;
    for round in 0..ROUNDS {
        let mut child = start(&place.path());
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Each one waits for the last, so that some are in progress at the kill.
        let enough = acknowledged.len() + 3 + round * 7 % 23;
        while acknowledged.len() < enough {
            // The last one of the round before is sent again: it may be stored or not.
            writeln!(input, "evt_{sent}").unwrap();
            let stored = lines.find_map(|line| {
                let line = line.unwrap();
                line.split("stored ").nth(1).map(str::to_owned)
            });
            assert_eq!(stored.as_deref(), Some(&*format!("evt_{sent}")));
            acknowledged.insert(format!("evt_{sent}"));
            sent += 1;
        }
        writeln!(input, "evt_{sent}").unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let inbox = open(&place.path());
    eventually("nothing is pending", || block_on(inbox.stats()).unwrap().pending == 0);
    drop(inbox);
    let file = rusqlite::Connection::open(place.path()).unwrap();
    let mut select = file.prepare("SELECT id FROM effects").unwrap();
    let effects: Vec<String> =
        select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let distinct: HashSet<&String> = effects.iter().collect();
    assert_eq!(distinct.len(), effects.len(), "an effect happened twice");
    for id in &acknowledged {
        assert!(distinct.contains(id), "{id} was acknowledged and has no effect");
    }
    assert!(acknowledged.len() > ROUNDS * 5, "there was load: {}", acknowledged.len());
}
