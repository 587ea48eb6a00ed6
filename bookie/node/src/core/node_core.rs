//! The core: judges requests, fills groups, answers when they are stored.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hulse_proto::bookie::{AddRequest, BookieError, Origin};
use hulse_proto::entry::{EntryClass, EntryHeader};
use hulse_proto::id::LedgerId;
use hulse_proto::mutant::{Mutant, Mutation};

use super::event::{Answer, Effect, Event, Limits, Room, Ticket, Withdrawn};
use super::groups::{Groups, STATE_RECORD_BYTES, SealedGroup, Waiter};
use super::level::{Fullness, Level, Passing};
use super::reclaiming::Reclaiming;
use super::state::NodeState;
use crate::disk::Space;
use crate::ledger::{AddVerdict, LedgerState};
use crate::log::DiskIdentity;
use crate::log::record::entry_record_bytes;

/// Why a bookie takes no records when its disk is full.
const NO_ROOM: &str = "the disk has no room for another log file of bookie.log_file_size";

/// The same, when there is room yet and it is kept (storage.md D1).
const KEPT_FREE: &str = "the disk's free space is below the reserve of bookie.disk_reserve";
/// On a full disk this share of a log file is kept for fences and tombstones: without them nothing could ever be freed (D3).
const STATE_SHARE: u64 = 16;
/// Of the last file this share, and no more than so many bytes, are kept for tombstones: reads that need fences come at any time.
const TOMBSTONE_SHARE: u64 = 10;
const TOMBSTONE_BYTES_MAX: u64 = 64 << 10;
/// And these last blocks for removals of files, or what is dead could not be given back: the record of one makes room for a whole file.
const REMOVAL_BYTES: u64 = 16 << 10;

/// What a record is for, as far as its admission goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Records of a topic.
    Data,
    /// META, CONTROL, recovery and copies.
    Passing,
    /// Fences.
    State,
    /// Tombstones and watermarks.
    Tombstone,
    /// Removals of files: what gives space back.
    Removal,
}

/// A request that waits for metadata's word on its ledger.
pub(super) enum Queued {
    Add {
        ticket: Ticket,
        request: AddRequest,
        arrived: Duration,
    },
    /// A fence or a recovery read, only below the dead watermark (G4).
    Other(Event),
}

impl Queued {
    /// What it counts against the queue's bound.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Add { request, .. } => entry_record_bytes(&request.entry) as u64,
            Self::Other(_) => STATE_RECORD_BYTES as u64,
        }
    }
}

/// The core. See the module.
pub struct NodeCore {
    pub(super) identity: DiskIdentity,
    pub(super) state: NodeState,
    pub(super) groups: Groups,
    pub(super) verifying: BTreeMap<LedgerId, VecDeque<Queued>>,
    pub(super) verifying_bytes: u64,
    /// A watermark that is written and not durable yet.
    pub(super) raising: Option<LedgerId>,
    pub(super) limits: Limits,
    room: Room,
    fullness: Fullness,
    passing: Passing,
    pub(super) reclaiming: Reclaiming,
    read_only: Option<String>,
    withdrawn: Withdrawn,
    /// Copies and write-backs that were taken in this boot.
    pub(super) copies: u64,
    pub(super) failed: Option<String>,
    pub(super) mutation: Mutation,
}

impl NodeCore {
    /// Begins from what the log said.
    pub fn new(identity: DiskIdentity, mut state: NodeState, limits: Limits, room: Room) -> Self {
        state.forget_healed();
        let reclaiming = Reclaiming::of(&state);
        Self {
            identity,
            state,
            groups: Groups::new(limits),
            verifying: BTreeMap::new(),
            verifying_bytes: 0,
            raising: None,
            limits,
            room,
            fullness: Fullness::new(limits.levels),
            passing: Passing::default(),
            reclaiming,
            read_only: None,
            withdrawn: Withdrawn::No,
            copies: 0,
            failed: None,
            mutation: Mutation::default(),
        }
    }

