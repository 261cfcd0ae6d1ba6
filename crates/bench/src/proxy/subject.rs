//! The three compared proxies behind one interface: how each is configured and started in front of
//! one backend. All on one thread, without an access log, with kept connections to the backend and
//! the usual forwarding headers.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::process::{Pinning, Service};

use super::client::{HOST, Trust};

/// Kept connections to the backend: more than any load has lanes.
const KEPT: usize = 256;
/// Memory for cached responses, in MiB; one response is cached.
const CACHE_MIB: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Haproxy,
    Restive,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Nginx, Kind::Haproxy, Kind::Restive];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::Haproxy => "HAProxy",
            Kind::Restive => "restive",
        }
    }
}

/// A self-signed certificate in the formats that the proxies read.
pub struct Certificate {
    folder: TempDir,
    pub trust: Trust,
}

impl Certificate {
    pub fn make() -> Result<Certificate> {
        let folder = tempfile::tempdir()?;
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(folder.path().join("both.pem"), format!("{chain}{key}"))?;
        std::fs::write(folder.path().join("chain.pem"), chain)?;
        std::fs::write(folder.path().join("key.pem"), key)?;
        Ok(Certificate { folder, trust: Trust::new(made.cert.der().clone()) })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// How a proxy is started.
pub struct Setup<'a> {
    pub pinning: Pinning,
    pub server: &'a Path,
    pub backend: &'a str,
    pub certificate: Option<&'a Certificate>,
    /// restive caches what the backend allows by default; the others only when told.
    pub cache: bool,
    /// Concurrent connections of clients and to the backend.
    pub connections: usize,
}

/// A running proxy.
pub struct Subject {
    pub kind: Kind,
    pub service: Service,
    _folder: TempDir,
}

impl Setup<'_> {
    pub fn start(&self, kind: Kind) -> Result<Subject> {
        let folder = tempfile::tempdir()?;
        let service = match kind {
            Kind::Nginx => self.nginx(folder.path())?,
            Kind::Haproxy => self.haproxy(folder.path())?,
            Kind::Restive => self.restive(folder.path())?,
        };
        Ok(Subject { kind, service, _folder: folder })
    }

    /// A single process, which is its own worker. Buffers have their default sizes; responses are
    /// never written to temporary files.
    fn nginx(&self, folder: &Path) -> Result<Service> {
        let (address, path) = (free_address()?, folder.display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}; "))
            .concat();
        let (listen, tls) = match self.certificate {
            None => (address.clone(), String::new()),
            Some(certificate) => (
                format!("{address} ssl http2"),
                format!(
                    "ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.3;",
                    certificate.file("chain.pem").display(),
                    certificate.file("key.pem").display()
                ),
            ),
        };
        let (cache_path, cache) = match self.cache {
            true => (
                format!(
                    "proxy_cache_path {path}/cache levels=1:2 keys_zone=bench:1m \
                     max_size={CACHE_MIB}m use_temp_path=off;"
                ),
                "proxy_cache bench; proxy_cache_lock on;",
            ),
            false => (String::new(), ""),
        };
        let configuration = format!(
            "worker_processes 1; daemon off; master_process off;\n\
             error_log stderr crit; pid {path}/pid;\n\
             events {{ worker_connections {connections}; }}\n\
             http {{ access_log off; {temporary} {cache_path}\n\
             sendfile on; tcp_nopush on; server_tokens off;\n\
             keepalive_requests 1000000000; keepalive_timeout 600s;\n\
             upstream backend {{ server {backend}; keepalive {KEPT}; \
             keepalive_requests 1000000000; }}\n\
             server {{ listen {listen} backlog=4096; {tls}\n\
             location / {{ proxy_pass http://backend; proxy_http_version 1.1;\n\
             proxy_max_temp_file_size 0; {cache}\n\
             proxy_set_header Connection \"\"; proxy_set_header Host $host;\n\
             proxy_set_header X-Real-IP $remote_addr;\n\
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
             proxy_set_header X-Forwarded-Proto $scheme;\n\
             proxy_set_header X-Forwarded-Host $host; }} }} }}\n",
            connections = 2 * self.connections + KEPT,
            backend = self.backend,
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, configuration)?;
        let mut command = self.pinning.command(Path::new("nginx"));
        command.args(["-e", "stderr", "-p"]).arg(folder).arg("-c").arg(&file);
        Service::start_at(command, address)
    }

    fn haproxy(&self, folder: &Path) -> Result<Service> {
        let address = free_address()?;
        let tls = self.certificate.map(|certificate| {
            let file = certificate.file("both.pem");
            format!(" ssl crt {} ssl-min-ver TLSv1.3 alpn h2,http/1.1", file.display())
        });
        let (section, rules) = match self.cache {
            true => (
                format!("cache bench\n    total-max-size {CACHE_MIB}\n    max-age 60\n"),
                "    http-request cache-use bench\n    http-response cache-store bench\n",
            ),
            false => (String::new(), ""),
        };
        let configuration = format!(
            "global\n    nbthread 1\n    maxconn {connections}\n    no strict-limits\n\
             defaults\n    mode http\n    maxconn {connections}\n    timeout connect 5s\n    \
             timeout client 600s\n    timeout server 600s\n    timeout http-keep-alive 600s\n\
             {section}\
             frontend front\n    bind {address} backlog 4096{tls}\n    default_backend back\n\
             backend back\n    http-reuse always\n    option forwardfor\n\
             {rules}    \
             http-request set-header X-Real-IP %[src]\n    \
             http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]\n    \
             http-request set-header X-Forwarded-Host %[req.hdr(host)]\n    \
             server one {backend} pool-max-conn {KEPT}\n",
            connections = self.connections + KEPT,
            tls = tls.unwrap_or_default(),
            backend = self.backend,
        );
        let file = folder.join("haproxy.cfg");
        std::fs::write(&file, configuration)?;
        let mut command = self.pinning.command(Path::new("haproxy"));
        command.args(["-db", "-q", "-f"]).arg(&file);
        Service::start_at(command, address)
    }

    fn restive(&self, folder: &Path) -> Result<Service> {
        let mut command = restive(self.pinning, self.server, folder);
        command.args(["--to", self.backend]);
        if let Some(certificate) = self.certificate {
            command.arg("--tls-cert").arg(certificate.file("chain.pem"));
            command.arg("--tls-key").arg(certificate.file("key.pem")).args(["--http3", "off"]);
        }
        Service::start(command)
    }
}

/// `restive proxy` without its backends.
pub fn restive(pinning: Pinning, server: &Path, folder: &Path) -> Command {
    let mut command = pinning.command(server);
    command.args(["proxy", "--listen", "127.0.0.1:0", "--access-log", "off", "--data"]);
    command.arg(folder);
    command
}

/// Reports a missing program before a scenario starts.
pub fn installed(programs: &[&str]) -> Result<()> {
    for program in programs {
        let found = Command::new(program).arg("-v").output();
        ensure!(found.is_ok(), "{program} is not installed: run `cargo xtask bench proxy`");
    }
    Ok(())
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
