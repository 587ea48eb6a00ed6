//! One lane: delivers while its consumer is the active one, from where the owner says, as far as credit and window allow.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1::{self, consume_down};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::ahead::Ahead;
use super::credit::Credit;
use super::delivery::{Cut, Unit};
use crate::listener::front::Front;
use crate::listener::reading::Room;
use crate::owners::owner_of;
use crate::partition::Tie;
use crate::subscription_metrics::ConsumeCounts;
use crate::{Begin, LaneView, LogOffsets, Stand};

/// What is to be read is out of the log's range, and the log start does not say so yet.
const TRIM_PAUSE: Duration = Duration::from_millis(50);
/// Whether the log goes on elsewhere cannot be told now.
const UNTOLD_PAUSE: Duration = Duration::from_secs(1);

/// An item for the connection, and the room that it takes until the connection has it.
pub(super) type Sent = (Result<v1::ConsumeDown, Status>, Option<Room>);

/// A lane that ended, and what is to be said of it: after all that it has sent, and when its number is free again.
pub(super) struct Ended {
    pub(super) lane: u32,
    pub(super) opening: u64,
    pub(super) item: consume_down::Item,
}

/// What all lanes of a session share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) front: Arc<Front>,
    pub(super) credit: Arc<Credit>,
    pub(super) ahead: Arc<Ahead>,
    pub(super) out: mpsc::Sender<Sent>,
}

/// One lane.
pub(super) struct Lane {
    pub(super) number: u32,
    /// Which opening of this number.
    pub(super) opening: u64,
    pub(super) shared: Shared,
    pub(super) tie: Arc<Tie>,
    pub(super) tell_end: bool,
    pub(super) stop: CancellationToken,
    pub(super) counts: ConsumeCounts,
    pub(super) progress: Progress,
}

/// How far it is.
pub(super) struct Progress {
    pub(super) view: watch::Receiver<LaneView>,
    pub(super) offsets: watch::Receiver<LogOffsets>,
    /// Attached was sent.
    pub(super) attached: bool,
    /// The client knows that it is active.
    pub(super) told_active: bool,
    pub(super) turn: u64,
    pub(super) begin: Option<Begin>,
    pub(super) cut: Cut,
    pub(super) units: VecDeque<Unit>,
    /// Of the chunk that the units are from.
    pub(super) room: Option<Room>,
    /// Records sent in this turn.
    pub(super) delivered: u64,
    /// Acked by it since it attached.
    pub(super) acked: u64,
    pub(super) seek_id: u64,
    /// The flow stopped then; and whether that was told.
    pub(super) stopped: Option<(Instant, v1::BlockedReason, bool)>,
    pub(super) acks_wait: bool,
    pub(super) told_end: Option<u64>,
}

/// The client is gone.
pub(super) struct Gone;

/// Why a lane stops delivering.
pub(super) enum End {
    Gone,
    Fault(Fault),
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Lane {
    pub(super) fn new(
        (number, opening): (u32, u64),
        shared: Shared,
        tie: Arc<Tie>,
        stop: CancellationToken,
        counts: ConsumeCounts,
    ) -> Self {
        let progress = Progress {
            view: tie.view(),
            offsets: tie.partition().watch(),
            attached: false,
            told_active: false,
            turn: 0,
            begin: None,
            cut: Cut::new(hulse_proto::id::Offset(0), Arc::default()),
            units: VecDeque::new(),
            room: None,
            delivered: 0,
            acked: 0,
            seek_id: 0,
            stopped: None,
            acks_wait: false,
            told_end: None,
        };
        Self {
            number,
            opening,
            shared,
            tie,
            tell_end: false,
            stop,
            counts,
            progress,
        }
    }

    /// Delivers until it is stopped or ends.
    pub(super) async fn run(mut self) -> Ended {
        let stop = self.stop.clone();
        let end = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            end = self.deliver() => Some(end),
        };
        ended((self.number, self.opening), end, &self.shared)
    }

    async fn deliver(&mut self) -> End {
        loop {
            if let Err(end) = self.step().await {
                return end;
            }
        }
    }

