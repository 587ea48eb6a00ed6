//! The loop of a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::link::{Link, Served};
use crate::requests::{self, FirstStage, Outcome};
use crate::wire::{Broken, Frame, Inbox, Incoming, Outbox, read};

/// This wire in metrics.
const PROTOCOL: &str = "kafka";
/// Requests of one connection that are begun and not answered.
const IN_FLIGHT_MAX: usize = 128;
/// Answers that are ready go out together up to about this many bytes.
const TOGETHER_BYTES: usize = 256 << 10;
/// Bytes of answers that are ready behind one that is not, beyond which nothing more is read.
const READY_BYTES_MAX: usize = 1 << 20;
/// A connection on which nothing is asked for this long is closed, as Kafka does.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// A connection. Generic, so that tests need no socket.
pub(crate) struct Connection<S> {
    link: Arc<Link>,
    stream: S,
    peer: SocketAddr,
    inbox: Inbox,
    outbox: Outbox,
    /// First stage of the request that was read last.
    first_stage: Option<BoxFuture<'static, Result<FirstStage, Broken>>>,
    in_flight: FuturesOrdered<BoxFuture<'static, Outcome>>,
    /// Bytes of the answers in it that are ready.
    ready_bytes: Arc<AtomicUsize>,
    muted_until: Option<Instant>,
    idle_since: Instant,
    /// What was taken is answered, nothing more is read.
    ending: bool,
}

/// A connection in the gauge, until it is dropped.
struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Why a connection ends.
enum End {
    /// The peer closed it, or broke it off.
    Peer,
    /// Nothing was asked for a long time.
    Idle,
    /// The broker is going down.
    Drained,
    /// The peer does what the protocol forbids, or does not go on; said in the log.
    Refused(String),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A new connection from `peer` that dialled `local`.
    pub(crate) fn new(served: Arc<Served>, stream: S, peer: SocketAddr, local: SocketAddr) -> Self {
        let (host, port) = served.advertise.to(local);
        let link = Link {
            served,
            host,
            port,
            requests: watch::Sender::new(0),
            lean: Arc::new(Semaphore::new(1)),
            turn: Mutex::default(),
            owed: Mutex::default(),
            peer,
            told: AtomicBool::default(),
        };
        let inbox = Inbox::new(link.served.large_frames.clone());
        Self {
            link: Arc::new(link),
            stream,
            peer,
            inbox,
            outbox: Outbox::default(),
            first_stage: None,
            in_flight: FuturesOrdered::new(),
            ready_bytes: Arc::default(),
            muted_until: None,
            idle_since: Instant::now(),
            ending: false,
        }
    }

    /// Serves it to its end.
    pub(crate) async fn run(mut self) {
        let kill = self.link.front().kill().clone();
        let open = self.link.front().metrics().connections(PROTOCOL);
        open.inc();
        let _open = Counted(open);
        let end = tokio::select! {
            biased;
            () = kill.cancelled() => End::Drained,
            end = self.serve() => end,
        };
        let peer = self.peer;
        match end {
            End::Peer | End::Drained => tracing::debug!(%peer, "a Kafka connection ended"),
            End::Idle => tracing::debug!(%peer, "an idle Kafka connection is closed"),
            End::Refused(why) => {
                self.link.front().metrics().connection_refused(PROTOCOL);
                // A flood of such peers is not a flood of lines.
                match self.link.served.complains() {
                    true => tracing::info!(%peer, why, "a Kafka connection is closed"),
                    false => tracing::debug!(%peer, why, "a Kafka connection is closed"),
                }
            }
        }
    }

