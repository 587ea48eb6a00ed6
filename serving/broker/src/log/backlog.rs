//! How many bytes lie behind an offset.

use hulse_proto::id::Offset;

use super::view::LogView;

impl LogView {
    /// Bytes of the records from `from` on; of a ledger of which a part is meant, in proportion to its offsets.
    pub(crate) fn bytes_from(&self, from: Offset) -> u64 {
        let behind = self.ledgers.iter().filter(|span| span.end > from);
        let bytes = behind.map(|span| {
            let (all, part) = (
                span.end.0 - span.base.0.min(span.end.0),
                span.end.0 - from.max(span.base).0,
            );
            match all {
                0 => 0,
                all => (u128::from(span.bytes) * u128::from(part) / u128::from(all)) as u64,
            }
        });
        bytes.sum()
    }
}
