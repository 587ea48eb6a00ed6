//! What answers mean: counting acks (W3), confirming in order (W4, W5), refusals (W6, W7).

use std::time::Duration;

use hulse_proto::bookie::{Address, BookieError};
use hulse_proto::ledger::LedgerKind;
use hulse_proto::mutant::Mutant;

use super::core::{Phase, WriterCore};
use super::event::{AddTag, WriterEffect};
use super::pending::Slot;
use super::position::Health;
use crate::error::WriterEnd;

/// What a refusal of a current member means for the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The handle ends (W6).
    End,
    /// Try the same entry at the same member again.
    Retry,
    /// As `Retry`, and look at metadata (amended B2).
    Suspect,
    /// This member will never take an entry of this ledger; an ensemble change would replace it (W7).
    Useless,
}

fn meaning(error: &BookieError) -> Meaning {
    match error {
        BookieError::Fenced { .. }
        | BookieError::Deleted { .. }
        | BookieError::WrongCell { .. } => Meaning::End,
        BookieError::NotInEnsemble { .. } => Meaning::Suspect,
        BookieError::Busy { .. }
        | BookieError::ReadOnly { .. }
        | BookieError::MetadataUnavailable
        | BookieError::NoAnswer { .. }
        | BookieError::Failed { .. } => Meaning::Retry,
        BookieError::WrongIncarnation { .. }
        | BookieError::StaleToken { .. }
        | BookieError::Conflict { .. }
        | BookieError::Invalid { .. }
        | BookieError::NotHere { .. }
        | BookieError::Damaged { .. }
        | BookieError::Limbo { .. } => Meaning::Useless,
    }
}

impl WriterCore {
    /// Takes an answer. One that does not come from the committed member of the position, for this ledger, incarnation, entry
    /// and content, changes nothing (W3).
    pub(super) fn answer(
        &mut self,
        now: Duration,
        tag: &AddTag,
        result: Result<(), BookieError>,
        effects: &mut Vec<WriterEffect>,
    ) {
        let heeded = self.is_ours(tag) || self.heeds_stranger(&result);
        if !heeded || matches!(self.phase, Phase::Frozen | Phase::Ended(_)) {
            return;
        }
        match result {
            Ok(()) => self.acked(now, tag, effects),
            Err(error) => self.refused(now, tag, error, effects),
        }
        if matches!(self.phase, Phase::Ending(_)) {
            self.settle_ending(effects);
        }
        self.check_drained(effects);
    }

    fn heeds_stranger(&self, result: &Result<(), BookieError>) -> bool {
        let fenced = matches!(result, Err(BookieError::Fenced { .. }));
        fenced && self.config.mutation.is(Mutant::StrangerEndsWriter)
    }

    fn is_ours(&mut self, tag: &AddTag) -> bool {
        let Some(position) = self.positions.get(tag.position) else {
            return false;
        };
        let expected = Address {
            cell: self.config.cell,
            incarnation: position.member.incarnation,
            ledger: self.config.ledger,
        };
        let committed = position.member == tag.from && expected == tag.address;
        let quorums = self.config.quorums;
        committed
            && self.window.get_mut(tag.entry).is_none_or(|pending| {
                // An answer for an entry that is no longer kept still tells about the member.
                pending.digest() == tag.digest && pending.slot(quorums, tag.position).is_some()
            })
    }

    fn acked(&mut self, now: Duration, tag: &AddTag, effects: &mut Vec<WriterEffect>) {
        let quorums = self.config.quorums;
        if let Some(pending) = self.window.get_mut(tag.entry) {
            if pending.slot(quorums, tag.position) != Some(Slot::Gone) {
                pending.set(quorums, tag.position, Slot::Acked);
            }
            self.window.settle(tag.entry);
        }
        let position = &mut self.positions[tag.position];
        position.last_error = None;
        position.acked_since = true;
        if matches!(position.health, Health::Probing { .. }) && self.sending() {
            self.positions[tag.position].recover();
            self.flush(now, tag.position, effects);
        }
        self.confirm(now, effects);
    }

