//! The end of the process. The signals to stop are received on a thread of their own, so that they
//! are noticed whatever hangs. The first one starts the drain; the second one, or the end of the
//! time the drain may take, ends the process at once.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::Watchdog;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Exit code when a part of the service did not stop in its time: `EX_SOFTWARE` of sysexits.h.
pub const EXIT_STUCK: u8 = 70;
/// A process that ends by a signal has this plus the signal's number as its exit code in a shell.
const EXIT_SIGNAL: u8 = 128;
/// What the drain may take in all beyond the times that its parts may take. 5 s: each part ends a
/// moment after its own time, and then the database is closed.
pub const GRACE: Duration = Duration::from_secs(5);
/// How long the last log line may take: whoever reads the log may be what hangs.
const LAST_WORD: Duration = Duration::from_millis(500);
/// A loop that has not moved for so long when the time is over is named in the log.
const SILENT: Duration = Duration::from_secs(2);

/// Which part of the service is being stopped.
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

/// A part of the service on its way to its end.
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

/// Stops the parts one after the other. One that takes longer than it may is left behind, so that
/// the others are stopped all the same. Returns the names of those.
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

/// Completes at the first SIGTERM or SIGINT. `most` is what the drain may take from there to the
/// end of the process. The signals are received from the moment this returns: one before that would
/// end the process at once.
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
        let ending = runtime.block_on(oversee(next, stop, most));
        let code = last_word(&ending, most, &watchdog, &progress);
        std::process::exit(code.into());
    })?;
    Ok(async {
        let _ = stopped.await;
    })
}

/// Why the process ends before the drain has.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// The drain takes longer than it may.
    Late,
    /// A second signal, with its number.
    Signal(u8),
}

/// Passes the first signal on and waits for a reason to end the process. If the drain ends in time,
/// so does the process, and nobody hears of the reason.
async fn oversee(
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

/// Logs the reason, as far as the log takes it; returns the exit code.
fn last_word(ending: &Ending, most: Duration, watchdog: &Watchdog, progress: &Progress) -> u8 {
    let part = progress.part().unwrap_or("none yet");
    let silent: Vec<&str> = watchdog.stuck(SILENT).iter().map(|stuck| stuck.name).collect();
    let loops = silent.join(", ");
    let late = *ending == Ending::Late;
    let (said, heard) = std::sync::mpsc::channel();
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
        let _ = said.send(());
    };
    if std::thread::Builder::new().spawn(log).is_ok() {
        let _ = heard.recv_timeout(LAST_WORD);
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

    /// Signals that come after so many seconds each; then none.
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
    async fn a_drain_that_never_ends_is_ended_by_time_or_by_a_second_signal() {
        for (times, seconds, expected) in [
            (&[(7, 15)][..], 27, Ending::Late),
            (&[(7, 15), (3, 2)], 10, Ending::Signal(2)),
            (&[(0, 2), (0, 15)], 0, Ending::Signal(15)),
        ] {
            let began = tokio::time::Instant::now();
            let (stop, mut stopped) = oneshot::channel();
            assert_eq!(oversee(signals(times), stop, MOST).await, expected);
            assert_eq!(began.elapsed().as_secs(), seconds);
            assert_eq!(stopped.try_recv(), Ok(()), "the service was told of the first");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_never_ends_is_named_and_the_others_are_stopped_all_the_same() {
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
    fn the_last_word_is_short_and_the_exit_code_says_why() {
        let (watchdog, progress) = (Watchdog::new(), Progress::default());
        let began = Instant::now();
        for (ending, code) in [(Ending::Late, 70), (Ending::Signal(15), 143)] {
            assert_eq!(last_word(&ending, MOST, &watchdog, &progress), code);
        }
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
