//! Latencies in buckets that grow with the value: 64 per doubling, so a percentile is right to
//! 1.6 % and recording is a few instructions.

use std::time::Duration;

/// log2 of the buckets per doubling.
const PRECISION: u32 = 6;
/// Up to 2^40 ns, 18 minutes: longer than any run.
const BUCKETS: usize = ((40 - PRECISION as usize) + 1) << PRECISION;

#[derive(Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bucket_of(nanos).min(BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.count += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (own, others) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += others;
        }
        self.count += other.count;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Microseconds below which the given part (0 to 1) of all values lies; 0 when empty.
    pub fn micros(&self, part: f64) -> f64 {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return lower_bound(bucket) as f64 / 1_000.0;
            }
        }
        0.0
    }
}

fn bucket_of(value: u64) -> usize {
    if value < 1 << PRECISION {
        return value as usize;
    }
    let shift = value.ilog2() - PRECISION;
    ((shift as usize) << PRECISION) + (value >> shift) as usize
}

fn lower_bound(bucket: usize) -> u64 {
    if bucket < 2 << PRECISION {
        return bucket as u64;
    }
    let shift = (bucket >> PRECISION) - 1;
    let mantissa = (bucket & ((1 << PRECISION) - 1)) | (1 << PRECISION);
    (mantissa as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_dense_and_precise() {
        for value in (0..2_000).chain([12_345, 999_999, 123_456_789, (1 << 40) - 1]) {
            let bound = lower_bound(bucket_of(value));
            assert!(bound <= value && value - bound <= value / 64, "{value}: {bound}");
            assert!(lower_bound(bucket_of(value) + 1) > value, "{value}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        let (p50, p99) = (histogram.micros(0.5), histogram.micros(0.99));
        assert!((490.0..=500.0).contains(&p50) && (970.0..=990.0).contains(&p99), "{p50} {p99}");
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((twice.count(), twice.micros(0.5)), (2_000, p50));
        assert_eq!(Histogram::default().micros(0.5), 0.0);
    }
}
