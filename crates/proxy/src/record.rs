//! The line of a request in the access log, which is written however the request ends.

use std::net::IpAddr;
use std::time::Instant;

use http::{Method, StatusCode, Uri};
use wire::{Exchange, Response};

/// What the proxy needs from the process.
pub trait Outside: Send + Sync {
    /// Writes a line of the access log.
    fn log(&self, line: &Line<'_>);

    /// Random bytes, for the name of this instance.
    fn random(&self) -> u64;
}

/// One request in the access log.
#[derive(Debug)]
pub struct Line<'a> {
    pub request_id: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub duration_us: u64,
    /// Bytes of the body, where its length is known.
    pub bytes: u64,
    pub client: IpAddr,
    pub error: Option<&'a str>,
    /// The server that answered.
    pub backend: Option<&'a str>,
}

/// nginx's status for a client that was gone before its response: nobody receives it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A request in progress. Dropped before [`Record::finish`], it is logged as given up.
pub(crate) struct Record<'a> {
    outside: &'a dyn Outside,
    id: &'a str,
    began: Instant,
    method: Method,
    uri: Uri,
    client: IpAddr,
    is_logged: bool,
}

impl<'a> Record<'a> {
    pub(crate) fn begin(outside: &'a dyn Outside, id: &'a str, exchange: &Exchange) -> Record<'a> {
        Record {
            outside,
            id,
            began: Instant::now(),
            method: exchange.method.clone(),
            uri: exchange.uri.clone(),
            client: exchange.client,
            is_logged: false,
        }
    }

    pub(crate) fn duration_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The response is on its way.
    pub(crate) fn finish(
        mut self,
        response: &Response,
        error: Option<&str>,
        backend: Option<&str>,
    ) {
        let bytes = response.body.length_bytes().unwrap_or(0);
        self.log(response.status, bytes, error, backend);
    }

    fn log(&mut self, status: StatusCode, bytes: u64, error: Option<&str>, backend: Option<&str>) {
        self.is_logged = true;
        self.outside.log(&Line {
            request_id: self.id,
            method: self.method.as_str(),
            path: self.uri.path(),
            status: status.as_u16(),
            duration_us: self.duration_us(),
            bytes,
            client: self.client,
            error,
            backend,
        });
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.is_logged
            && let Ok(status) = StatusCode::from_u16(CLIENT_CLOSED_REQUEST)
        {
            self.log(status, 0, Some("client_closed_request"), None);
        }
    }
}
