//! Starts the executable on a free port with a separate folder, and sends HTTP requests to it.

use crate::carry::{self, Carrier};
use crate::clock;
use crate::database;
use crate::deadline::{Deadline as _, Lifetime};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The key of every test server.
pub const KEY: &str = "sk_test_end_to_end_0123456789";

/// Longer than anything takes on a busy machine; a wait of this length fails the test.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A start may first migrate or recover a database.
const START: Duration = Duration::from_secs(90);

pub fn executable() -> &'static str {
    env!("CARGO_BIN_EXE_restive")
}

/// A server and its data folder.
pub struct Server {
    child: Child,
    _lifetime: Lifetime,
    pub address: SocketAddr,
    pub folder: Arc<TempDir>,
    pub key: String,
    carrier: Carrier,
    /// Its output before it listened.
    pub greeting: String,
    /// Its stderr: the log.
    pub log: Arc<Mutex<String>>,
    /// The proxy in front of it, whose address is `address`, if the suite runs through one.
    _front: Option<Box<Server>>,
}

/// The arguments and environment of a server.
pub struct Start {
    listen: String,
    schema: Option<String>,
    folder: Option<Arc<TempDir>>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Start {
    pub fn bookshop() -> Start {
        Start {
            listen: "127.0.0.1:0".to_owned(),
            schema: None,
            folder: None,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    pub fn schema(text: &str) -> Start {
        Start { schema: Some(text.to_owned()), ..Start::bookshop() }
    }

    /// Uses the data of an earlier server.
    pub fn on(mut self, folder: &Arc<TempDir>) -> Start {
        self.folder = Some(folder.clone());
        self
    }

    /// Uses the address of an earlier server, for clients that reconnect.
    pub fn at(mut self, address: SocketAddr) -> Start {
        self.listen = address.to_string();
        self
    }

    pub fn arg(mut self, argument: &str) -> Start {
        self.arguments.push(argument.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Start {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command that starts it, for tests that wrap it.
    pub fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(executable());
        command.arg("serve").arg("--listen").arg(&self.listen);
        command.arg("--data").arg(folder.join("data"));
        if let Some(schema) = &self.schema {
            let file = folder.join("restive.toml");
            std::fs::write(&file, schema).unwrap();
            command.arg("--schema").arg(file);
        }
        command.args(carry::arguments());
        command.args(&self.arguments);
        command.env("RESTIVE_BOOTSTRAP_KEY", KEY);
        database::name(&mut command, folder);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts it and waits until it listens.
    pub fn go(self) -> Server {
        let folder = self.folder.clone().unwrap_or_else(|| Arc::new(TempDir::new().unwrap()));
        let command = self.command(folder.path());
        let server = Server::spawn(command, folder);
        if carry::is_proxied() { server.behind_proxy() } else { server }
    }

    /// Starts it and expects it to fail; returns exit code and stderr.
    pub fn fails(self) -> (i32, String) {
        let folder = self.folder.clone().unwrap_or_else(|| Arc::new(TempDir::new().unwrap()));
        let output = self.command(folder.path()).output_in_time().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), text)
    }
}

impl Server {
    pub fn bookshop() -> Server {
        Start::bookshop().go()
    }

    pub fn spawn(command: Command, folder: Arc<TempDir>) -> Server {
        let started = Server::start(command, folder);
        started.unwrap_or_else(|log| panic!("it ended before it listened: {log}"))
    }

    /// `None` if it exited before it listened, without a panic.
    pub fn try_spawn(command: Command, folder: Arc<TempDir>) -> Option<Server> {
        let started = Server::start(command, folder);
        started.map_err(|log| assert!(!log.contains("panicked"), "{log}")).ok()
    }

    fn start(command: Command, folder: Arc<TempDir>) -> Result<Server, String> {
        let mut server = Server::spawn_unread(command, folder);
        let stderr = server.child.stderr.take().unwrap();
        let log = server.log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = log.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        server.listen()?;
        Ok(server)
    }

    /// A server whose log is not read: it blocks once the pipe is full.
    pub fn with_unread_log(start: Start) -> Server {
        let folder = Arc::new(TempDir::new().unwrap());
        let mut server = Server::spawn_unread(start.command(folder.path()), folder);
        server.listen().unwrap();
        server
    }

    fn spawn_unread(mut command: Command, folder: Arc<TempDir>) -> Server {
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let log = Arc::new(Mutex::new(String::new()));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Server {
            _lifetime: Lifetime::of(&child, log.clone()),
            child,
            address,
            folder,
            key: KEY.to_owned(),
            carrier: Carrier::new(address),
            greeting: String::new(),
            log,
            _front: None,
        }
    }

    /// The same server, reached through a proxy.
    fn behind_proxy(mut self) -> Server {
        let mut command = Command::new(executable());
        command.args(["proxy", "--listen", "127.0.0.1:0", "--control", "off", "--data"]);
        command.arg(self.folder.path().join("front")).arg("--to").arg(self.address.to_string());
        let front = Server::spawn(command, self.folder.clone());
        self.address = front.address;
        self.carrier = Carrier::new(self.address);
        self._front = Some(Box::new(front));
        self
    }

    /// Waits until it listens; an error with its log if it exits first.
    fn listen(&mut self) -> Result<(), String> {
        let stdout = self.child.stdout.take().unwrap();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let deadline = Instant::now() + START;
        self.address = loop {
            match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(url) = line.strip_prefix("listening on http") {
                        let (_, address) = url.split_once("://").unwrap();
                        break address.parse().unwrap();
                    }
                    self.greeting.push_str(&line);
                    self.greeting.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it does not listen after {START:?}: {}", self.log.lock().unwrap());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait();
                    return Err(format!("{status:?} {}", self.log.lock().unwrap()));
                }
            }
        };
        self.carrier = Carrier::new(self.address);
        Ok(())
    }

    /// Uses this HTTP version from now on, independent of the version of the suite.
    pub fn over(mut self, version: &str) -> Server {
        self.carrier = Carrier::speaking(version, self.address);
        self
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A request with the server's key; `send` sends it.
    pub fn ask(&self, method: &str, path: &str) -> Ask<'_> {
        let mut request = ureq::http::Request::builder().method(method).uri(self.url(path));
        request = request.header("authorization", format!("Bearer {}", self.key));
        Ask { server: self, request, body: Vec::new() }
    }

    /// A request without credentials.
    pub fn ask_anonymously(&self, method: &str, path: &str) -> Ask<'_> {
        let request = ureq::http::Request::builder().method(method).uri(self.url(path));
        Ask { server: self, request, body: Vec::new() }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path).send()
    }

