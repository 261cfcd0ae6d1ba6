//! One connection: accepts its streams, answers those that need no waiting in its own task and the
//! others in tasks of theirs, watches the clock, and ends in good order. One thread.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::task::spawn_local;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::context::ConnectionContext;
use super::frames::{self, Code};
use super::{control, settings, stream};
use crate::worker::{Event, InFlight, Link, Phase};

/// Between the two GOAWAY frames: what the client sent before it received the first must have
/// arrived, and the responses on their way must have been acknowledged.
const LEAVE_ROUND_TRIPS: u32 = 4;
const LEAVE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How far the graceful end has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The client knows that the end is near; requests are still taken.
    Leaving,
    /// Requests from this one on are not.
    Last(u64),
}

struct Serving {
    context: Rc<ConnectionContext>,
    control: SendStream,
    stage: Stage,
    /// The stream that comes next.
    next: u64,
    timer: Pin<Box<Sleep>>,
}

/// Serves HTTP/3 until either side ends the connection.
pub(super) async fn serve(link: Rc<Link>, connection: Connection) {
    let context = Rc::new(ConnectionContext::new(link, connection));
    let limits = &context.worker.limits;
    let Ok(Some(control)) = timeout(limits.handshake_timeout, begin(&context)).await else {
        return context.fail(Code::NO_ERROR);
    };
    context.link.enter(Phase::Idle);
    let timer = Box::pin(sleep(Duration::ZERO));
    Serving { context: context.clone(), control, stage: Stage::Open, next: 0, timer }.run().await;
    context.link.leave();
    // The streams' tasks end with it.
    context.fail(Code::NO_ERROR);
}

/// Our control stream, with the settings.
async fn begin(context: &ConnectionContext) -> Option<SendStream> {
    let mut control = context.connection.open_uni().await.ok()?;
    control.write_all(&settings::control(&context.worker.limits)).await.ok()?;
    Some(control)
}

impl Serving {
    async fn run(mut self) {
        let context = self.context.clone();
        let mut shutdown = context.worker.shutdown.clone();
        let fired = shutdown.fired();
        tokio::pin!(fired);
        // Set when it is needed.
        self.timer.as_mut().await;
        while !self.is_over() {
            tokio::select! {
                biased;
                accepted = context.connection.accept_bi() => match accepted {
                    Ok((sending, receiving)) => self.start(sending, receiving).await,
                    Err(error) => {
                        tracing::debug!(%error, "an HTTP/3 connection ended");
                        return;
                    }
                },
                accepted = context.connection.accept_uni() => match accepted {
                    Ok(receiving) => drop(spawn_local(control::read(context.clone(), receiving))),
                    Err(_) => return,
                },
                () = &mut fired, if self.stage == Stage::Open => self.leave().await,
                event = poll_fn(|cx| context.link.poll_event(cx)) => match event {
                    // From now on the connection is idle.
                    Event::Answered => context.link.enter(Phase::Idle),
                    Event::Overdue => self.overdue().await,
                },
                () = &mut self.timer, if !self.timer.is_elapsed() => self.part().await,
            }
        }
    }

    /// Whether nothing more is to come and nothing to be done.
    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Last(_)) && self.context.link.streams() == 0
    }

    /// The connection was idle for too long, or its place is needed.
    async fn overdue(&mut self) {
        if self.stage == Stage::Open && self.context.link.streams() == 0 {
            self.leave().await;
        }
    }

    /// What the client sent before it knew of the end has arrived.
    async fn part(&mut self) {
        if self.stage == Stage::Leaving {
            self.stage = Stage::Last(self.next);
            self.say_goodbye(self.next).await;
        }
    }

    async fn leave(&mut self) {
        self.stage = Stage::Leaving;
        self.context.link.end_after_streams();
        let wait = self.context.connection.rtt().saturating_mul(LEAVE_ROUND_TRIPS);
        self.timer.as_mut().reset(Instant::now() + wait.clamp(LEAVE.0, LEAVE.1));
        self.say_goodbye(frames::LAST_STREAM).await;
    }

    async fn say_goodbye(&mut self, last: u64) {
        let mut frame = Vec::new();
        let mut number = Vec::new();
        frames::write_number(&mut number, last);
        frames::write_head(&mut frame, frames::GOAWAY, number.len() as u64);
        frame.extend_from_slice(&number);
        // A client that does not take a few bytes learns of it by the end of the connection.
        let linger = self.context.worker.limits.linger_timeout;
        let _ = timeout(linger, self.control.write_all(&frame)).await;
    }

    /// Answers at once what can be; a task is made only for what has to wait.
    async fn start(&mut self, mut sending: SendStream, mut receiving: RecvStream) {
        let id = VarInt::from(sending.id()).into_inner();
        if matches!(self.stage, Stage::Last(last) if id >= last) {
            // It was not processed: the client may send it elsewhere.
            let _ = sending.reset(Code::REQUEST_REJECTED);
            let _ = receiving.stop(Code::REQUEST_REJECTED);
            return;
        }
        self.next = self.next.max(id + 4);
        self.context.link.enter(Phase::Answering);
        let in_flight = InFlight::new(&self.context.link);
        let context = self.context.clone();
        let mut answering = Box::pin(stream::answer(context, sending, receiving, in_flight));
        let pending = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(cx)));
            Poll::Ready(match polled {
                Ok(poll) => poll.is_pending(),
                Err(_) => {
                    tracing::error!("an HTTP/3 stream panicked");
                    false
                }
            })
        });
        if pending.await {
            drop(spawn_local(answering));
        }
    }
}