    /// Moves the confirmed end over every head that has Qa acks (W4), and says so in order (W5).
    pub(super) fn confirm(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        while let Some(head) = self.window.head() {
            let acks = head.acks(self.config.quorums, |position| self.counts(position));
            if acks < self.acks_needed() {
                break;
            }
            let header = self.window.confirm_head(now);
            self.confirmed.end = header.entry.next();
            if self.config.kind == LedgerKind::Log {
                self.confirmed.offset_span = header.end_offset().0 - self.config.base_offset.0;
            }
            self.confirmed.record_count += u64::from(header.record_count);
            self.confirmed.bytes = header.cumulative_bytes;
            self.confirmed.digest = header.cumulative_digest;
            effects.push(WriterEffect::Confirmed {
                entry: header.entry,
            });
        }
        self.window.pop_done();
        self.release_useless(effects);
        if self.window.late_bytes() > self.config.late_bytes_max {
            self.release_late(now, effects);
        }
    }

    fn acks_needed(&self) -> usize {
        if self.config.mutation.is(Mutant::ConfirmBelowAckQuorum) {
            return 1;
        }
        self.config.quorums.ack as usize
    }

    fn refused(
        &mut self,
        now: Duration,
        tag: &AddTag,
        error: BookieError,
        effects: &mut Vec<WriterEffect>,
    ) {
        let what = meaning(&error);
        let quorums = self.config.quorums;
        // An entry that was given up meanwhile says as much of its member as one that is kept: it may be the one that was to tell
        // whether the member takes adds again.
        let current = self.window.get_mut(tag.entry).is_none_or(|pending| {
            let sent = matches!(pending.slot(quorums, tag.position),
                Some(Slot::Sent { attempt, .. }) if attempt == tag.attempt);
            if sent {
                pending.set(quorums, tag.position, Slot::Unsent);
            }
            sent
        });
        if let BookieError::Conflict { .. } = error {
            effects.push(WriterEffect::Conflicted {
                member: tag.from.clone(),
                entry: tag.entry,
                digest: tag.digest,
            });
        }
        let position = &mut self.positions[tag.position];
        position.last_error = Some(Box::new(error.clone()));
        match what {
            Meaning::End => {
                let ledger = self.config.ledger;
                let end = match error {
                    BookieError::Fenced { token, .. } => WriterEnd::Fenced { ledger, token },
                    BookieError::Deleted { .. } => WriterEnd::Deleted { ledger },
                    _ => WriterEnd::WrongCell { ledger },
                };
                self.begin_end(end, effects);
            }
            Meaning::Retry | Meaning::Suspect => {
                position.read_only |= matches!(error, BookieError::ReadOnly { .. });
                if what == Meaning::Suspect {
                    effects.push(WriterEffect::CheckMetadata);
                }
                // What an earlier attempt heard is old news: the position has been begun anew since.
                if current && tag.attempt == position.attempt {
                    position.back_off(now, self.config.retry_initial, self.config.retry_max);
                }
            }
            Meaning::Useless => self.lose_position(tag.position, &error, effects),
        }
    }

    fn lose_position(
        &mut self,
        position: usize,
        error: &BookieError,
        effects: &mut Vec<WriterEffect>,
    ) {
        if self.positions[position].health == Health::Useless {
            return;
        }
        self.positions[position].health = Health::Useless;
        self.positions[position].attempt += 1;
        let bookie = self.positions[position].member.bookie.clone();
        // An ensemble of one cannot be changed: its writer need not wait.
        if self.config.quorums.ensemble > 1 {
            self.release_useless(effects);
        } else {
            self.give_up(
                format!("{bookie} is lost for this ledger: {error}"),
                effects,
            );
        }
    }

    /// Late entries that lack only useless members need not be kept.
    fn release_useless(&mut self, effects: &mut Vec<WriterEffect>) {
        let quorums = self.config.quorums;
        if self
            .positions
            .iter()
            .all(|position| position.health != Health::Useless)
        {
            return;
        }
        while let Some(front) = self.window.late_front() {
            let hopeful = crate::quorum::write_set(quorums, front.header.entry).any(|position| {
                let slot = front.slot(quorums, position);
                matches!(slot, Some(Slot::Unsent | Slot::Sent { .. }))
                    && self.positions[position].health != Health::Useless
            });
            if hopeful || self.window.is_held(front.header.entry) {
                break;
            }
            self.release_front(effects);
        }
    }
}
