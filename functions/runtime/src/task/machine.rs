//! The state machine of a task.

use std::collections::BTreeMap;

use bytes::Bytes;
use hulse_proto::time::TimestampMs;

use super::effect::{Effect, Event, Page, Producer, Trouble};
use super::snapshots::{Appended, Cleaning, Snapshots, Upload};
use crate::codec::changelog::{ChangelogRecord, Meta, Pointer};
use crate::codec::snapshot::Snapshot;
use crate::epoch::{Base, FunctionConfig, FunctionEpoch, compute};
use crate::failure::TaskFailure;
use crate::id::{InputPartition, TaskId};
use crate::mutant::{Mutant, Mutation};
use crate::operator::EpochOperator;
use crate::record::Fetched;
use crate::restore::Restore;
use crate::state::State;
use crate::watermark::{Idleness, Watermarks};

/// Where a task stands. Each phase wants one effect.
#[derive(Debug)]
enum Phase {
    Fencing,
    Offsets,
    Changelog(Reading),
    Snapshot(Reading),
    Fetching,
    Begin,
    Produce,
    Append,
    Offset,
    Commit,
    Failed(TaskFailure),
}

/// A restore under way.
#[derive(Debug)]
struct Reading {
    group: BTreeMap<InputPartition, u64>,
    restore: Restore,
    from: Option<u64>,
}

/// What a running task knows.
#[derive(Debug)]
struct Running {
    state: State,
    meta: Meta,
    /// Of `meta`, with who is idle now.
    watermarks: Watermarks,
    /// Where to read on; ahead of `meta` only over what holds no record.
    positions: BTreeMap<InputPartition, u64>,
    idleness: Idleness,
    epoch: Option<FunctionEpoch>,
    appended: Appended,
}

/// One running copy of one stage of a function, without I/O.
///
/// Ask [`Task::wanted`], do it, tell [`Task::on_event`]. In the background: [`Task::take_upload`], [`Task::take_cleaning`].
pub struct Task {
    id: TaskId,
    config: FunctionConfig,
    operator: Box<dyn EpochOperator>,
    /// Where the function began, fixed when it was created (B12); its keys are the partitions that the task reads.
    start: BTreeMap<InputPartition, u64>,
    phase: Phase,
    producer: Producer,
    running: Option<Running>,
    snapshots: Snapshots,
    mutation: Mutation,
}

/// No producer yet.
const NOBODY: Producer = Producer { id: -1, epoch: -1 };

impl Task {
    /// One that has not begun.
    pub fn new(
        id: TaskId,
        config: FunctionConfig,
        operator: Box<dyn EpochOperator>,
        start: BTreeMap<InputPartition, u64>,
        mutation: Mutation,
    ) -> Self {
        let snapshots = Snapshots::new(&id.to_string(), operator.fingerprint());
        let mut task = Self {
            id,
            config,
            operator,
            start,
            phase: Phase::Fencing,
            producer: NOBODY,
            running: None,
            snapshots,
            mutation,
        };
        task.phase = task.begin_again();
        task
    }

