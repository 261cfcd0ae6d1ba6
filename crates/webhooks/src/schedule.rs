//! When to try again: the endpoint's schedule, and what its answers ask for. Pure.

use model::Timestamp;
use std::time::Duration;

/// Jitter only adds, so that no retry comes before its promised time: at most this part.
const JITTER_PART: f64 = 0.1;
/// No hint is longer than a year; keeps the arithmetic far from its ends.
const MAX_HINT_SECONDS: f64 = 31_536_000.0;

/// The wait after so many attempts; `chance` is between 0 and 1. None: there is no further attempt.
pub fn wait(schedule: &[u32], attempts: u32, chance: f64) -> Option<Duration> {
    let step = usize::try_from(attempts.checked_sub(1)?).ok()?;
    let seconds = f64::from(*schedule.get(step)?);
    Some(Duration::from_secs_f64(seconds * (1.0 + JITTER_PART * chance.clamp(0.0, 1.0))))
}

/// A `Retry-After`: seconds, fractions too, or a date; a past one means now. None: not understood.
pub fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Some(date) = Timestamp::parse_http_date(text) {
        return Some(Duration::from_millis(u64::try_from(date.0 - now.0).unwrap_or(0)));
    }
    let plain = |b: u8| b.is_ascii_digit() || b == b'.';
    if !text.bytes().all(plain) {
        return None;
    }
    let seconds: f64 = text.parse().ok()?;
    Some(Duration::from_secs_f64(seconds.min(MAX_HINT_SECONDS)))
}

/// How far a hint is believed.
pub fn longest(schedule: &[u32], floor: Duration) -> Duration {
    let step = schedule.iter().copied().max().unwrap_or(0);
    Duration::from_secs(u64::from(step)).max(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(784_111_777_000);

    #[test]
    fn the_schedule_is_followed_step_by_step_and_jitter_only_adds() {
        let schedule = [60, 300];
        for (attempts, chance, expected) in [
            (0, 0.0, None),
            (1, 0.0, Some(60.0)),
            (1, 1.0, Some(66.0)),
            (1, 9.0, Some(66.0)),
            (2, 0.5, Some(315.0)),
            (3, 0.0, None),
        ] {
            let expected = expected.map(Duration::from_secs_f64);
            assert_eq!(wait(&schedule, attempts, chance), expected, "{attempts} {chance}");
        }
        assert_eq!(wait(&[], 1, 0.0), None);
    }

    #[test]
    fn retry_after_is_read_in_both_forms() {
        for (text, expected) in [
            ("120", Some(120.0)),
            (" 1.5 ", Some(1.5)),
            ("0", Some(0.0)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10.0)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", Some(0.0)),
            ("99999999999999999999", Some(MAX_HINT_SECONDS)),
            ("", None),
            (".", None),
            ("-5", None),
            ("1e9", None),
            ("inf", None),
            ("soon", None),
        ] {
            let expected = expected.map(Duration::from_secs_f64);
            assert_eq!(retry_after(text, NOW), expected, "{text}");
        }
    }

    #[test]
    fn retry_after_is_limited_by_the_longest_delay_of_the_schedule() {
        let floor = Duration::from_secs(60);
        assert_eq!(longest(&[5, 300, 10], floor), Duration::from_secs(300));
        assert_eq!(longest(&[5], floor), floor);
        assert_eq!(longest(&[], floor), floor);
    }
}
