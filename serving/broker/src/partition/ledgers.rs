//! Log ledgers for the partition's task: the first one, the next one, a look after a rest, and the end of a full one.
//!
//! One piece of work at a time; it borrows the chain and brings it back. What a closed ledger did not confirm is answered as not
//! written once the close is proven (storage.md W13, W14, amended D1).

use std::time::Duration;

use bookie_client::{
    AppendError, Appended, CloseError, LedgerWriter, NewLedger, NotWritten, RollError, Standing,
};
use bookie_metadata::Txn;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::ledger::LedgerKind;
use tokio::time::{sleep, timeout};

use super::ownership;
use super::takeover::{Collaborators, log_link};
use super::task::{Appends, Boxed, Task};
use super::trimming::Wanted;
use crate::log::{Chain, LedgerSpan};
use crate::storage_fault;

/// A full storage is looked at again after this long, and twice as long each time …
const RECHECK_MIN: Duration = Duration::from_secs(1);
/// … up to this.
const RECHECK_MAX: Duration = Duration::from_secs(16);

/// What became of a piece of work.
pub(super) enum News {
    /// A new ledger is linked and open.
    Opened(LedgerWriter),
    /// The old one goes on: it could not be rolled now.
    NotRolled,
    /// The old one is as good as it was.
    Verified,
    /// It is closed with all that was sent, and the next one is left to the next record.
    Rested,
    /// It is closed for this reason, and there is no next one yet.
    Closed(Fault),
    /// None can be made: too few bookies take records.
    NoRoom(Fault),
}

impl Task {
    fn new_ledger(&self, base_offset: Offset) -> NewLedger {
        NewLedger {
            kind: LedgerKind::Log,
            partition: self.partition,
            owner_epoch: self.epoch,
            base_offset,
        }
    }

    pub(super) fn take_chain(&mut self) -> Chain {
        self.chain
            .take()
            .expect("there is one piece of work with the chain at a time")
    }

    pub(super) fn open_log(&mut self, base: Offset) {
        self.ledger_base = base;
        let new = self.new_ledger(base);
        let client = self.client.clone();
        let (with, guard, epoch, gap) = (
            self.with.clone(),
            self.guard.clone(),
            self.epoch,
            self.gap_start,
        );
        let mut chain = self.take_chain();
        self.ledger_work = Some(Box::pin(async move {
            let created = client.create(new, |ledger| {
                let mut txn = chain.append(log_link(ledger, base, epoch, gap));
                txn.compares.push(guard.clone());
                txn
            });
            let result = match created.await {
                Ok(writer) => reload(&with, &mut chain, writer).await,
                Err(error) if storage_fault::is_no_room(&error) => {
                    Ok(News::NoRoom(storage_fault::create(&error)))
                }
                Err(error) => Err(storage_fault::create(&error)),
            };
            (chain, result)
        }));
    }

    pub(super) fn roll_log(&mut self, base: Offset) {
        self.ledger_base = base;
        let chain = self.take_chain();
        let work = self.roll(chain, base);
        self.closing = true;
        self.ledger_work = Some(work);
    }

    fn roll(&self, mut chain: Chain, base: Offset) -> Boxed<(Chain, Result<News, Fault>)> {
        let new = self.new_ledger(base);
        let (with, guard, epoch) = (self.with.clone(), self.guard.clone(), self.epoch);
        let client = self.client.clone();
        let writer = self.writer.clone().expect("the core rolls an open ledger");
        let begun = writer.metadata().base_offset;
        Box::pin(async move {
            let rolled = client.roll(&writer, new, |ledger, totals| {
                // Not where the last entry that was sent would end: what the drain did not confirm is not in the log (W13), and
                // a link behind it would be a hole (P3).
                let base = Offset(begun.0 + totals.offset_span);
                let mut txn = chain.append(log_link(ledger, base, epoch, None));
                txn.compares.push(guard.clone());
                txn
            });
            let result = match rolled.await {
                Ok(writer) => reload(&with, &mut chain, writer).await,
                Err(RollError::NotStarted(error)) => {
                    tracing::debug!(%error, "ledger is not rolled now");
                    Ok(News::NotRolled)
                }
                Err(RollError::Conflict(_)) => Err(ownership::moved()),
                Err(error) => Err(Fault::new(Reason::StorageUnknown, error.to_string())),
            };
            (chain, result)
        })
    }

