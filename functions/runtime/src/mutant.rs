//! Rules of this crate that a test can switch off, one at a time, to show that the simulation would miss them. Without the feature
//! `testing` a [`Mutation`] holds nothing and [`Mutation::is`] is the constant `false`.

/// One rule that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// B5: the changelog is read before the predecessor is fenced.
    ReadBeforeFence,
    /// B4.10: an unknown outcome of a commit is taken for success.
    UnknownIsCommitted,
    /// B4.10: an unknown outcome of a commit is taken for an abort; state is kept and the epoch computed again.
    UnknownIsAborted,
    /// B4.8: the offsets of an epoch are not in its transaction.
    OffsetsLeftOut,
    /// B4.7: the delta of the state is not in the transaction.
    DeltaLeftOut,
    /// B4.3: lateness is judged by the watermark that the epoch itself will produce.
    LateByNewWatermark,
    /// B7: the watermark of a stage is the maximum over its partitions.
    WatermarkIsMaximum,
    /// B7: a partition that brings nothing is idle, also when more was there to read.
    SilenceIsIdle,
    /// B7: the watermarks are not kept.
    WatermarkForgotten,
    /// B6: the changelog is cut at the newest snapshot's end before its pointer is committed.
    TruncateBeforePublish,
    /// B5: a restore takes the snapshot and leaves out the deltas behind it.
    TailLeftOut,
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
