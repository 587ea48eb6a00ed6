//! The node: requests, groups, metadata's answers, crashes.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::bookie::{
    AddRequest, Address, BookieError, FenceAnswer, FenceRequest, ReadRequest, RecoveryReadAnswer,
    RecoveryReadRequest, StoredEntry,
};
use hulse_proto::id::{EntryId, Incarnation, LedgerId};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use uuid::Uuid;

use crate::config::NodeConfig;
use crate::core::{Answer, Effect, Event, NodeCore, NodeState, Part, Ticket, Verdict};
use crate::disk::{Disk, DiskLock};
use crate::identity::{Boot, Identity, read_identity, write_boot, write_identity};
use crate::index::{Locator, ReadFault, Slot, Wanted};
use crate::log::driver::LogDriver;
use crate::log::recovery::LogError;
use crate::log::{DamagedRange, FileKind, LimboKind};
use crate::reclaim::Worker;
use crate::server::{digest_of, read_entry, read_run, same_bytes};
use crate::start::{BootFacts, StartError, open_log, recover_log};

/// The answer to a request, complete: a positive recovery read has been read.
#[derive(Debug)]
pub enum StepAnswer {
    /// To an add.
    Add(Result<(), BookieError>),
    /// To a fence.
    Fence(Result<FenceAnswer, BookieError>),
    /// To a recovery read.
    RecoveryRead(Result<RecoveryReadAnswer, BookieError>),
    /// To a deletion.
    Delete(Result<(), BookieError>),
}

/// What came of a step, in order.
#[derive(Debug, Default)]
pub struct StepOutput {
    /// Answers that are due now.
    pub answers: Vec<(Ticket, StepAnswer)>,
    /// Ledgers whose metadata the caller is to read; reported with [`StepNode::verified`].
    pub verify: Vec<LedgerId>,
}

/// The node.
pub struct StepNode {
    pub(super) core: NodeCore,
    pub(super) driver: LogDriver,
    pub(super) locator: Locator,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) config: NodeConfig,
    identity: Identity,
    counter: u64,
    next_ticket: u64,
    written: bool,
    pub(super) now: Duration,
    pub(super) worker: Worker,
    /// Salts of compacted files.
    pub(super) rng: ChaCha12Rng,
    /// Files whose removal is durable on record.
    pub(super) unlink: Vec<(FileKind, u32)>,
    damage: Vec<DamagedRange>,
    scanned_bytes: u64,
    limbo: Vec<LimboKind>,
    _lock: Box<dyn DiskLock>,
}

impl StepNode {
    /// Opens a disk, formatting an empty one with an identity drawn from the seed. `scope` names the ledgers that limbo is about
    /// by metadata's word, should this start need it (storage.md S3).
    ///
    /// # Errors
    /// [`StartError`], also when the disk stops in the middle.
    pub fn open(
        config: NodeConfig,
        disk: Arc<dyn Disk>,
        seed: u64,
        scope: &[LedgerId],
    ) -> Result<Self, StartError> {
        let lock = disk.lock()?;
        let identity = match read_identity(disk.as_ref())? {
            Some(identity) => identity,
            None => format(&config, disk.as_ref(), seed)?,
        };
        let facts = BootFacts {
            identity: identity.clone(),
            boot_in_metadata: 0,
            log_file_in_metadata: 0,
        };
        let booted = recover_log(&config, disk.as_ref(), facts)?;
        let (counter, damage) = (booted.counter, booted.recovered().damage.clone());
        let scanned_bytes = booted.recovered().scanned_bytes;
        let limbo = booted.limbo.iter().copied().collect();
        let scope = booted.limbo_scope(scope);
        let rng = ChaCha12Rng::seed_from_u64(seed ^ counter.rotate_left(32));
        let (mut core, writer) = open_log(&config, &disk, booted, &scope, (Box::new(rng), 0))?;
        core.on_event(Event::SpaceSeen(disk.space()?), &mut Vec::new());
        let worker = Worker::new(config.scrub_interval);
        Ok(Self {
            core,
            locator: Locator::new(Arc::clone(&disk), writer.files(), config.index_cache_bytes),
            driver: LogDriver::new(writer, config.sync),
            disk,
            config,
            identity,
            counter,
            next_ticket: 0,
            written: false,
            now: Duration::ZERO,
            worker,
            rng: ChaCha12Rng::seed_from_u64(seed ^ counter.rotate_left(16)),
            unlink: Vec::new(),
            damage,
            scanned_bytes,
            limbo,
            _lock: lock,
        })
    }

