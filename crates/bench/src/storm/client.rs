//! An account from the view of a client: requests with its key, connections that send one request
//! after the other, and many connections that together send a given number of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::{Answer, Head};

/// Time limit of a response; the case fails beyond it.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// One API key and its server.
#[derive(Clone, Debug)]
pub struct Account {
    pub address: String,
    pub key: String,
}

impl Account {
    pub fn get(&self, target: &str) -> Vec<u8> {
        self.get_with(target, "")
    }

    /// With further header lines, each with its end of line.
    pub fn get_with(&self, target: &str, headers: &str) -> Vec<u8> {
        format!("GET {target} HTTP/1.1\r\n{}{headers}\r\n", self.common()).into_bytes()
    }

    pub fn delete(&self, target: &str) -> Vec<u8> {
        format!("DELETE {target} HTTP/1.1\r\n{}\r\n", self.common()).into_bytes()
    }

    pub fn post(&self, target: &str, body: &str) -> Vec<u8> {
        self.write("POST", target, body)
    }

    pub fn patch(&self, target: &str, body: &str) -> Vec<u8> {
        self.write("PATCH", target, body)
    }

    /// The head of a create; the body follows.
    pub fn post_head(&self, target: &str, body_bytes: usize) -> Vec<u8> {
        self.head("POST", target, body_bytes).into_bytes()
    }

    fn write(&self, method: &str, target: &str, body: &str) -> Vec<u8> {
        (self.head(method, target, body.len()) + body).into_bytes()
    }

    fn head(&self, method: &str, target: &str, body_bytes: usize) -> String {
        format!(
            "{method} {target} HTTP/1.1\r\n{}Content-Type: application/json\r\n\
             Content-Length: {body_bytes}\r\n\r\n",
            self.common()
        )
    }

    fn common(&self) -> String {
        format!("Host: 127.0.0.1\r\nAuthorization: Bearer {}\r\n", self.key)
    }

    pub async fn connect(&self) -> Result<Connection> {
        Connection::open(&self.address).await
    }

    /// Sends one request on a new connection; any other status than the expected one is an error.
    pub async fn expect(&self, status: u16, request: &[u8]) -> Result<Value> {
        self.connect().await?.expect(status, request).await
    }

    /// Creates a record; returns its id.
    pub async fn make(&self, target: &str, body: &Value) -> Result<String> {
        let made = self.expect(201, &self.post(target, &body.to_string())).await?;
        Ok(made["id"].as_str().context("no id in the answer")?.to_owned())
    }

    /// Sends `count` requests over `connections` connections, each as soon as the one before it has
    /// its response. `request` gets the number of each, from 0; `see` gets every response.
    pub async fn send_many(
        &self,
        connections: usize,
        count: u64,
        request: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
        see: impl Fn(u64, &Answer) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let next = Arc::new(AtomicU64::new(0));
        let (request, see) = (Arc::new(request), Arc::new(see));
        let mut tasks = Vec::new();
        for _ in 0..connections {
            let (next, own) = (Arc::clone(&next), self.clone());
            let (request, see) = (Arc::clone(&request), Arc::clone(&see));
            tasks.push(tokio::spawn(async move {
                let mut connection = own.connect().await?;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok::<(), anyhow::Error>(());
                    }
                    let answer = connection.ask(&request(number)).await?;
                    see(number, &answer)?;
                }
            }));
        }
        for task in tasks {
            task.await.context("a sender broke")??;
        }
        Ok(())
    }
}

/// For `send_many`: any response with another status is an error.
pub fn only(status: u16) -> impl Fn(u64, &Answer) -> Result<()> + Send + Sync + 'static {
    move |_, answer| {
        let body = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == status, "expected {status}, got {}: {body}", answer.status);
        Ok(())
    }
}

/// One keep-alive connection.
pub struct Connection {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends one request and waits for its response.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer> {
        let exchange = async {
            self.stream.write_all(request).await?;
            self.answer().await
        };
        tokio::time::timeout(ANSWER_LIMIT, exchange).await.context("no answer in time")?
    }

    pub async fn expect(&mut self, status: u16, request: &[u8]) -> Result<Value> {
        let answer = self.ask(request).await?;
        only(status)(0, &answer)?;
        Ok(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    /// The next response on this connection.
    pub async fn answer(&mut self) -> Result<Answer> {
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(head) = Head::parse(&self.buffer)?
                && self.buffer.len() >= head.total_bytes()
            {
                let rest = self.buffer.split_off(head.total_bytes());
                let mut taken = std::mem::replace(&mut self.buffer, rest);
                let body = taken.split_off(head.head_bytes);
                return Ok(Answer { status: head.status, head: taken, body });
            }
            let count = self.stream.read(&mut chunk).await?;
            if count == 0 {
                bail!("the server closed the connection");
            }
            self.buffer.extend_from_slice(&chunk[..count]);
        }
    }
}
