//! One seed: everybody, the network between them, and what goes wrong.

use hulse_proto::mutant::Mutation;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::client::Client;
use super::coordinators::Shard;
use super::groups::GroupShard;
use super::message::{Message, PARTITIONS, SHARDS, Sent, To, ordered, unanswered};
use super::oracle::Oracle;
use super::partitions::Partition;
use crate::coordinator::{Participant, Parts, Transaction, TxnState};
use crate::{Producer, Version};

const STEPS: u32 = 6_000;
/// Steps in which all must come to an end when nothing goes wrong any more.
const SETTLE_STEPS: u32 = 60_000;
const IDS: usize = 4;

pub(super) struct Run {
    pub(super) oracle: Oracle,
    pub(super) kills: u64,
    shards: Vec<Shard>,
    partitions: Vec<Partition>,
    groups: GroupShard,
    clients: Vec<Client>,
    network: Sent,
    /// What hangs somewhere, and comes when nobody expects it any more.
    late: Sent,
    now: i64,
    quiet: bool,
    rng: ChaCha12Rng,
}

impl Run {
    pub(super) fn new(seed: u64, mutation: Mutation) -> Self {
        let mut this = Self {
            oracle: Oracle::default(),
            kills: 0,
            shards: (0..SHARDS)
                .map(|index| Shard::new(index, mutation))
                .collect(),
            partitions: (0..PARTITIONS)
                .map(|index| Partition::new(index, mutation))
                .collect(),
            groups: GroupShard::new(mutation),
            clients: Vec::new(),
            network: Vec::new(),
            late: Vec::new(),
            now: 1_000_000,
            quiet: false,
            rng: ChaCha12Rng::seed_from_u64(seed),
        };
        (0..IDS).for_each(|id| this.come(id));
        this
    }

    /// An instance of a producer begins; those before it are not told.
    fn come(&mut self, id: usize) {
        let version = match id % 2 {
            0 => Version::Tv1,
            _ => Version::Tv2,
        };
        let index = self.clients.len();
        let client = Client::new(index, format!("id-{id}").into(), version);
        self.clients.push(client);
    }

    pub(super) fn troubles(&mut self) {
        for _ in 0..STEPS {
            self.step();
            match self.rng.random_range(0..2_000) {
                0..4 => {
                    let shard = self.rng.random_range(0..SHARDS);
                    let sent = self.shards[shard].kill(self.now, &mut self.rng);
                    self.network.extend(sent);
                    self.kills += 1;
                }
                4..8 => {
                    let partition = self.rng.random_range(0..PARTITIONS);
                    let sent = self.partitions[partition].kill(&mut self.rng);
                    self.network.extend(sent);
                    self.kills += 1;
                }
                8..10 => {
                    let sent = self.groups.kill(&mut self.rng);
                    self.network.extend(sent);
                    self.kills += 1;
                }
                10..12 => {
                    let partition = self.rng.random_range(0..PARTITIONS);
                    let sent = self.partitions[partition].log_fails();
                    self.network.extend(sent);
                }
                // A second instance, while the first goes on; or one that died.
                12..15 => {
                    let id = self.rng.random_range(0..IDS);
                    self.come(id);
                }
                15 => {
                    let client = self.rng.random_range(0..self.clients.len());
                    self.clients[client].dead = true;
                }
                16 => self.now += 25_000,
                17..20 => {
                    let value = 1_000_000 + self.oracle.count() as u64;
                    self.network.push((To::Groups, Message::Plain(value)));
                }
                _ => {}
            }
            self.revive();
            if !self.late.is_empty() && self.rng.random_ratio(1, 60) {
                let at = self.rng.random_range(0..self.late.len());
                self.network.push(self.late.swap_remove(at));
            }
            self.check_open();
        }
    }

    /// What is open anywhere is so for a transaction that its coordinator has open, or has decided and not completed; with this
    /// participant in it. Else nobody would ever end it.
    fn check_open(&self) {
        for (place, producer, parts) in self
            .partitions
            .iter()
            .flat_map(Partition::open)
            .chain(self.groups.open())
        {
            let known = self.shards.iter().any(|shard| {
                let mut all = shard.machine.state().iter();
                all.any(|(_, txn)| has_open(txn, place, producer, parts))
            });
            assert!(known, "{producer} is open at {place:?}, and nobody ends it");
        }
    }

    /// Each id has an instance that lives.
    fn revive(&mut self) {
        for id in 0..IDS {
            let name = format!("id-{id}");
            let mut of_id = self.clients.iter().filter(|client| *client.id() == *name);
            if of_id.all(|client| client.dead) {
                self.come(id);
            }
        }
    }

