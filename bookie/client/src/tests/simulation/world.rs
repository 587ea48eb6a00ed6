//! One run: actors, their messages, their deaths.

use std::time::Duration;

use bookie_metadata::Revision;
use hulse_proto::bookie::BookieError;
use hulse_proto::id::{CellId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, Quorums, ledger_key};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::members::Members;
use super::network::Asker;
use super::{Message, Network, Oracle, Profile};
use crate::metadata::{Proposal, ProposalStep};
use crate::recovery::{BookieAsk, RecoveryConfig, RecoveryCore, RecoveryEffect, RecoveryEvent};
use crate::testing::{Limbo, MemoryLedgers};
use crate::tests::{Table, data, member, open_metadata};
use crate::writer::{AddCall, Sealing, WriterConfig, WriterCore, WriterEffect, WriterEvent};
use crate::{ClientConfig, RecoverError};
use hulse_proto::mutant::{Mutant, Mutation};

pub(super) const LEDGER: LedgerId = LedgerId(1);
/// Messages of one run; a run that needs more does not come to rest.
const STEPS_MAX: usize = 200_000;
/// From then on nothing goes wrong any more.
const CALM_AT: Duration = Duration::from_secs(6);

/// What kind of run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) quorums: Quorums,
    pub(super) appends: u64,
    pub(super) recoverers: usize,
    pub(super) mutant: Option<Mutant>,
    /// One bookie may lose its tail and be in limbo.
    pub(super) losses: bool,
    /// Bookies besides the ensemble; with them, bookies die and are replaced, and metadata are silent for long.
    pub(super) spares: usize,
}

struct Recoverer {
    core: Option<RecoveryCore>,
    born: Duration,
    /// Attempts so far; answers to earlier ones are dropped.
    attempt: usize,
    wake_at: Option<Duration>,
}

pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) rng: ChaCha12Rng,
    pub(super) profile: Profile,
    pub(super) network: Network,
    pub(super) table: Table,
    pub(super) bookies: Vec<MemoryLedgers>,
    pub(super) members: Members,
    pub(super) writer: WriterCore,
    /// The key as the writer last wrote it.
    pub(super) known: (LedgerMetadata, Revision),
    pub(super) nonces: u64,
    writer_wake: Option<Duration>,
    pub(super) closing: Option<(Proposal, Sealing)>,
    recoverers: Vec<Recoverer>,
    pub(super) oracle: Oracle,
    appended: u64,
    calm: bool,
    writer_crashed: bool,
    trace: Vec<u64>,
}

fn cell() -> CellId {
    CellId::default()
}

fn times(setup: Setup) -> ClientConfig {
    let patience = if setup.spares > 0 { 300 } else { 800 };
    ClientConfig {
        add_timeout: Duration::from_secs(3),
        answer_timeout: Duration::from_millis(300),
        read_timeout: Duration::from_millis(300),
        recovery_deadline: Duration::from_secs(60),
        late_time_max: Duration::from_millis(patience),
        ..ClientConfig::new(setup.quorums)
    }
}

