//! What a backend says about its response in `Restive-Edge`: the position that includes the effects
//! of the request, and what the response depends on. No I/O.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use http::{HeaderMap, HeaderValue};

use super::link::{Basis, Held, Link};
use crate::fanout::is_selecting;

/// Hashes of one response. 64: as many collections as a schema may have; a response with more is
/// validated.
const MAX_DEPENDS: usize = 64;
/// Fields that the cache evaluates itself, or that are in its key.
const OWN: [HeaderName; 7] =
    [AUTHORIZATION, CONNECTION, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE];

/// The header of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) position: u64,
    /// The account and mode.
    pub(crate) scope: Option<u64>,
    seconds: u64,
    depends: Vec<u64>,
    /// The path below which every request with this credential is refused.
    pub(crate) refused: Option<String>,
}

/// Why a response can be used without asking the backend.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    link: Arc<Link>,
    pub(super) session: u64,
    pub(super) position: u64,
    pub(super) scope: Option<u64>,
    pub(super) depends: Box<[u64]>,
    pub(super) sent: Instant,
    pub(super) until: Instant,
}

/// Evidence for a stored response.
#[derive(Clone, Debug)]
pub(crate) struct Exact {
    pub(super) evidence: Evidence,
    /// The number of the credential.
    pub(super) credential: u64,
    /// The fields of the request that could select another response.
    pub(super) request: u64,
    pub(super) sent_ms: u64,
}

impl Exact {
    pub(crate) fn weight_bytes(&self) -> usize {
        size_of::<Exact>() + size_of_val(&*self.evidence.depends)
    }
}

impl Said {
    pub(crate) fn parse(value: &HeaderValue) -> Option<Said> {
        let mut said = Said::default();
        let mut has_position = false;
        for part in value.to_str().ok()?.split("; ") {
            let (name, text) = part.split_once('=')?;
            match name {
                "position" => {
                    said.position = text.parse().ok()?;
                    has_position = true;
                }
                "scope" => said.scope = Some(u64::from_str_radix(text, 16).ok()?),
                "seconds" => said.seconds = text.parse().ok()?,
                "depends" => {
                    let hashes = text.split(',').map(|text| u64::from_str_radix(text, 16).ok());
                    said.depends = hashes.take(MAX_DEPENDS + 1).collect::<Option<_>>()?;
                }
                "refused" => said.refused = Some(text.to_owned()),
                // A newer server may say more, which an older proxy cannot judge.
                _ => return None,
            }
        }
        has_position.then_some(said)
    }
}

