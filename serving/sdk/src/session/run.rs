//! A session's life: greeting, dispatch of answers to lanes, heartbeats, end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::error::{ErrorKind, Fault};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::produce_client::ProduceClient;
use hulse_proto::wire::v1::produce_down::Item as DownItem;
use hulse_proto::wire::v1::produce_up::Item as UpItem;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tonic::Streaming;
use tonic::transport::Channel;

use super::outbound::{Credit, Outbound, Up};
use crate::client::Redirect;
use crate::connect::MESSAGE_BYTES_MAX;
use crate::error::Error;

/// How long the greeting may take, dial included.
const OPEN_TIMEOUT: Duration = Duration::from_secs(6);
/// Both ends say something at least this often.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A broker that says nothing for this long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Answers that a lane has not taken yet; more than a window, its replies after a refusal and the lane's own end.
const MAILBOX_MAX: usize = 64;

/// What a lane hears from its broker.
#[derive(Debug)]
pub(crate) enum Down {
    Opened(v1::Opened),
    Ack(v1::Ack),
    Nack {
        seq: u64,
        fault: Fault,
    },
    Fenced(Fault),
    Moved(Option<Redirect>),
    Flushed {
        seq: u64,
    },
    /// The broker closed the lane.
    Closed(Option<Fault>),
    /// From our own end: the batch was handed to the link.
    Written {
        seq: u64,
    },
    /// The session ended.
    Lost(Error),
}

/// A live session. Ends when its last handle is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    up: mpsc::UnboundedSender<Up>,
    lanes: Arc<Lanes>,
    next_lane: AtomicU32,
    /// From Welcome; 0: not said.
    pub(crate) batches_in_flight_max: usize,
}

#[derive(Debug, Default)]
struct Lanes {
    mailboxes: Mutex<BTreeMap<u32, mpsc::Sender<Down>>>,
    ended: AtomicBool,
}

/// A lane's place in a session. Dropping it closes the lane.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) session: Arc<Session>,
    pub(crate) lane: u32,
    mailbox: mpsc::Receiver<Down>,
    /// Weak, so that the end of the session ends the mailbox.
    mailbox_sender: mpsc::WeakSender<Down>,
}

/// Opens a session: dial, Hello, Welcome.
pub(super) async fn open(channel: Channel, client_id: String) -> Result<Arc<Session>, Error> {
    // Bounded by what the lanes may have in flight: each has at most a window of batches and a few control items.
    let (up, queue) = mpsc::unbounded_channel();
    let credit = Arc::new(Credit::default());
    let hello = v1::ProduceHello {
        client_id,
        protocol_version: hulse_proto::limits::PROTOCOL_VERSION,
    };
    let _ = up.send(Up::Control(UpItem::Hello(hello)));
    let outbound = Outbound::new(queue, Arc::clone(&credit));
    let greeting = async {
        let mut client = ProduceClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let mut down = client.session(outbound).await?.into_inner();
        let first = down.message().await?;
        Ok::<_, tonic::Status>((down, first))
    };
    let (down, first) = match timeout(OPEN_TIMEOUT, greeting).await {
        Ok(greeted) => greeted.map_err(|status| Error::from_status(&status))?,
        Err(_) => return Err(unavailable("the broker did not greet in time")),
    };
    let Some(DownItem::Welcome(welcome)) = first.and_then(|first| first.item) else {
        return Err(unavailable("the broker did not greet with Welcome"));
    };
    let lanes = Arc::new(Lanes::default());
    let task = Dispatch {
        lanes: Arc::clone(&lanes),
        credit,
        heard: Instant::now(),
    };
    tokio::spawn(task.run(down));
    Ok(Arc::new(Session {
        up,
        lanes,
        next_lane: AtomicU32::new(0),
        batches_in_flight_max: welcome.max_inflight_batches as usize,
    }))
}

/// Opening changes nothing, so its failures are certain.
fn unavailable(words: &str) -> Error {
    Error::local(
        ErrorKind::Unavailable,
        format!("{words}; it is tried again"),
    )
}

impl Session {
    pub(crate) fn is_live(&self) -> bool {
        !self.lanes.ended.load(Ordering::Acquire)
    }