    /// How to address a ledger here.
    pub fn address(&self, ledger: LedgerId) -> Address {
        Address {
            cell: self.identity.cell,
            incarnation: self.identity.incarnation,
            ledger,
        }
    }

    /// This life of the disk.
    pub fn incarnation(&self) -> Incarnation {
        self.identity.incarnation
    }

    /// Damaged ranges of the log, known ones included.
    pub fn damage(&self) -> &[DamagedRange] {
        &self.damage
    }

    /// Bytes of log files' bodies that this start read.
    pub fn scanned_bytes(&self) -> u64 {
        self.scanned_bytes
    }

    /// Why this start put its scope into limbo; empty: it did not.
    pub fn new_limbo(&self) -> &[LimboKind] {
        &self.limbo
    }

    /// The core, to look at.
    pub fn core(&self) -> &NodeCore {
        &self.core
    }

    /// Puts the node into a state that only a long history would bring about. Before the first request.
    pub fn set_state(&mut self, state: NodeState) {
        let limits = self.config.limits();
        let identity = self.identity.of_disk();
        let core = NodeCore::new(identity, state, limits, self.driver.writer.room());
        self.core = core.mutated(self.config.mutation);
    }

    /// Lets time pass (for adds that expire).
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Submits an add. The caller vouches for the payload's checksum.
    pub fn add(&mut self, request: AddRequest) -> (Ticket, StepOutput) {
        let (ticket, now) = (self.ticket(), self.now);
        (
            ticket,
            self.event(Event::Add {
                ticket,
                request,
                now,
            }),
        )
    }

    /// Submits a fence.
    pub fn fence(&mut self, request: FenceRequest) -> (Ticket, StepOutput) {
        let ticket = self.ticket();
        (ticket, self.event(Event::Fence { ticket, request }))
    }

    /// Submits a recovery read.
    pub fn recovery_read(&mut self, request: RecoveryReadRequest) -> (Ticket, StepOutput) {
        let ticket = self.ticket();
        (ticket, self.event(Event::RecoveryRead { ticket, request }))
    }

    /// Submits a deletion.
    pub fn delete(&mut self, to: Address) -> (Ticket, StepOutput) {
        let ticket = self.ticket();
        (ticket, self.event(Event::Delete { ticket, to }))
    }

    /// Metadata's word on a ledger.
    pub fn verified(&mut self, ledger: LedgerId, verdict: Verdict) -> StepOutput {
        let now = self.now;
        self.event(Event::Verified {
            ledger,
            verdict,
            now,
        })
    }

    /// Any other event.
    pub fn event(&mut self, event: Event) -> StepOutput {
        let mut effects = Vec::new();
        self.core.on_event(event, &mut effects);
        self.carry_out(effects)
    }

    /// Reads at once, as the read threads would.
    ///
    /// # Errors
    /// As `BookieCalls::read`.
    pub fn read(&mut self, request: &ReadRequest) -> Result<Vec<StoredEntry>, BookieError> {
        let ledger = request.to.ledger;
        let wanted = self.core.want(request, Part::Whole)?;
        let (found, fault) = read_run(&self.locator, &wanted);
        if let Some((entry, fault)) = fault {
            assert_ne!(
                fault,
                ReadFault::Gone,
                "nothing goes on between look-up and read"
            );
            let error = self.unread(ledger, &wanted, (entry, fault));
            if found.is_empty() {
                return Err(error);
            }
        }
        Ok(found)
    }

