//! The settings of a client, and their limits.

use super::address::Address;
use super::cache::Cache;
use super::connection::{Connections, Trust};
use super::credentials::{Credentials, TokenCallback, TokenFuture};
use super::{Client, Error, Inner};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Builds a [`Client`].
#[must_use]
pub struct Builder {
    url: String,
    key: Option<String>,
    token: Option<TokenCallback>,
    trust: Trust,
    settings: Settings,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) version: Option<String>,
    pub(super) version_header: String,
    pub(super) retries: u32,
    pub(super) connect_timeout: Duration,
    pub(super) attempt_timeout: Duration,
    pub(super) max_wait: Duration,
    pub(super) max_response_bytes: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            version: None,
            version_header: "restive-version".to_owned(),
            // Four attempts within about four seconds cover a restart of the server.
            retries: 4,
            connect_timeout: Duration::from_secs(10),
            // Longer than the server takes for any request except streams.
            attempt_timeout: Duration::from_secs(35),
            max_wait: Duration::from_secs(60),
            // A page of 100 records of 64 KiB fits.
            max_response_bytes: 16 << 20,
        }
    }
}

impl Builder {
    pub(super) fn new(url: &str) -> Builder {
        Builder {
            url: url.to_owned(),
            key: None,
            token: None,
            trust: Trust::System,
            settings: Settings::default(),
        }
    }

    /// The API key, or another token that does not change.
    pub fn key(mut self, key: &str) -> Builder {
        self.key = Some(key.to_owned());
        self
    }

    /// Where tokens come from. The client calls it for the first request, and again when the
    /// server refuses the token or reports that it has expired.
    ///
    /// ```
    /// use restive_kit::client::Client;
    /// let builder = Client::builder("https://api.example.com")
    ///     .tokens(|| Box::pin(async { Ok("ct_…".to_owned()) }));
    /// ```
    pub fn tokens(mut self, tokens: impl Fn() -> TokenFuture + Send + Sync + 'static) -> Builder {
        self.token = Some(Arc::new(tokens));
        self
    }

    /// Pins the version of the API, such as `2026-11-01`.
    pub fn version(mut self, date: &str) -> Builder {
        self.settings.version = Some(date.to_owned());
        self
    }

    /// The header with the version, for servers that call it otherwise: `Stripe-Version`.
    pub fn version_header(mut self, name: &str) -> Builder {
        self.settings.version_header = name.to_ascii_lowercase();
        self
    }

    /// Trusts these certificate authorities (PEM) instead of the system's.
    pub fn authorities(mut self, pem: &[u8]) -> Builder {
        self.trust = Trust::Pem(pem.to_owned());
        self
    }

    /// Maximum repetitions of one request; 4 by default, 0 for none.
    pub fn retries(mut self, retries: u32) -> Builder {
        self.settings.retries = retries;
        self
    }

    /// Time for one attempt, from the connection to the end of the response; 35 s by default.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Builder {
        self.settings.attempt_timeout = timeout;
        self
    }

    /// Time for DNS lookup, connection and TLS handshake; 10 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.settings.connect_timeout = timeout;
        self
    }

    /// The longest `Retry-After` that the client waits for; 60 s by default. After a longer one
    /// the request fails, and the error has the value.
    pub fn max_wait(mut self, wait: Duration) -> Builder {
        self.settings.max_wait = wait;
        self
    }

    /// Maximum size of a response; 16 MiB by default.
    pub fn max_response_bytes(mut self, bytes: usize) -> Builder {
        self.settings.max_response_bytes = bytes;
        self
    }

    pub fn build(self) -> Result<Client, Error> {
        let address = Address::parse(&self.url)?;
        let credentials = match (&self.key, self.token) {
            (Some(_), Some(_)) => {
                let why = "a client has either a key or a token callback".to_owned();
                return Err(Error::Invalid(why));
            }
            (Some(key), None) => Credentials::fixed(key)?,
            (None, Some(token)) => Credentials::refreshed(token),
            (None, None) => Credentials::None,
        };
        let connections = Connections::new(&address, &self.settings, &self.trust)?;
        Ok(Client(Arc::new(Inner {
            address,
            settings: self.settings,
            credentials,
            connections,
            cache: Mutex::new(Cache::default()),
        })))
    }
}
