//! A standby of the database: no node reads from it or writes to it, although it answers.

use super::{Pooler, Wire, within};
use crate::postgres::Place;
use crate::support::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use store::Error;
use store::postgres::connect::Address;

/// Where Debian and its relatives install the programs, by version.
const INSTALLED: &str = "/usr/lib/postgresql";

/// A hot standby of the server of the tests.
struct Standby {
    programs: PathBuf,
    folder: PathBuf,
    /// Host and port.
    address: String,
}

impl Standby {
    /// None where the user of the tests may not copy the server.
    fn of(place: &Place) -> Option<Standby> {
        let may = "SELECT count(*) FROM pg_roles WHERE rolname = current_user AND rolreplication";
        if place.ask(may) == 0 {
            eprintln!("the user may not make a standby: nothing was tested");
            return None;
        }
        let version = place.ask("SELECT current_setting('server_version_num')::bigint / 10000");
        let programs = Path::new(INSTALLED).join(version.to_string()).join("bin");
        let (user, password, host, port, ..) = place.parts();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = free.local_addr().unwrap().port();
        // The server's user may not enter the folders of the tests.
        let made =
            command(Path::new("mktemp")).args(["-d", "/tmp/restive-standby-XXXXXX"]).output();
        let folder = String::from_utf8(made.unwrap().stdout).unwrap();
        let folder = PathBuf::from(folder.trim());
        let data = folder.join("data");
        let standby = Standby { programs, folder, address: format!("127.0.0.1:{own}") };
        let program = |name: &str| command(&standby.programs.join(name));
        // The checkpoint of another copy could remove what this one needs.
        static COPYING: Mutex<()> = Mutex::new(());
        let copying = COPYING.lock();
        let mut copy = program("pg_basebackup");
        copy.env("PGPASSWORD", password).args(["-h", host, "-p", port, "-U", user]);
        run(copy.args(["-c", "fast", "-X", "stream", "-R", "-D"]).arg(&data));
        drop((copying, free));
        let settings = format!(
            "-p {own} -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
             -c max_connections=500"
        );
        let mut start = program("pg_ctl");
        start.arg("-D").arg(&data).arg("-l").arg(standby.folder.join("log"));
        run(start.args(["-w", "-o", &settings, "start"]));
        Some(standby)
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let mut stop = command(&self.programs.join("pg_ctl"));
        stop.arg("-D").arg(self.folder.join("data")).args(["-m", "immediate", "-w", "stop"]);
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = command(Path::new("rm")).arg("-r").arg(&self.folder).status();
    }
}

/// A program of the server, which refuses to run as root.
fn command(program: &Path) -> Command {
    let root = std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let mut command = match root {
        true => Command::new("runuser"),
        false => Command::new(program),
    };
    if root {
        command.args(["-u", "postgres", "--"]).arg(program);
    }
    command.current_dir("/").stdin(Stdio::null());
    command
}

fn run(command: &mut Command) {
    // Not piped: the server would keep the pipe open.
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}");
}

