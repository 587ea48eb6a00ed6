//! Appends on a condition (serving.md C2.8): only where the log ends where the caller believes, only while nobody with a newer token came.

use hulse_proto::id::Offset;

use crate::error::TxnError;

/// What must hold for an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Condition {
    /// Its first record gets this offset.
    pub expected: Option<Offset>,
    /// Nobody with a higher one was here.
    pub token: Option<u64>,
}

impl Condition {
    /// Judges it against where the next append goes, with all that is on its way, and the highest token that was seen. A token that is
    /// higher is seen from now on: the owner makes it durable before it appends.
    ///
    /// # Errors
    /// `TokenFenced`, `OffsetMismatch`, each with the true value; nothing is appended.
    pub fn judge(&self, end: Offset, token: u64) -> Result<(), TxnError> {
        if self.token.is_some_and(|mine| mine < token) {
            return Err(TxnError::TokenFenced { actual: token });
        }
        match self.expected {
            Some(expected) if expected != end => Err(TxnError::OffsetMismatch { actual: end.0 }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_is_taken_only_where_both_conditions_hold() {
        let judge = |expected: Option<u64>, token| {
            let expected = expected.map(Offset);
            Condition { expected, token }.judge(Offset(10), 4)
        };
        for (expected, token) in [
            (None, None),
            (Some(10), None),
            (None, Some(4)),
            (Some(10), Some(9)),
        ] {
            assert_eq!(judge(expected, token), Ok(()));
        }
        for expected in [9, 11] {
            let refused = Err(TxnError::OffsetMismatch { actual: 10 });
            assert_eq!(judge(Some(expected), Some(4)), refused);
        }
        let refused = Err(TxnError::TokenFenced { actual: 4 });
        assert_eq!(judge(Some(10), Some(3)), refused);
    }
}