    pub fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path).json(&body).send()
    }

    pub fn put(&self, path: &str, body: Value) -> Answer {
        self.ask("PUT", path).json(&body).send()
    }

    pub fn patch(&self, path: &str, body: Value) -> Answer {
        self.ask("PATCH", path).json(&body).send()
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path).send()
    }

    /// Creates a record; returns its id.
    #[track_caller]
    pub fn make(&self, path: &str, body: Value) -> String {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.id()
    }

    /// Creates a book with a title; returns its id.
    #[track_caller]
    pub fn book(&self, title: &str) -> String {
        self.make("/v1/books", serde_json::json!({"title": title, "author": "Ann Author"}))
    }

    /// Sends bytes on a new connection; returns everything until the server closes.
    pub fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = carry::plain(self.address);
        // The server may respond and close before it has read everything.
        let _ = stream.write_all(bytes);
        stream.finish();
        let (mut answer, mut piece) = (Vec::new(), [0; 8192]);
        let deadline = Instant::now() + 2 * PATIENCE;
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            answer.extend_from_slice(&piece[..count]);
            assert!(Instant::now() < deadline, "it sends without end: {} bytes", answer.len());
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Runs a command on this server's data; returns stdout, stderr and exit code.
    pub fn tool(&self, arguments: &[&str]) -> (String, String, i32) {
        let mut command = Command::new(executable());
        command.args(arguments).arg("--data").arg(self.data());
        database::name(&mut command, self.folder.path());
        let output = command.output_in_time().unwrap();
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
            output.status.code().unwrap_or(-1),
        )
    }

    /// SIGKILL, like a power failure.
    pub fn kill(mut self) -> Arc<TempDir> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.folder.clone()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(name).arg(self.pid().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// SIGTERM; returns the exit code and the folder.
    pub fn stop(mut self) -> (i32, Arc<TempDir>) {
        self.signal("-TERM");
        let code = self.wait();
        (code, self.folder.clone())
    }

    /// Waits until the process exits.
    pub fn wait(&mut self) -> i32 {
        let mut code = None;
        eventually("the server ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.and_then(|status| status.code()).unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        clock::forget(self.child.id());
    }
}

/// A request that is being built.
pub struct Ask<'a> {
    server: &'a Server,
    request: ureq::http::request::Builder,
    body: Vec<u8>,
}

