//! Rules that a test can switch off, to show that they are needed (storage.md §11).

/// One rule that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// W4: one ack confirms.
    ConfirmBelowAckQuorum,
    /// R5: recovery begins at entry 0 although older fragments exist (trace T2).
    RecoverFromZero,
    /// R8 and B9: recovery adds carry a growing confirmed end, and bookies keep it (trace T4).
    RecoveryRaisesConfirmedEnd,
    /// B11: a recovery read does not fence (trace T1).
    ReadWithoutFence,
    /// B3: a fence does not keep normal adds away.
    FenceForgotten,
    /// Amended M3: a read of the old version ends a proposal.
    OldVersionEndsProposal,
    /// W8f: acks of a replaced member still count once the change is committed.
    ReplacedMemberCounts,
    /// W9: a proposed member counts, and gets entries, before the change is committed; bookies do not verify (B2) (trace T3).
    ProposedMemberCounts,
    /// Amended W4: while a proposal is unresolved, the members that it replaces still count.
    UnresolvedReplacedCounts,
    /// Amended M3: an unanswered proposal is dropped, and one with other content is sent.
    SecondProposal,
    /// R9: a local ensemble change of recovery begins below entries that were written back to the old ensemble only.
    LocalChangeTooLow,
    /// R10: the close does not compare the version that the start wrote.
    CloseWithoutVersion,
    /// R6: an answer of the UNKNOWN class counts as a negative.
    UnknownIsNegative,
    /// B11, S3: a bookie in limbo answers negative.
    NegativeFromLimbo,
}
