//! One connection: accepts its streams, answers those that need no waiting in its own task and the
//! others in tasks of theirs, watches the clock, and ends in good order. One thread.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::stream::ConnectionContext;
use super::tap::Tap;
use super::{settings, stream};
use crate::memory::{Charge, Charges, Holder, Key, Memory, QueuedCharges};
use crate::pace::Pace;
use crate::worker::{InFlight, Link, Phase};

/// A stream that was accepted and not looked at yet.
type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

struct Serving<S> {
    link: Rc<Link>,
    tap: Tap<S>,
    connection: Connection<Tap<S>, Bytes>,
    pings: Option<PingPong>,
    /// The worker's tick when the budgets of frames were last refilled.
    refilled: u64,
    drained: bool,
    /// What the client makes us hold.
    memory: Arc<Memory>,
    /// Half a head. While there is no room for it nothing more is read.
    half_head: Holding,
    /// Bytes that wait for the socket. While there is no room for them no more are gathered.
    unsent: Holding,
    /// How fast the client takes what waits for the socket, and the tick of the last look.
    pace: Pace,
    paced: u64,
}

/// How the serving ends.
enum Ending {
    /// h2 has said what there was to say, or the client is gone.
    Over,
    /// GOAWAY with this reason.
    Say(Reason),
    /// The client answers nothing any more.
    Dead,
}

/// Serves HTTP/2 until either side ends the connection. `before` are bytes of the stream that were
/// read already, the preface among them.
pub(crate) async fn serve<S>(link: Rc<Link>, stream: S, before: Bytes)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let linger = link.worker.limits.linger_timeout;
    let mut tap = Tap::new(stream, before);
    if let Some(mut serving) = begin(link.clone(), tap.clone()).await {
        let ending = poll_fn(|cx| serving.poll(cx)).await;
        link.leave();
        match ending {
            Ending::Dead => return,
            Ending::Over => {}
            Ending::Say(reason) => serving.say_goodbye(reason).await,
        }
    }
    link.leave();
    // Closing over unread bytes would reset the connection and lose the last frames. h2 has closed
    // the sending side, unless it broke off before it came to that.
    let goodbye = async {
        let _ = tap.shutdown().await;
        poll_fn(|cx| tap.poll_discard(cx)).await;
    };
    let _ = timeout(linger, goodbye).await;
}

/// The preface and our settings.
async fn begin<S>(link: Rc<Link>, tap: Tap<S>) -> Option<Serving<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut handshake = settings::handshake(tap.clone(), &link.worker.limits);
    link.enter(Phase::Head);
    let shaken = poll_fn(|cx| {
        link.remember(cx.waker());
        if link.overdue() {
            return Poll::Ready(None);
        }
        let shaken = Pin::new(&mut handshake).poll(cx).map(Result::ok);
        match tap.poll_send(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(None),
            _ => shaken,
        }
    });
    let mut connection = shaken.await?;
    link.enter(Phase::Idle);
    let tick = link.worker.tick.get();
    let (memory, peer) = (Memory::new(link.worker.shared.memory.clone()), link.peer().ip());
    Some(Serving {
        pings: connection.ping_pong(),
        refilled: tick,
        half_head: Holding::new(memory.charges(Key::arriving(peer))),
        unsent: Holding::new(memory.charges(Key::answer(Holder::Client, peer))),
        memory,
        link,
        tap,
        connection,
        drained: false,
        pace: Pace::default(),
        paced: tick,
    })
}