    fn step(&mut self) {
        let most = if self.quiet { 60 } else { 12 };
        self.now += self.rng.random_range(0..most);
        match self.rng.random_range(0..100) {
            0..45 => self.deliver(),
            45..60 => {
                let alive = self.clients.iter_mut().filter(|client| !client.dead);
                if let Some(client) = alive.choose(&mut self.rng) {
                    let sent = client.act(self.now, &mut self.rng, &mut self.oracle);
                    let again = sent.first().and_then(|(_, message)| ordered(message));
                    let old = |message: &Message| again.is_some() && ordered(message) == again;
                    self.network.retain(|(_, message)| !old(message));
                    self.network.extend(sent);
                }
            }
            60..68 => {
                let shard = self.rng.random_range(0..SHARDS);
                let sent = self.shards[shard].confirm(self.now);
                self.network.extend(sent);
            }
            68..84 => {
                let partition = self.rng.random_range(0..PARTITIONS);
                let sent = match self.rng.random() {
                    true => self.partitions[partition].confirm_log(),
                    false => self.partitions[partition].confirm_state(),
                };
                self.network.extend(sent);
            }
            84..88 => {
                let sent = self.groups.confirm();
                self.network.extend(sent);
            }
            88..94 => {
                let partition = self.rng.random_range(0..PARTITIONS);
                let most = self.rng.random_range(1..20);
                self.partitions[partition].read(most);
            }
            _ => {
                for shard in &mut self.shards {
                    let sent = shard.tick(self.now);
                    self.network.extend(sent);
                }
            }
        }
    }

    /// What the network does to a message; false: it does not come now.
    fn lets_through(&mut self, to: To, message: &Message) -> bool {
        let again = (to, message.clone());
        let (often, late) = match message {
            // A marker that comes when another transaction is open, and a coordinator's word about one that is over.
            Message::Mark { .. } => (20, 4),
            Message::Verified { .. } => (4, 20),
            _ => (4, 4),
        };
        let drawn = self.rng.random_range(0..100);
        if drawn < 4 {
            // Whoever sent a marker hears in time that nobody answered; the marker may come all the same.
            self.network.extend(unanswered(message));
            if matches!(message, Message::Mark { .. }) && self.rng.random() {
                self.late.push(again);
            }
            return false;
        }
        if ordered(message).is_some() {
            return true;
        }
        if drawn < 4 + often {
            match self.rng.random() {
                true => self.network.push(again),
                false => self.late.push(again),
            }
        } else if drawn < 4 + often + late {
            self.late.push(again);
            return false;
        }
        true
    }

    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.network.len());
        let (to, message) = self.network.swap_remove(at);
        if !self.quiet && !self.lets_through(to, &message) {
            return;
        }
        let sent = match to {
            To::Coordinator(shard) => self.shards[shard].hear(self.now, message),
            To::Partition(partition) => self.partitions[partition].hear(self.now, message),
            To::Groups => self.groups.hear(self.now, message),
            To::Client(client) => {
                if let Message::Answer(call, said) = message {
                    self.clients[client].hear(call, said, &mut self.oracle);
                }
                Vec::new()
            }
        };
        self.network.extend(sent);
    }

    /// Nothing goes wrong any more: clients end what they have begun, then all of them go, and what is left is ended by time.
    pub(super) fn settle(&mut self) {
        self.quiet = true;
        self.network.append(&mut self.late);
        self.clients
            .iter_mut()
            .for_each(|client| client.ending = true);
        for step in 0..SETTLE_STEPS {
            self.step();
            if step == SETTLE_STEPS / 4 {
                self.clients
                    .iter_mut()
                    .for_each(|client| client.dead = true);
                self.now += 60_000;
            }
            if step % 16 == 0 && self.is_quiet() {
                break;
            }
        }
        assert!(self.is_quiet(), "something is left: {:?}", self.network);
        self.partitions
            .iter_mut()
            .for_each(|partition| partition.read(u64::MAX / 2));
    }

    fn is_quiet(&self) -> bool {
        self.network.is_empty()
            && self.clients.iter().all(Client::is_idle)
            && self.shards.iter().all(Shard::is_quiet)
            && self.partitions.iter().all(Partition::is_quiet)
            && self.groups.is_quiet()
    }

    pub(super) fn judge(&mut self) {
        self.oracle.judge(&self.partitions, &self.groups);
    }

    /// All that was durable.
    pub(super) fn trace(&self) -> Vec<Vec<u8>> {
        let chains = self.shards.iter().flat_map(|shard| &shard.chain);
        let chains = chains.map(|bytes| bytes.to_vec());
        let logs = self.partitions.iter().flat_map(|partition| &partition.log);
        chains
            .chain(logs.map(|entry| entry.envelope.encode().to_vec()))
            .collect()
    }
}

/// A transaction is open for what this producer did at this place, or is being ended.
fn has_open(txn: &Transaction, place: Participant, producer: Producer, parts: Parts) -> bool {
    let takes_part = txn.participants.get(&place);
    let takes_part = takes_part.is_some_and(|known| known.covers(parts));
    let bumped = producer.bumped() == txn.producer;
    let same = match txn.state {
        TxnState::Ongoing => producer == txn.producer,
        state => state.is_preparing() && (producer == txn.producer || bumped),
    };
    takes_part && same
}