impl World {
    pub(super) fn new(seed: u64, setup: Setup) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let quorums = setup.quorums;
        let count = quorums.ensemble as usize + setup.spares;
        let mut table = Table::default();
        let metadata = open_metadata(quorums.ensemble, quorums.write, quorums.ack);
        table.put(&ledger_key(LEDGER), metadata.encode());
        let mut config = WriterConfig::new(cell(), LEDGER, &metadata, &times(setup));
        config.mutation = Mutation::of(setup.mutant);
        let bookies = (0..count)
            .map(|index| {
                let mut bookie = MemoryLedgers::new(cell(), member(index));
                bookie.mutate(Mutation::of(setup.mutant));
                bookie
            })
            .collect();
        let mut world = Self {
            profile: Profile::draw(&mut rng, count),
            setup,
            network: Network::default(),
            table,
            bookies,
            members: Members::of(count),
            known: (metadata, Revision(1)),
            nonces: 0,
            writer: WriterCore::new(config),
            writer_wake: None,
            closing: None,
            recoverers: Vec::new(),
            oracle: Oracle::default(),
            appended: 0,
            calm: false,
            writer_crashed: false,
            trace: Vec::new(),
            rng,
        };
        world.schedule();
        world
    }

    /// Draws what will happen: appends, recoveries, deaths, a close, a loss; then calm and a last recovery.
    fn schedule(&mut self) {
        let ms =
            |rng: &mut ChaCha12Rng, most: u64| Duration::from_millis(rng.random_range(0..most));
        let most = if self.setup.spares > 0 { 4_000 } else { 400 };
        let burst = self.rng.random_range(1..most);
        for _ in 0..self.setup.appends {
            let at = ms(&mut self.rng, burst);
            self.network.at(at, Message::Append);
        }
        for index in 0..self.setup.recoverers {
            self.recoverers.push(Recoverer {
                core: None,
                born: Duration::ZERO,
                attempt: 0,
                wake_at: None,
            });
            let last = index + 1 == self.setup.recoverers;
            let start = if last {
                CALM_AT
            } else {
                ms(&mut self.rng, burst * 2)
                    + Duration::from_millis(if self.setup.spares > 0 { burst / 2 } else { 0 })
            };
            self.network.at(start, Message::StartRecoverer(index));
            if !last && self.rng.random_bool(0.4) {
                let death = start + ms(&mut self.rng, 600);
                self.network.at(death, Message::CrashRecoverer(index));
            }
        }
        if self.rng.random_bool(0.2) {
            let at = ms(&mut self.rng, burst * 2);
            self.network.at(at, Message::CloseWriter);
        }
        if self.setup.spares > 0 {
            self.schedule_changes(burst);
        }
        if self.setup.losses {
            let at = ms(&mut self.rng, burst * 2);
            let index = self.rng.random_range(0..self.bookies.len());
            self.network.at(at, Message::LoseTail(index));
        }
    }

    /// Runs until nothing is under way; what the oracle says, and the trace.
    pub(super) fn run(self) -> (Vec<String>, Vec<u64>, u64) {
        let (verdict, trace, confirmed, _) = self.run_counting();
        (verdict, trace, confirmed)
    }

    /// As [`World::run`], and what became of its members.
    pub(super) fn run_counting(mut self) -> (Vec<String>, Vec<u64>, u64, Members) {
        let mut steps = 0;
        while let Some(message) = self.network.next() {
            steps += 1;
            if steps > STEPS_MAX {
                self.oracle.fail("the run does not come to rest".to_owned());
                break;
            }
            if self.network.now >= CALM_AT && !self.calm {
                self.calm = true;
                self.profile = Profile::calm(self.bookies.len());
                self.revive();
            }
            self.trace.push(self.network.now.as_nanos() as u64);
            self.take(message);
        }

        if !self.writer_crashed
            && !self.writer.is_finished()
            && self.writer.confirmed_end() < self.writer.appended_end()
        {
            self.oracle.fail("appends are left unanswered".to_owned());
        }
        let row = self.table.get(&ledger_key(LEDGER)).unwrap();
        let metadata = LedgerMetadata::decode(&row.value).unwrap();
        let confirmed = self.oracle.confirmed_count();
        let verdict = self.oracle.judge(LEDGER, &metadata, &self.bookies);
        (verdict, self.trace, confirmed, self.members)
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Append => {
                let entry = data(self.appended, self.appended as u8);
                self.appended += 1;
                self.writer_event(WriterEvent::Append(entry));
            }
            Message::Add(call) => self.add_arrives(call),
            Message::VerifiedAdd(call, metadata) => self.add_verified(call, metadata.as_deref()),
            Message::AddAnswer(tag, result) => {
                if result.is_ok() {
                    self.ack_arrives(tag.entry, &tag.from);
                }
                self.writer_event(WriterEvent::Answer { tag, result });
            }
            Message::ForWriter(event) => self.writer_event(*event),
            Message::Kill(index) => self.kill(index),
            Message::Pause(index) => self.pause(index),
            Message::ReadOnly(index) => self.members.read_only[index] = true,
            Message::Silence => {
                let long = Duration::from_millis(self.rng.random_range(0..4_000));
                self.members.silent_until = self.network.now + long;
            }
            Message::Upkeep => self.upkeep(),
            Message::Ask {
                from,
                position,
                member,
                ask,
            } => self.ask_arrives(from, position, &member, ask),
            Message::AskAnswer(to, event) => self.recoverer_event(to, event),
            Message::WakeWriter => {
                self.writer_wake = None;
                self.writer_event(WriterEvent::Tick);
            }
            Message::WakeRecoverer(index) => {
                self.recoverers[index].wake_at = None;
                self.recoverer_event(index, RecoveryEvent::Tick);
            }
            Message::StartRecoverer(index) => self.start_recoverer(index),
            Message::CrashRecoverer(index) => self.recoverers[index].core = None,
            Message::CrashWriter => self.writer_crashed = true,
            Message::CloseWriter => self.writer_event(WriterEvent::Stop),
            Message::LoseTail(index) => {
                let from = self.rng.random_range(0..=self.setup.appends);
                self.oracle.destroyed = true;
                let from = hulse_proto::id::EntryId(from);
                self.bookies[index].lose_from(LEDGER, from, Limbo::Lost);
            }
            message => self.take_metadata(message),
        }
    }

    pub(super) fn writer_event(&mut self, event: WriterEvent) {
        if self.writer_crashed {
            return;
        }
        let mut effects = Vec::new();
        self.writer.on_event(self.network.now, event, &mut effects);
        if let Some(committed) = self.writer.take_committed() {
            self.known = committed;
            self.members.changes += 1;
        }
        for effect in effects {
            match effect {
                WriterEffect::Send(call) => {
                    let header = call.request.entry.header();
                    self.oracle.content.insert(header.entry, header.digest());
                    let index = self.index_of(&call.member).unwrap();
                    for at in self.fates(index, false) {
                        self.network.at(at, Message::Add(call.clone()));
                    }
                }
                WriterEffect::Confirmed { entry } => {
                    self.check_confirmation(entry);
                    self.oracle.confirmed(entry);
                }
                WriterEffect::Survey => self.survey(),
                WriterEffect::Metadata(step) => self.send_metadata(Asker::WriterChange, step),
                WriterEffect::Failed { entry, error } => self.oracle.failed(entry, &error),
                WriterEffect::CheckMetadata => {
                    self.send_metadata(Asker::WriterCheck, ProposalStep::Read(ledger_key(LEDGER)));
                }
                WriterEffect::Drained => self.writer_event(WriterEvent::Freeze),
                WriterEffect::Frozen(sealing) => self.propose_close(sealing),
                WriterEffect::Forget { .. }
                | WriterEffect::Released { .. }
                | WriterEffect::Full { .. }
                | WriterEffect::Conflicted { .. } => {}
                WriterEffect::Ended(end) => self.check_end(&end),
            }
        }
        if let Some(at) = self.writer.next_wakeup()
            && self.writer_wake.is_none_or(|wake| at < wake)
        {
            self.writer_wake = Some(at);
            self.network.at(at, Message::WakeWriter);
        }
    }

    fn start_recoverer(&mut self, index: usize) {
        let recoverer = &mut self.recoverers[index];
        recoverer.attempt += 1;
        recoverer.born = self.network.now;
        recoverer.wake_at = None;
        let tag = (index * 1_000 + recoverer.attempt) as u32;
        let nonces = [1u32, 2].map(|half| {
            let mut nonce = [0; 16];
            nonce[..4].copy_from_slice(&tag.to_le_bytes());
            nonce[4..8].copy_from_slice(&half.to_le_bytes());
            nonce
        });
        let mut config = RecoveryConfig::new(cell(), LEDGER, &times(self.setup), nonces);
        config.mutation = Mutation::of(self.setup.mutant);
        recoverer.core = Some(RecoveryCore::new(config));
        self.recoverer_event(index, RecoveryEvent::Start);
    }

    pub(super) fn recoverer_event(&mut self, index: usize, event: RecoveryEvent) {
        let now = self.network.now;
        let recoverer = &mut self.recoverers[index];
        let Some(core) = &mut recoverer.core else {
            return;
        };
        let effects = core.on_event(now - recoverer.born, event);
        let wake = core.next_wakeup().map(|at| recoverer.born + at);
        if let Some(at) = wake
            && recoverer.wake_at.is_none_or(|wake| at < wake)
        {
            recoverer.wake_at = Some(at);
            self.network.at(at, Message::WakeRecoverer(index));
        }
        for effect in effects {
            match effect {
                RecoveryEffect::ReadMetadata(key) => {
                    self.send_metadata(Asker::Recoverer(index), ProposalStep::Read(key));
                }
                RecoveryEffect::Commit(txn) => {
                    self.send_metadata(Asker::Recoverer(index), ProposalStep::Send(txn));
                }
                RecoveryEffect::Ask {
                    position,
                    member,
                    ask,
                } => {
                    let bookie = self.index_of(&member).unwrap();
                    for at in self.fates(bookie, false) {
                        let message = Message::Ask {
                            from: index,
                            position,
                            member: member.clone(),
                            ask: ask.clone(),
                        };
                        self.network.at(at, message);
                    }
                }
                RecoveryEffect::ListBookies => self.list_bookies(index),
                RecoveryEffect::Done(result) => self.recovered(index, result),
            }
        }
    }

    fn recovered(&mut self, index: usize, result: Result<LedgerMetadata, RecoverError>) {
        self.recoverers[index].core = None;
        match result {
            Ok(metadata) => {
                let totals = metadata.closed.expect("a closed ledger has totals");
                let row = &self.known.0;
                let local = metadata.fragments.len() > row.fragments.len();
                self.members.local_changes += u64::from(local);
                self.oracle.closed(totals);
            }

            Err(RecoverError::Superseded { .. } | RecoverError::Unavailable { .. }) => {
                // Recoverers that wait too little beat one another for ever.
                let most = 100 << self.recoverers[index].attempt.min(5);
                let wait = Duration::from_millis(self.rng.random_range(1..most));
                let at = self.network.now + wait;
                self.network.at(at, Message::StartRecoverer(index));
            }
            Err(error) => self.oracle.fail(format!("recovery ended with {error}")),
        }
    }

    fn fates(&mut self, index: usize, answer: bool) -> Vec<Duration> {
        self.network
            .fates(&mut self.rng, &self.profile, index, answer)
    }

    fn answer_add(&mut self, call: &AddCall, result: Result<(), BookieError>) {
        let index = self.index_of(&call.member).unwrap();
        for at in self.fates(index, true) {
            self.network
                .at(at, Message::AddAnswer(call.tag(), result.clone()));
        }
    }

    fn add_arrives(&mut self, call: AddCall) {
        let index = self.index_of(&call.member).unwrap();
        if self.is_dead(index) {
            return;
        }
        if let Some(until) = self.pause_of(index) {
            return self.network.at(until, Message::Add(call));
        }
        if self.members.read_only[index] {
            return self.answer_add(
                &call,
                Err(BookieError::ReadOnly {
                    why: "simulated".to_owned(),
                }),
            );
        }
        if self.bookies[index].must_verify(&call.request) && !self.careless_bookies() {
            if self.silent() {
                return self.answer_add(&call, Err(BookieError::MetadataUnavailable));
            }
            let row = self.table.get(&ledger_key(LEDGER));
            let found = row.map(|row| Box::new(LedgerMetadata::decode(&row.value).unwrap()));
            let at = self.network.now + Duration::from_micros(self.rng.random_range(0..3_000));
            self.network.at(at, Message::VerifiedAdd(call, found));
            return;
        }
        let result = self.bookies[index].add(&call.request);
        self.answer_add(&call, result);
    }

    fn add_verified(&mut self, call: AddCall, metadata: Option<&LedgerMetadata>) {
        let index = self.index_of(&call.member).unwrap();
        if self.is_dead(index) {
            return;
        }
        let bookie = &mut self.bookies[index];
        let result = bookie
            .verify(LEDGER, metadata)
            .and_then(|()| bookie.add(&call.request));
        self.answer_add(&call, result);
    }

    fn ask_arrives(
        &mut self,
        from: usize,
        position: usize,
        member: &hulse_proto::ledger::Member,
        ask: BookieAsk,
    ) {
        let Some(index) = self.index_of(member).filter(|index| !self.is_dead(*index)) else {
            return;
        };
        let bookie = &mut self.bookies[index];
        let answer: Box<dyn Fn() -> RecoveryEvent> = match ask {
            BookieAsk::Fence(request) => {
                let result = bookie.fence(request);
                Box::new(move || RecoveryEvent::Fenced {
                    position,
                    result: result.clone(),
                })
            }
            BookieAsk::Read(request) => {
                let result = bookie.recovery_read(request);
                Box::new(move || RecoveryEvent::Read {
                    position,
                    entry: request.entry,
                    result: result.clone(),
                })
            }
            BookieAsk::Add(request) => {
                let result = bookie.add(&request);
                let entry = request.entry.header().entry;
                let from = member.clone();
                Box::new(move || RecoveryEvent::Added {
                    position,
                    entry,
                    from: from.clone(),
                    result: result.clone(),
                })
            }
        };
        for at in self.fates(index, true) {
            self.network.at(at, Message::AskAnswer(from, answer()));
        }
    }
}