    /// The same with a rule switched off.
    #[must_use]
    pub fn mutated(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// What the node holds.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Bytes that wait for the disk or for metadata.
    pub fn queued_bytes(&self) -> u64 {
        self.groups.queued_bytes() + self.verifying_bytes
    }

    /// True when [`NodeCore::take_group`] would give a group.
    pub fn group_ready(&self) -> bool {
        self.failed.is_none() && self.groups.ready()
    }

    /// The reason why new data is refused, if it is.
    pub fn read_only(&self) -> Option<&str> {
        match &self.read_only {
            Some(why) => Some(why),
            None if self.withdrawn != Withdrawn::No => self.withdrawn.refusal(),
            None if self.room.full => Some(NO_ROOM),
            None if self.fullness.level() >= Level::ReadOnly => Some(KEPT_FREE),
            None => None,
        }
    }

    /// Bytes of the volume that must be free for records to be taken; 0 while nothing is known of it.
    pub fn kept_free_bytes(&self) -> u64 {
        self.fullness.kept_free().unwrap_or(0)
    }

    /// How full the disk is (storage.md D1). A log file that could not be made counts, whatever the volume says.
    pub fn level(&self) -> Level {
        match self.room.full {
            true => self.fullness.level().max(Level::ReadOnly),
            false => self.fullness.level(),
        }
    }

    /// The volume as it was seen last.
    pub fn space(&self) -> Option<Space> {
        self.fullness.space()
    }

    /// True while a raised dead watermark waits for the disk (crash point 12 of storage.md §10).
    pub fn raises_watermark(&self) -> bool {
        self.raising.is_some()
    }

    /// Why the log failed, if it did.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Takes the next group for the log. Adds that expired meanwhile are answered instead (E3).
    pub fn take_group(&mut self, now: Duration, effects: &mut Vec<Effect>) -> Option<SealedGroup> {
        if self.failed.is_some() {
            return None;
        }
        let (group, expired) = self.groups.take(now)?;
        for add in expired {
            if let Some(ledger) = self.state.ledgers.get_mut(&add.ledger) {
                ledger.pending.remove(&add.entry);
            }
            effects.push(self.answer_add(add.ticket, Err(self.busy())));
        }
        Some(group)
    }

    /// Takes a written buffer back.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.groups.recycle(buffer);
    }

