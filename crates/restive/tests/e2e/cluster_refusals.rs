//! A PostgreSQL that refuses: TLS, passwords, limits of a role, a full disk. Clear errors or
//! waiting, and never an effect that was refused, lost or doubled. Runs where
//! `RESTIVE_TEST_POSTGRES` names a server whose user may create roles.

use crate::database;
use crate::harness::{Server, Start, eventually};
use crate::live_client::committed;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use tempfile::TempDir;

/// A role of one test, with a schema of its own.
struct Role {
    name: String,
    url: String,
    server: String,
}

impl Role {
    fn new() -> Option<Role> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Ok(server) = std::env::var("RESTIVE_TEST_POSTGRES") else {
            eprintln!("RESTIVE_TEST_POSTGRES is not set: nothing was tested");
            return None;
        };
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let name = format!("role_{}_{}", time.as_millis(), NUMBER.fetch_add(1, SeqCst));
        let made = database::try_run(
            &server,
            &format!(
                "CREATE ROLE {name} LOGIN PASSWORD 'first'; GRANT {name} TO CURRENT_USER; \
                 CREATE SCHEMA {name} AUTHORIZATION {name}"
            ),
        );
        if let Err(error) = made {
            eprintln!("no role can be created, nothing was tested: {error}");
            return None;
        }
        let url = url(&server, &name, "first");
        Some(Role { url: format!("{url}?schema={name}"), name, server })
    }

    /// Changes the role and ends its sessions: it applies from the next one on.
    fn alter(&self, what: &str) {
        let name = &self.name;
        let end = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'"
        );
        database::run(&self.server, &format!("ALTER ROLE {name} {what}; {end}"));
    }

    fn start(&self) -> Server {
        Start::bookshop().env("RESTIVE_DATABASE", &self.url).go()
    }
}

/// The URL of a server with another user.
fn url(server: &str, user: &str, password: &str) -> String {
    let (_, place) = server.split_once('@').unwrap();
    format!("postgres://{user}:{password}@{}", place.split('?').next().unwrap())
}

/// Starts a server that must fail with one reason that has all of these.
fn refused(url: &str, parts: &[&str]) {
    let (code, error) = Start::bookshop().env("RESTIVE_DATABASE", url).fails();
    assert_eq!(code, 1, "{error}");
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    // The heading, and the reason.
    assert!(!error.contains("geheim") && error.trim_end().lines().count() <= 2, "{error}");
}

/// Titles by what the server answered: 201, or an error after which nothing was written.
#[derive(Default)]
struct Answered {
    made: Vec<String>,
    refused: Vec<String>,
}

impl Answered {
    fn write(&mut self, server: &Server, title: &str) -> u16 {
        let answer = server.post("/v1/books", json!({"title": title, "author": "x"}));
        match answer.status {
            201 => self.made.push(title.to_owned()),
            503 => {
                assert!(answer.text.contains("\"message\""), "{}", answer.text);
                self.refused.push(title.to_owned());
            }
            other => panic!("{other}: {}", answer.text),
        }
        answer.status
    }

    /// Everything that was acknowledged is there once, and nothing that was refused.
    fn check(&self, server: &Server) {
        let count = |title: &String| {
            let path = format!("/v1/books?q={title}");
            server.get(&path).expect(200)["data"].as_array().unwrap().len()
        };
        assert!(self.made.iter().all(|title| count(title) == 1), "{:?}", self.made);
        assert!(self.refused.iter().all(|title| count(title) == 0), "{:?}", self.refused);
    }
}

