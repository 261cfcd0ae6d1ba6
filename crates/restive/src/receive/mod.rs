//! `restive receive`: an inbox for webhooks. Verifies, deduplicates and stores events, and hands
//! each to a URL or a command. The rules are in `kit`; this folder brings the network, the clock
//! and the handlers.

mod execute;
mod forward;
mod operate;
mod reconcile;
mod service;
pub mod signing;

use crate::args::Switch;
use crate::args::receive::{Handling, Receive, Stale};
use crate::data;
use crate::listeners::Listeners;
use crate::logging;
use crate::operator;
use crate::stop::{self, Part, Progress};
use crate::tls::Secured;
use anyhow::{Context as _, bail};
use restive_kit::inbox::{Event, Failure, Inbox, Lease, Options, OutOfOrder, Retry, Workers};
use restive_kit::receiver::Receiver;
use service::{AnswerLog, Bodies, Hook};
use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use store::Watchdog;
use tokio::signal::unix::{SignalKind, signal};
use wire::Shutdown;
use wire::outgoing::Target;

const DATABASE: &str = "inbox.db";
const LOCK: &str = "lock";
/// Time to stop beyond that of the connections and the handlers.
const MARGIN: Duration = Duration::from_secs(1);

pub fn run(mut receive: Receive) -> anyhow::Result<ExitCode> {
    if let Some(command) = receive.command.take() {
        return operate::run(command).map(|()| ExitCode::SUCCESS);
    }
    logging::start(receive.listening.logging.log_format);
    let verifier = signing::verifier(&receive.signing)?;
    let handler = Handler::read(&receive.handling)?;
    let provider = reconcile::client(&receive.reconciliation)?;
    let (mut listeners, source) = Listeners::bind(&receive.listening)?;
    let folder = &receive.folder.data;
    data::make(folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    let _lock = lock(folder)?;
    if let Some(source) = source {
        let address = receive.listening.listen.ip();
        listeners = listeners.secure(Secured::load(source, folder, address, None)?);
    }
    let inbox = Inbox::open(&folder.join(DATABASE), options(&receive.handling))
        .with_context(|| format!("the inbox in {} cannot be opened", folder.display()))?;
    let log = Arc::new(AnswerLog::new());
    let hook = Arc::new(Hook {
        receiver: receiver(&receive, verifier, inbox.clone(), log.clone()),
        path: receive.path.clone(),
        log,
        bodies: Bodies::new(),
    });
    let reconciling = provider
        .map(|client| reconcile::start(inbox.clone(), client, &receive.reconciliation))
        .transpose()?;
    let done = data::block_on(serve(listeners, hook, inbox, handler, receive.handling));
    drop(reconciling);
    done
}

fn receiver(
    receive: &Receive,
    verifier: restive_kit::signature::Verifier,
    inbox: Inbox,
    log: Arc<AnswerLog>,
) -> Receiver {
    let mut receiver = Receiver::new(verifier, inbox)
        .max_body_bytes(receive.max_body_bytes)
        .observe(move |answer| log.note(answer));
    if receive.https_only == Switch::On {
        receiver = receiver.https_only();
    }
    if let Some(networks) = receive.from.clone() {
        receiver = receiver.allow(move |address| networks.contains(address));
    }
    receiver
}

async fn serve(
    listeners: Listeners,
    hook: Arc<Hook>,
    inbox: Inbox,
    handler: Handler,
    handling: Handling,
) -> anyhow::Result<ExitCode> {
    let _broken_pipe = signal(SignalKind::pipe())?;
    let timeout = Duration::from_secs(handling.timeout.into());
    let (addresses, drain) = (listeners.addresses(), listeners.drain());
    let progress = Progress::default();
    let longest = drain + timeout + 2 * MARGIN + stop::GRACE;
    let stop = stop::signalled(longest, Watchdog::new(), progress.clone())?;
    let (trigger, shutdown) = Shutdown::channel();
    let metrics = Arc::new(operator::Metrics(hook.log.clone()));
    let open = listeners.open(hook.clone(), metrics, &shutdown)?;
    let handlers = handler.start(&inbox, handling.workers, timeout)?;
    addresses.announce();
    stop.await;
    tracing::info!("draining");
    trigger.fire();
    let mut closed = Ok(());
    let connections = async { closed = open.closed().await };
    let ended = async {
        inbox.close();
        let _ = tokio::task::spawn_blocking(move || handlers.stop()).await;
    };
    let parts = vec![
        Part::new("connections", drain + MARGIN, connections),
        Part::new("handlers", timeout + MARGIN, ended),
    ];
    let late = stop::in_order(parts, &progress).await;
    closed?;
    Ok(if late.is_empty() { ExitCode::SUCCESS } else { stop::EXIT_STUCK.into() })
}

/// What is done with events.
enum Handler {
    Forward(Target),
    Execute(String),
    None,
}

/// The threads of a handler.
enum Running {
    Forward(JoinHandle<()>),
    Execute(Workers),
    None,
}

impl Handler {
    fn read(given: &Handling) -> anyhow::Result<Handler> {
        match (&given.forward, &given.exec, given.store_only) {
            (Some(url), ..) => Ok(Handler::Forward(forward::target(url)?)),
            (_, Some(command), _) => Ok(Handler::Execute(command.clone())),
            (_, _, true) => Ok(Handler::None),
            _ => bail!(
                "nothing is to be done with events: add --forward URL, --exec COMMAND or \
                 --store-only"
            ),
        }
    }

    fn start(self, inbox: &Inbox, workers: u16, timeout: Duration) -> anyhow::Result<Running> {
        Ok(match self {
            Handler::Forward(target) => {
                Running::Forward(forward::start(inbox.clone(), target, workers, timeout)?)
            }
            Handler::Execute(command) => {
                Running::Execute(execute::start(inbox, command, workers, timeout)?)
            }
            Handler::None => Running::None,
        })
    }
}

impl Running {
    /// Waits for the attempts in progress. The inbox was closed.
    fn stop(self) {
        match self {
            Running::Forward(thread) => drop(thread.join()),
            Running::Execute(workers) => workers.stop(),
            Running::None => {}
        }
    }
}

fn options(given: &Handling) -> Options {
    let mut retry = Retry::default();
    retry.max_attempts = given.attempts;
    retry.first = Duration::from_millis(given.retry_first.into());
    let mut options = Options::default();
    options.retry = retry;
    options.out_of_order = match given.stale {
        Stale::Deliver => OutOfOrder::Deliver,
        Stale::Skip => OutOfOrder::Skip,
    };
    options
}

/// Events in progress are known to one process only, so a second one would process them again.
fn lock(folder: &Path) -> anyhow::Result<File> {
    let file = File::create(folder.join(LOCK))
        .with_context(|| format!("the folder {} is not writable", folder.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "another restive receives into {} already; stop it, or choose another folder with \
             --data",
            folder.display()
        ),
        Err(TryLockError::Error(error)) => tracing::warn!(
            %error,
            "the folder cannot be locked: nothing prevents a second receiver. Start only one"
        ),
    }
    Ok(file)
}

/// Writes the result of an attempt to the log and to the inbox.
async fn finish(lease: Lease, result: Result<(), Failure>) {
    log(&lease, &result);
    let stored = match result {
        Ok(()) => lease.done().await,
        Err(failure) => lease.failed(failure).await,
    };
    if let Err(error) = stored {
        let what = "a result is not stored yet: a kill now would process the event again";
        tracing::error!(%error, "{what}");
    }
}

fn log(event: &Event, result: &Result<(), Failure>) {
    let (id, kind, attempt) = (&event.id, event.kind.as_deref(), event.attempt);
    match result {
        Ok(()) => tracing::info!(event = id, kind, attempt, "processed"),
        Err(failure) => {
            tracing::warn!(event = id, kind, attempt, error = failure.reason(), "failed")
        }
    }
}
