//! A webhook receiver in one file: verifies, stores and acknowledges events, then writes each one
//! into a table exactly once.
//!
//! `WEBHOOK_SECRET=whsec_… cargo run -p restive-kit --features receiver,inbox --example receive`
//!
//! The HTTP server here is the smallest one that works. In a service, put `ReceiverService` into
//! your router instead.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use restive_kit::inbox::{Inbox, Options};
use restive_kit::receiver::{Answer, Delivery, Receiver};
use restive_kit::signature::{Scheme, Secret, Verifier};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let secret = Secret::parse(&std::env::var("WEBHOOK_SECRET")?)?;
    let inbox = Inbox::open_with(Path::new("inbox.db"), Options::default(), |database, event| {
        // Runs once per event: the insert and the mark of the event are one transaction.
        database.execute_batch("CREATE TABLE IF NOT EXISTS orders (event TEXT, body TEXT)")?;
        let body = String::from_utf8_lossy(&event.body);
        database.execute("INSERT INTO orders VALUES (?1, ?2)", [&event.id, &*body])?;
        println!("{} {}", event.id, event.kind.as_deref().unwrap_or("?"));
        Ok(())
    })?;
    let verifier = Verifier::new(Scheme::Detect, [secret]);
    let receiver = Receiver::new(verifier, inbox).observe(|answer| {
        if let Some(diagnosis) = &answer.diagnosis {
            eprintln!("refused: {diagnosis}. {}", diagnosis.advice());
        }
    });
    let listener = TcpListener::bind("127.0.0.1:4242")?;
    println!("listening on http://{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, receiver) = (stream?, receiver.clone());
        std::thread::spawn(move || serve(stream, &receiver));
    }
    Ok(())
}

/// One request per connection.
fn serve(mut stream: TcpStream, receiver: &Receiver) -> Option<()> {
    let (method, headers, body) = read(&stream, receiver.body_limit())?;
    let peer = stream.peer_addr().ok().map(|peer| peer.ip());
    let delivery = Delivery { method: &method, headers: &headers, is_secure: false, peer };
    let runtime = tokio::runtime::Builder::new_current_thread().build().ok()?;
    let answer: Answer = runtime.block_on(receiver.receive(delivery, body));
    let body = answer.body();
    let (status, length) = (answer.status, body.len());
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()
}

fn read(stream: &TcpStream, limit: usize) -> Option<(Method, HeaderMap, Bytes)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method: Method = line.split(' ').next()?.parse().ok()?;
    let mut headers = HeaderMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.append(name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value.trim()).ok()?);
    }
    let length: usize = headers.get("content-length")?.to_str().ok()?.parse().ok()?;
    let mut body = vec![0; length.min(limit + 1)];
    reader.read_exact(&mut body).ok()?;
    Some((method, headers, body.into()))
}
