//! The three compared servers behind one interface: how to start, subscribe and publish.

use std::net::TcpListener;
use std::path::Path;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::process::{Pinning, Service};

use super::crowd::MARKER;

/// The path of nginx modules on Debian.
const NCHAN: &str = "/usr/lib/nginx/modules/ngx_nchan_module.so";
/// What nchan adds to a message of a stream: `id: 1700000000:0`, `data: `, line ends.
const NCHAN_STREAM_BYTES: usize = 25;
/// What nchan adds to a message of a socket.
const NCHAN_SOCKET_BYTES: usize = 4;
/// The text of a record; with its fields and its frame the message has some 200 bytes.
const TEXT_BYTES: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Sse,
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Restive,
    Nchan,
    Bare,
}

pub struct Subject {
    kind: Kind,
    pub service: Service,
    key: String,
    _folder: Option<TempDir>,
}

impl Subject {
    pub fn restive(service: Service, key: &str) -> Subject {
        Subject { kind: Kind::Restive, service, key: key.to_owned(), _folder: None }
    }

    pub fn bare(pinning: Pinning) -> Result<Subject> {
        let mut command = pinning.command(&std::env::current_exe()?);
        command.arg("bare-live");
        let service = Service::start(command)?;
        Ok(Subject { kind: Kind::Bare, service, key: String::new(), _folder: None })
    }

    /// One process with one worker and no log, with its messages in memory.
    pub fn nchan(pinning: Pinning) -> Result<Subject> {
        ensure!(Path::new(NCHAN).exists(), "nchan is not installed: libnginx-mod-nchan");
        let folder = tempfile::tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let path = folder.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}; "))
            .concat();
        let channel = "nchan_channel_id bench; nchan_subscriber_first_message newest;";
        let configuration = format!(
            "load_module {NCHAN};\n\
             worker_processes 1; daemon off; master_process off;\n\
             error_log stderr crit; pid {path}/pid;\n\
             events {{ worker_connections 19000; }}\n\
             http {{ access_log off; {temporary}\n\
             keepalive_requests 1000000000; keepalive_timeout 600s; tcp_nodelay on;\n\
             nchan_shared_memory_size 128m;\n\
             server {{ listen {address} backlog=1024;\n\
             location = /pub {{ nchan_publisher; nchan_channel_id bench; }}\n\
             location = /sse {{ nchan_subscriber eventsource; {channel} }}\n\
             location = /ws {{ nchan_subscriber websocket; {channel} }} }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration)?;
        let mut command = pinning.command(Path::new("nginx"));
        command.args(["-e", "stderr", "-p"]).arg(folder.path()).arg("-c").arg(&file);
        let service = Service::start_at(command, address)?;
        Ok(Subject { kind: Kind::Nchan, service, key: String::new(), _folder: Some(folder) })
    }

    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Restive => "restive",
            Kind::Nchan => "nginx + nchan",
            Kind::Bare => "bare writes",
        }
    }

    pub fn address(&self) -> &str {
        &self.service.address
    }

    pub fn subscribe(&self, channel: Channel) -> Vec<u8> {
        let path = match (self.kind, channel) {
            (Kind::Nchan, Channel::Sse) => "/sse",
            (_, Channel::Sse) => "/api/events",
            (_, Channel::Socket) => "/ws",
        };
        self.get(path, fields(channel))
    }

    pub fn get(&self, target: &str, fields: &str) -> Vec<u8> {
        let auth = self.authorization();
        let head = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\n");
        format!("{head}Accept-Encoding: gzip\r\n{fields}{auth}\r\n").into_bytes()
    }

    pub fn authorization(&self) -> String {
        match self.kind {
            Kind::Restive => format!("Authorization: Bearer {}\r\n", self.key),
            Kind::Nchan | Kind::Bare => String::new(),
        }
    }

    /// A request that sends a message to everyone. `frame_bytes` is its size on the wire of a
    /// subscriber, where it can be chosen.
    pub fn publish(&self, channel: Channel, frame_bytes: usize) -> Vec<u8> {
        let marker = char::from(MARKER);
        let filled = |bytes: usize| format!("{}{marker}", "m".repeat(bytes.saturating_sub(1)));
        let (path, kind, body) = match (self.kind, channel) {
            (Kind::Restive, _) => {
                let body = format!("{{\"text\":\"{}\"}}", filled(TEXT_BYTES));
                ("/v1/messages", "application/json", body)
            }
            (Kind::Nchan, Channel::Sse) => {
                ("/pub", "text/plain", filled(frame_bytes.saturating_sub(NCHAN_STREAM_BYTES)))
            }
            (Kind::Nchan, Channel::Socket) => {
                ("/pub", "text/plain", filled(frame_bytes.saturating_sub(NCHAN_SOCKET_BYTES)))
            }
            (Kind::Bare, _) => ("/", "text/plain", filled(frame_bytes)),
        };
        let (auth, length) = (self.authorization(), body.len());
        let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n");
        format!("{head}{auth}Content-Length: {length}\r\n\r\n{body}").into_bytes()
    }
}

/// The headers of a browser that subscribes.
fn fields(channel: Channel) -> &'static str {
    match channel {
        Channel::Sse => "Accept: text/event-stream\r\nCache-Control: no-cache\r\n",
        Channel::Socket => {
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        }
    }
}
