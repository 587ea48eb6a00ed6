//! A writer: creates, appends, closes or rolls, and lives on when others recover its ledger.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::{AppendError, LedgerClient, LedgerWriter, NewLedger};
use bookie_metadata::Txn;
use bytes::Bytes;
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry};
use hulse_proto::error::Fate;
use hulse_proto::id::{EntryId, LedgerId, Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::LedgerKind;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tests_harness::{Outcome, Process, World, trace};
use tokio::time::sleep;

use super::book::Book;

/// Its parts.
pub struct Writer {
    /// The world.
    pub world: Arc<World>,
    /// Its process.
    pub process: Process,
    /// What it is told is written here.
    pub book: Book,
    /// Its chance.
    pub rng: ChaCha12Rng,
    /// How many appends it makes.
    pub appends: u32,
    /// Longest pause between two, ms.
    pub pause_ms: u64,
}

/// A ledger of the run's only partition.
pub fn new_ledger(world: &World) -> NewLedger {
    NewLedger {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(world.seeds.id("topic")),
            index: 0,
        },
        owner_epoch: OwnerEpoch(1),
        base_offset: Offset(0),
    }
}

/// An entry of one record.
pub fn entry(first: u64, body: Bytes) -> NewEntry {
    let envelope = Envelope {
        kind: EntryKind::Data,
        append_time: 0,
        running_max_timestamp: 0,
        batches: vec![],
    };
    NewEntry {
        class: EntryClass::Data,
        first_offset: Offset(first),
        offset_span: 1,
        record_count: 1,
        envelope: envelope.encode(),
        body: vec![body],
    }
}

/// A ledger of one writer, opened.
struct Open {
    writer: LedgerWriter,
    /// Offset of the next entry.
    next: u64,
}

impl Writer {
    /// Writes until it is done; the last handle stays open, as that of an owner who does not know yet.
    pub async fn run(mut self) -> Option<LedgerWriter> {
        let client = self.world.client(&self.process);
        let book = self.book.clone();
        let create = client.create(new_ledger(&self.world), |ledger| {
            book.open(ledger);
            Txn::default()
        });
        let created = self.process.heard(create).await?;
        let writer = match created {
            Ok(writer) => writer,
            Err(error) => {
                trace!(
                    self.world.trace,
                    "{} has no ledger: {error}",
                    self.process.name()
                );
                return None;
            }
        };
        let mut open = Open { writer, next: 0 };
        for _ in 0..self.appends {
            if self.process.is_dead() || open.writer.ended().borrow().is_some() {
                break;
            }
            let pause = self.rng.random_range(0..=self.pause_ms);
            sleep(Duration::from_millis(pause)).await;
            match self.rng.random_range(0..100) {
                0..5 => open = self.roll(&client, open).await?,
                5..10 => self.look(&open).await,
                _ => self.append(&mut open).await,
            }
        }
        if self.rng.random_bool(0.3) {
            self.close(&open).await;
        }
        Some(open.writer)
    }

    async fn append(&mut self, open: &mut Open) {
        let room = open.writer.room(EntryClass::Data);
        if self.process.heard(room).await.is_none() {
            return;
        }
        let length = match self.rng.random_bool(0.1) {
            true => self.rng.random_range(0..20_000),
            false => self.rng.random_range(0..400),
        };
        let mut body = vec![0; length];
        self.rng.fill(&mut body[..]);
        let body = Bytes::from(body);
        append(
            &self.world,
            &self.process,
            &self.book,
            &open.writer,
            open.next,
            body,
        );
        open.next += 1;
    }

    /// Reads what is confirmed so far: a reader never sees anything that was not appended.
    async fn look(&mut self, open: &Open) {
        let (ledger, end) = (open.writer.ledger(), open.writer.confirmed_end());
        if end == EntryId(0) {
            return;
        }
        let reader = open.writer.reader();
        let class = hulse_proto::bookie::ReadClass::Tail;
        let read = reader.read(EntryId(0), end, 1 << 20, class);
        let Some(Ok(entries)) = self.process.heard(read).await else {
            return;
        };
        let page = self.book.page(ledger);
        for found in entries {
            let number = found.header().entry;
            let same = page
                .appends
                .get(&number)
                .is_some_and(|told| told.body == found.body());
            self.world.violations.check(same && number < end, || {
                format!("reader of ledger {ledger} saw entry {number} that nobody appended")
            });
        }
    }

    async fn roll(&mut self, client: &LedgerClient, open: Open) -> Option<Open> {
        use bookie_client::RollError::NotStarted;
        let book = self.book.clone();
        let (old, world) = (open.writer.ledger(), self.world.clone());
        let roll = client.roll(&open.writer, new_ledger(&world), |ledger, totals| {
            book.open(ledger);
            trace!(
                world.trace,
                "ledger {old} is to end at {}, then comes {ledger}", totals.end
            );
            Txn::default()
        });
        match self.process.heard(roll).await? {
            Ok(writer) => {
                let end = self.closed_end(old).await?;
                self.book.end(old, end);
                Some(Open {
                    next: writer.metadata().base_offset.0,
                    writer,
                })
            }
            Err(NotStarted(_)) => Some(open),
            Err(error) => {
                trace!(
                    self.world.trace,
                    "{} did not roll: {error}",
                    self.process.name()
                );
                None
            }
        }
    }

    /// What metadata now says of a ledger that this process closed.
    async fn closed_end(&self, ledger: LedgerId) -> Option<EntryId> {
        let ledgers = self.world.store.ledgers();
        let found = ledgers
            .into_iter()
            .find(|(number, _)| *number == ledger.0)?;
        Some(found.1.closed?.end)
    }

    async fn close(&self, open: &Open) {
        let ledger = open.writer.ledger();
        match self.process.heard(open.writer.close(Txn::default())).await {
            Some(Ok(totals)) => self.book.end(ledger, totals.end),
            Some(Err(error)) => {
                trace!(
                    self.world.trace,
                    "{} did not close: {error}",
                    self.process.name()
                );
            }
            None => {}
        }
    }
}

/// Appends one entry; what becomes of it is written into the book when the process hears it.
pub fn append(
    world: &Arc<World>,
    process: &Process,
    book: &Book,
    writer: &LedgerWriter,
    first: u64,
    body: Bytes,
) {
    let (ledger, number) = (writer.ledger(), writer.appended_end());
    let answer = writer.append(entry(first, body.clone()));
    if writer.appended_end() == number {
        // It was refused at the door and has no number.
        return;
    }
    book.append(ledger, number, body);
    let (process, book, world) = (process.clone(), book.clone(), world.clone());
    tokio::spawn(async move {
        let outcome = match process.heard(answer).await {
            None => return,
            Some(Ok(appended)) => {
                world.violations.check(appended.entry == number, || {
                    format!(
                        "append {number} of ledger {ledger} was answered as {}",
                        appended.entry
                    )
                });
                Outcome::Ok(Some(first))
            }
            Some(Err(error)) => told(&error),
        };
        trace!(
            world.trace,
            "{} entry {number} of {ledger}: {outcome:?}",
            process.name()
        );
        book.tell(ledger, number, outcome);
    });
}

fn told(error: &AppendError) -> Outcome {
    match error.fate() {
        Fate::NotApplied => Outcome::Failed,
        Fate::Unknown => Outcome::Unknown,
    }
}