    /// Takes one event. Effects are to be carried out in order.
    pub fn on_event(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Add {
                ticket,
                request,
                now,
            } => self.add(ticket, request, now, effects),
            Event::Fence { ticket, request } => self.fence(ticket, request, effects),
            Event::RecoveryRead { ticket, request } => {
                self.recovery_read(ticket, request, effects);
            }
            Event::Delete { ticket, to } => self.delete(ticket, to, effects),
            Event::Verified {
                ledger,
                verdict,
                now,
            } => {
                self.verified(ledger, &verdict, now, effects);
            }
            Event::GroupStored { group, placed } => self.stored(group, &placed, effects),
            Event::LogFailed { why } => self.log_failed(why, effects),
            Event::EntryDamaged {
                ledger,
                entry,
                file,
            } => self.entry_damaged((ledger, entry), file),
            Event::DamageChecked { at, whole } => self.damage_checked(at, whole),
            Event::DamageCovered(ranges) => self.cover(&ranges),
            Event::FileSealed(sealed) => {
                self.reclaiming.sealed(&sealed.summary, &self.state);
                self.state.file_sealed(*sealed);
            }
            Event::RemoveFiles(files) => self.remove_files(&files),
            Event::FilesReplaced(files) => self.files_replaced(&files),
            Event::Collected(dead) => self.collect(&dead),
            Event::Settled(settled) => self.settle(&settled),
            Event::Strayed { ledgers, copies } => self.drop_strays(&ledgers, copies),
            Event::RoomChanged(room) => {
                self.room = room;
                self.fullness.judge(&room);
            }
            Event::SpaceSeen(space) => self.fullness.seen(space, &self.room),
            Event::ReadOnly(why) => self.read_only = why,
            Event::Withdrawn(withdrawn) => self.withdrawn = withdrawn,
        }
    }

    pub(super) fn busy(&self) -> BookieError {
        BookieError::Busy {
            queued_bytes: self.queued_bytes(),
        }
    }

    pub(super) fn answer_add(&self, ticket: Ticket, result: Result<(), BookieError>) -> Effect {
        Effect::Answer {
            ticket,
            answer: Answer::Add(result),
        }
    }

    fn add(
        &mut self,
        ticket: Ticket,
        request: AddRequest,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        if let Err(error) = self.check_add(&request) {
            effects.push(self.answer_add(ticket, Err(error)));
            return;
        }
        self.judge_add(ticket, request, now, effects);
    }

    pub(super) fn judge_add(
        &mut self,
        ticket: Ticket,
        request: AddRequest,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let header = *request.entry.header();
        let (ledger, entry) = (header.ledger, header.entry);
        let verdict = self.verdict(&header, request.origin);
        let held = matches!(
            verdict,
            AddVerdict::Stored | AddVerdict::Compare | AddVerdict::Pending(_)
        );
        if held && request.origin != Origin::Normal {
            self.note_copy(ledger);
        }
        match verdict {
            AddVerdict::Conflict(held) => {
                // A bug of a writer, or bytes that changed on their way past every checksum: somebody must look.
                let offered = header.digest();
                tracing::error!(%ledger, %entry, ?held, ?offered, origin = ?request.origin, "an entry came with other bytes than are held; nothing was overwritten");
                let conflict = BookieError::Conflict { ledger, entry };
                effects.push(self.answer_add(ticket, Err(conflict)));
            }
            AddVerdict::Refused(error) => effects.push(self.answer_add(ticket, Err(error))),
            AddVerdict::Stored => effects.push(self.answer_add(ticket, Ok(()))),
            AddVerdict::Compare => self.compare(ticket, &header, effects),
            AddVerdict::Pending(group) => {
                self.groups.wait(
                    group,
                    Waiter::Add {
                        ticket,
                        ledger,
                        entry,
                    },
                );
            }
            AddVerdict::Append | AddVerdict::Verify => {
                // Behind a question of the same ledger adds keep their order.
                let asked = self.verifying.contains_key(&ledger);
                let waits = asked && request.origin == Origin::Normal;
                if let Err(error) = self.admit(&request, now) {
                    effects.push(self.answer_add(ticket, Err(error)));
                } else if verdict == AddVerdict::Verify || waits {
                    self.queue_add(ticket, request, now, effects);
                } else {
                    self.append(ticket, &request, now);
                    if self.mutation.is(Mutant::AckBeforeSync) {
                        effects.push(self.answer_add(ticket, Ok(())));
                    }
                }
            }
        }
    }

    fn verdict(&self, header: &EntryHeader, origin: Origin) -> AddVerdict {
        let ledger = header.ledger;
        match self.state.ledgers.get(&ledger) {
            Some(state) => state.judge(header, origin, self.mutation),
            None if self.mutation.is(Mutant::ProposedMemberCounts) => AddVerdict::Append,
            None if origin == Origin::Normal || ledger < self.state.dead_below => {
                AddVerdict::Verify
            }
            None => LedgerState::default().judge(header, origin, self.mutation),
        }
    }

    fn append(&mut self, ticket: Ticket, request: &AddRequest, now: Duration) {
        let header = request.entry.header();
        let group = self.groups.add(ticket, request, now);
        let state = self.state.ledgers.entry(header.ledger).or_default();
        let digest = header.digest();
        state
            .pending
            .insert(header.entry, crate::ledger::PendingEntry { digest, group });
        if request.origin != Origin::Normal {
            self.copies += 1;
            state.copied_at = self.copies;
        }
        let keeps = self.mutation.is(Mutant::RecoveryRaisesConfirmedEnd);
        if request.origin == Origin::Normal || keeps {
            state.confirmed_end = state.confirmed_end.max(request.confirmed_end);
        }
    }

    /// Bounds the queue and the disk (K8, D1). META, CONTROL, recovery and copies pass where data does not, at a bounded rate, as long
    /// as the disk is not down to its reserve.
    fn admit(&mut self, request: &AddRequest, now: Duration) -> Result<(), BookieError> {
        let plain =
            request.origin == Origin::Normal && request.entry.header().class == EntryClass::Data;
        let bytes = entry_record_bytes(&request.entry);
        if request.origin == Origin::Normal && self.withdrawn == Withdrawn::Leaving {
            return Err(read_only(self.withdrawn.refusal().unwrap_or_default()));
        }
        if plain {
            return match self.read_only() {
                Some(why) => Err(read_only(why)),
                None => self.admit_bytes(bytes, Purpose::Data),
            };
        }
        let level = self.level();
        if level == Level::Reserve {
            return Err(read_only(KEPT_FREE));
        }
        self.admit_bytes(bytes, Purpose::Passing)?;
        if level >= Level::ReadOnly && !self.passing.take(bytes as u64, now) {
            return Err(self.busy());
        }
        Ok(())
    }

    /// Room in queue and log for a record.
    pub(super) fn admit_bytes(&self, bytes: usize, purpose: Purpose) -> Result<(), BookieError> {
        let queued = self.queued_bytes();
        // A quarter more for what seals ledgers and frees space.
        let most = match purpose {
            Purpose::Data => self.limits.queue_bytes_max,
            _ => self.limits.queue_bytes_max + self.limits.queue_bytes_max / 4,
        };
        if queued > 0 && queued + bytes as u64 > most {
            return Err(self.busy());
        }
        let needed = self
            .groups
            .room_needed(bytes + self.verifying_bytes as usize);
        let room = self.room;
        let most = room.current.max(room.spare);
        let fits = match room.full {
            false => needed <= most,
            // What is kept stays in the file that takes the record, or all of the next one does.
            true => {
                needed + self.kept_of_last_file(purpose) <= most
                    || (room.spare > 0 && needed <= room.current)
            }
        };
        if !fits {
            return Err(match self.room.full {
                true => read_only(NO_ROOM),
                false => self.busy(),
            });
        }
        Ok(())
    }

    /// Bytes that are not given away for this when no other file can be made.
    fn kept_of_last_file(&self, purpose: Purpose) -> u64 {
        let tombstones = (self.room.length / TOMBSTONE_SHARE).min(TOMBSTONE_BYTES_MAX);
        match purpose {
            Purpose::Data | Purpose::Passing => {
                self.limits.levels.file_bytes / STATE_SHARE + REMOVAL_BYTES
            }
            Purpose::State => tombstones + REMOVAL_BYTES,
            Purpose::Tombstone => REMOVAL_BYTES,
            Purpose::Removal => 0,
        }
    }

    fn queue_add(
        &mut self,
        ticket: Ticket,
        request: AddRequest,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        self.queue(
            request.to.ledger,
            Queued::Add {
                ticket,
                request,
                arrived: now,
            },
            effects,
        );
    }
}

fn read_only(why: &str) -> BookieError {
    BookieError::ReadOnly {
        why: why.to_owned(),
    }
}