    /// W15: after a rest, still ours and on bookies that exist? If only the bookies are gone, it is rolled.
    pub(super) fn verify_log(&mut self, base: Offset) {
        self.ledger_base = base;
        let chain = self.take_chain();
        let (with, guard) = (self.with.clone(), self.guard.clone());
        let writer = self
            .writer
            .clone()
            .expect("the core looks at an open ledger");
        let partition = self.name.clone();
        let look = async move {
            let (lost, standing) =
                futures::join!(ownership::lost(&with, &guard), with.client.verify(&writer));
            match (lost, standing) {
                (Some(fault), _) => Err(fault),
                (None, Standing::Lost) => Err(ownership::moved()),
                (None, Standing::Gone(members)) => {
                    tracing::info!(%partition, ?members, "log ledger is rolled: bookies are gone");
                    Ok(true)
                }
                (None, Standing::Good | Standing::Unknown) => Ok(false),
            }
        };
        // Nothing is in flight, so a roll has nothing to leave behind.
        let roll = self.roll(chain.clone(), base);
        self.ledger_work = Some(Box::pin(async move {
            match look.await {
                Ok(false) => (chain, Ok(News::Verified)),
                Ok(true) => match roll.await {
                    (chain, Ok(News::NotRolled)) => (chain, Ok(News::Verified)),
                    rolled => rolled,
                },
                Err(fault) => (chain, Err(fault)),
            }
        }));
    }

    /// Closes the open ledger, to which nothing was sent that is not confirmed. While metadata are silent it stays open.
    pub(super) fn rest_log(&mut self) {
        let writer = self
            .writer
            .clone()
            .expect("the core rests an open ledger only");
        let chain = self.take_chain();
        let (with, guard) = (self.with.clone(), self.guard.clone());
        self.ledger_work = Some(Box::pin(async move {
            let fresh = with.client.config().metadata_fresh;
            let look = timeout(fresh, with.metadata.get(guard.key())).await;
            if !matches!(look, Ok(Ok(_))) {
                return (chain, Ok(News::Verified));
            }
            let only_guard = Txn {
                compares: vec![guard],
                ops: vec![],
            };
            let result = match writer.close(only_guard).await {
                Ok(_) => Ok(News::Rested),
                Err(CloseError::Conflict(_)) => Err(ownership::moved()),
                Err(error) => Err(Fault::new(Reason::StorageUnknown, error.to_string())),
            };
            (chain, result)
        }));
    }

