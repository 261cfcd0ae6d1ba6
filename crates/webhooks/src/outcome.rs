//! What a response means for the delivery and for its endpoint. Pure: a table of rules.

use crate::schedule;
use model::Timestamp;
use std::time::Duration;
use store::Status;

/// What came back, as far as the rules look at it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer<'a> {
    /// None when no whole answer came.
    pub status: Option<u16>,
    pub retry_after: Option<&'a str>,
    /// The header `webhook-delivery`.
    pub control: Option<&'a str>,
}

/// Input of the rules in addition to the response.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// How many attempts there were, this one included.
    pub attempts: u32,
    pub schedule: &'a [u32],
    /// `Retry-After` is believed at least this far.
    pub pause_floor: Duration,
    /// Between 0 and 1.
    pub chance: f64,
    /// By the clock that retries go by.
    pub now: Timestamp,
    /// By the clock that dates in answers go by.
    pub wall: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AttemptVerdict {
    pub status: Status,
    pub next: Option<Timestamp>,
    /// Why then.
    pub reason: Option<&'static str>,
    /// The endpoint wants to be left alone for so long.
    pub pause: Option<Duration>,
    /// The endpoint wants no more, and why.
    pub disable: Option<&'static str>,
}

pub const GONE: &str = "gone: it answered 410";
pub const ASKED: &str = "asked by the endpoint";

pub fn judge(answer: &Answer<'_>, plan: &Plan<'_>) -> AttemptVerdict {
    let control = answer.control.map(str::trim);
    let stop = |word: &str| control.is_some_and(|control| control.eq_ignore_ascii_case(word));
    let disable = match answer.status {
        Some(410) => Some(GONE),
        _ if stop("disable") => Some(ASKED),
        _ => None,
    };
    let settled =
        |status| AttemptVerdict { status, next: None, reason: None, pause: None, disable };
    if matches!(answer.status, Some(200..=299)) {
        return settled(Status::Succeeded);
    }
    if disable.is_some() || stop("abort-message") {
        return settled(Status::Failed);
    }
    let pause = match answer.status {
        Some(429 | 503) => answer.retry_after.and_then(|text| {
            let hint = schedule::retry_after(text, plan.wall)?;
            Some(hint.min(schedule::longest(plan.schedule, plan.pause_floor)))
        }),
        _ => None,
    };
    let Some(wait) = schedule::wait(plan.schedule, plan.attempts, plan.chance) else {
        return AttemptVerdict { pause, ..settled(Status::Failed) };
    };
    let (wait, reason) = match pause {
        Some(pause) if pause > wait => (pause, "Retry-After of the answer"),
        _ => (wait, "retry schedule"),
    };
    let next = Timestamp(plan.now.0.saturating_add(millis(wait)));
    AttemptVerdict {
        status: Status::Pending,
        next: Some(next),
        reason: Some(reason),
        pause,
        disable: None,
    }
}

/// Rounded up: a retry never comes early.
fn millis(wait: Duration) -> i64 {
    i64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_760_000_000_000);

    fn check(
        answer: Answer<'_>,
        attempts: u32,
        status: Status,
        wait_s: Option<i64>,
    ) -> AttemptVerdict {
        let plan = Plan {
            attempts,
            schedule: &[10, 100],
            pause_floor: Duration::from_secs(60),
            chance: 0.0,
            now: NOW,
            wall: NOW,
        };
        let verdict = judge(&answer, &plan);
        assert_eq!(verdict.status, status, "{answer:?}");
        assert_eq!(verdict.next, wait_s.map(|s| Timestamp(NOW.0 + s * 1000)), "{answer:?}");
        assert_eq!(verdict.reason.is_some(), wait_s.is_some());
        verdict
    }

    fn status(status: u16) -> Answer<'static> {
        Answer { status: Some(status), ..Answer::default() }
    }

    #[test]
    fn only_2xx_is_success_and_everything_else_is_tried_again_as_scheduled() {
        for code in [200, 201, 204, 299] {
            check(status(code), 1, Status::Succeeded, None);
        }
        for code in [199, 300, 301, 302, 308, 400, 401, 404, 422, 429, 500, 502, 503, 504, 999] {
            let verdict = check(status(code), 1, Status::Pending, Some(10));
            assert_eq!((verdict.pause, verdict.disable), (None, None));
        }
        check(Answer::default(), 1, Status::Pending, Some(10));
        check(Answer::default(), 2, Status::Pending, Some(100));
        check(Answer::default(), 3, Status::Failed, None);
        check(Answer::default(), 9, Status::Failed, None);
    }

    #[test]
    fn gone_and_disable_end_the_endpoint_and_abort_ends_one_delivery() {
        let control = |code, control| Answer { control: Some(control), ..status(code) };
        for (answer, expected, disable) in [
            (status(410), Status::Failed, Some(GONE)),
            (control(500, "disable"), Status::Failed, Some(ASKED)),
            (control(200, " Disable "), Status::Succeeded, Some(ASKED)),
            (control(500, "abort-message"), Status::Failed, None),
            (control(200, "abort-message"), Status::Succeeded, None),
        ] {
            assert_eq!(check(answer, 1, expected, None).disable, disable, "{answer:?}");
        }
        check(control(500, "whatever"), 1, Status::Pending, Some(10));
    }

    #[test]
    fn retry_after_delays_pauses_and_is_bounded() {
        let hint = |code, text| Answer { retry_after: Some(text), ..status(code) };
        for (answer, attempts, wait, pause) in [
            (hint(503, "30"), 1, Some(30), Some(30)),
            (hint(429, "5"), 1, Some(10), Some(5)),
            (hint(429, "1000"), 1, Some(100), Some(100)),
            (hint(429, "0"), 1, Some(10), Some(0)),
            (hint(429, "soon"), 1, Some(10), None),
            (hint(500, "30"), 1, Some(10), None),
            (hint(503, "30"), 3, None, Some(30)),
        ] {
            let expected = wait.map_or(Status::Failed, |_| Status::Pending);
            let verdict = check(answer, attempts, expected, wait);
            assert_eq!(verdict.pause, pause.map(Duration::from_secs), "{answer:?}");
        }
    }
}
