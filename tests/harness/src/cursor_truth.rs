//! What the consumers of one subscription asked for and were told, and the checker that judges its cursor.
//!
//! Words: REDELIVERED, an acked record would come again although its receipt was given; SKIPPED, a record would never come although
//! nobody acked it.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::{Offset, OwnerEpoch};
use serving_broker::state::{OffsetRange, OffsetRanges};

/// A place of a cursor, as an owner shows it.
pub struct Place<'a> {
    /// Everything below is processed.
    pub base: Offset,
    /// And these.
    pub acked: &'a OffsetRanges,
    /// Of which state epoch.
    pub state_epoch: u32,
    /// Who shows it.
    pub owner: OwnerEpoch,
    /// Nothing below is kept: cursors pass over it.
    pub log_start: Offset,
    /// Trims that stop at no cursor were asked for up to here.
    pub requested: Offset,
    /// To which consumer; `None`: after everybody is done.
    pub to: Option<u32>,
}

impl Place<'_> {
    fn has_acked(&self, offset: u64) -> bool {
        let at = OffsetRange {
            first: Offset(offset),
            end: Offset(offset + 1),
        };
        self.acked.within(at).next().is_some()
    }
}

/// One time between two moves of the cursor.
#[derive(Debug, Default)]
struct Era {
    /// Where it began, if the move was answered.
    base: Option<u64>,
    /// Offsets that somebody asked to ack.
    asked: BTreeSet<u64>,
    /// Offsets with a receipt: from which owner, to which consumer.
    receipts: BTreeMap<u64, (OwnerEpoch, u32)>,
}

/// The truth of one cursor, which was made at offset 0.
#[derive(Debug, Default)]
pub struct CursorTruth {
    eras: BTreeMap<u32, Era>,
    /// Where moves were to lead whose outcome nobody knows.
    targets: Vec<u64>,
    /// How far whoever showed the cursor first may have had it begin above where it was made: a trim that was decided before it came.
    begun: Option<u64>,
    /// Of each owner the attachment that saw last that it has become the active one.
    active: BTreeMap<OwnerEpoch, u64>,
    attachments: u64,
}

impl CursorTruth {
    /// An ack goes out.
    pub fn ask(&mut self, state_epoch: u32, range: OffsetRange) {
        let era = self.eras.entry(state_epoch).or_default();
        era.asked.extend(range.first.0..range.end.0);
    }

    /// A receipt comes.
    pub fn receive(&mut self, state_epoch: u32, range: OffsetRange, from: OwnerEpoch, to: u32) {
        let era = self.eras.entry(state_epoch).or_default();
        for offset in range.first.0..range.end.0 {
            era.receipts.entry(offset).or_insert((from, to));
        }
    }

    /// Somebody attaches: its number.
    pub fn attach(&mut self) -> u64 {
        self.attachments += 1;
        self.attachments
    }

    /// An attachment sees that it has become the active one of this owner.
    pub fn activate(&mut self, owner: OwnerEpoch, attachment: u64) {
        self.active.insert(owner, attachment);
    }

    /// What is wrong when an attachment that saw so before sees itself active still: another one has become so meanwhile, and an owner
    /// has only one.
    pub fn judge_active(&self, owner: OwnerEpoch, attachment: u64) -> Option<String> {
        let last = *self.active.get(&owner)?;
        (last != attachment).then(|| {
            format!(
                "TWO ACTIVE attachments {attachment} and {last} are active of owner {owner} at once"
            )
        })
    }

    /// A move goes out.
    pub fn aim(&mut self, to: Offset) {
        self.targets.push(to.0);
    }

    /// A move is answered.
    pub fn moved(&mut self, state_epoch: u32, base: Offset) {
        self.eras.entry(state_epoch).or_default().base = Some(base.0);
    }

    /// Receipts so far.
    pub fn receipts(&self) -> usize {
        self.eras.values().map(|era| era.receipts.len()).sum()
    }

    /// How far the base may have come while the consumer that was shown `place` was sent records up to `sent` and no other one could
    /// ack: over what it asked for, which lies below `sent`; over what was trimmed; and, below `sent` or not, over what was acked
    /// before it came and lies right behind. Everything below is processed, so that an ack of it is good, whoever was sent it.
    pub fn base_may_be(&self, place: &Place<'_>, sent: Offset) -> Offset {
        let era = self.eras.get(&place.state_epoch);
        let asked =
            |offset: u64| offset < sent.0 && era.is_some_and(|era| era.asked.contains(&offset));
        let mut base = place.base.max(place.log_start);
        while place.has_acked(base.0) || asked(base.0) {
            base.0 += 1;
        }
        base
    }