    /// Opens a lane; its first message will be Opened or Closed.
    pub(crate) fn attach(self: &Arc<Self>, open: v1::OpenLane) -> Attachment {
        let lane = self.next_lane.fetch_add(1, Ordering::Relaxed);
        let (mailbox_sender, mailbox) = mpsc::channel(MAILBOX_MAX);
        let mut mailboxes = self.lanes.lock();
        if self.is_live() {
            mailboxes.insert(lane, mailbox_sender.clone());
        } else {
            // Dropped below, which ends the mailbox after this message.
            let _ = mailbox_sender.try_send(Down::Lost(unavailable("the session had ended")));
        }
        drop(mailboxes);
        let attachment = Attachment {
            session: Arc::clone(self),
            lane,
            mailbox,
            mailbox_sender: mailbox_sender.downgrade(),
        };
        attachment.submit(Up::Control(UpItem::Open(v1::OpenLane { lane, ..open })));
        attachment
    }
}

impl Attachment {
    /// Queues an item. One that is lost with the session is followed by [`Down::Lost`].
    pub(crate) fn submit(&self, up: Up) {
        let _ = self.session.up.send(up);
    }

    /// The next message; after the session's end [`Down::Lost`], again and again. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Down {
        match self.mailbox.recv().await {
            Some(down) => down,
            None => Down::Lost(unavailable("the session ended")),
        }
    }

    /// For [`Up::Batch::written`]; `None` once the session ended.
    pub(crate) fn mailbox_sender(&self) -> Option<mpsc::Sender<Down>> {
        self.mailbox_sender.upgrade()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.session.lanes.lock().remove(&self.lane);
        let lane = self.lane;
        self.submit(Up::Control(UpItem::Close(v1::CloseLane { lane })));
    }
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, mpsc::Sender<Down>>> {
        self.mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// False when the lane does not take its answers, which no correct broker brings about.
    fn deliver(&self, lane: u32, down: Down) -> bool {
        match self.lock().get(&lane) {
            Some(mailbox) => !matches!(
                mailbox.try_send(down),
                Err(mpsc::error::TrySendError::Full(_))
            ),
            // Closed by us: what was under way for it no longer matters.
            None => true,
        }
    }
}

struct Dispatch {
    lanes: Arc<Lanes>,
    credit: Arc<Credit>,
    heard: Instant,
}

impl Dispatch {
    async fn run(mut self, mut down: Streaming<v1::ProduceDown>) {
        let mut ticks = tokio::time::interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            tokio::select! {
                biased;
                message = down.message() => match message {
                    Ok(Some(message)) => {
                        self.heard = Instant::now();
                        if !message.item.is_none_or(|item| self.dispatch(item)) {
                            break unavailable("the broker sent more answers than were asked for");
                        }
                    }
                    Ok(None) => break unavailable("the broker ended the session"),
                    Err(status) => break Error::from_status(&status),
                },
                _ = ticks.tick() => if let Err(end) = self.beat() { break end },
            }
        };
        self.end(&end);
    }

    /// False: the broker breaks the protocol.
    fn dispatch(&self, item: DownItem) -> bool {
        let (lane, down) = match item {
            DownItem::Opened(opened) => (opened.lane, Down::Opened(opened)),
            DownItem::Ack(ack) => (ack.lane, Down::Ack(ack)),
            DownItem::Nack(nack) => {
                let fault = Fault::from_wire(nack.fault.unwrap_or_default());
                let seq = nack.seq;
                (nack.lane, Down::Nack { seq, fault })
            }
            DownItem::Fenced(fenced) => {
                let fault = Fault::from_wire(fenced.fault.unwrap_or_default());
                (fenced.lane, Down::Fenced(fault))
            }
            DownItem::Moved(moved) => {
                let owner = moved.owner.as_ref().and_then(Redirect::from_wire);
                (moved.lane, Down::Moved(owner))
            }
            DownItem::Flushed(flushed) => (flushed.lane, Down::Flushed { seq: flushed.seq }),
            DownItem::Closed(closed) => (
                closed.lane,
                Down::Closed(closed.fault.map(Fault::from_wire)),
            ),
            DownItem::Credit(credit) => {
                self.credit.grant(&credit);
                return true;
            }
            DownItem::Welcome(_) | DownItem::Heartbeat(_) => return true,
        };
        self.lanes.deliver(lane, down)
    }

    fn beat(&self) -> Result<(), Error> {
        if self.heard.elapsed() > SILENCE_MAX {
            return Err(unavailable("the broker was silent for too long"));
        }
        self.credit.heartbeat();
        Ok(())
    }

    fn end(&self, why: &Error) {
        let mut mailboxes = self.lanes.lock();
        self.lanes.ended.store(true, Ordering::Release);
        for mailbox in std::mem::take(&mut *mailboxes).into_values() {
            // A full mailbox is a lane that must not wait for ever either: its sender is dropped here, which ends it as well.
            let _ = mailbox.try_send(Down::Lost(why.clone()));
        }
    }
}