#[tokio::test]
async fn a_node_that_is_led_to_a_standby_serves_nothing_until_it_finds_the_primary() {
    let Some(mut place) = Place::new() else { return };
    drop(place.open(schema(), None).unwrap());
    let Some(standby) = Standby::of(&place) else { return };
    let (direct, (_, _, host, port, ..)) = (place.url.clone(), place.parts());
    let primary = format!("{host}:{port}");
    // A start says at once what is wrong.
    place.url = direct.replace(&primary, &standby.address);
    let Err(Error::Refused(reasons)) = place.open(schema(), None) else { panic!("was opened") };
    assert!(reasons[0].contains("read-only replica"), "{reasons:?}");
    assert!(reasons[0].contains("the address of the primary"), "{reasons:?}");
    // Of two hosts, the primary is taken, wherever it stands.
    place.url = direct.replace(&primary, &format!("{},{primary}", standby.address));
    let both = place.open(schema(), None).unwrap();
    let wire = Wire::to(primary.clone());
    place.url = direct.replace(&primary, &wire.address());
    let node = place.open(schema(), None).unwrap();
    place.url = direct;
    let made = node.put(book("A", json!(1))).await;
    wire.lead_to(standby.address.clone());
    // The primary goes on, and the standby as well: what it says is soon old.
    both.put(merge(BOOKS, &made.id, json!({"price": 2}))).await;
    for _ in 0..20 {
        let read = node.store.record(HERE, BOOKS, None, &made.id).await;
        assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
        let list = node.store.list(HERE, BOOKS, &query("title", 9)).await;
        assert!(matches!(list, Err(Error::Unavailable(_))), "{list:?}");
        let written = node.commit(book("B", json!(1))).await;
        assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
        tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the next attempt
    }
    let unwell = node.store.health().await.unwrap_err().to_string();
    assert!(unwell.contains("read-only replica"), "{unwell}");
    wire.lead_to(primary);
    within(async {
        while node.commit(book("C", json!(1))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the next attempt
        }
        while node.store.record(HERE, BOOKS, None, &made.id).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the next attempt
        }
    })
    .await;
    let seen = node.record(BOOKS, &made.id).await.unwrap();
    assert_eq!(value(&seen, "price"), json!(2));
}

/// A pooler keeps the connections of a node while it connects to another server.
#[tokio::test]
async fn a_node_whose_pooler_is_led_to_a_standby_soon_serves_nothing() {
    let Some(mut place) = Place::new() else { return };
    drop(place.open(schema(), None).unwrap());
    let Some(standby) = Standby::of(&place) else { return };
    let (_, _, host, port, ..) = place.parts();
    let primary = format!("{host}:{port}");
    let wire = Wire::to(primary.clone());
    let pooler = Pooler::to(&place, &wire.address(), "default_pool_size = 6");
    let direct = std::mem::replace(&mut place.url, pooler.address.clone());
    let node = place.open(schema(), None).unwrap();
    place.url = direct;
    let made = node.put(book("A", json!(1))).await;
    let read = async || {
        let read = node.store.record(HERE, BOOKS, None, &made.id).await;
        let list = node.store.list(HERE, BOOKS, &search(&["a"])).await;
        (read.is_ok(), list.is_ok())
    };
    assert_eq!(read().await, (true, true));
    wire.lead_to(standby.address.clone());
    tokio::time::sleep(Duration::from_secs(2)).await; // waits for: some looks of the node
    for _ in 0..20 {
        assert_eq!(read().await, (false, false));
        tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the next attempt
    }
    wire.lead_to(primary);
    within(async {
        while read().await != (true, true) || node.commit(book("B", json!(1))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the next attempt
        }
    })
    .await;
}

#[test]
fn a_primary_with_sessions_that_only_read_is_refused_with_what_to_change() {
    let Some(mut place) = Place::new() else { return };
    let direct = place.url.clone();
    place.url = format!("{direct}&options=-c%20default_transaction_read_only=on");
    let opened = place.open(schema(), None).map(drop);
    place.url = direct;
    let Err(Error::Refused(reasons)) = opened else { panic!("{opened:?}") };
    for part in ["`default_transaction_read_only` set to `on`", "ALTER ROLE"] {
        assert!(reasons[0].contains(part), "{reasons:?}");
    }
}

#[test]
fn a_url_that_asks_for_a_standby_is_refused() {
    let url = |attrs: &str| format!("postgres://u:geheim@a,b/shop?target_session_attrs={attrs}");
    for attrs in ["any", "read-only", "standby", "prefer-standby", "nonsense"] {
        let Err(error) = Address::parse(&url(attrs)) else { panic!("{attrs} was accepted") };
        let error = error.to_string();
        assert!(error.contains("target_session_attrs") && error.contains("primary"), "{error}");
        assert!(!error.contains("geheim"), "{error}");
    }
    for attrs in ["read-write", "primary"] {
        Address::parse(&url(attrs)).unwrap();
    }
}