    /// What is wrong with a place.
    pub fn judge(&mut self, place: &Place<'_>) -> Option<String> {
        let let_go = place.log_start.max(place.requested).min(place.base).0;
        let begun = *self.begun.get_or_insert(match place.state_epoch {
            0 => let_go,
            _ => 0,
        });
        let nothing = Era::default();
        let era = self.eras.get(&place.state_epoch).unwrap_or(&nothing);
        let processed = |offset: u64| offset < place.base.0 || place.has_acked(offset);
        let told = era.receipts.iter().filter(|(_, (owner, consumer))| {
            // What another consumer is told meanwhile by the same owner may be newer than this place.
            *owner < place.owner || place.to.is_none_or(|to| to == *consumer)
        });
        for (offset, (owner, consumer)) in told {
            if !processed(*offset) {
                return Some(format!(
                    "REDELIVERED offset {offset} has a receipt of owner {owner} to consumer {consumer} in state epoch {}, and owner {} begins at {}",
                    place.state_epoch, place.owner, place.base
                ));
            }
        }
        let floor = match place.state_epoch {
            0 => 0,
            _ => era
                .base
                .or_else(|| self.targets.iter().copied().max())
                .unwrap_or(0),
        };
        if era.base.is_some_and(|base| place.base.0 < base) {
            return Some(format!(
                "state epoch {} began at {floor}, and owner {} shows {}",
                place.state_epoch, place.owner, place.base
            ));
        }
        // Where a move led is kept from retention; the first place may lie above offset 0 from the beginning.
        let gone = match era.base {
            Some(_) => place.log_start.min(place.requested),
            // A move without an answer may have led behind a trim that was decided and never came about. The server puts the mover above
            // and not below, for what is decided may be done already, unknown to the owner, whose transaction had no answer: a place
            // below would promise records, to a subscription that holds even their keeping, that are gone. Waiting for the trim would
            // have moves wait for metadata, which they never do (ARCHITECTURE D6). Passed over is only what somebody who may let records
            // go had let go; a mover that is answered is told so, and one that is not has to look.
            None if place.state_epoch > 0 => place.log_start.max(place.requested),
            // The same holds of a cursor that is made then.
            None => place.log_start.max(Offset(begun)),
        };
        let floor = floor.max(gone.0);
        let above = place
            .acked
            .iter()
            .flat_map(|range| range.first.0..range.end.0);
        let skipped = (floor..place.base.0)
            .chain(above)
            .find(|offset| *offset >= floor && !era.asked.contains(offset));
        skipped.map(|offset| {
            format!(
                "SKIPPED offset {offset} counts as processed for owner {}, nobody acked it in state epoch {}",
                place.owner, place.state_epoch
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, end: u64) -> OffsetRange {
        OffsetRange {
            first: Offset(first),
            end: Offset(end),
        }
    }

    fn judge(
        truth: &mut CursorTruth,
        base: u64,
        acked: &[(u64, u64)],
        epoch: u32,
    ) -> Option<String> {
        let acked = acked
            .iter()
            .map(|(first, end)| range(*first, *end))
            .collect();
        truth.judge(&Place {
            base: Offset(base),
            acked: &acked,
            state_epoch: epoch,
            owner: OwnerEpoch(3),
            log_start: Offset(0),
            requested: Offset(0),
            to: None,
        })
    }

    #[test]
    fn judge_finds_what_would_come_again_and_what_would_never_come() {
        let mut truth = CursorTruth::default();
        truth.ask(0, range(0, 10));
        truth.receive(0, range(0, 4), OwnerEpoch(1), 1);
        assert_eq!(judge(&mut truth, 4, &[], 0), None);
        assert_eq!(judge(&mut truth, 0, &[(0, 10)], 0), None);
        let again = judge(&mut truth, 3, &[(5, 6)], 0).unwrap();
        assert!(again.starts_with("REDELIVERED offset 3"), "{again}");
        let never = judge(&mut truth, 11, &[], 0).unwrap();
        assert!(never.starts_with("SKIPPED offset 10"), "{never}");
        let never = judge(&mut truth, 4, &[(20, 21)], 0).unwrap();
        assert!(never.starts_with("SKIPPED offset 20"), "{never}");
        // A move: what was told before is void, and nothing above its target counts.
        truth.aim(Offset(2));
        truth.moved(1, Offset(2));
        assert_eq!(judge(&mut truth, 2, &[], 1), None);
        assert!(judge(&mut truth, 1, &[], 1).is_some());
        assert!(
            judge(&mut truth, 3, &[], 1)
                .unwrap()
                .starts_with("SKIPPED offset 2")
        );
    }

    #[test]
    fn what_retention_lets_go_of_a_place_that_was_promised_is_found() {
        let mut truth = CursorTruth::default();
        truth.ask(1, range(2, 4));
        truth.aim(Offset(2));
        truth.moved(1, Offset(2));
        let nothing = OffsetRanges::default();
        let mut place = Place {
            base: Offset(6),
            acked: &nothing,
            state_epoch: 1,
            owner: OwnerEpoch(3),
            log_start: Offset(6),
            requested: Offset(0),
            to: None,
        };
        let passed = truth.judge(&place).unwrap();
        assert!(passed.starts_with("SKIPPED offset 4"), "{passed}");
        place.requested = Offset(6);
        assert_eq!(truth.judge(&place), None);
    }

    #[test]
    fn cursor_begins_above_a_trim_that_was_decided_before_it_came_and_passes_over_no_later_one() {
        let nothing = OffsetRanges::default();
        let at = |base, requested| Place {
            base: Offset(base),
            acked: &nothing,
            state_epoch: 0,
            owner: OwnerEpoch(3),
            log_start: Offset(2),
            requested: Offset(requested),
            to: None,
        };
        let mut truth = CursorTruth::default();
        assert_eq!(truth.judge(&at(6, 6)), None);
        assert_eq!(truth.judge(&at(6, 9)), None);
        let never = truth.judge(&at(9, 9)).unwrap();
        assert!(never.starts_with("SKIPPED offset 6"), "{never}");
    }

    #[test]
    fn attachment_that_stays_active_beside_a_newer_one_is_found() {
        let mut truth = CursorTruth::default();
        let (first, second) = (truth.attach(), truth.attach());
        truth.activate(OwnerEpoch(1), first);
        assert_eq!(truth.judge_active(OwnerEpoch(1), first), None);
        // Another owner may have one beside it, which does not know yet that it is none any more.
        truth.activate(OwnerEpoch(2), second);
        assert_eq!(truth.judge_active(OwnerEpoch(1), first), None);
        truth.activate(OwnerEpoch(1), second);
        assert!(truth.judge_active(OwnerEpoch(1), first).is_some());
        truth.activate(OwnerEpoch(1), first);
        assert_eq!(truth.judge_active(OwnerEpoch(1), first), None);
    }

    #[test]
    fn base_passes_over_what_others_acked_and_over_what_was_sent_only_if_it_was_acked() {
        let acked: OffsetRanges = [range(12, 15), range(16, 18)].into_iter().collect();
        let mut place = Place {
            base: Offset(10),
            acked: &acked,
            state_epoch: 0,
            owner: OwnerEpoch(3),
            log_start: Offset(0),
            requested: Offset(0),
            to: None,
        };
        let mut truth = CursorTruth::default();
        assert_eq!(truth.base_may_be(&place, Offset(12)), Offset(10));
        truth.ask(0, range(11, 12));
        assert_eq!(truth.base_may_be(&place, Offset(12)), Offset(10));
        truth.ask(0, range(10, 11));
        assert_eq!(truth.base_may_be(&place, Offset(12)), Offset(15));
        // Somebody asked for it before, and was not heard.
        truth.ask(0, range(15, 16));
        assert_eq!(truth.base_may_be(&place, Offset(15)), Offset(15));
        assert_eq!(truth.base_may_be(&place, Offset(16)), Offset(18));
        place.log_start = Offset(20);
        assert_eq!(truth.base_may_be(&place, Offset(16)), Offset(20));
        place.log_start = Offset(0);
        place.state_epoch = 1;
        assert_eq!(truth.base_may_be(&place, Offset(16)), Offset(10));
    }
}
