//! The server that the judge of the WebSocket codec is given: it says where it listens, echoes
//! until SIGTERM, and ends. `cargo xtask judge` starts it.

mod service;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use wire::{Limits, Listener, Shutdown};

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let listener = Listener::bind(address)?;
        println!("listening on http://{}", listener.local_addr());
        let (trigger, shutdown) = Shutdown::channel();
        let running = listener.run(Arc::new(service::Echo), Limits::default(), shutdown)?;
        terminate.recv().await;
        trigger.fire();
        running.join().await.map_err(std::io::Error::other)
    })
}