    /// Where an entry lies, if it is held and its place can be read.
    pub fn slot(&self, ledger: LedgerId, entry: EntryId) -> Option<Slot> {
        let wanted = self.core.want_again(ledger, entry)?;
        let (located, _) = self.locator.locate(&wanted);
        located.first().map(|located| located.slot)
    }

    fn read_or_damaged<T>(
        &mut self,
        ledger: LedgerId,
        wanted: &Wanted,
        read: Result<T, ReadFault>,
    ) -> Result<T, BookieError> {
        read.map_err(|fault| self.unread(ledger, wanted, (wanted.first, fault)))
    }

    fn unread(
        &mut self,
        ledger: LedgerId,
        wanted: &Wanted,
        (entry, fault): (EntryId, ReadFault),
    ) -> BookieError {
        let Some(file) = wanted.file_of(entry).filter(|_| fault.is_damage()) else {
            return BookieError::Busy { queued_bytes: 0 };
        };
        let event = Event::EntryDamaged {
            ledger,
            entry,
            file,
        };
        self.core.on_event(event, &mut Vec::new());
        BookieError::Damaged { ledger, entry }
    }

    /// True when a group waits to be taken, written or synced.
    pub fn busy(&self) -> bool {
        self.written || self.core.group_ready()
    }

    /// Takes the collecting group (expired adds are answered) and writes it. Not durable yet.
    pub fn write_group(&mut self) -> StepOutput {
        let mut effects = Vec::new();
        if !self.written
            && let Some(group) = self.core.take_group(self.now, &mut effects)
        {
            let core = &self.core;
            let snapshot = || core.state().snapshot();
            match self.driver.write(group, snapshot) {
                Ok(buffer) => {
                    self.core.recycle(buffer);
                    self.written = true;
                }
                Err(error) => self.fail(&error, &mut effects),
            }
        }
        self.carry_out(effects)
    }

    /// Syncs what was written (unless the sync mode asks for none) and answers.
    pub fn sync_group(&mut self) -> StepOutput {
        let mut effects = Vec::new();
        if std::mem::take(&mut self.written) {
            let room = self.driver.writer.room();
            match self.driver.store() {
                Ok(event) => {
                    self.core.on_event(Event::RoomChanged(room), &mut effects);
                    if let Some(event) = event {
                        self.core.on_event(event, &mut effects);
                    }
                }
                Err(error) => self.fail(&error, &mut effects),
            }
        }
        self.carry_out(effects)
    }

    /// What an idle log does: the mark, and the next file in advance.
    pub fn idle(&mut self) -> StepOutput {
        let mut effects = Vec::new();
        if self.driver.wants_mark()
            && let Err(error) = self.driver.mark()
        {
            self.fail(&error, &mut effects);
        }
        let mut output = self.carry_out(effects);
        output.answers.extend(self.make_spare().answers);
        output
    }

    /// The next file in advance, and footers of full ones, as after each roll.
    pub fn make_spare(&mut self) -> StepOutput {
        let mut effects = Vec::new();
        if self.core.failed().is_none() {
            let made = self.driver.writer.make_spare();
            match made.and_then(|()| self.seal()) {
                Ok(()) => {
                    let room = self.driver.writer.room();
                    self.core.on_event(Event::RoomChanged(room), &mut effects);
                    self.look_at_disk();
                }
                Err(error) => self.fail(&error, &mut effects),
            }
        }
        self.carry_out(effects)
    }

    fn seal(&mut self) -> Result<(), LogError> {
        let mut none = Vec::new();
        while let Some(sealed) = self.driver.writer.seal()? {
            let event = Event::FileSealed(Box::new(sealed));
            self.core.on_event(event, &mut none);
        }
        Ok(())
    }

    /// Looks at the volume (storage.md D5), as it happens with each new log file and now and then.
    pub fn look_at_disk(&mut self) {
        if let Ok(space) = self.disk.space() {
            self.core.on_event(Event::SpaceSeen(space), &mut Vec::new());
        }
    }

