//! The credentials of requests: a fixed key, or tokens from a callback of the caller.

use super::{BoxError, Error};
use http::HeaderValue;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Mutex;

/// What a token callback returns.
pub type TokenFuture = Pin<Box<dyn Future<Output = Result<String, BoxError>> + Send>>;

pub(super) type TokenCallback = Arc<dyn Fn() -> TokenFuture + Send + Sync>;

pub(super) enum Credentials {
    None,
    Fixed(HeaderValue),
    /// The token in use, and where the next one comes from.
    Refreshed {
        callback: TokenCallback,
        current: Mutex<Option<HeaderValue>>,
    },
}

impl Credentials {
    pub(super) fn fixed(key: &str) -> Result<Credentials, Error> {
        Ok(Credentials::Fixed(bearer(key)?))
    }

    pub(super) fn refreshed(callback: TokenCallback) -> Credentials {
        Credentials::Refreshed { callback, current: Mutex::new(None) }
    }

    /// The value of `Authorization`. Waits for the callback if there is no token yet; requests at
    /// the same time wait for one call.
    pub(super) async fn header(&self) -> Result<Option<HeaderValue>, Error> {
        match self {
            Credentials::None => Ok(None),
            Credentials::Fixed(value) => Ok(Some(value.clone())),
            Credentials::Refreshed { callback, current } => {
                let mut current = current.lock().await;
                if current.is_none() {
                    *current = Some(bearer(&callback().await.map_err(Error::Token)?)?);
                }
                Ok(current.clone())
            }
        }
    }

    /// The token in use, if there is a callback for another one.
    #[cfg(feature = "follow")]
    pub(super) async fn current(&self) -> Option<HeaderValue> {
        match self {
            Credentials::Refreshed { current, .. } => current.lock().await.clone(),
            _ => None,
        }
    }

    /// The server refused this value: the next request gets a new token. False if there is none to
    /// get.
    pub(super) async fn refuse(&self, refused: Option<&HeaderValue>) -> bool {
        let Credentials::Refreshed { current, .. } = self else { return false };
        let mut current = current.lock().await;
        // Another request may have replaced it in the meantime.
        if current.as_ref() == refused {
            *current = None;
        }
        true
    }
}

fn bearer(key: &str) -> Result<HeaderValue, Error> {
    let invalid = || Error::Invalid("the key must be visible ASCII characters".to_owned());
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| invalid())?;
    value.set_sensitive(true);
    Ok(value)
}
