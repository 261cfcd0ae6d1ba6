//! Writes the access log of `serve` and `proxy`, in a thread of its own: a request does not wait
//! for the reader of the log.

use crate::logging::Form;
use api::AccessLog;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use store::Watchdog;

/// Interval at which buffered log lines are written.
const LOG_INTERVAL: Duration = Duration::from_millis(100);

/// Writes buffered log lines to stderr, and the rest of them when dropped.
pub struct LogWriter {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl LogWriter {
    pub fn start(log: Arc<AccessLog>, form: Form, watchdog: &Arc<Watchdog>) -> LogWriter {
        let (stop, stopped) = mpsc::channel();
        // The reader of the log may stop reading; then the write blocks.
        let heartbeat = watchdog.watch("log");
        let thread = std::thread::spawn(move || {
            let (mut text, mut shown) = (String::new(), String::new());
            loop {
                heartbeat.rest();
                let waited = stopped.recv_timeout(LOG_INTERVAL);
                heartbeat.beat();
                let lost = log.take(&mut text);
                // A log that cannot be written does not stop the service.
                let lines = match form {
                    Form::Json => &text,
                    Form::Text { .. } => {
                        form.of_requests(&text, &mut shown);
                        &shown
                    }
                };
                let _ = std::io::stderr().write_all(lines.as_bytes());
                if lost > 0 {
                    tracing::warn!(lost, "log lines were lost: writing them was too slow");
                }
                if waited != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        LogWriter { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