    /// A sync that no group waits for: the timer of the interval mode.
    pub fn sync_now(&mut self) -> StepOutput {
        let mut effects = Vec::new();
        if let Err(error) = self.driver.writer.sync() {
            self.fail(&error, &mut effects);
        }
        self.carry_out(effects)
    }

    /// How long until the interval mode syncs; `None`: nothing waits for it.
    pub fn sync_due_in(&self) -> Option<Duration> {
        self.driver.sync_due_in(self.now)
    }

    /// What the log thread does after each group and when it wakes: the sync of the interval mode, if it is due.
    pub fn sync_if_due(&mut self) -> StepOutput {
        let mut effects = Vec::new();
        if self.core.failed().is_none()
            && let Err(error) = self.driver.sync_if_due(self.now)
        {
            self.fail(&error, &mut effects);
        }
        self.carry_out(effects)
    }

    /// Everything that waits goes through the log.
    pub fn settle(&mut self) -> StepOutput {
        let mut output = StepOutput::default();
        while self.busy() {
            for step in [self.write_group(), self.sync_group()] {
                output.answers.extend(step.answers);
                output.verify.extend(step.verify);
            }
            if self.driver.writer.wants_spare() {
                output.answers.extend(self.make_spare().answers);
            }
        }
        output
    }

    /// Stops cleanly.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn close(mut self) -> Result<(), StartError> {
        self.driver.close()?;
        let boot = Boot {
            counter: self.counter,
            kernel: self.config.kernel_boot_id.clone(),
            clean: true,
        };
        Ok(write_boot(self.disk.as_ref(), &boot)?)
    }

    pub(super) fn fail(&mut self, error: &LogError, effects: &mut Vec<Effect>) {
        self.written = false;
        let why = error.to_string();
        self.core.on_event(Event::LogFailed { why }, effects);
    }

    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) -> StepOutput {
        let mut output = StepOutput::default();
        for effect in effects {
            match effect {
                Effect::Verify { ledger } => output.verify.push(ledger),
                Effect::Unlink { files } => self.unlink.extend(files),
                Effect::Answer { ticket, answer } => {
                    let answer = match answer {
                        Answer::Add(result) => StepAnswer::Add(result),
                        Answer::Fence(result) => StepAnswer::Fence(result),
                        Answer::RecoveryRead(result) => StepAnswer::RecoveryRead(result),
                        Answer::Delete(result) => StepAnswer::Delete(result),
                    };
                    output.answers.push((ticket, answer));
                }
                Effect::ReadEntry {
                    ticket,
                    ledger,
                    wanted,
                } => {
                    let read = read_entry(&self.locator, &wanted);
                    let answer = self.read_or_damaged(ledger, &wanted, read);
                    let answer = answer.map(RecoveryReadAnswer::Positive);
                    output
                        .answers
                        .push((ticket, StepAnswer::RecoveryRead(answer)));
                }
                Effect::CompareEntry {
                    ticket,
                    ledger,
                    wanted,
                    offered,
                } => {
                    let read = digest_of(&self.locator, &wanted);
                    let held = self.read_or_damaged(ledger, &wanted, read);
                    let held = held.map_err(|_| BookieError::Busy { queued_bytes: 0 });
                    let same =
                        held.and_then(|held| same_bytes((ledger, wanted.first), held, offered));
                    output.answers.push((ticket, StepAnswer::Add(same)));
                }
            }
        }
        output
    }
}

fn format(config: &NodeConfig, disk: &dyn Disk, seed: u64) -> Result<Identity, StartError> {
    let identity = Identity {
        cell: config.cell,
        name: config.name.clone(),
        incarnation: Incarnation(Uuid::from_u64_pair(seed, 1)),
        disk: Uuid::from_u64_pair(seed, 2),
        sync: config.sync,
        registered: true,
    };
    write_identity(disk, &identity)?;
    Ok(identity)
}