    /// Who it is.
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// Why it ended, if it did.
    pub fn failure(&self) -> Option<&TaskFailure> {
        match &self.phase {
            Phase::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The last committed epoch, once restored.
    pub fn meta(&self) -> Option<&Meta> {
        self.running.as_ref().map(|running| &running.meta)
    }

    /// State after the last committed epoch, once restored.
    pub fn state(&self) -> Option<&State> {
        self.running.as_ref().map(|running| &running.state)
    }

    /// What is to be done next; none once it failed.
    pub fn wanted(&self) -> Option<Effect> {
        let effect = match &self.phase {
            Phase::Failed(_) => return None,
            Phase::Fencing => Effect::Fence,
            Phase::Offsets => Effect::ReadOffsets(self.start.keys().copied().collect()),
            Phase::Changelog(reading) => Effect::ReadChangelog { from: reading.from },
            Phase::Snapshot(reading) => Effect::ReadSnapshot {
                path: reading.restore.wanted()?.path.clone(),
            },
            Phase::Fetching => Effect::Fetch {
                from: self.running.as_ref()?.positions.clone(),
                rows_max: self.config.limits.epoch_rows_max,
                bytes_max: self.config.limits.epoch_input_bytes_max,
            },
            Phase::Begin => Effect::Begin,
            Phase::Produce => Effect::Produce(self.epoch()?.outputs.clone()),
            Phase::Append => Effect::Append(self.changelog()?),
            Phase::Offset => Effect::CommitOffsets(self.epoch()?.meta.offsets.clone()),
            Phase::Commit => Effect::Commit,
        };
        Some(effect)
    }

    /// Takes what came of the wanted effect. An event that answers another one counts as trouble: nothing is known any more.
    pub fn on_event(&mut self, event: Event) {
        let phase = std::mem::replace(&mut self.phase, Phase::Fencing);
        let next = match (phase, event) {
            (Phase::Failed(failure), _) => Ok(Phase::Failed(failure)),
            (phase, Event::Failed(trouble)) => self.trouble(&phase, trouble),
            (Phase::Fencing, Event::Fenced(producer)) => Ok(self.fenced(producer)),
            (Phase::Offsets, Event::Offsets(group)) => Ok(Phase::Changelog(self.reading(group))),
            (Phase::Changelog(reading), Event::Page(page)) => self.page(reading, page),
            (Phase::Snapshot(reading), Event::Snapshot(object)) => self.snapshot(reading, object),
            (Phase::Fetching, Event::Fetched { fetched, now }) => self.fetched(fetched, now),
            (Phase::Begin, Event::Done) => Ok(Phase::Produce),
            (Phase::Produce, Event::Done) => Ok(Phase::Append),
            (Phase::Append, Event::Appended { last }) => Ok(self.appended(last)),
            (Phase::Offset, Event::Done) => Ok(Phase::Commit),
            (Phase::Commit, Event::Done) => Ok(self.committed()),
            _ => Ok(self.begin_again()),
        };
        self.phase = next.unwrap_or_else(Phase::Failed);
        if matches!(self.phase, Phase::Failed(_)) {
            self.running = None;
        }
    }

    /// A state that should be uploaded, at most once each.
    pub fn take_upload(&mut self) -> Option<Upload> {
        self.snapshots.take_upload()
    }

    /// An upload ended: the pointer of its object, or none if it failed.
    pub fn on_uploaded(&mut self, pointer: Option<Pointer>) {
        self.snapshots.uploaded(pointer, self.producer);
        if self.mutation.is(Mutant::TruncateBeforePublish) {
            self.snapshots.truncate_early();
        }
    }

    /// What may be deleted now.
    pub fn take_cleaning(&mut self) -> Vec<Cleaning> {
        self.snapshots.take_cleaning()
    }

    fn epoch(&self) -> Option<&FunctionEpoch> {
        self.running.as_ref()?.epoch.as_ref()
    }

    /// The records of this epoch: deltas, the pointer if one is ready, the meta last.
    fn changelog(&self) -> Option<Vec<Bytes>> {
        let epoch = self.epoch()?;
        let fingerprint = self.operator.fingerprint();
        let mut meta = epoch.meta.clone();
        if self.mutation.is(Mutant::WatermarkForgotten) {
            meta.watermarks = Watermarks::new(meta.offsets.keys().copied());
        }
        let mut records = epoch.deltas.clone();
        if self.mutation.is(Mutant::DeltaLeftOut) {
            records.clear();
            meta.deltas = 0;
        }
        let pointer = self.snapshots.ready.clone().map(ChangelogRecord::Pointer);
        let ending = pointer.into_iter().chain([ChangelogRecord::Meta(meta)]);
        // Their lengths were checked when they were made: paths and partition counts fit their fields.
        records.extend(ending.filter_map(|record| record.encode(fingerprint).ok()));
        Some(records)
    }

    /// Drops everything and goes back to the fence.
    fn begin_again(&mut self) -> Phase {
        self.running = None;
        match self.mutation.is(Mutant::ReadBeforeFence) {
            true => Phase::Offsets,
            false => Phase::Fencing,
        }
    }

    fn trouble(&mut self, phase: &Phase, trouble: Trouble) -> Result<Phase, TaskFailure> {
        let committing = matches!(phase, Phase::Commit);
        match trouble {
            Trouble::Fenced => Err(TaskFailure::Fenced {
                task: self.id.to_string(),
            }),
            Trouble::Unknown if committing && self.mutation.is(Mutant::UnknownIsCommitted) => {
                Ok(self.committed())
            }
            Trouble::Unknown if committing && self.mutation.is(Mutant::UnknownIsAborted) => {
                Ok(Phase::Begin)
            }
            Trouble::Unknown => Ok(self.begin_again()),
        }
    }

    fn fenced(&mut self, producer: Producer) -> Phase {
        self.producer = producer;
        match self.running {
            Some(_) => Phase::Fetching,
            None => Phase::Offsets,
        }
    }

    fn reading(&self, group: BTreeMap<InputPartition, u64>) -> Reading {
        let bytes_max = self.config.limits.restore_bytes_max;
        Reading {
            group,
            restore: Restore::new(self.operator.fingerprint(), bytes_max, self.mutation),
            from: None,
        }
    }

    fn page(&mut self, mut reading: Reading, page: Page) -> Result<Phase, TaskFailure> {
        for (offset, record) in &page.records {
            reading.restore.take(*offset, record)?;
        }
        reading.from = Some(page.next);
        match (page.is_last, reading.restore.wanted()) {
            (false, _) => Ok(Phase::Changelog(reading)),
            (true, Some(_)) => Ok(Phase::Snapshot(reading)),
            (true, None) => self.restored(reading, None),
        }
    }

    fn snapshot(
        &mut self,
        mut reading: Reading,
        object: Option<Bytes>,
    ) -> Result<Phase, TaskFailure> {
        let codecs = self.operator.codecs();
        let opened = match (&object, reading.restore.wanted()) {
            (Some(object), Some(pointer)) => Snapshot::open(object, pointer, &codecs).ok(),
            _ => None,
        };
        if let Some(snapshot) = opened {
            let expected = self.operator.fingerprint();
            if snapshot.fingerprint != expected {
                return Err(TaskFailure::OtherFunction {
                    stored: snapshot.fingerprint,
                    expected,
                });
            }
            return self.restored(reading, Some(snapshot));
        }
        reading.restore.reject_wanted();
        match reading.restore.wanted() {
            Some(_) => Ok(Phase::Snapshot(reading)),
            None => self.restored(reading, None),
        }
    }

    fn restored(
        &mut self,
        reading: Reading,
        snapshot: Option<Snapshot>,
    ) -> Result<Phase, TaskFailure> {
        let (kept, tail_bytes) = (reading.restore.kept(), reading.restore.bytes());
        let codecs = self.operator.codecs();
        let (state, meta) =
            reading
                .restore
                .finish(snapshot, &codecs, &self.start, &reading.group)?;
        self.running = Some(Running {
            state,
            watermarks: meta.watermarks.clone(),
            positions: meta.offsets.clone(),
            idleness: Idleness::default(),
            epoch: None,
            appended: Appended::default(),
            meta,
        });
        if self.mutation.is(Mutant::ReadBeforeFence) {
            return Ok(Phase::Fencing);
        }
        self.snapshots.restored(kept, tail_bytes, self.producer);
        Ok(Phase::Fetching)
    }

    fn fetched(
        &mut self,
        mut fetched: Vec<Fetched>,
        now: TimestampMs,
    ) -> Result<Phase, TaskFailure> {
        let Some(running) = &mut self.running else {
            return Ok(self.begin_again());
        };
        // A second answer for a partition, or one below where it stands, would be computed twice.
        let positions = &running.positions;
        fetched.retain(|one| {
            positions
                .get(&one.partition)
                .is_some_and(|at| one.next >= *at)
        });
        let policy = &self.config.time;
        running.idleness.judge(
            &fetched,
            now,
            &mut running.watermarks,
            policy,
            self.mutation,
        );
        let base = Base {
            state: &running.state,
            meta: &running.meta,
            watermarks: &running.watermarks,
        };
        let epoch = compute(
            &self.config,
            self.operator.as_mut(),
            base,
            &mut fetched,
            now,
            self.mutation,
        )?;
        for one in &fetched {
            running.positions.insert(one.partition, one.next);
        }
        match epoch {
            None => Ok(Phase::Fetching),
            Some(epoch) => {
                running.epoch = Some(epoch);
                Ok(Phase::Begin)
            }
        }
    }

    fn appended(&mut self, last: u64) -> Phase {
        let bytes = self.epoch().map_or(0, |epoch| {
            epoch.deltas.iter().map(Bytes::len).sum::<usize>()
        });
        let pointer = self.snapshots.ready.clone();
        if let Some(running) = &mut self.running {
            running.appended = Appended {
                last,
                bytes: bytes as u64,
                pointer,
            };
        }
        match self.mutation.is(Mutant::OffsetsLeftOut) {
            true => Phase::Commit,
            false => Phase::Offset,
        }
    }

    fn committed(&mut self) -> Phase {
        let Some((running, epoch)) = self.running.as_mut().and_then(|running| {
            let epoch = running.epoch.take()?;
            Some((running, epoch))
        }) else {
            return self.begin_again();
        };
        running.state.fold(epoch.delta);
        running.watermarks = epoch.meta.watermarks.clone();
        running.meta = epoch.meta;
        let limits = &self.config.limits;
        self.snapshots.committed(
            &running.appended,
            &running.state,
            &running.meta,
            self.producer,
            limits,
        );
        Phase::Fetching
    }
}