impl Evidence {
    /// None if the server has not said on what the response depends.
    pub(crate) fn new(link: &Arc<Link>, basis: &Basis, said: &Said) -> Option<Evidence> {
        let Said { scope, seconds, depends, .. } = said;
        if depends.is_empty() || depends.len() > MAX_DEPENDS {
            return None;
        }
        Some(Evidence {
            link: link.clone(),
            session: basis.session,
            position: basis.position,
            scope: *scope,
            depends: depends.as_slice().into(),
            sent: basis.sent,
            // From the time of the request on, which is before the server's clock was read.
            until: basis.sent.checked_add(Duration::from_secs(*seconds))?,
        })
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn held(&self, now: Instant) -> Held {
        self.link.held(self, now)
    }

    pub(super) fn seconds_left(&self, now: Instant) -> u64 {
        self.until.saturating_duration_since(now).as_secs() + 1
    }
}

/// A number for all fields of a request that could select another response. Unlike `Vary`, it does
/// not depend on what the server thinks of.
pub(super) fn fingerprint(headers: &HeaderMap) -> u64 {
    // The order of fields with different names has no meaning: the sum does not depend on it.
    let mut sum = 0u64;
    for name in headers.keys().filter(|name| is_selecting(name) && !OWN.contains(name)) {
        let mut hasher = DefaultHasher::new();
        name.as_str().hash(&mut hasher);
        headers.get_all(name).iter().for_each(|value| value.as_bytes().hash(&mut hasher));
        sum = sum.wrapping_add(hasher.finish());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Said> {
        Said::parse(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn a_header_that_is_not_understood_is_no_evidence() {
        let whole = parse("position=7; scope=ff; seconds=60; depends=1,a").unwrap();
        let expected = Said {
            position: 7,
            scope: Some(255),
            seconds: 60,
            depends: vec![1, 10],
            refused: None,
        };
        assert_eq!(whole, expected);
        for text in [
            "",
            "position",
            "position=-1",
            "position=x",
            "scope=1",
            "position=1; depends=",
            "position=1; depends=1,,2",
            "position=1; depends=xyz",
            "position=1; unless=2",
            "position=1;depends=1",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    fn evidence(link: &Arc<Link>, depends: &str, seconds: u64) -> Evidence {
        let basis = link.basis(Instant::now()).unwrap();
        let text = format!("position=0; scope=1; seconds={seconds}; depends={depends}");
        Evidence::new(link, &basis, &parse(&text).unwrap()).unwrap()
    }

    fn open() -> Arc<Link> {
        let link = Arc::new(Link::default());
        assert!(link.basis(Instant::now()).is_none(), "a closed feed proves nothing");
        link.open(HeaderValue::from_static("t"), 10);
        link
    }

    #[test]
    fn evidence_ends_with_a_change_the_feed_its_silence_or_its_time() {
        let link = open();
        let now = Instant::now();
        let [one, two] = ["1,2", "3"].map(|depends| evidence(&link, depends, 60));
        assert_eq!((one.held(now), two.held(now)), (Held::Yes, Held::Yes));
        link.change(11, [2].into_iter());
        assert_eq!((one.held(now), two.held(now)), (Held::Changed, Held::Yes));
        // A response that was asked for before the feed came to the change is not newer.
        assert_eq!(evidence(&link, "2", 60).held(now), Held::Changed);
        link.current(11);
        assert_eq!(evidence(&link, "2", 60).held(now), Held::Yes);
        assert_eq!(two.held(Instant::now() + super::super::link::MAX_SILENCE), Held::InDoubt);
        let short = evidence(&link, "2", 1);
        assert_eq!(short.held(Instant::now() + Duration::from_secs(1)), Held::InDoubt);
        link.open(HeaderValue::from_static("t"), 5);
        assert_eq!(two.held(now), Held::InDoubt, "another feed may have missed something");
        let three = evidence(&link, "3", 60);
        assert_eq!(three.held(Instant::now()), Held::Yes);
        link.close();
        assert_eq!(three.held(Instant::now()), Held::InDoubt);
    }

    #[test]
    fn a_response_that_depends_on_too_much_or_nothing_is_validated() {
        let link = open();
        let basis = link.basis(Instant::now()).unwrap();
        for (count, expected) in
            [(0, false), (1, true), (MAX_DEPENDS, true), (MAX_DEPENDS + 1, false)]
        {
            let depends = vec![1; count];
            let said = Said { seconds: 60, depends, ..Said::default() };
            assert_eq!(Evidence::new(&link, &basis, &said).is_some(), expected, "{count}");
        }
    }

    #[test]
    fn entries_of_an_account_wait_for_its_own_writes() {
        let link = open();
        let now = Instant::now();
        let own = evidence(&link, "1", 60);
        link.await_position(&parse("position=12; scope=1").unwrap());
        assert_eq!(own.held(now), Held::InDoubt);
        link.current(11);
        assert_eq!(own.held(now), Held::InDoubt);
        link.current(12);
        assert_eq!(own.held(now), Held::Yes, "the write changed something else");
        link.await_position(&parse("position=20; scope=2").unwrap());
        assert_eq!(own.held(now), Held::Yes, "the write of another account");
    }

    #[test]
    fn every_unknown_field_selects() {
        let number = |fields: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, value.parse().unwrap());
            }
            fingerprint(&headers)
        };
        let base = number(&[("accept", "a"), ("x-a", "1")]);
        assert_eq!(number(&[("x-a", "1"), ("user-agent", "b"), ("accept", "a")]), base);
        for fields in [
            &[("accept", "a")][..],
            &[("accept", "a"), ("x-a", "2")],
            &[("accept", "a"), ("x-a", "1"), ("x-a", "1")],
            &[("accept", "a"), ("x-a", "1"), ("restive-version", "2026-01-01")],
            &[("accept", "a"), ("x-a", "1"), ("cookie", "a=1")],
        ] {
            assert_ne!(number(fields), base, "{fields:?}");
        }
    }
}
