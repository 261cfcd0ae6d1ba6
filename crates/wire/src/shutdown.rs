//! The signal to stop, given from outside: the binary fires it on SIGTERM, tests when they like.

use tokio::sync::watch;

/// Fires the signal, by [`Trigger::fire`] or by being dropped.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Learns of the signal. Clones all learn of the same one.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    pub fn channel() -> (Trigger, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Trigger(sender), Shutdown(receiver))
    }

    /// Completes once the signal was fired, at once if that is past.
    pub async fn fired(&mut self) {
        // An error means the trigger is gone, which is a signal too: nobody else could give it.
        let _ = self.0.wait_for(|fired| *fired).await;
    }
}

impl Trigger {
    pub fn fire(&self) {
        self.0.send_replace(true);
    }
}
