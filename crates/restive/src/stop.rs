//! The end of the process. A separate thread receives the stop signals, so that they are noticed
//! even if something hangs. The first signal starts the drain. A second signal, or the time limit
//! of the drain, ends the process at once.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::Watchdog;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Exit code if a part of the service did not stop in time: `EX_SOFTWARE` of sysexits.h.
pub const EXIT_STUCK: u8 = 70;
/// A shell reports a process that ended by a signal with this plus the signal's number.
const EXIT_SIGNAL: u8 = 128;
/// Time for the drain beyond the times of its parts. 5 s: each part ends a moment after its own
/// time, and then the database is closed.
pub const GRACE: Duration = Duration::from_secs(5);
/// Time limit of the last log line: the reader of the log may be what hangs.
const LAST_LOG_LINE: Duration = Duration::from_millis(500);
/// A loop without progress for this long at the time limit is named in the log.
const SILENT: Duration = Duration::from_secs(2);

/// The part of the service that is being stopped.
#[derive(Clone, Default)]
pub struct Progress(Arc<Mutex<Option<&'static str>>>);

impl Progress {
    fn enter(&self, part: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(part);
    }

    fn part(&self) -> Option<&'static str> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of the service that is being stopped.
pub struct Part<'a> {
    name: &'static str,
    within: Duration,
    end: Pin<Box<dyn Future<Output = ()> + 'a>>,
}

impl<'a> Part<'a> {
    pub fn new(
        name: &'static str,
        within: Duration,
        end: impl Future<Output = ()> + 'a,
    ) -> Part<'a> {
        Part { name, within, end: Box::pin(end) }
    }
}

/// Stops the parts one after the other. A part that exceeds its time is left behind, so that the
/// others are still stopped. Returns the names of the parts left behind.
pub async fn in_order(parts: Vec<Part<'_>>, progress: &Progress) -> Vec<&'static str> {
    let mut left = Vec::new();
    for Part { name, within, end } in parts {
        progress.enter(name);
        if timeout(within, end).await.is_err() {
            tracing::error!(part = name, "did not stop in time");
            left.push(name);
        }
    }
    progress.enter("database");
    left
}

/// Completes at the first SIGTERM or SIGINT. `most` is the time limit from there to the end of the
/// process. Signals are received from the return of this function on: an earlier signal would end
/// the process at once.
pub fn signalled(
    most: Duration,
    watchdog: Arc<Watchdog>,
    progress: Progress,
) -> anyhow::Result<impl Future<Output = ()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        let _context = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let next = async move || {
        let kind = tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        };
        u8::try_from(kind.as_raw_value()).unwrap_or_default()
    };
    let (stop, stopped) = oneshot::channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let ending = runtime.block_on(watch_drain(next, stop, most));
        let code = log_reason(&ending, most, &watchdog, &progress);
        std::process::exit(code.into());
    })?;
    Ok(async {
        let _ = stopped.await;
    })
}

/// Why the process ends before the drain has finished.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// The drain exceeds its time.
    Late,
    /// A second signal, with its number.
    Signal(u8),
}

/// Forwards the first signal and waits for a reason to end the process. If the drain finishes in
/// time, the process ends first and the reason is not used.
async fn watch_drain(
    mut next: impl AsyncFnMut() -> u8,
    stop: oneshot::Sender<()>,
    most: Duration,
) -> Ending {
    next().await;
    let _ = stop.send(());
    tokio::select! {
        number = next() => Ending::Signal(number),
        () = sleep(most) => Ending::Late,
    }
}

/// Logs the reason, if the log accepts it in time; returns the exit code.
fn log_reason(ending: &Ending, most: Duration, watchdog: &Watchdog, progress: &Progress) -> u8 {
    let part = progress.part().unwrap_or("none yet");
    let silent: Vec<&str> = watchdog.stuck(SILENT).iter().map(|stuck| stuck.name).collect();
    let loops = silent.join(", ");
    let late = *ending == Ending::Late;
    let (logged, log_done) = std::sync::mpsc::channel();
    let log = move || {
        match late {
            true => tracing::error!(
                part,
                loops,
                limit_seconds = most.as_secs(),
                "did not stop in time: the process ends now"
            ),
            false => tracing::warn!(part, loops, "a second signal: the process ends now"),
        }
        let _ = logged.send(());
    };
    if std::thread::Builder::new().spawn(log).is_ok() {
        let _ = log_done.recv_timeout(LAST_LOG_LINE);
    }
    match ending {
        Ending::Late => EXIT_STUCK,
        Ending::Signal(number) => EXIT_SIGNAL + number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::future::pending;
    use std::time::Instant;

    const MOST: Duration = Duration::from_secs(20);

    /// Signals that arrive after these seconds; then none.
    fn signals(times: &[(u64, u8)]) -> impl AsyncFnMut() -> u8 {
        let mut left: VecDeque<_> = times.iter().copied().collect();
        async move || match left.pop_front() {
            Some((seconds, number)) => {
                sleep(Duration::from_secs(seconds)).await;
                number
            }
            None => pending().await,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_or_a_second_signal_ends_a_drain_that_hangs() {
        for (times, seconds, expected) in [
            (&[(7, 15)][..], 27, Ending::Late),
            (&[(7, 15), (3, 2)], 10, Ending::Signal(2)),
            (&[(0, 2), (0, 15)], 0, Ending::Signal(15)),
        ] {
            let began = tokio::time::Instant::now();
            let (stop, mut stopped) = oneshot::channel();
            assert_eq!(watch_drain(signals(times), stop, MOST).await, expected);
            assert_eq!(began.elapsed().as_secs(), seconds);
            assert_eq!(stopped.try_recv(), Ok(()), "the service received the first");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_hangs_is_named_and_the_others_still_stop() {
        let ended = RefCell::new(Vec::new());
        let end = |name| {
            let ended = &ended;
            async move { ended.borrow_mut().push(name) }
        };
        let second = Duration::from_secs(1);
        let parts = vec![
            Part::new("connections", second, end("connections")),
            Part::new("hangs", second, pending()),
            Part::new("webhooks", second, end("webhooks")),
        ];
        let progress = Progress::default();
        let began = tokio::time::Instant::now();
        assert_eq!(in_order(parts, &progress).await, ["hangs"]);
        assert_eq!(began.elapsed(), second);
        assert_eq!(*ended.borrow(), ["connections", "webhooks"]);
        assert_eq!(progress.part(), Some("database"));
    }

    #[test]
    fn a_blocked_log_does_not_delay_the_end_and_the_exit_code_gives_the_reason() {
        let (watchdog, progress) = (Watchdog::new(), Progress::default());
        let began = Instant::now();
        for (ending, code) in [(Ending::Late, 70), (Ending::Signal(15), 143)] {
            assert_eq!(log_reason(&ending, MOST, &watchdog, &progress), code);
        }
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