impl<S: AsyncRead + AsyncWrite + Unpin> Serving<S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        self.refill();
        if self.link.worker.draining.get() && !self.drained {
            self.drained = true;
            self.connection.graceful_shutdown();
        }
        let mut begun = false;
        loop {
            let (accepted, over) = self.accept(cx);
            if self.tap.look().frames.excess() {
                return Poll::Ready(Ending::Say(Reason::ENHANCE_YOUR_CALM));
            }
            if over {
                return Poll::Ready(Ending::Over);
            }
            if self.tap.look().frames.is_broken() {
                return Poll::Ready(Ending::Say(Reason::COMPRESSION_ERROR));
            }
            if accepted.is_empty() {
                break;
            }
            begun = true;
            // Their answers leave together, in the next call of h2.
            accepted.into_iter().for_each(|accepted| self.start(accepted, cx));
        }
        if matches!(self.tap.poll_send(cx), Poll::Ready(Err(_))) {
            return Poll::Ready(Ending::Dead);
        }
        self.watch(begun, cx)
    }

    async fn say_goodbye(&mut self, reason: Reason) {
        let linger = self.link.worker.limits.linger_timeout;
        self.connection.abrupt_shutdown(reason);
        let _ = timeout(linger, poll_fn(|cx| self.connection.poll_closed(cx))).await;
    }

    /// Everything that has arrived, and whether the connection is over.
    fn accept(&mut self, cx: &mut Context<'_>) -> (Vec<Accepted>, bool) {
        let mut accepted = Vec::new();
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(stream))) => accepted.push(stream),
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "an HTTP/2 connection ended");
                    return (accepted, true);
                }
                Poll::Ready(None) => return (accepted, true),
                Poll::Pending => return (accepted, false),
            }
        }
    }

    /// Answers at once what can be; a task is made only for what has to wait.
    fn start(&self, (request, respond): Accepted, cx: &mut Context<'_>) {
        let in_flight = InFlight::new(&self.link);
        let context = ConnectionContext {
            link: self.link.clone(),
            memory: self.memory.clone(),
            violations: self.tap.look().frames.violations().clone(),
        };
        let mut answering = Box::pin(stream::answer(context, request, respond, in_flight));
        match catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(cx))) {
            Ok(Poll::Pending) => drop(spawn_local(answering)),
            Ok(Poll::Ready(())) => {}
            Err(_) => tracing::error!("an HTTP/2 stream panicked"),
        }
    }

    /// What the connection waits for now, and whether it has waited too long.
    fn watch(&mut self, begun: bool, cx: &mut Context<'_>) -> Poll<Ending> {
        self.hold(cx);
        let (heard, half_head, taken_bytes, blocked) = {
            let mut tapped = self.tap.look();
            // A client that sends and takes nothing is not there for what waits for it.
            let spoke = std::mem::take(&mut tapped.heard) && !tapped.blocked;
            let taken_bytes = std::mem::take(&mut tapped.taken_bytes);
            (taken_bytes > 0 || spoke, tapped.frames.half_head(), taken_bytes, tapped.blocked)
        };
        if !self.keeps_pace(blocked, taken_bytes) {
            return Poll::Ready(Ending::Dead);
        }
        let overdue = self.link.overdue();
        let phase = self.link.phase();
        let busy = self.link.streams() > 0 || self.connection.has_streams();
        if overdue && !(heard && phase == Phase::Pong) {
            match phase {
                // A request that came at the same time is answered before the connection ends.
                Phase::Idle if begun || busy => {}
                Phase::Idle => return Poll::Ready(Ending::Say(Reason::NO_ERROR)),
                Phase::Head => return Poll::Ready(Ending::Say(Reason::ENHANCE_YOUR_CALM)),
                Phase::Quiet => self.ping(),
                _ => return Poll::Ready(Ending::Dead),
            }
        }
        match (half_head, busy) {
            (true, _) => self.link.enter_once(Phase::Head),
            (false, true) if heard || self.link.phase() != Phase::Pong => {
                if heard || self.link.phase() != Phase::Quiet {
                    self.link.enter(Phase::Quiet);
                }
            }
            (false, true) => {}
            (false, false) if begun => self.link.enter(Phase::Idle),
            (false, false) => self.link.enter_once(Phase::Idle),
        }
        self.poll_pong(cx);
        Poll::Pending
    }

    /// Charges what this task holds now. What there is no room for holds up this connection alone,
    /// until there is or the time for a head is over: its other streams end in good order.
    fn hold(&mut self, cx: &mut Context<'_>) {
        let head_bytes = self.link.worker.limits.header_list_bytes() as usize;
        let mut tapped = self.tap.look();
        let unsent = self.unsent.poll(cx, tapped.unsent_bytes());
        tapped.is_short = unsent.is_pending();
        let half_head = self.half_head.poll(cx, tapped.frames.half_head_bytes(head_bytes));
        let was_paused = std::mem::replace(&mut tapped.is_paused, half_head.is_pending());
        if was_paused && half_head.is_ready() {
            // h2 has to read again what it was kept from.
            cx.waker().wake_by_ref();
        }
    }

    /// Whether the client takes answers that wait for the socket fast enough. Events that wait are
    /// their stream's own affair.
    fn keeps_pace(&mut self, blocked: bool, taken_bytes: usize) -> bool {
        let worker = &self.link.worker;
        let waited = worker.elapsed(self.paced);
        self.paced = worker.tick.get();
        if !blocked || !self.memory.has_answers() {
            self.pace = Pace::default();
            return true;
        }
        let limits = &worker.limits;
        self.pace.keeps(waited, taken_bytes, limits.write_stall, limits.floor_bytes)
    }

    fn ping(&mut self) {
        if let Some(pings) = &mut self.pings {
            // Refused only while one is on its way, which will do.
            let _ = pings.send_ping(Ping::opaque());
            self.link.enter(Phase::Pong);
        }
    }

    /// The answer must be taken before another ping can be sent.
    fn poll_pong(&mut self, cx: &mut Context<'_>) {
        if let Some(pings) = &mut self.pings {
            let _ = pings.poll_pong(cx);
        }
    }

    fn refill(&mut self) {
        let seconds = self.link.worker.elapsed(self.refilled).as_secs();
        if seconds > 0 {
            self.refilled = self.link.worker.tick.get();
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.tap.look().frames.refill(seconds);
        }
    }
}