/// Writes while the role is altered, and after that was taken back.
fn through(role: &Role, server: &Server, what: &str, back: &str, count: usize) -> Answered {
    static ROUND: AtomicU32 = AtomicU32::new(0);
    let (mut answered, round) = (Answered::default(), ROUND.fetch_add(1, SeqCst));
    assert_eq!(answered.write(server, &format!("before{round}")), 201);
    role.alter(what);
    for n in 0..count {
        answered.write(server, &format!("during{round}x{n}"));
    }
    role.alter(back);
    let mut n = 0;
    eventually("writes work again", || {
        n += 1;
        answered.write(server, &format!("after{round}x{n}")) == 201
    });
    eventually("the server is healthy", || server.get("/health").status == 200);
    // Searches have connections of their own, and a pause after a failure of theirs.
    eventually("searches work again", || server.get("/v1/books?q=x").status == 200);
    answered.check(server);
    answered
}

#[test]
fn settings_of_the_role_with_which_writes_would_be_lost_or_fail_are_refused() {
    let Some(role) = Role::new() else { return };
    for (name, value) in [
        ("synchronous_commit", "off"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_read_only", "on"),
    ] {
        role.alter(&format!("SET {name} = {value}"));
        let set = format!("`{name}` set to `{value}`");
        refused(&role.url, &[&set, &format!("ALTER ROLE {} SET {name} =", role.name)]);
        role.alter(&format!("RESET {name}"));
    }
    role.start().book("A");
}

#[test]
fn a_server_that_gets_no_connection_more_waits_and_loses_nothing() {
    let Some(role) = Role::new() else { return };
    let server = role.start();
    let answered = through(&role, &server, "CONNECTION LIMIT 0", "CONNECTION LIMIT -1", 20);
    assert!(answered.refused.len() >= 20, "{:?}", answered.made);
    // Fewer than it wants are enough for some of the work, or the answer says what is missing.
    through(&role, &server, "CONNECTION LIMIT 3", "CONNECTION LIMIT -1", 20);
    role.alter("CONNECTION LIMIT 0");
    refused(&role.url, &["too many connections for role"]);
}

#[test]
fn timeouts_of_the_role_lose_and_double_nothing() {
    let Some(role) = Role::new() else { return };
    let server = role.start();
    let settings = ["statement_timeout = '1ms'", "idle_in_transaction_session_timeout = '1ms'"];
    for setting in settings {
        let (name, _) = setting.split_once(" =").unwrap();
        let (set, reset) = (format!("SET {setting}"), format!("RESET {name}"));
        let answered = through(&role, &server, &set, &reset, 40);
        println!("{setting}: {} of 40 were refused", answered.refused.len());
    }
}

#[test]
fn a_password_that_is_changed_under_a_server_stops_it_until_it_is_changed_back() {
    let Some(role) = Role::new() else { return };
    let server = role.start();
    through(&role, &server, "PASSWORD 'second'", "PASSWORD 'first'", 10);
    refused(&url(&role.server, &role.name, "geheim"), &["password authentication failed"]);
    let nowhere = role.url.replace("?schema=", "_nowhere?schema=");
    refused(&nowhere, &["_nowhere", "does not exist", "createdb"]);
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused_and_so_is_a_server_without_tls() {
    let Some(role) = Role::new() else { return };
    refused(&format!("{}&sslmode=require", role.url), &["TLS", "sslmode"]);
    let folder = TempDir::new().unwrap();
    let [served, trusted] = ["served", "trusted"].map(|name| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let file = folder.path().join(format!("{name}.pem"));
        std::fs::write(&file, made.cert.pem()).unwrap();
        (made, file)
    });
    let port = tls_only(&served.0);
    let url = |file: &Path| {
        let file = file.display();
        format!("postgres://u:geheim@localhost:{port}/d?sslmode=verify-full&sslrootcert={file}")
    };
    refused(&url(&trusted.1), &["certificate", "sslrootcert"]);
    let ip = url(&served.1).replace("@localhost", "@127.0.0.1");
    refused(&ip, &["certificate", "sslrootcert"]);
    refused(&url(&folder.path().join("none.pem")), &["none.pem"]);
    std::fs::write(folder.path().join("empty.pem"), "").unwrap();
    refused(&url(&folder.path().join("empty.pem")), &["no certificate"]);
}

/// Speaks the protocol as far as the handshake of TLS.
fn tls_only(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> u16 {
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let config = config.clone();
            std::thread::spawn(move || {
                let mut asked = [0; 8];
                stream.read_exact(&mut asked).unwrap();
                stream.write_all(b"S").unwrap();
                let session = rustls::ServerConnection::new(config).unwrap();
                let mut tls = rustls::StreamOwned::new(session, stream);
                let _ = tls.read(&mut [0; 1024]);
            });
        }
    });
    port
}

