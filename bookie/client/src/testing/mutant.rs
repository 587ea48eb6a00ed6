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
    /// R10: the close does not compare the version that the start wrote.
    CloseWithoutVersion,
    /// R6: an answer of the UNKNOWN class counts as a negative.
    UnknownIsNegative,
    /// B11, S3: a bookie in limbo answers negative.
    NegativeFromLimbo,
}
