//! The server under judgement: the real executable on port 0 with a separate data folder under
//! target/, a known key and no request limit.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::body_of;
use super::program::Program;

const FETCH_LIMIT: Duration = Duration::from_secs(30);
/// Not a secret: the server listens on loopback for the length of one test run.
const KEY: &str = "sk_test_judge0000000000000000000000000000";

pub struct Server {
    program: Program,
    scratch: PathBuf,
}

impl Server {
    /// Starts `executable` and waits until it prints its address.
    pub fn start(executable: &Path, scratch: &Path) -> Result<Self> {
        let data = scratch.join("data");
        if data.exists() {
            fs::remove_dir_all(&data).context("cannot clear the judges' data directory")?;
        }
        fs::create_dir_all(&data).context("cannot make the judges' data directory")?;
        let log = fs::File::create(scratch.join("server.log")).context("cannot make server.log")?;
        let mut command = Command::new(executable);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "off", "--data"])
            .arg(&data)
            .env("RESTIVE_BOOTSTRAP_KEY", KEY)
            .stderr(log);
        let program = Program::start(&mut command)
            .with_context(|| format!("its log: {}/server.log", scratch.display()))?;
        Ok(Self { program, scratch: scratch.to_path_buf() })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.program.address())
    }

    pub fn key(&self) -> &str {
        KEY
    }

    /// A folder under target/ for files that judges write.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Saves a served document, such as `openapi.json`, to a file, for the judges that read files.
    pub fn save(&self, page: &str) -> Result<PathBuf> {
        let address = self.program.address();
        let mut stream = TcpStream::connect(address).context("cannot connect")?;
        stream.set_read_timeout(Some(FETCH_LIMIT))?;
        write!(
            stream,
            "GET /{page} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\n\
             Accept: application/json\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).with_context(|| format!("/{page} did not end in time"))?;
        let file = self.scratch.join(page);
        fs::write(&file, body_of(&answer).with_context(|| format!("/{page}"))?)?;
        Ok(file)
    }

    /// Sends SIGTERM and requires exit code 0.
    pub fn terminate(&mut self) -> Result<()> {
        self.program.terminate()
    }
}