/// A small disk for the tables of a role. Needs root, and the superuser of the test server.
struct SmallDisk {
    folder: TempDir,
    root: String,
    role: String,
}

impl SmallDisk {
    fn new(role: &Role) -> Option<SmallDisk> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().display().to_string();
        let run = |program: &str, arguments: &[&str]| {
            Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success())
        };
        if !run("mount", &["-t", "tmpfs", "-o", "size=24m,mode=0755", "tmpfs", &path]) {
            eprintln!("nothing can be mounted, nothing was tested");
            return None;
        }
        let (_, rest) = role.server.split_once("://").unwrap();
        let (_, password) = rest.split_once('@').unwrap().0.split_once(':').unwrap();
        let root = url(&role.server, "postgres", password);
        let disk = SmallDisk { folder, root, role: role.name.clone() };
        let place = disk.folder.path().join("tables");
        std::fs::create_dir(&place).unwrap();
        // What takes the room: its end makes room.
        std::fs::write(disk.filler(), vec![1; 4 << 20]).unwrap();
        let (name, place) = (&disk.role, place.display().to_string());
        let made = run("chown", &["postgres", &place])
            && run("chmod", &["755", &path])
            && database::try_run(
                &disk.root,
                &format!("CREATE TABLESPACE {name} OWNER {name} LOCATION '{place}'"),
            )
            .is_ok();
        if !made {
            eprintln!("no tablespace can be created, nothing was tested");
            return None;
        }
        role.alter(&format!("SET default_tablespace = {name}"));
        Some(disk)
    }

    fn filler(&self) -> std::path::PathBuf {
        self.folder.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let name = &self.role;
        for sql in [format!("DROP SCHEMA {name} CASCADE"), format!("DROP TABLESPACE {name}")] {
            if let Err(error) = database::try_run(&self.root, &sql) {
                eprintln!("{sql}: {error}");
            }
        }
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

#[test]
fn a_full_disk_of_the_database_refuses_writes_until_there_is_room() {
    let Some(role) = Role::new() else { return };
    let Some(disk) = SmallDisk::new(&role) else { return };
    let server = role.start();
    let mut answered = Answered::default();
    let mut chance = crate::chance::Chance::new(7);
    let mut made = 0;
    loop {
        // Does not compress well.
        let text: String = (0..250).map(|_| format!("{:016x}", chance.next())).collect();
        let answer = server.post("/v1/messages", json!({"text": text}));
        if answer.status != 201 {
            answer.error(503, "storage_full");
            break;
        }
        made += 1;
        assert!(made < 10_000, "the disk is not small");
    }
    assert_eq!(server.get("/v1/books?limit=1").status, 200, "reads go on");
    for _ in 0..3 {
        let health = server.get("/health").expect(503);
        assert_eq!(health["status"], "store_failed", "{health}");
    }
    for n in 0..20 {
        answered.write(&server, &format!("full{n}"));
    }
    std::fs::remove_file(disk.filler()).unwrap();
    let mut n = 0;
    eventually("writes work again", || {
        n += 1;
        answered.write(&server, &format!("room{n}")) == 201
    });
    server.get("/health").expect(200);
    answered.check(&server);
    assert_eq!(committed(&server).len(), made, "exactly what was acknowledged");
    server.kill();
}
