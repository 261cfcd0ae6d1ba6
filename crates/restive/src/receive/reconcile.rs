//! Fetches events that no webhook brought: compares the provider's list of events with the inbox,
//! on a schedule. The newest event of the complete comparisons is stored in the inbox.

use crate::args::receive::{ListForm, Reconciliation};
use anyhow::{Context as _, bail};
use restive_kit::client::Client;
use restive_kit::event::{EventFault, Received};
use restive_kit::inbox::{self, Accepted, Inbox};
use restive_kit::reconcile::{
    BoxError, Event, Offered, Provider, Reconciler, Report, Restive, Sink, Stripe,
};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Name of the position in the inbox.
const POSITION: &str = "reconcile";

/// A running comparison; it ends when this is dropped.
pub struct Reconciling {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Checks the settings before anything starts. None without a provider.
pub fn client(given: &Reconciliation) -> anyhow::Result<Option<Client>> {
    let Some(url) = &given.provider else {
        if given.provider_key.is_some() {
            bail!("RESTIVE_RECEIVE_KEY needs --provider, the URL of the provider's API");
        }
        return Ok(None);
    };
    let Some(key) = &given.provider_key else {
        bail!("--provider needs RESTIVE_RECEIVE_KEY, an API key that may read events");
    };
    let mut builder = Client::builder(url).key(key);
    if let Some(file) = &given.provider_ca {
        let pem = std::fs::read(file)
            .with_context(|| format!("the file {} cannot be read", file.display()))?;
        builder = builder.authorities(&pem);
    }
    Ok(Some(builder.build().context("--provider cannot be used")?))
}

/// Runs on a thread of its own.
pub fn start(inbox: Inbox, client: Client, given: &Reconciliation) -> anyhow::Result<Reconciling> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let types: Vec<String> = given.provider_types.clone();
    let form = given.provider_form;
    let schedule = Schedule {
        every: Duration::from_secs(given.reconcile_every.into()),
        min_age: Duration::from_secs(given.reconcile_min_age.into()),
        lookback: Duration::from_secs(given.reconcile_lookback.into()),
    };
    let run = move || {
        runtime.block_on(async {
            let types: Vec<&str> = types.iter().map(String::as_str).collect();
            let comparing = async {
                match (form, types.is_empty()) {
                    (ListForm::Restive, true) => {
                        compare(Restive::new(client), inbox, schedule).await
                    }
                    (ListForm::Restive, false) => {
                        compare(Restive::new(client).types(&types), inbox, schedule).await;
                    }
                    (ListForm::Stripe, true) => compare(Stripe::new(client), inbox, schedule).await,
                    (ListForm::Stripe, false) => {
                        compare(Stripe::new(client).types(&types), inbox, schedule).await;
                    }
                }
            };
            tokio::select! {
                () = comparing => {}
                _ = stopped => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name("reconcile".into()).spawn(run)?;
    Ok(Reconciling { stop: Some(stop), thread: Some(thread) })
}

#[derive(Clone, Copy)]
struct Schedule {
    every: Duration,
    min_age: Duration,
    lookback: Duration,
}

async fn compare(provider: impl Provider, inbox: Inbox, schedule: Schedule) {
    let Schedule { every, min_age, lookback } = schedule;
    let mut reconciler =
        Reconciler::new(provider, Missed(inbox.clone())).min_age(min_age).lookback(lookback);
    match inbox.position(POSITION).await {
        Ok(Some(through)) => {
            if let Ok(through) = through.parse() {
                reconciler = reconciler.since(through);
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "the last comparison is unknown"),
    }
    loop {
        match reconciler.run_once().await {
            Ok(report) => note(&inbox, report).await,
            Err(error) => tracing::warn!(%error, "events were not compared with the provider's"),
        }
        tokio::time::sleep(every).await;
    }
}

async fn note(inbox: &Inbox, report: Report) {
    let Report { checked, missed, through, .. } = report;
    match missed {
        0 => tracing::info!(checked, "no event is missing"),
        _ => tracing::warn!(checked, missed, "events that no webhook brought were fetched"),
    }
    let Some(through) = through else { return };
    if let Err(error) = inbox.set_position(POSITION, &through.to_string()).await {
        tracing::warn!(%error, "the comparison is repeated after a restart");
    }
}

/// The inbox as the place of missed events.
struct Missed(Inbox);

impl Sink for Missed {
    type Error = BoxError;

    async fn offer(&self, event: &Event) -> Result<Offered, BoxError> {
        let received = match Received::read(event.text.clone().into_bytes(), Some(&event.id)) {
            Ok(received) => received,
            // Never accepted from a webhook either: it must not end all comparisons.
            Err(fault) => return skip(event, &fault),
        };
        match self.0.accept_listed(received).await.map_err(boxed)? {
            Accepted::New => Ok(Offered::New),
            _ => Ok(Offered::Known),
        }
    }
}

fn skip(event: &Event, fault: &EventFault) -> Result<Offered, BoxError> {
    tracing::error!(event = event.id, %fault, "an event of the provider cannot be used");
    Ok(Offered::Known)
}

fn boxed(error: inbox::Error) -> BoxError {
    Box::new(error)
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
