//! Rules of the storage protocol that a test can switch off, one at a time, to show that the simulations would miss them
//! (storage.md §11, amended Z5).
//!
//! The hooks stand in the code of the rules themselves: `if self.mutation.is(Mutant::X)`. Without the feature `testing` a
//! [`Mutation`] holds nothing and [`Mutation::is`] is the constant `false`, so the compiler removes them; only with the feature
//! can a mutation be made at all.

/// One rule that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    // The writer.
    /// W4: one ack confirms.
    ConfirmBelowAckQuorum,
    /// W8f: acks of a replaced member still count once the change is committed.
    ReplacedMemberCounts,
    /// W9: a proposed member counts, and gets entries, before the change is committed; bookies do not verify (B2) (trace T3).
    ProposedMemberCounts,
    /// Amended W4: while a proposal is unresolved, the members that it replaces still count.
    UnresolvedReplacedCounts,
    /// Amended M3: a read of the old version ends a proposal.
    OldVersionEndsProposal,
    /// Amended M3: an unanswered proposal is dropped, and one with other content is sent.
    SecondProposal,
    /// Amended B2: "fenced" or "deleted" ends the writer also when it comes from a bookie that is no member any more.
    StrangerEndsWriter,
    // Recovery.
    /// R5: recovery begins at entry 0 although older fragments exist (trace T2).
    RecoverFromZero,
    /// R8 and B9: recovery adds carry a growing confirmed end, and bookies keep it (trace T4).
    RecoveryRaisesConfirmedEnd,
    /// R9: a local ensemble change of recovery begins below entries that were written back to the old ensemble only.
    LocalChangeTooLow,
    /// R10: the close does not compare the version that the start wrote.
    CloseWithoutVersion,
    /// R6: an answer of the UNKNOWN class counts as a negative.
    UnknownIsNegative,
    // The bookie.
    /// B11: a recovery read does not fence (trace T1).
    ReadWithoutFence,
    /// B3: a fence does not keep normal adds away.
    FenceForgotten,
    /// B11, S3: a bookie in limbo answers negative (trace T5).
    NegativeFromLimbo,
    /// B5: an add is answered when it is accepted, not when it is durable.
    AckBeforeSync,
    /// 4.3: every bad group is taken as a torn tail, and the log ends there.
    TruncateAtFirstBadGroup,
    /// G1: a ledger that is closed counts as one that is being deleted.
    ClosedIsDead,
    /// G1: a ledger that a listing does not show as this member's counts as gone; its own key is not read.
    ListingIsProof,
    /// X4, G6: a bookie drops what was nobody's when it asked, although a repair brought it a copy since.
    StrayDespiteCopy,
    /// G8: a compaction leaves a live entry behind, and its sources go all the same.
    CompactionForgets,
    /// X4, G6: a bookie drops what metadata's fragments do not assign to it, although a repair's intent names it.
    IntentsForgotten,
    // Repair and deletion.
    /// X4: repair copies and swaps without an intent.
    RepairWithoutIntent,
    /// X5: a member is swapped in although not every copy was confirmed.
    SwapUnproven,
    /// X2: repair takes the last fragment of an open ledger as one that changes no more.
    RepairOpenTail,
    /// X6: the swap writes what was read at the start, whatever others did since.
    SwapBlindly,
    /// X4: a deletion does not tell those to whom repair is copying.
    DeletionForgetsTargets,
    // The owner of a partition.
    /// A snapshot holds what was appended, not what is confirmed.
    SnapshotOfUnconfirmed,
    /// One applied position stands for both chains.
    OneAppliedPosition,
    /// A state ledger is unlinked before the snapshot of its successor is confirmed.
    StateLedgerUnlinkedEarly,
    /// A log ledger is unlinked although no confirmed snapshot covers it.
    LogTrimmedPastSnapshot,
    /// The log goes on where storage says that it ends, also below its start.
    EndBelowStart,
    // The cursors of a partition.
    /// B2: an ack has its receipt before its delta is confirmed.
    ReceiptBeforeDelta,
    /// B2: a cursor stands at what was sent, not at what was acknowledged.
    CursorAtSent,
    /// B2: a delta that failed is dropped, and those who wait for it hear that it is durable.
    FailedDeltaForgotten,
    /// A cursor that is made removes every other one of its name, newer ones too.
    NamesakeDropped,
    /// B2: whoever takes a partition over knows the bases, and not what is acked above them.
    RangesForgotten,
    /// B2: a cumulative ack takes one record more.
    CumulativeOffByOne,
    /// B2: an ack of what was never sent is taken.
    AckBeyondSent,
    /// B5: a consumer that another one took over from does not hear so, and goes on.
    FormerNotTold,
    /// P6: a cursor is made, or moved, below where a trim that is under way was decided to go.
    CursorBelowTrim,
    /// P6: a trim passes what a cursor holds that was taken and is not durable yet.
    TrimPastNewCursor,
    // Transactions.
    /// C5: an end is answered, and its markers leave, before the decision is durable.
    DecisionBeforePrepare,
    /// C5: a marker that was not answered is not sent again.
    MarkerTriedOnce,
    /// C5: an abort by time, or for another instance, leaves the epoch as it is.
    FenceKeepsEpoch,
    /// C2.7: a verification that comes behind a marker still opens a transaction.
    LateVerificationTaken,
    /// C6.3: the last stable offset is the high watermark.
    StableAtEnd,
    /// C6.4: the index of aborted transactions begins at the fetched offset.
    AbortedBeforeForgotten,
    /// C6.2: a marker of an old coordinator, or one that came twice, is taken.
    OldMarkerTaken,
    /// C7: two transactions stage the same ack.
    StagedTwice,
    /// C9.2: a later decision wins.
    LastDecisionWins,
    /// C9.4: a check that nobody was there for counts.
    ChecksBurnt,
    /// C9.3: what may have been published is published under a new sequence.
    PublishedAnew,
    // The coordinator of groups.
    /// B7: a partition is handed out although another member still holds it.
    GivenBeforeReleased,
    /// B7: what a classic member says that it has is forgotten when the group becomes one of the newer protocol.
    ClaimsForgotten,
    /// B7: a member commits any partition at an epoch that is over.
    StaleEpochCommits,
    /// B6: a classic member commits at a generation that is over.
    OldGenerationCommits,
    /// B6: a member gets what it had before the leader has assigned.
    SyncBeforeLeader,
    /// B6 (KIP-345): the former process of a static member stays a member beside the new one.
    FormerInstanceStays,
    /// B2: a coordinator answers before what it says is durable.
    AnswerBeforeDelta,
    /// B6, B10: a coordinator that moves waits for ever for members that it never hears.
    SessionsForgotten,
    // The sharing of a partition's records.
    /// B2.3: an ack of a shared record has its receipt before its delta is confirmed.
    SharedReceiptBeforeDelta,
    /// B3.8: failed attempts are not kept: the next owner counts anew.
    FailedAttemptsForgotten,
    /// B4.2, K1: a KEYED subscription is dispatched as a QUEUE one.
    KeysIgnored,
    /// B3.5: a lock ends before its time.
    LockTooShort,
}

/// Which rule does not hold here. The default: all hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mutation {
    #[cfg(any(test, feature = "testing"))]
    mutant: Option<Mutant>,
}

impl Mutation {
    /// This rule does not hold.
    #[cfg(any(test, feature = "testing"))]
    pub const fn of(mutant: Option<Mutant>) -> Self {
        Self { mutant }
    }

    /// True when this rule does not hold.
    #[cfg(any(test, feature = "testing"))]
    pub const fn is(self, mutant: Mutant) -> bool {
        matches!(self.mutant, Some(held) if held as u8 == mutant as u8)
    }

    /// Never.
    #[cfg(not(any(test, feature = "testing")))]
    pub const fn is(self, _: Mutant) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Mutant, Mutation};

    #[test]
    fn mutation_breaks_one_rule_and_the_default_none() {
        let broken = Mutation::of(Some(Mutant::AckBeforeSync));
        assert!(broken.is(Mutant::AckBeforeSync));
        assert!(!broken.is(Mutant::FenceForgotten));
        assert!(!Mutation::default().is(Mutant::AckBeforeSync));
    }
}
