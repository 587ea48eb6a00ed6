//! The task beside an open shard: gives requests and time to the state machine, and does what it asks for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::BoxFuture;
use hulse_proto::error::Fault;
use hulse_proto::id::TopicId;
use hulse_proto::time::WallClock;
use rand_chacha::ChaCha12Rng;
use serving_groups::{
    Answer, Coordinator, Delta, Effect, GroupsConfig, Input, Now, Progress, Request, RequestId,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::claims::Claims;
use super::names::Seen;
use super::watching::{Watcher, Watchers};
use crate::partition::PartitionHandle;

/// Deltas are written together up to about so many bytes.
const TOGETHER_BYTES: usize = 1 << 20;

/// What is asked of a coordinator. Bounded by the requests that a broker has at once.
pub(super) type Asks = mpsc::UnboundedSender<Asked>;

/// One of it.
pub(super) enum Asked {
    Request(RequestId, Request, oneshot::Sender<Answer>),
    /// Nobody waits for it any more.
    Gone(RequestId),
    /// A member's listener wants to be told, by group and member.
    Watch(Arc<str>, Arc<str>, Watcher),
    /// And that one no more.
    Unwatch(Arc<str>, Arc<str>, u64),
    /// What a member's application does.
    Progress(Progress),
}

/// What a coordinator is begun with.
pub(super) struct ShardParts {
    pub(super) open: PartitionHandle,
    pub(super) config: GroupsConfig,
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) seen: watch::Receiver<Seen>,
    pub(super) rng: ChaCha12Rng,
    pub(super) claims: Arc<Claims>,
}

/// A write that is under way, and the last delta in it.
type Write = BoxFuture<'static, (u64, Result<(), Fault>)>;

struct ShardTask {
    open: PartitionHandle,
    coordinator: Coordinator,
    clock: Arc<dyn WallClock>,
    began: Instant,
    waiting: BTreeMap<RequestId, oneshot::Sender<Answer>>,
    watchers: Watchers,
    /// To be written, with what each takes.
    queue: VecDeque<(u64, Delta, usize)>,
    writing: Option<Write>,
}

/// Begins to coordinate the groups of a shard. It ends with the partition; who waits then is not answered.
pub(super) fn spawn(parts: ShardParts) -> Asks {
    let (asks, inbox) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let shard = parts.open.id();
        match run(parts, inbox).await {
            Ok(()) => tracing::debug!(%shard, "a coordinator of groups ended"),
            Err(fault) => tracing::debug!(%shard, %fault, "a coordinator of groups ended"),
        }
    });
    asks
}

async fn run(parts: ShardParts, mut inbox: mpsc::UnboundedReceiver<Asked>) -> Result<(), Fault> {
    let ShardParts {
        open,
        config,
        clock,
        mut seen,
        rng,
        claims,
    } = parts;
    let state = open.groups().await?;
    // Who made them had claimed their names.
    let names = state.groups().map(|(name, _)| name.clone());
    claims.known().extend(names);
    let known = seen.borrow_and_update().clone();
    let mut deletions = known.deletions;
    let now = Now {
        passed_ms: 0,
        wall_ms: clock.now_ms(),
    };
    let mut ended = open.watch();
    let mut task = ShardTask {
        open,
        coordinator: Coordinator::new(config, (state, 0), known.view.clone(), rng, now),
        clock,
        began: Instant::now(),
        waiting: BTreeMap::new(),
        watchers: Watchers::default(),
        queue: VecDeque::new(),
        writing: None,
    };
    // Deleted while the shard was open nowhere.
    task.forget(known.deleted_after(0));
    loop {
        task.write();
        let due = task.began + Duration::from_millis(task.coordinator.due());
        tokio::select! {
            biased;
            () = stopped(&mut ended) => return Ok(()),
            (number, result) = maybe(&mut task.writing) => {
                task.writing = None;
                result?;
                task.input(Input::Confirmed(number));
            }
            asked = inbox.recv() => match asked {
                Some(asked) => task.asked(asked),
                None => return Ok(()),
            },
            changed = seen.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let now = seen.borrow_and_update().clone();
                task.forget(now.deleted_after(deletions));
                deletions = now.deletions;
                task.input(Input::Topics(now.view));
            }
            () = tokio::time::sleep_until(due) => task.input(Input::Tick),
        }
    }
}

/// Ends when the partition stops here.
async fn stopped<T>(watch: &mut watch::Receiver<T>) {
    while watch.changed().await.is_ok() {}
}

async fn maybe(work: &mut Option<Write>) -> (u64, Result<(), Fault>) {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

impl ShardTask {
    /// Offsets of deleted topics go.
    fn forget(&mut self, deleted: BTreeSet<TopicId>) {
        if !deleted.is_empty() {
            self.input(Input::Deleted(deleted));
        }
    }

    fn asked(&mut self, asked: Asked) {
        match asked {
            Asked::Request(id, request, answer) => {
                self.waiting.insert(id, answer);
                self.input(Input::Request(id, request));
            }
            Asked::Gone(id) => {
                if self.waiting.remove(&id).is_some() {
                    self.input(Input::Gone(id));
                }
            }
            Asked::Watch(group, member, watcher) => self.watchers.add(group, member, watcher),
            Asked::Unwatch(group, member, number) => {
                self.watchers.remove(&group, &member, number);
            }
            Asked::Progress(progress) => self.input(Input::Progress(progress)),
        }
    }

    fn input(&mut self, input: Input) {
        let now = Now {
            passed_ms: self.began.elapsed().as_millis() as u64,
            wall_ms: self.clock.now_ms(),
        };
        for effect in self.coordinator.on_input(now, input) {
            match effect {
                Effect::Append { number, delta } => {
                    let bytes = delta.encode().len();
                    self.queue.push_back((number, delta, bytes));
                }
                Effect::Answer(id, answer) => {
                    if let Some(waits) = self.waiting.remove(&id) {
                        // Who asked may have gone; what was asked for holds all the same.
                        let _ = waits.send(answer);
                    }
                }
                // Members of Kafka's wire beat by themselves.
                Effect::Changed(group) => self.watchers.changed(&group),
                Effect::Idle {
                    group,
                    member,
                    fenced,
                } => {
                    tracing::info!(%group, %member, fenced, "the application of a member takes no records though some wait");
                    self.watchers.idle(&group, &member, fenced);
                }
            }
        }
    }

    /// Writes what waits, one write at a time.
    fn write(&mut self) {
        if self.writing.is_some() {
            return;
        }
        let mut together = Delta::default();
        let (mut bytes, mut last) = (0, None);
        while let Some((number, delta, size)) = self.queue.pop_front() {
            if last.is_some() && bytes + size > TOGETHER_BYTES {
                self.queue.push_front((number, delta, size));
                break;
            }
            bytes += size;
            together.0.extend(delta.0);
            last = Some(number);
        }
        if let Some(number) = last {
            let open = self.open.clone();
            self.writing = Some(Box::pin(async move {
                (number, open.write_groups(together).await)
            }));
        }
    }
}