    /// One look at what the owner says, and one thing done or waited for.
    async fn step(&mut self) -> Result<(), End> {
        let view = self.progress.view.borrow_and_update().clone();
        if let Some(fault) = view.ended {
            return Err(fault.into());
        }
        if let Some(fault) = self.tie.partition().ended() {
            return Err(fault.into());
        }
        self.counts
            .acked(view.released - std::mem::replace(&mut self.progress.acked, view.released));
        self.tell_acks_wait(view.acks_wait.as_ref()).await?;
        if view.turn != self.progress.turn || !self.progress.attached {
            self.turn(&view).await?;
        }
        match &self.progress.begin {
            None => self.changed().await,
            Some(begin) => {
                let acked = view.released.saturating_sub(begin.released);
                let settled = acked.saturating_add(view.passed);
                let unacked = self.progress.delivered.saturating_sub(settled);
                let crowded = view.crowded;
                self.go_on(unacked, crowded).await
            }
        }
    }

    /// The owner gave the consumer another stand.
    async fn turn(&mut self, view: &LaneView) -> Result<(), End> {
        if matches!(view.stand, Stand::Moving) {
            // The place it is moved to is not durable yet; what comes next says it.
            self.progress.begin = None;
            self.progress.turn = view.turn;
            return Ok(());
        }
        self.progress.turn = view.turn;
        self.progress.units.clear();
        self.progress.room = None;
        self.progress.begin = match &view.stand {
            Stand::Active(begin) => Some(begin.clone()),
            _ => None,
        };
        if let Some(begin) = self.progress.begin.clone() {
            self.progress.cut = Cut::new(begin.base, begin.acked.clone());
            self.progress.delivered = 0;
            self.progress.told_end = None;
            self.tie.sent(view.turn, begin.base);
        }
        let item = self.stand_item(view);
        self.progress.attached = true;
        self.progress.told_active = self.progress.begin.is_some();
        match item {
            Some(item) => Ok(self.send(item, None).await?),
            None => Ok(()),
        }
    }

    /// The next unit, or a wait for what it needs.
    async fn go_on(&mut self, unacked: u64, crowded: bool) -> Result<(), End> {
        let full = unacked >= u64::from(self.shared.front.config.unacked_records_max);
        let waiting = !self.progress.units.is_empty() || self.is_behind();
        let why = match (crowded, full) {
            (true, _) => Some(v1::BlockedReason::AckRanges),
            (_, true) => Some(v1::BlockedReason::UnackedOfConsumer),
            _ => None,
        };
        match why.filter(|_| waiting) {
            Some(why) => return self.stopped(why).await,
            None => self.flows().await?,
        }
        if !self.progress.units.is_empty() {
            return self.send_unit().await;
        }
        if self.is_behind() {
            return self.read().await;
        }
        self.at_end().await
    }

    fn is_behind(&self) -> bool {
        self.progress.cut.position() < self.tie.partition().offsets().high_watermark
    }

    async fn send_unit(&mut self) -> Result<(), End> {
        let Some(unit) = self.progress.units.front() else {
            return Ok(());
        };
        let (records, bytes) = (unit.records(), unit.batch.len() as u64);
        // What only explains costs nothing.
        if records > 0 && !self.shared.credit.try_take(records, bytes) {
            let credit = self.shared.credit.clone();
            return self.changed_or(credit.open()).await;
        }
        let Some(unit) = self.progress.units.pop_front() else {
            return Ok(());
        };
        let last = self.progress.units.is_empty();
        let room = self
            .progress
            .room
            .as_mut()
            .map(|room| room.part(unit.batch.len(), last));
        if last {
            self.progress.room = None;
        }
        self.progress.delivered += records;
        self.tie
            .sent_records(self.progress.turn, unit.end, self.progress.delivered);
        self.counts.sent(records, bytes);
        self.shared
            .front
            .metrics
            .sent(u64::from(bytes > 0), records, bytes);
        let item = consume_down::Item::Delivery(self.delivery(unit));
        Ok(self.send(item, room).await?)
    }

