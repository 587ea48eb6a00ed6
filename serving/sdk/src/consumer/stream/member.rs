//! The member's task: keeps a stream to the coordinator, and says what the book knows.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::{ErrorKind, Reason};
use hulse_proto::id::{PartitionId, TopicId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::group_down::Item as DownItem;
use hulse_proto::wire::v1::group_up::Item as UpItem;
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, Interval, MissedTickBehavior, sleep};

use super::book::Given;
use super::item::StreamNote;
use super::link::{Link, Opened, by_topic, elsewhere, fenced_by, open, unavailable};
use super::shared::Shared;
use crate::backoff::Backoff;
use crate::connect::Broker;
use crate::error::Error;

/// Both ends say something at least this often.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A coordinator that says nothing for this long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// How a stream came to its end.
enum End {
    /// The member has left, or is to end.
    Left,
    /// It is no member any more.
    Fenced(Error),
    Broke(Error),
}

pub(super) struct Member {
    shared: Arc<Shared>,
    rng: ChaCha8Rng,
    backoff: Backoff,
    /// Where the coordinator was last.
    coordinator: Option<Broker>,
    commits: u64,
    /// The partitions of the commit that is under way.
    committing: Option<(u64, Vec<PartitionId>)>,
    heard: Instant,
}

impl Member {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let rng = shared.client.child_rng();
        Self {
            shared,
            rng,
            backoff: Backoff::new(),
            coordinator: None,
            commits: 0,
            committing: None,
            heard: Instant::now(),
        }
    }

    /// Until the member has left, is finished, or its handles are gone.
    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            ended = self.keep() => ended,
        };
        let shared = &self.shared;
        shared.stop_reading();
        shared.set_state(|state| {
            state.left = true;
            state.failed = state.failed.take().or(ended.err());
        });
    }

    /// # Errors
    /// Why there will be no stream any more.
    async fn keep(&mut self) -> Result<(), Error> {
        loop {
            self.rest().await;
            let state = self.shared.state();
            if state.closing && self.shared.book().epoch == 0 {
                return Ok(());
            }
            let broker = match &self.coordinator {
                Some(broker) => broker.clone(),
                None => self.shared.client.preferred(),
            };
            let end = match open(&self.shared, &broker).await {
                Ok(Opened::Joined(link, joined)) => {
                    self.backoff.reset();
                    self.coordinator = Some(broker.clone());
                    self.serve(link, &joined).await
                }
                Ok(Opened::Fenced(why)) => End::Fenced(why),
                Err(error) => End::Broke(error),
            };
            self.committing = None;
            match end {
                End::Left => return Ok(()),
                End::Fenced(why) => self.fenced(&why),
                End::Broke(error) => self.broke(&broker, error).await?,
            }
        }
    }

    /// A member whose application stood still waits until it calls.
    async fn rest(&self) {
        loop {
            let state = self.shared.state();
            if !state.rests || state.closing {
                return;
            }
            self.shared.wake.notified().await;
        }
    }

    fn fenced(&self, why: &Error) {
        tracing::debug!(%why, "a member of a group is fenced, and joins anew");
        let idle = why.fault().and_then(|fault| fault.details.get("cause"));
        let rests = idle.is_some_and(|cause| cause == "idle");
        self.shared.change(|book| book.lost(why));
        self.shared.set_state(|state| {
            state.rests = rests;
            state.trouble = Some(why.clone());
        });
    }

    async fn broke(&mut self, broker: &Broker, error: Error) -> Result<(), Error> {
        self.shared.change(|book| book.unanswered());
        let named = elsewhere(&error);
        let is_out = error.reason() == Some(Reason::MemberFenced);
        if is_out {
            self.fenced(&error);
        }
        // Before anything was this member's the application is to hear what is wrong; later only what no time cures.
        let passes_by = is_out
            || error.is_retryable()
            || error.kind() == ErrorKind::NotOwner
            || error.reason() == Some(Reason::ConsumerExists);
        if !passes_by {
            return Err(error);
        }
        tracing::debug!(%broker, %error, "a member of a group looks for its coordinator");
        if named.is_none() {
            self.shared.client.prefer_another(broker);
        }
        self.coordinator = named;
        let wait = self.backoff.next(&mut self.rng, error.retry_after());
        self.shared.set_state(|state| state.trouble = Some(error));
        sleep(wait).await;
        Ok(())
    }

    async fn serve(&mut self, mut link: Box<Link>, joined: &v1::GroupJoined) -> End {
        let every = Duration::from_millis(joined.heartbeat_ms.max(1).into()).min(HEARTBEAT);
        let mut tick = tokio::time::interval_at(Instant::now() + every, every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.heard = Instant::now();
        {
            let mut book = self.shared.book();
            if book.epoch == 0 {
                book.stats.joins += 1;
            }
            book.epoch = joined.epoch;
        }
        let mut leaving = false;
        loop {
            self.give_back(&link);
            self.commit(&link);
            if self.shared.state().closing && !leaving && self.shared.book().is_settled() {
                leaving = true;
                link.say(UpItem::Leave(v1::LeaveGroup { keep_place: false }));
            }
            if let Some(end) = self.step(&mut link, &mut tick).await {
                return end;
            }
        }
    }

    async fn step(&mut self, link: &mut Link, tick: &mut Interval) -> Option<End> {
        let shared = Arc::clone(&self.shared);
        let leaving = shared.book().leaving_since();
        let overdue = leaving.map(|since| since + shared.settings.hand_over);
        tokio::select! {
            biased;
            message = link.down.message() => match message {
                Ok(Some(v1::GroupDown { item })) => {
                    self.heard = Instant::now();
                    self.on_down(link, item)
                }
                Ok(None) => Some(End::Broke(unavailable("the coordinator ended the stream"))),
                Err(status) => {
                    let error = Error::from_status(&status);
                    Some(End::Broke(error.with_possibly_written(false)))
                }
            },
            () = shared.wake.notified() => None,
            () = until(overdue) => None,
            _ = tick.tick() => {
                if self.heard.elapsed() >= SILENCE_MAX {
                    return Some(End::Broke(unavailable("the coordinator said nothing for too long")));
                }
                self.heartbeat(link);
                None
            }
        }
    }

    fn on_down(&mut self, link: &Link, item: Option<DownItem>) -> Option<End> {
        match item {
            Some(DownItem::Assignment(assignment)) => {
                let given = match read(assignment.partitions) {
                    Ok(given) => given,
                    Err(error) => return Some(End::Broke(error)),
                };
                let now = Instant::now();
                self.shared
                    .change(|book| book.assigned(assignment.epoch, given, now));
                self.shared.set_state(|state| state.trouble = None);
                self.heartbeat(link);
                None
            }
            Some(DownItem::Committed(committed)) => self.committed(committed),
            Some(DownItem::Fenced(fenced)) => Some(End::Fenced(fenced_by(fenced))),
            Some(DownItem::Idle(idle)) => {
                let grace = Duration::from_millis(idle.grace_ms.into());
                tracing::warn!(
                    ?grace,
                    "the application takes no record though some wait; its partitions go to others unless it does"
                );
                self.shared
                    .change(|book| book.notes.push_back(StreamNote::Idle { grace }));
                None
            }
            Some(DownItem::Left(_)) => Some(End::Left),
            // Words of a later version are passed over.
            Some(DownItem::Joined(_) | DownItem::Fetched(_) | DownItem::Heartbeat(_)) | None => {
                None
            }
        }
    }

    fn heartbeat(&self, link: &Link) {
        let mut book = self.shared.book();
        let (took, waiting) = book.progress();
        link.say(UpItem::Heartbeat(v1::GroupHeartbeat {
            owned: by_topic(book.owned()),
            took,
            waiting,
        }));
    }

    /// What may go is gone, and the coordinator hears so.
    fn give_back(&self, link: &Link) {
        let shared = &self.shared;
        if shared.book().leaving_since().is_none() {
            return;
        }
        let gone = shared.change(|book| book.give_back(|since| shared.overdue(since)));
        if gone {
            self.heartbeat(link);
        }
    }

    /// One commit is under way at a time, and has all that was wanted meanwhile.
    fn commit(&mut self, link: &Link) {
        if self.committing.is_some() {
            return;
        }
        let (epoch, wanted) = {
            let mut book = self.shared.book();
            (book.epoch, book.take_commits())
        };
        if wanted.is_empty() {
            return;
        }
        self.commits += 1;
        let offsets = wanted.iter().map(|(at, offset)| v1::CommittedTo {
            partition: Some(v1::Partition {
                topic_uuid: at.topic.to_bytes(),
                index: at.index,
            }),
            offset: *offset,
            leader_epoch: None,
            metadata: None,
        });
        link.say(UpItem::Commit(v1::CommitOffsets {
            commit_id: self.commits,
            epoch,
            offsets: offsets.collect(),
        }));
        let partitions = wanted.into_iter().map(|(at, _)| at).collect();
        self.committing = Some((self.commits, partitions));
    }

    fn committed(&mut self, committed: v1::OffsetsCommitted) -> Option<End> {
        let (_, partitions) = self
            .committing
            .take_if(|(id, _)| *id == committed.commit_id)?;
        let whole = committed.fault.map(Error::from_wire);
        // It is tried again by the next stream, after a wait.
        if let Some(error) = whole.as_ref().filter(|error| error.is_retryable()) {
            return Some(End::Broke(error.clone()));
        }
        self.shared.change(|book| {
            for (at, answer) in partitions.into_iter().zip(committed.offsets) {
                let own = answer.fault.map(Error::from_wire);
                let error = whole.clone().or(own);
                book.committed(at, error.map_or(Ok(()), Err));
            }
        });
        None
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// # Errors
/// The coordinator names a partition that is none.
fn read(partitions: Vec<v1::AssignedPartition>) -> Result<Vec<Given>, Error> {
    let given = partitions.into_iter().map(|assigned| {
        let wire = assigned.partition.unwrap_or_default();
        let topic = TopicId::from_slice(&wire.topic_uuid)
            .ok_or_else(|| Error::wrong_answer("an assignment without a topic"))?;
        let index = wire.index;
        Ok(Given {
            at: PartitionId { topic, index },
            topic: assigned.topic.into(),
            begin: assigned.begin,
        })
    });
    given.collect()
}