    /// Amended D1: records find no ack quorum any more. The ledger is closed at what is confirmed; what it did not confirm is then
    /// certainly not written, and its producers are told that storage is full.
    pub(super) fn close_full(&mut self) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        tracing::warn!(partition = %self.name, ledger = %writer.ledger(), "storage is full; no records are taken until there is room");
        let why = writer.full().borrow().clone().unwrap_or_default();
        let fault = storage_fault::full(&why);
        self.core.storage_full(fault.clone());
        self.closing = true;
        let chain = self.take_chain();
        let guard = Txn {
            compares: vec![self.guard.clone()],
            ops: vec![],
        };
        self.ledger_work = Some(Box::pin(async move {
            let result = match writer.close(guard).await {
                Ok(_) => Ok(News::Closed(fault)),
                Err(CloseError::Conflict(_)) => Err(ownership::moved()),
                Err(error) => Err(Fault::new(Reason::StorageUnknown, error.to_string())),
            };
            (chain, result)
        }));
    }

    /// The next answer of the log ledger's writer, in the order of the entries.
    pub(super) fn appended(&mut self, answer: Result<Appended, AppendError>) -> Result<(), Fault> {
        let now = self.clock.now_ms();
        match answer {
            Ok(appended) => {
                self.fulls = 0;
                self.core.confirmed(appended.entry, now);
                Ok(())
            }
            // Certain only once the close is proven: `ledger_arrived` answers its producers.
            Err(AppendError::NotWritten {
                why: NotWritten::Closed { .. } | NotWritten::Full { .. },
            }) if self.closing => Ok(()),
            // It came after the writer had said that it is full.
            Err(AppendError::NotWritten {
                why: NotWritten::Full { .. },
            }) if self.ledger_work.is_none() => {
                self.want(Wanted::Close);
                Ok(())
            }
            Err(error) => Err(storage_fault::append(&error)),
        }
    }

    pub(super) async fn ledger_arrived(
        &mut self,
        result: Result<News, Fault>,
    ) -> Result<(), Fault> {
        let news = result?;
        if self.closing && !matches!(news, News::NotRolled | News::Verified) {
            // A closed ledger's writer has an answer to everything.
            while let Some(answer) = next_append(&mut self.appends).await {
                self.appended(answer)?;
            }
        }
        self.closing = false;
        let now = self.clock.now_ms();
        match news {
            News::Opened(writer) => self.install(writer),
            News::NotRolled => self.core.log_kept(now),
            News::Verified => self.core.log_verified(now),
            News::Rested => {
                self.writer = None;
                self.until_full = None;
                self.core.log_rested(now);
                self.trimming.look = true;
            }
            News::Closed(fault) => self.begin_full(fault),
            News::NoRoom(fault) => {
                tracing::warn!(partition = %self.name, %fault, "no log ledger can be made; no records are taken until there is room");
                self.begin_full(fault);
            }
        }
        Ok(())
    }

    fn install(&mut self, writer: LedgerWriter) {
        let now = self.clock.now_ms();
        let base = writer.metadata().base_offset;
        if base != self.ledger_base {
            let why = format!(
                "the ledger before was closed at offset {base}, entries up to {} were not confirmed in time; send them again",
                self.ledger_base
            );
            self.core
                .log_closed(&Fault::new(Reason::StorageUnavailable, why));
        }
        let mut span = LedgerSpan::new(writer.ledger(), base, self.epoch, writer.reader());
        span.gap_start = self.gap_start.take();
        self.log.with_view(|view| view.push_ledger(span));
        self.until_full = None;
        self.writer = Some(writer);
        self.core.log_opened(now);
        // The topic may have been changed while it was made.
        self.core.note_outdated(self.is_outdated());
    }

    /// There is no log ledger, and none is made before there is room: looked for at a pace, and ever more rarely when ledgers fill
    /// again at once.
    fn begin_full(&mut self, fault: Fault) {
        self.writer = None;
        self.until_full = None;
        self.core.storage_full(fault.clone());
        self.core.log_closed(&fault);
        let mut wait = (RECHECK_MIN * (1 << self.fulls.min(4))).min(RECHECK_MAX);
        self.fulls = self.fulls.saturating_add(1);
        let client = self.client.clone();
        self.until_room = Some(Box::pin(async move {
            loop {
                sleep(wait).await;
                let fresh = client.config().metadata_fresh;
                let look = timeout(fresh, client.takes_data(None)).await;
                if matches!(look, Ok(Ok(true))) {
                    return;
                }
                wait = (wait * 2).min(RECHECK_MAX);
            }
        }));
    }

    /// Tells the state machine what the writer says of its ensemble, and whether its ledger is still of the kind that is wanted.
    pub(super) fn note_wear(&mut self) {
        let worn = self.writer.as_ref().is_some_and(LedgerWriter::is_worn);
        self.core.note_worn(worn);
        self.core.note_outdated(self.is_outdated());
    }
}

/// The next answer of the log ledger's writer, in the order of the entries; `None` when none is to come. Cancel-safe.
pub(super) async fn next_append(appends: &mut Appends) -> Option<Result<Appended, AppendError>> {
    let answer = appends.front_mut()?.await;
    appends.pop_front();
    Some(answer)
}

async fn reload(
    with: &Collaborators,
    chain: &mut Chain,
    writer: LedgerWriter,
) -> Result<News, Fault> {
    match chain.reload(&*with.metadata, writer.ledger()).await {
        Ok(()) => Ok(News::Opened(writer)),
        Err(error) => Err(storage_fault::chain(&error)),
    }
}
