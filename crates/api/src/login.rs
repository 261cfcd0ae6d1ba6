//! The token that the server prints at its start, by which the console gets a key without one to
//! copy. It is in memory only, for one use, and for a few minutes: who reads the log later cannot
//! use it.

use crate::keys;
use parking_lot::Mutex;
use std::time::Duration;
use subtle::ConstantTimeEq as _;

/// How long the printed token is valid: long enough to open the link, too short to find it in a
/// log.
const VALID: Duration = Duration::from_secs(600);

/// The login of the console.
#[derive(Default)]
pub struct Login(Mutex<State>);

#[derive(Default)]
pub enum State {
    /// There is no console.
    #[default]
    Off,
    Waiting {
        digest: [u8; 32],
        /// By the time since the start of the process.
        until: Duration,
    },
    Used,
}

impl Login {
    /// Makes a new token valid, in place of an earlier one.
    pub fn begin(&self, random: &[u8], uptime: Duration) -> String {
        let token = keys::hex(random);
        let digest = keys::digest(&token);
        *self.0.lock() = State::Waiting { digest, until: uptime + VALID };
        token
    }

    pub fn is_offered(&self) -> bool {
        !matches!(*self.0.lock(), State::Off)
    }

    /// Uses the token up. Digests are compared, in constant time.
    pub fn take(&self, token: &str, uptime: Duration) -> Option<State> {
        let sent = keys::digest(token);
        let mut state = self.0.lock();
        match &*state {
            State::Waiting { digest, until }
                if bool::from(digest.ct_eq(&sent)) && uptime < *until =>
            {
                Some(std::mem::replace(&mut *state, State::Used))
            }
            _ => None,
        }
    }

    /// The token is valid again: no key was made for it.
    pub fn give_back(&self, state: State) {
        *self.0.lock() = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_once_and_for_ten_minutes() {
        let login = Login::default();
        assert!(!login.is_offered() && login.take("", Duration::ZERO).is_none());
        let token = login.begin(&[7; 24], Duration::from_secs(5));
        assert!(login.take("another", Duration::from_secs(6)).is_none());
        assert!(login.take(&token, Duration::from_secs(605)).is_none(), "too late");
        let state = login.take(&token, Duration::from_secs(604)).unwrap();
        assert!(login.take(&token, Duration::from_secs(6)).is_none(), "used");
        login.give_back(state);
        assert!(login.take(&token, Duration::from_secs(6)).is_some());
        let next = login.begin(&[8; 24], Duration::from_secs(6));
        assert!(login.take(&token, Duration::from_secs(7)).is_none(), "replaced");
        assert!(login.take(&next, Duration::from_secs(7)).is_some());
    }
}