impl Ask<'_> {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// With this key instead of the server's.
    pub fn key(self, key: &str) -> Self {
        self.only("authorization", &format!("Bearer {key}"))
    }

    /// Replaces the current value of the header.
    pub fn only(mut self, name: &'static str, value: &str) -> Self {
        let headers = self.request.headers_mut().expect("a test's request is well-formed");
        headers.insert(name, value.parse().expect("a header value"));
        self
    }

    pub fn send(self) -> Answer {
        self.try_send().expect("the server answers")
    }

    /// For servers that may be down.
    pub fn try_send(self) -> Result<Answer, String> {
        let request = self.request.body(self.body).expect("a test's request is well-formed");
        let parts = self.server.carrier.run(request)?;
        let pairs = |headers: &ureq::http::HeaderMap| -> Vec<_> {
            let text = |value: &ureq::http::HeaderValue| value.to_str().unwrap_or("?").to_owned();
            headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
        };
        let text = String::from_utf8(parts.body).map_err(|error| error.to_string())?;
        Ok(Answer {
            interim: parts.interim.iter().map(pairs).collect(),
            status: parts.status.as_u16(),
            headers: pairs(&parts.headers),
            json: serde_json::from_str(&text).unwrap_or(Value::Null),
            text,
        })
    }
}

#[derive(Clone, Debug)]
pub struct Answer {
    /// Headers of interim responses, if the transport returns them: HTTP/1.1 does not.
    pub interim: Vec<Vec<(String, String)>>,
    pub status: u16,
    headers: Vec<(String, String)>,
    pub text: String,
    pub json: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// All values of a repeated header.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    /// Asserts the status and returns the body.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json
    }

    /// Asserts an error with this status and code; every error must have its request id.
    #[track_caller]
    pub fn error(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        let error = &self.json["error"];
        assert_eq!(error["code"], code, "{}", self.text);
        assert_eq!(error["request_id"], self.header("request-id").unwrap_or("missing"));
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{}", self.text);
        error.clone()
    }

    /// One field of every record of a list.
    #[track_caller]
    pub fn column(&self, name: &str) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        let data = self.json["data"].as_array().unwrap_or_else(|| panic!("{}", self.text));
        data.iter().map(|record| record[name].clone()).collect()
    }

    /// The titles of a list of books.
    #[track_caller]
    pub fn titles(&self) -> Vec<String> {
        let titles = self.column("title");
        titles.iter().map(|title| title.as_str().unwrap_or("?").to_owned()).collect()
    }

    /// The id of the record in the body.
    #[track_caller]
    pub fn id(&self) -> String {
        self.json["id"].as_str().unwrap_or_else(|| panic!("no id in {}", self.text)).to_owned()
    }
}

/// Runs the executable without a server; returns stdout, stderr and exit code.
pub fn run(folder: &Path, arguments: &[&str]) -> (String, String, i32) {
    let mut command = Command::new(executable());
    if let Some(place) = arguments.iter().position(|one| *one == "--data") {
        let of = folder.join(arguments[place + 1]);
        database::name(&mut command, of.parent().expect("a folder in a folder"));
    }
    let output = command.args(arguments).current_dir(folder).output_in_time().unwrap();
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
        output.status.code().unwrap_or(-1),
    )
}

/// Waits for a condition, with a deadline.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5)); // waits for: the next look at the condition
    }
}
