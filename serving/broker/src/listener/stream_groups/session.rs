//! A member's stream: its heartbeats and commits go to the coordinator, and what it has is pushed when it changes.
//!
//! At most one heartbeat is under way, with the newest word of what the member has. Heartbeats that nobody sent (the group changed)
//! are made only for a client that was heard a moment ago: one that is frozen must not be kept alive by its group.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::PartitionId;
use hulse_proto::wire::v1::{self, group_down, group_up};
use serving_groups::{
    Answer, Commit, FetchOffsets, GroupError, MemberAnswer, MemberBeat, Partitions, Request,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tonic::{Status, Streaming};

use super::joining::is_out;
use super::placing::{Placed, Placing};
use super::words::{self, fault_of};
use crate::groups::{Told, Watch};
use crate::listener::front::{Front, shutting_down};
use crate::listener::wire::{invalid, partition, read_fault};

/// The broker speaks at least this often (serving.md E1.4).
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// Commits and reads of offsets that have no answer yet; then nothing more is read of the stream.
const ASKED_MAX: usize = 16;
/// Epochs that leave: for good, and with the place kept.
const LEAVES: (i32, i32) = (-1, -2);

/// Who it is.
pub(super) struct Member {
    /// What each heartbeat says.
    pub(super) beat: MemberBeat,
    pub(super) placing: Placing,
    /// What it had when it came.
    pub(super) owned: Partitions,
    pub(super) watch: Watch,
}

/// From the client, and to it.
pub(super) type Streams = (
    Streaming<v1::GroupUp>,
    mpsc::Sender<Result<v1::GroupDown, Status>>,
);

enum Done {
    Beat(Result<Answer, Fault>),
    Placed(Result<Vec<Placed>, Fault>),
    Tell(group_down::Item),
    Left,
}

enum Event {
    Gone,
    Drain,
    Up(Option<Result<v1::GroupUp, Status>>),
    Told(Option<Told>),
    Done(Done),
    Tick,
}

/// The session goes on, or is over.
#[derive(PartialEq, Eq)]
enum Goes {
    On,
    Over,
}

/// One session.
pub(super) struct Session {
    front: Arc<Front>,
    up: Streaming<v1::GroupUp>,
    down: mpsc::Sender<Result<v1::GroupDown, Status>>,
    member: Member,
    epoch: i32,
    heard: Instant,
    heartbeat: Duration,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    beating: bool,
    /// Another heartbeat is due when the one under way is answered; with what the member has, if that was said.
    again: Option<Option<Partitions>>,
    placing: bool,
    /// What the member has and was not placed yet.
    wanted: Option<Partitions>,
    /// What it has as the coordinator said last, and as it said itself.
    assigned: Partitions,
    owned: Partitions,
}

impl Session {
    /// Of a member that has joined and was told so.
    pub(super) fn new(
        front: Arc<Front>,
        (up, down): Streams,
        member: Member,
        joined: MemberAnswer,
    ) -> Self {
        let owned = member.owned.clone();
        let mut session = Self {
            front,
            up,
            down,
            member,
            epoch: joined.epoch,
            heard: Instant::now(),
            heartbeat: Duration::from_millis(joined.heartbeat_ms.into()),
            work: FuturesUnordered::new(),
            beating: false,
            again: None,
            placing: false,
            wanted: None,
            assigned: Partitions::new(),
            owned,
        };
        session.has(joined.assigned.unwrap_or_default());
        session
    }

    /// Serves until the member leaves, is fenced, its stream ends, or the coordinator is elsewhere.
    ///
    /// # Errors
    /// The fault that the stream is to end with.
    pub(super) async fn run(mut self) -> Result<(), Fault> {
        let mut tick = tokio::time::interval(HEARTBEAT_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await;
        loop {
            let goes = match self.next_event(&mut tick).await {
                Event::Gone | Event::Up(None) => Goes::Over,
                Event::Drain => return Err(shutting_down()),
                Event::Up(Some(Err(status))) => {
                    return read_fault(&status).map_or(Ok(()), Err);
                }
                Event::Up(Some(Ok(item))) => self.on_item(item)?,
                Event::Told(told) => self.on_told(told).await?,
                Event::Done(done) => self.on_done(done).await?,
                Event::Tick => self.on_tick().await?,
            };
            if goes == Goes::Over {
                return Ok(());
            }
        }
    }

    async fn next_event(&mut self, tick: &mut Interval) -> Event {
        let reads = self.work.len() < ASKED_MAX;
        tokio::select! {
            biased;
            () = self.front.kill.cancelled() => Event::Gone,
            () = self.down.closed() => Event::Gone,
            () = self.front.drain.cancelled() => Event::Drain,
            Some(done) = self.work.next(), if !self.work.is_empty() => Event::Done(done),
            told = self.member.watch.next() => Event::Told(told),
            item = self.up.next(), if reads => Event::Up(item),
            _ = tick.tick() => Event::Tick,
        }
    }

    fn on_item(&mut self, item: v1::GroupUp) -> Result<Goes, Fault> {
        self.heard = Instant::now();
        match item.item {
            Some(group_up::Item::Heartbeat(heartbeat)) => {
                self.owned = words::partitions(&heartbeat.owned)?;
                self.member
                    .watch
                    .progress(heartbeat.took, heartbeat.waiting);
                let owned = self.owned.clone();
                self.beat(Some(owned));
            }
            Some(group_up::Item::Commit(commit)) => self.commit(commit)?,
            Some(group_up::Item::Fetch(fetch)) => self.fetch(fetch)?,
            Some(group_up::Item::Leave(leave)) => self.leave(leave.keep_place),
            Some(group_up::Item::Join(_)) => return Err(invalid("JoinGroup came twice")),
            None => {
                return Err(invalid(
                    "an item of the stream is of no kind that this broker knows",
                ));
            }
        }
        Ok(Goes::On)
    }

    async fn on_told(&mut self, told: Option<Told>) -> Result<Goes, Fault> {
        match told {
            Some(Told::Changed) => {
                if self.heard.elapsed() <= 2 * self.heartbeat {
                    self.beat(None);
                }
                Ok(Goes::On)
            }
            Some(Told::Idle { fenced: false }) => {
                let grace_ms = self.front.config.groups.idle_grace_ms;
                let idle = v1::ApplicationIdle {
                    grace_ms: u32::try_from(grace_ms).unwrap_or(u32::MAX),
                };
                Ok(self.tell(group_down::Item::Idle(idle)).await)
            }
            Some(Told::Idle { fenced: true }) => Ok(self.fenced(words::idle()).await),
            None => {
                let words = "the coordinator of the group is elsewhere now, or another stream is this member's; join again";
                Err(Fault::new(Reason::PartitionLoading, words))
            }
        }
    }

    async fn on_tick(&mut self) -> Result<Goes, Fault> {
        let session = self.front.config.groups.consumer_session_ms;
        if self.heard.elapsed() > Duration::from_millis(session.into()) {
            return Ok(self.fenced(fault_of(&GroupError::UnknownMember)).await);
        }
        let heartbeat = group_down::Item::Heartbeat(v1::Heartbeat {});
        Ok(self.tell(heartbeat).await)
    }

    async fn on_done(&mut self, done: Done) -> Result<Goes, Fault> {
        match done {
            Done::Tell(item) => Ok(self.tell(item).await),
            Done::Left => {
                self.tell(group_down::Item::Left(v1::GroupLeft {})).await;
                Ok(Goes::Over)
            }
            Done::Placed(placed) => {
                self.placing = false;
                let placed = match placed {
                    // Its session ended while owners were asked: it is told so like any other, and joins anew.
                    Err(fault) if fault.reason == Reason::MemberFenced => {
                        return Ok(self.fenced(fault).await);
                    }
                    placed => placed?,
                };
                if self.wanted.is_some() {
                    self.place();
                    return Ok(Goes::On);
                }
                Ok(self.tell(words::assignment(self.epoch, placed)).await)
            }
            Done::Beat(answer) => self.on_beat(answer?).await,
        }
    }

    async fn on_beat(&mut self, answer: Answer) -> Result<Goes, Fault> {
        self.beating = false;
        let answer = match answer {
            Answer::Member(Ok(answer)) => answer,
            Answer::Member(Err(error)) if is_out(&error) => {
                return Ok(self.fenced(fault_of(&error)).await);
            }
            Answer::Member(Err(error)) => return Err(fault_of(&error)),
            _ => return Err(other()),
        };
        let moved = answer.epoch != self.epoch;
        self.epoch = answer.epoch;
        match answer.assigned {
            Some(assigned) => self.has(assigned),
            None if moved => self.has(self.assigned.clone()),
            None => {}
        }
        if let Some(owned) = self.again.take() {
            self.beat(owned);
        }
        Ok(Goes::On)
    }

    /// What the member has, to be told as soon as it is known where reading begins.
    fn has(&mut self, assigned: Partitions) {
        self.assigned.clone_from(&assigned);
        self.wanted = Some(assigned);
        if !self.placing {
            self.place();
        }
    }

    fn place(&mut self) {
        let Some(wanted) = self.wanted.take() else {
            return;
        };
        self.placing = true;
        let placing = self.member.placing.clone();
        let work = async move { Done::Placed(placing.place(wanted).await) };
        self.work.push(work.boxed());
    }

    fn beat(&mut self, owned: Option<Partitions>) {
        if self.beating {
            let former = self.again.take().flatten();
            self.again = Some(owned.or(former));
            return;
        }
        self.beating = true;
        let beat = MemberBeat {
            epoch: self.epoch,
            owned,
            ..self.member.beat.clone()
        };
        let front = self.front.clone();
        let request = Request::Member(Box::new(beat));
        let work = async move { Done::Beat(front.ask_group(request).await) };
        self.work.push(work.boxed());
    }

    fn leave(&mut self, keeps_place: bool) {
        let keeps = keeps_place && self.member.beat.instance.is_some();
        let beat = MemberBeat {
            epoch: if keeps { LEAVES.1 } else { LEAVES.0 },
            ..self.member.beat.clone()
        };
        let front = self.front.clone();
        let request = Request::Member(Box::new(beat));
        let work = async move {
            match front.ask_group(request).await {
                // Whoever is no member has left.
                Ok(_) => Done::Left,
                Err(fault) => Done::Beat(Err(fault)),
            }
        };
        self.work.push(work.boxed());
    }

    fn commit(&mut self, wire: v1::CommitOffsets) -> Result<(), Fault> {
        let offsets = words::offsets(wire.offsets)?;
        let asked: Vec<PartitionId> = offsets.iter().map(|new| new.partition).collect();
        let held = |id: &PartitionId| self.assigned.contains(id) || self.owned.contains(id);
        let (held, strange): (Vec<_>, Vec<_>) =
            offsets.into_iter().partition(|new| held(&new.partition));
        let refused: BTreeSet<_> = strange.into_iter().map(|new| new.partition).collect();
        let commit = Commit {
            group: self.member.beat.group.clone(),
            member: self.member.beat.member.clone(),
            instance: self.member.beat.instance.clone(),
            epoch: wire.epoch,
            member_epochs: true,
            // What it says that it has may be a lie.
            held_only: true,
            offsets: held,
        };
        let front = self.front.clone();
        let commit_id = wire.commit_id;
        let work = async move {
            let result = match front.ask_group(Request::Commit(commit)).await {
                Ok(Answer::Committed(result)) => result.map_err(|error| fault_of(&error)),
                Ok(_) => Err(other()),
                Err(fault) => Err(fault),
            };
            Done::Tell(words::committed(commit_id, &asked, &refused, result))
        };
        self.work.push(work.boxed());
        Ok(())
    }

    fn fetch(&mut self, wire: v1::FetchOffsets) -> Result<(), Fault> {
        let partitions = wire.partitions.iter();
        let partitions: Vec<_> = partitions
            .map(|id| partition(Some(id)))
            .collect::<Result<_, _>>()?;
        let fetch = FetchOffsets {
            group: self.member.beat.group.clone(),
            member: None,
            partitions: Some(partitions),
        };
        let front = self.front.clone();
        let fetch_id = wire.fetch_id;
        let work = async move {
            let result = match front.ask_group(Request::Fetch(fetch)).await {
                Ok(Answer::Fetched(result)) => result.map_err(|error| fault_of(&error)),
                Ok(_) => Err(other()),
                Err(fault) => Err(fault),
            };
            let (offsets, fault) = match result {
                Ok(found) => (found, None),
                Err(fault) => (Vec::new(), Some(fault.to_wire())),
            };
            let offsets = offsets.into_iter().map(|(id, found)| v1::FetchedOffset {
                partition: words::to_wire(id),
                offset: found.as_ref().map(|found| found.offset.0),
                metadata: found.and_then(|found| Some(found.metadata?.to_string())),
            });
            Done::Tell(group_down::Item::Fetched(v1::OffsetsFetched {
                fetch_id,
                offsets: offsets.collect(),
                fault,
            }))
        };
        self.work.push(work.boxed());
        Ok(())
    }

    async fn fenced(&mut self, fault: Fault) -> Goes {
        self.front.metrics.fault(fault.reason);
        let fenced = v1::GroupFenced {
            fault: Some(fault.to_wire()),
        };
        self.tell(group_down::Item::Fenced(fenced)).await;
        Goes::Over
    }

    async fn tell(&mut self, item: group_down::Item) -> Goes {
        let item = v1::GroupDown { item: Some(item) };
        let told = tokio::select! {
            biased;
            () = self.front.kill.cancelled() => return Goes::Over,
            told = self.down.send(Ok(item)) => told,
        };
        match told {
            Ok(()) => Goes::On,
            Err(_) => Goes::Over,
        }
    }
}

fn other() -> Fault {
    Fault::new(Reason::Internal, "the coordinator answered something else")
}
