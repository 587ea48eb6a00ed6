//! Rules of tiering that a test can switch off, one at a time, to show that the simulation would miss them.
//!
//! As `hulse_proto::mutant`: without the feature `testing` a [`TierMutation`] holds nothing and [`TierMutation::is`] is the constant
//! `false`.

/// One rule that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TierMutant {
    /// O2: the upload begins before the intent is in metadata.
    UploadBeforeIntent,
    /// O6, O7: a commit does not ask whether its intent still stands, and compares nothing.
    CommitBlindly,
    /// O5: what was uploaded is committed without a look at it.
    CommitUnverified,
    /// O8: copies are dropped without a read-back.
    DropUnread,
    /// O8: bookies drop their copies before the mark is committed.
    DropUnmarked,
    /// O10: objects go before the ledger is marked.
    DeleteUnmarked,
    /// O17: the object goes with the first ledger that leaves it.
    SharersForgotten,
    /// O10: the key goes first, and whoever removed it forgets the objects; nobody sweeps.
    KeyFirst,
    /// O12: the sweep looks at metadata first and lists afterwards.
    LookThenList,
    /// O12: the sweep asks only the first ledger of a name.
    SweepAsksFirst,
}

/// Which rule does not hold here. The default: all hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierMutation {
    #[cfg(any(test, feature = "testing"))]
    mutant: Option<TierMutant>,
}

impl TierMutation {
    /// This rule does not hold.
    #[cfg(any(test, feature = "testing"))]
    pub const fn of(mutant: Option<TierMutant>) -> Self {
        Self { mutant }
    }

    /// True when this rule does not hold.
    #[cfg(any(test, feature = "testing"))]
    pub fn is(self, mutant: TierMutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Never.
    #[cfg(not(any(test, feature = "testing")))]
    pub const fn is(self, _: TierMutant) -> bool {
        false
    }
}