/// What the connection's own task holds of one kind, and the charge for it.
struct Holding {
    charges: QueuedCharges,
    charge: Option<Charge>,
    bytes: usize,
}

impl Holding {
    fn new(charges: Charges) -> Holding {
        Holding { charges: charges.queued(), charge: None, bytes: 0 }
    }

    /// Ready when what is held is charged.
    fn poll(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        if bytes == 0 {
            self.charge = None;
            self.charges.leave();
        } else if self.charge.is_none() || bytes != self.bytes {
            self.charge = None;
            self.charge = Some(ready!(self.charges.poll_take(cx, bytes)));
        }
        self.bytes = bytes;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use http::StatusCode;
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::yield_now;

    use super::*;
    use crate::preface::PREFACE;
    use crate::worker::{Shared, Worker};
    use crate::{Answer, Exchange, Fault, Limits, Payload, Raw, Response, Service, Shutdown};

    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    /// `GET http://a/`, of indexed fields but for the authority.
    const GET: &[u8] = &[0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 1, b'a'];
    /// All of them are more than the pipe holds, and less than is gathered before h2 has to wait
    /// and listens no more.
    const EVENTS: usize = 32;
    const EVENT_BYTES: usize = 1024;
    const PIPE_BYTES: usize = 4 * 1024;

    /// Streams that say so much and then nothing for ever.
    struct Events;

    impl Service for Events {
        fn call(&self, _: Exchange) -> Answer<'_> {
            let events = |mut raw: Raw| async move {
                for _ in 0..EVENTS {
                    let _ = raw.write_all(&[b'x'; EVENT_BYTES]).await;
                }
                pending().await
            };
            Box::pin(async move { Response::new(StatusCode::OK, Payload::take_over(events)) })
        }

        fn refuse(&self, fault: Fault) -> Response {
            Response::new(fault.status(), fault.message())
        }
    }

    /// How many ticks a client is served that does this in each of them.
    fn served(ticks: usize, mut act: impl AsyncFnMut(&mut DuplexStream)) -> usize {
        let limits = Limits::default();
        assert_eq!(limits.tick(), Duration::from_secs(1));
        run(async {
            let (_trigger, shutdown) = Shutdown::channel();
            let link = link(Arc::new(Events), limits, shutdown);
            let (mut client, stream) = tokio::io::duplex(PIPE_BYTES);
            let serving = spawn_local(serve(link.clone(), stream, Bytes::new()));
            client.write_all(&[PREFACE, SETTINGS, GET].concat()).await.unwrap();
            for tick in 0..ticks {
                act(&mut client).await;
                settle().await;
                if serving.is_finished() {
                    return tick;
                }
                link.worker.tick.set(link.worker.tick.get() + 1);
                link.check();
            }
            ticks
        })
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        let options = LocalOptions::default();
        let runtime = Builder::new_current_thread().enable_all().build_local(options).unwrap();
        runtime.block_on(test)
    }

