//! Tests of the writer core: a bench that gives it events and keeps what it wants.

mod change;
mod full;
mod rules;
mod scene;
mod senders;
mod wear;

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::id::{CellId, FenceToken, LedgerId};
use hulse_proto::ledger::LedgerMetadata;

use super::{AddCall, AddTag, WriterConfig, WriterCore, WriterEffect, WriterEvent};
use crate::tests::{data, open_metadata};
use crate::{AppendError, ClientConfig, WriterEnd};
use hulse_proto::mutant::{Mutant, Mutation};

const LEDGER: LedgerId = LedgerId(1);

struct Bench {
    core: WriterCore,
    now: Duration,
    sent: Vec<AddCall>,
    confirmed: Vec<u64>,
    failed: Vec<(u64, AppendError)>,
    ended: Option<WriterEnd>,
    other: Vec<WriterEffect>,
}

impl Bench {
    fn new(ensemble: u32, write: u32, ack: u32) -> Self {
        Self::with(&open_metadata(ensemble, write, ack), None)
    }

    fn with(metadata: &LedgerMetadata, mutant: Option<Mutant>) -> Self {
        let config = ClientConfig::new(metadata.quorums);
        let mut config = WriterConfig::new(CellId::default(), LEDGER, metadata, &config);
        config.mutation = Mutation::of(mutant);
        Self {
            core: WriterCore::new(config),
            now: Duration::ZERO,
            sent: Vec::new(),
            confirmed: Vec::new(),
            failed: Vec::new(),
            ended: None,
            other: Vec::new(),
        }
    }

    fn event(&mut self, event: WriterEvent) {
        let mut effects = Vec::new();
        self.core.on_event(self.now, event, &mut effects);
        for effect in effects {
            match effect {
                WriterEffect::Send(call) => self.sent.push(call),
                WriterEffect::Confirmed { entry } => self.confirmed.push(entry.0),
                WriterEffect::Failed { entry, error } => self.failed.push((entry.0, error)),
                WriterEffect::Ended(end) => self.ended = Some(end),
                other => self.other.push(other),
            }
        }
    }

    fn append(&mut self, count: u64) {
        for _ in 0..count {
            let offset = self.core.appended_end().0;
            self.event(WriterEvent::Append(data(offset, offset as u8)));
        }
    }

    /// The last add of an entry to a position.
    fn tag(&self, entry: u64, position: usize) -> AddTag {
        self.sent
            .iter()
            .map(AddCall::tag)
            .rfind(|tag| tag.entry.0 == entry && tag.position == position)
            .unwrap()
    }

    fn answer(&mut self, entry: u64, position: usize, result: Result<(), BookieError>) {
        let tag = self.tag(entry, position);
        self.event(WriterEvent::Answer { tag, result });
    }

    fn ack(&mut self, entry: u64, position: usize) {
        self.answer(entry, position, Ok(()));
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.core.next_wakeup().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.event(WriterEvent::Tick);
        }
        self.now = until;
    }
}

fn fenced() -> BookieError {
    BookieError::Fenced {
        ledger: LEDGER,
        token: FenceToken(3),
    }
}

fn busy() -> BookieError {
    BookieError::Busy { queued_bytes: 1 }
}
