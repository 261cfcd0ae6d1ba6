//! The buckets that accounts are divided into, and which of them this node holds, with their
//! fences. Pure.

use model::Scope;
use model::write::LeaseNumber;
use std::time::Instant;

/// Accounts are divided into so many buckets. Each is served by one node at a time.
pub const BUCKETS: usize = 256;

pub type Bucket = u8;

/// `bucket_of` for a row `t`, in SQL.
pub(crate) const BUCKET_OF: &str = "((((t.scope >> 1) & 65535) * 40503) & 65535) >> 8";

/// The bucket of an account.
pub fn bucket_of(scope: Scope) -> Bucket {
    // Numbers of accounts often have the same distance: the factor is odd, near 65536 divided by
    // the golden ratio, and spreads them evenly.
    let low = scope.account_number() & 0xffff;
    u8::try_from(((low * 40_503) & 0xffff) >> 8).unwrap_or_default()
}

/// The row among the positions of endpoints that holds the position of every endpoint of a bucket
/// that has none of its own. Numbers of endpoints begin with 1.
pub fn head_of(bucket: Bucket) -> i64 {
    -1 - i64::from(bucket)
}

/// The right to serve a bucket. Each takeover increases the fence: what a former holder writes with
/// an older one changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    pub bucket: Bucket,
    pub fence: i64,
}

impl From<Lease> for LeaseNumber {
    fn from(lease: Lease) -> LeaseNumber {
        LeaseNumber { bucket: i64::from(lease.bucket), fence: lease.fence }
    }
}

/// What this node may do for a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Nothing: another node serves it, or none.
    #[default]
    None,
    Serve(Lease),
    /// Begin nothing, end what is in progress, and report that it is `drained`.
    HandOver(Lease),
}

impl Holding {
    pub fn lease(self) -> Option<Lease> {
        match self {
            Holding::None => None,
            Holding::Serve(lease) | Holding::HandOver(lease) => Some(lease),
        }
    }
}

/// The buckets of this node.
#[derive(Clone, Debug)]
pub struct Holdings(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// This process owns everything.
    All,
    Some {
        buckets: Box<[Holding; BUCKETS]>,
        until: Instant,
    },
}

impl Holdings {
    /// Of a process that owns everything.
    pub fn all() -> Holdings {
        Holdings(Kind::All)
    }

    /// Until a moment of this machine's monotonic clock that is before the end of the leases.
    pub fn some(held: impl IntoIterator<Item = Holding>, until: Instant) -> Holdings {
        let mut buckets = Box::new([Holding::None; BUCKETS]);
        for holding in held {
            if let Some(lease) = holding.lease() {
                buckets[usize::from(lease.bucket)] = holding;
            }
        }
        Holdings(Kind::Some { buckets, until })
    }

    /// The same without these leases, if it has any of them.
    pub(crate) fn without(&self, given: impl IntoIterator<Item = Lease>) -> Option<Holdings> {
        let Kind::Some { mut buckets, until } = self.0.clone() else { return None };
        let mut had = false;
        for lease in given {
            let holding = &mut buckets[usize::from(lease.bucket)];
            if holding.lease() == Some(lease) {
                (had, *holding) = (true, Holding::None);
            }
        }
        had.then_some(Holdings(Kind::Some { buckets, until }))
    }

    /// Whether this process owns everything.
    pub fn is_all(&self) -> bool {
        matches!(self.0, Kind::All)
    }

    /// Until when the leases may be used; `None`: for ever.
    pub fn until(&self) -> Option<Instant> {
        match &self.0 {
            Kind::All => None,
            Kind::Some { until, .. } => Some(*until),
        }
    }

    pub fn of_bucket(&self, bucket: Bucket) -> Holding {
        match &self.0 {
            Kind::All => Holding::None,
            Kind::Some { buckets, .. } => buckets[usize::from(bucket)],
        }
    }

    /// The lease of an account, if this node may do anything for it. `None` also if the process
    /// owns everything: then there is no lease.
    pub fn lease(&self, scope: Scope) -> Option<Lease> {
        self.of_bucket(bucket_of(scope)).lease()
    }

    /// Whether this node serves an account at this moment.
    pub fn serves(&self, scope: Scope, now: Instant) -> bool {
        match &self.0 {
            Kind::All => true,
            Kind::Some { buckets, until } => {
                let holding = buckets[usize::from(bucket_of(scope))];
                now < *until && matches!(holding, Holding::Serve(_))
            }
        }
    }

    /// How many buckets this node holds.
    pub fn count(&self) -> usize {
        match &self.0 {
            Kind::All => BUCKETS,
            Kind::Some { buckets, .. } => {
                buckets.iter().filter(|holding| holding.lease().is_some()).count()
            }
        }
    }

    /// The leases that this node has.
    pub fn leases(&self) -> impl Iterator<Item = Holding> + '_ {
        let buckets: &[Holding] = match &self.0 {
            Kind::All => &[],
            Kind::Some { buckets, .. } => &buckets[..],
        };
        buckets.iter().copied().filter(|holding| holding.lease().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn accounts_spread_over_the_buckets_whatever_their_distance() {
        for distance in [1, 2, 3, 4, 7, 8, 16, 100, 256] {
            let mut counts = [0_usize; BUCKETS];
            for account in 0..2560 {
                counts[usize::from(bucket_of(Scope::new(5 + account * distance, true)))] += 1;
            }
            let most = counts.iter().max().copied().unwrap_or(0);
            assert!(most <= 30, "{most} of 2560 in one bucket, distance {distance}");
        }
        let modes = [false, true].map(|mode| bucket_of(Scope::new(77, mode)));
        assert_eq!(modes[0], modes[1], "both modes are one account");
    }

    #[test]
    fn leases_end_by_the_clock_of_the_node() {
        let now = Instant::now();
        let scope = Scope::new(9, true);
        let lease = Lease { bucket: bucket_of(scope), fence: 3 };
        let later = now + Duration::from_secs(10);
        let serving = Holdings::some([Holding::Serve(lease)], later);
        assert!(serving.serves(scope, now) && !serving.serves(scope, later));
        assert_eq!((serving.lease(scope), serving.count()), (Some(lease), 1));
        let leaving = Holdings::some([Holding::HandOver(lease)], later);
        assert!(!leaving.serves(scope, now));
        assert_eq!(leaving.lease(scope), Some(lease));
        assert_eq!(leaving.without([lease]).map(|held| held.count()), Some(0));
        let former = Lease { fence: 2, ..lease };
        assert!(leaving.without([former]).is_none(), "nothing has changed");
        assert!(Holdings::all().serves(scope, later) && Holdings::all().lease(scope).is_none());
        let mut heads: Vec<i64> = (0..=255).map(head_of).collect();
        heads.dedup();
        assert!(heads.len() == BUCKETS && heads.iter().all(|head| *head < 0));
    }
}