    fn link(service: Arc<dyn Service>, limits: Limits, shutdown: Shutdown) -> Rc<Link> {
        let shared = Arc::new(Shared::new(&limits));
        let worker = Rc::new(Worker::new(service, limits, Default::default(), shared, shutdown));
        Rc::new(Link::new(worker, ([127, 0, 0, 1], 1).into()))
    }

    /// The connection does what there is to do before the clock goes on.
    async fn settle() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    /// Answers at once.
    struct Prompt;

    impl Service for Prompt {
        fn call(&self, _: Exchange) -> Answer<'_> {
            Box::pin(async { Response::new(StatusCode::OK, "here") })
        }

        fn refuse(&self, fault: Fault) -> Response {
            Response::new(fault.status(), fault.message())
        }
    }

    /// Kind, stream and payload of the frames that have come.
    async fn frames(client: &mut DuplexStream) -> Vec<(u8, u8, Vec<u8>)> {
        let mut bytes = vec![0; PIPE_BYTES];
        let count = client.read(&mut bytes).await.unwrap();
        let (mut rest, mut found) = (&bytes[..count], Vec::new());
        while let [_, _, length, kind, _, _, _, _, stream, after @ ..] = rest {
            let (payload, next) = after.split_at(usize::from(*length));
            found.push((*kind, *stream, payload.to_vec()));
            rest = next;
        }
        found
    }

    #[test]
    fn a_request_that_arrives_during_eviction_is_answered_before_the_close() {
        const HEADERS: u8 = 1;
        const DATA: u8 = 0;
        const GOAWAY: u8 = 7;
        run(async {
            let (_trigger, shutdown) = Shutdown::channel();
            let link = link(Arc::new(Prompt), Limits::default(), shutdown);
            let (mut client, stream) = tokio::io::duplex(PIPE_BYTES);
            let serving = spawn_local(serve(link.clone(), stream, Bytes::new()));
            client.write_all(&[PREFACE, SETTINGS].concat()).await.unwrap();
            settle().await;
            frames(&mut client).await;
            link.worker.tick.set(link.worker.tick.get() + 2);
            assert!(link.idle_since().is_some());
            // Both before the connection's task runs.
            client.write_all(GET).await.unwrap();
            link.evict();
            settle().await;
            let came = frames(&mut client).await;
            let kinds: Vec<(u8, u8)> = came.iter().map(|frame| (frame.0, frame.1)).collect();
            assert!(kinds.contains(&(HEADERS, 1)) && kinds.contains(&(DATA, 1)), "{kinds:?}");
            // Idle again, it ends in good order: the client learns that nothing else was begun.
            if !kinds.contains(&(GOAWAY, 0)) {
                link.worker.tick.set(link.worker.tick.get() + 2);
                link.evict();
                settle().await;
                let came = frames(&mut client).await;
                let goaway = came.iter().find(|frame| frame.0 == GOAWAY).expect("it says so");
                assert_eq!(goaway.2[..8], [0, 0, 0, 1, 0, 0, 0, 0], "last stream, no error");
            }
            drop(client);
            serving.await.unwrap();
        });
    }

    #[test]
    fn a_client_that_sends_but_never_reads_is_disconnected() {
        let limits = Limits::default();
        let patience = (limits.ping_after + limits.write_stall).as_secs() as usize;
        let ticks = served(3 * patience, async |client: &mut DuplexStream| {
            // Refused once it is cut off.
            let _ = client.write_all(PING).await;
        });
        assert!((patience..patience + 5).contains(&ticks), "{ticks} ticks");
        // However slowly it takes something.
        let ticks = served(3 * patience, async |client: &mut DuplexStream| {
            client.read_exact(&mut [0; 100]).await.unwrap();
        });
        assert_eq!(ticks, 3 * patience);
    }
}
