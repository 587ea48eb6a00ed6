//! Closing a ledger by its writer: seal, then one transaction (storage.md W13, W14).

use bookie_metadata::Txn;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{ClosedTotals, LedgerMetadata, LedgerState, ledger_key};
use tokio::sync::oneshot;

use super::event::Sealing;
use super::handle::LedgerWriter;
use super::task::Command;
use crate::error::{CloseError, WriterEnd};
use crate::metadata::{Committed, NonceField, NotCommitted, Proposal, commit};

/// Tells the writer's task how a close went; a close that is dropped half-way is one of unknown outcome.
pub(crate) struct CloseGuard {
    writer: LedgerWriter,
    told: bool,
}

impl CloseGuard {
    /// Stops and drains the writer, and fixes its end.
    pub(crate) async fn seal(writer: &LedgerWriter) -> Result<(Self, Sealing), WriterEnd> {
        let ledger = writer.ledger();
        if !writer.shared.stop() {
            return Err(writer
                .shared
                .ended()
                .unwrap_or(WriterEnd::Closed { ledger }));
        }
        let guard = Self {
            writer: writer.clone(),
            told: false,
        };
        let (answer, sealed) = oneshot::channel();
        let gone = || WriterEnd::OutcomeUnknown {
            ledger,
            why: "the writer's task is gone".to_owned(),
        };
        writer
            .commands
            .send(Command::Seal(answer))
            .map_err(|_| gone())?;
        let sealing = sealed.await.map_err(|_| gone())??;
        Ok((guard, sealing))
    }

    /// The close is committed. The end is public when this returns.
    pub(crate) fn committed(mut self) {
        let ledger = self.writer.ledger();
        self.tell(WriterEnd::Closed { ledger }, Command::Closed);
    }

    /// The close was refused or is unknown. The end is public when this returns.
    pub(crate) fn failed(mut self, end: WriterEnd) {
        self.tell(end.clone(), Command::CloseFailed(end));
    }

    fn tell(&mut self, end: WriterEnd, command: Command) {
        self.told = true;
        self.writer.shared.end(end);
        // A task that is gone has answered everything already.
        let _ = self.writer.commands.send(command);
    }
}

impl Drop for CloseGuard {
    fn drop(&mut self) {
        if !self.told {
            let end = WriterEnd::OutcomeUnknown {
                ledger: self.writer.ledger(),
                why: "the close was abandoned".to_owned(),
            };
            self.tell(end.clone(), Command::CloseFailed(end));
        }
    }
}

/// The metadata of a closed ledger.
fn close_metadata(open: &LedgerMetadata, sealing: &Sealing, nonce: [u8; 16]) -> LedgerMetadata {
    LedgerMetadata {
        state: LedgerState::Closed,
        closed: Some(sealing.totals),
        degraded: sealing.degraded.clone(),
        writer_nonce: nonce,
        ..open.clone()
    }
}

/// Commits a close, joined by `joined`. A ledger that is still this writer's but was touched by upkeep is compared anew.
pub(crate) async fn commit_close(
    writer: &LedgerWriter,
    sealing: &Sealing,
    joined: Txn,
) -> Result<Committed, NotCommitted> {
    let inner = &writer.shared.inner;
    loop {
        let (open, version) = writer.known();
        let closed = close_metadata(&open, sealing, inner.nonce());
        let key = ledger_key(writer.ledger());
        let proposal = Proposal::new(
            key,
            Some(version),
            &closed,
            NonceField::Writer,
            joined.clone(),
        )
        .mutated(inner.config.mutation);
        match commit(&*inner.metadata, proposal, None).await {
            Err(NotCommitted::Failed {
                found: Some(found), ..
            }) if found.1 != version
                && found.0.state == LedgerState::Open
                && found.0.writer_nonce == open.writer_nonce =>
            {
                writer.note_metadata(found.0, found.1);
            }
            Ok(committed) => {
                writer.note_metadata(committed.metadata.clone(), committed.version);
                return Ok(committed);
            }
            other => return other,
        }
    }
}

/// How a writer ends whose close was not committed.
pub(crate) fn end_of(ledger: LedgerId, error: &NotCommitted) -> WriterEnd {
    let unknown = |why: String| WriterEnd::OutcomeUnknown { ledger, why };
    match error {
        NotCommitted::Failed { found: None, guard } if !guard.current.is_empty() => {
            WriterEnd::Deleted { ledger }
        }
        NotCommitted::Failed { .. } => WriterEnd::MetadataChanged { ledger },
        NotCommitted::Store(error) => unknown(error.to_string()),
        NotCommitted::Unknown(why) => unknown(why.clone()),
    }
}

pub(super) async fn close(writer: &LedgerWriter, part: Txn) -> Result<ClosedTotals, CloseError> {
    let ledger = writer.ledger();
    let (guard, sealing) = CloseGuard::seal(writer).await.map_err(CloseError::Ended)?;
    match commit_close(writer, &sealing, part).await {
        Ok(_) => {
            guard.committed();
            Ok(sealing.totals)
        }
        Err(error) => {
            guard.failed(end_of(ledger, &error));
            Err(match error {
                NotCommitted::Failed { guard, .. } => CloseError::Conflict(guard),
                NotCommitted::Store(error) => CloseError::OutcomeUnknown {
                    ledger,
                    why: error.to_string(),
                },
                NotCommitted::Unknown(why) => CloseError::OutcomeUnknown { ledger, why },
            })
        }
    }
}