    async fn serve(&mut self) -> End {
        let drain = self.link.front().drain().clone();
        loop {
            let idle = self.in_flight.is_empty() && self.first_stage.is_none();
            if self.ending && idle {
                return End::Drained;
            }
            let may_read = !self.ending
                && self.first_stage.is_none()
                && self.muted_until.is_none()
                && self.in_flight.len() < IN_FLIGHT_MAX
                && self.ready_bytes.load(Ordering::Relaxed) < READY_BYTES_MAX;
            let wake = self.wake(idle);
            let front = self.link.front().clone();
            let step = tokio::select! {
                biased;
                Some(outcome) = self.in_flight.next() => self.answer(outcome).await,
                first = first_stage(&mut self.first_stage) => self.enqueue(first).await,
                () = drain.cancelled(), if !self.ending => {
                    self.ending = true;
                    Ok(())
                }
                frame = self.inbox.next(&mut self.stream, &front), if may_read => self.take(frame),
                () = tokio::time::sleep_until(wake) => self.woken(idle),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// When something is due that no event brings.
    fn wake(&self, idle: bool) -> Instant {
        match self.muted_until {
            Some(until) => until,
            None if idle && !self.inbox.is_reading() => self.idle_since + IDLE_MAX,
            None => Instant::now() + IDLE_MAX,
        }
    }

    fn woken(&mut self, idle: bool) -> Result<(), End> {
        if self.muted_until.take().is_some() {
            return Ok(());
        }
        // A frame that waits for room is no idleness.
        let idle = idle && !self.inbox.is_reading();
        match idle && self.idle_since.elapsed() >= IDLE_MAX {
            true => Err(End::Idle),
            false => Ok(()),
        }
    }

    fn take(&mut self, frame: io::Result<Option<Frame>>) -> Result<(), End> {
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(End::Peer),
            Err(error) => return Err(failed(error)),
        };
        self.idle_since = Instant::now();
        let number = self.link.requests.borrow().wrapping_add(1);
        // Fetches that wait before it end early (serving.md D2.3).
        self.link.requests.send_replace(number);
        match read(frame) {
            Ok(Incoming::Request(request)) => {
                self.first_stage =
                    Some(requests::first_stage(self.link.clone(), request, number).boxed());
            }
            Ok(Incoming::NewerVersions { correlation }) => {
                let outcome = requests::older_versions(correlation);
                self.queue(futures::future::ready(outcome));
            }
            Err(broken) => return Err(End::Refused(broken.to_string())),
        }
        Ok(())
    }

    /// Puts what is left of a request behind those before it.
    async fn enqueue(&mut self, first: Result<FirstStage, Broken>) -> Result<(), End> {
        match first {
            Ok(FirstStage::Answered(outcome)) if self.in_flight.is_empty() => {
                self.ready_bytes.fetch_add(outcome.len(), Ordering::Relaxed);
                self.answer(outcome).await
            }
            Ok(FirstStage::Answered(outcome)) => {
                self.queue(futures::future::ready(outcome));
                Ok(())
            }
            Ok(FirstStage::Later(later)) => {
                self.queue(later);
                Ok(())
            }
            Err(broken) => Err(End::Refused(broken.to_string())),
        }
    }

    /// Puts an answer behind those before it, and counts it once it is ready.
    fn queue(&mut self, later: impl Future<Output = Outcome> + Send + 'static) {
        let ready = self.ready_bytes.clone();
        let counted = later.inspect(move |outcome| {
            ready.fetch_add(outcome.len(), Ordering::Relaxed);
        });
        self.in_flight.push_back(counted.boxed());
    }

    /// Writes an answer whose turn it is, and those behind it that are ready.
    async fn answer(&mut self, outcome: Outcome) -> Result<(), End> {
        let mut mute = self.put(outcome)?;
        while self.outbox.len() < TOGETHER_BYTES
            && let Some(Some(outcome)) = self.in_flight.next().now_or_never()
        {
            mute = mute.max(self.put(outcome)?);
        }
        let written = self.outbox.flush(&mut self.stream).await;
        written.map_err(failed)?;
        self.idle_since = Instant::now();
        if !mute.is_zero() {
            self.muted_until = Some(Instant::now() + mute);
        }
        Ok(())
    }

    fn put(&mut self, outcome: Outcome) -> Result<Duration, End> {
        self.ready_bytes.fetch_sub(outcome.len(), Ordering::Relaxed);
        match outcome {
            Outcome::Answer(answer) => {
                let mute = answer.mute;
                self.outbox.push(answer);
                Ok(mute)
            }
            Outcome::Silence => Ok(Duration::ZERO),
            Outcome::Close(why) => Err(End::Refused(why)),
        }
    }
}

/// The first stage under way; waits for ever when there is none.
async fn first_stage(
    stage: &mut Option<BoxFuture<'static, Result<FirstStage, Broken>>>,
) -> Result<FirstStage, Broken> {
    match stage {
        Some(running) => {
            let first = running.await;
            *stage = None;
            first
        }
        None => futures::future::pending().await,
    }
}

fn failed(error: io::Error) -> End {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::TimedOut => End::Refused(error.to_string()),
        _ => End::Peer,
    }
}