    /// Reads the next chunk once there is credit and room.
    async fn read(&mut self) -> Result<(), End> {
        let log_start = self.tie.partition().offsets().log_start;
        if let Some(gone) = self.progress.cut.trimmed(log_start) {
            self.tie.skipped(gone);
            return Ok(());
        }
        let (position, partition) = (self.progress.cut.position(), self.tie.partition().clone());
        let Shared { credit, ahead, .. } = self.shared.clone();
        let read = async move {
            credit.open().await;
            let (room, bytes) = ahead.take().await;
            let chunk = partition.read(position, bytes as usize).await;
            (room, chunk)
        };
        // Whatever changes of acks meanwhile, the read goes on; a new turn is seen after it.
        let (room, chunk) = tokio::select! {
            biased;
            () = turned(&mut self.progress.view, self.progress.turn) => return Ok(()),
            read = read => read,
        };
        match chunk {
            Ok(chunk) => {
                let mut units = VecDeque::new();
                for empty in self.progress.cut.cut(chunk, &mut units) {
                    self.tie.skipped(empty);
                }
                self.progress.room = (!units.is_empty()).then_some(room);
                self.progress.units = units;
                Ok(())
            }
            // A trim was faster; the log start says so now, or in a moment.
            Err(fault) if fault.reason == Reason::OffsetOutOfRange => {
                match self.tie.partition().offsets().log_start > log_start {
                    true => Ok(()),
                    false => self.changed_or(sleep(TRIM_PAUSE)).await,
                }
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Everything that is stored was delivered.
    async fn at_end(&mut self) -> Result<(), End> {
        let position = self.progress.cut.position().0;
        if self.tell_end && self.progress.told_end != Some(position) {
            match self.tie.partition().told_offsets().await {
                Ok(offsets) if offsets.high_watermark.0 > position => return Ok(()),
                Ok(_) => {}
                // Whether this is all is not known; what comes is delivered. Of a partition that has ended the view hears.
                Err(_) => return self.changed_or(sleep(UNTOLD_PAUSE)).await,
            }
            self.progress.told_end = Some(position);
            let item = consume_down::Item::EndOfLane(v1::EndOfLane {
                lane: self.number,
                offset: position,
            });
            return Ok(self.send(item, None).await?);
        }
        let mut offsets = self.progress.offsets.clone();
        let partition = self.tie.partition().clone();
        let more = async move {
            let more = async {
                let more = offsets.wait_for(|offsets| offsets.high_watermark.0 > position);
                more.await.is_ok()
            };
            let there = tokio::select! {
                biased;
                there = more => there,
                _ = partition.lost() => false,
            };
            if !there {
                // The partition ended: the view says so, too.
                std::future::pending::<()>().await;
            }
        };
        self.changed_or(more).await
    }

    pub(super) async fn changed(&mut self) -> Result<(), End> {
        self.changed_or(std::future::pending()).await
    }

    /// Waits for another view or for this.
    pub(super) async fn changed_or(&mut self, other: impl Future<Output = ()>) -> Result<(), End> {
        tokio::select! {
            biased;
            changed = self.progress.view.changed() => {
                if changed.is_ok() {
                    return Ok(());
                }
                let words = "partition stopped here; look it up again";
                let moved = || Fault::new(Reason::PartitionMoved, words);
                let last = self.progress.view.borrow().ended.clone();
                Err(End::Fault(last.or_else(|| self.tie.partition().ended()).unwrap_or_else(moved)))
            }
            () = other => Ok(()),
        }
    }

    pub(super) async fn send(
        &self,
        item: consume_down::Item,
        room: Option<Room>,
    ) -> Result<(), Gone> {
        let down = v1::ConsumeDown { item: Some(item) };
        let sent = self.shared.out.send((Ok(down), room)).await;
        sent.map_err(|_| Gone)
    }
}

/// What is to be said of a lane that ended; `None`: it was stopped.
pub(super) fn ended((lane, opening): (u32, u64), end: Option<End>, shared: &Shared) -> Ended {
    let fault = match end {
        Some(End::Fault(fault)) => Some(fault),
        Some(End::Gone) | None => None,
    };
    if let Some(fault) = &fault {
        shared.front.metrics.fault(fault.reason);
    }
    let item = match fault {
        Some(fault) if fault.reason == Reason::PartitionMoved => {
            let owner = owner_of(&fault);
            consume_down::Item::Moved(v1::ConsumerMoved { lane, owner })
        }
        fault => consume_down::Item::Detached(v1::Detached {
            lane,
            fault: fault.map(|fault| fault.to_wire()),
        }),
    };
    Ended {
        lane,
        opening,
        item,
    }
}

/// Ends when the consumer's stand is another one.
async fn turned(view: &mut watch::Receiver<LaneView>, turn: u64) {
    let turned = view.wait_for(|view| view.turn != turn || view.ended.is_some());
    if turned.await.is_err() {
        // Seen by the next wait.
        std::future::pending::<()>().await;
    }
}
