//! Gives the space of an unlinked log file back step by step.
//!
//! A file system frees all blocks of a file in one go when its last handle is closed, within the transaction that the log's next sync
//! waits for. So the one handle that is left is cut first, a piece at a time; a crash in between frees the rest at the next mount.

use std::sync::Arc;
use std::time::Duration;

use crate::disk::{DiskError, DiskFile};

/// One piece, bytes.
const CUT_BYTES: u64 = 16 << 20;
/// Between two pieces.
const CUT_REST: Duration = Duration::from_millis(20);
/// Reads that found the file before it was unlinked are waited for so many rests; then it is left to the last of them.
const READS_RESTS: u32 = 100;

/// Frees a file that has no name any more and is in no table. `rest` sleeps, and says whether to go on.
///
/// # Errors
/// Of the disk; final.
pub(super) fn free(
    file: Arc<dyn DiskFile>,
    rest: impl Fn(Duration) -> bool,
) -> Result<(), DiskError> {
    let mut rests = 0;
    while Arc::strong_count(&file) > 1 {
        rests += 1;
        if rests > READS_RESTS || !rest(CUT_REST) {
            return Ok(());
        }
    }
    let mut left = file.bytes()?;
    while left > CUT_BYTES && rest(CUT_REST) {
        left -= CUT_BYTES;
        file.truncate(left)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use super::*;

    /// Remembers its lengths, for others too.
    #[derive(Clone, Default)]
    struct Long(Arc<Mutex<Vec<u64>>>);

    impl Long {
        fn new(bytes: u64) -> Self {
            Self(Arc::new(Mutex::new(vec![bytes])))
        }

        fn lengths(&self) -> Vec<u64> {
            self.0.lock().unwrap().clone()
        }
    }

    impl DiskFile for Long {
        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DiskError> {
            unreachable!("an unlinked file is not written")
        }
        fn read_at(&self, _: u64, _: usize) -> Result<Vec<u8>, DiskError> {
            unreachable!("an unlinked file is not read here")
        }
        fn sync(&self) -> Result<(), DiskError> {
            unreachable!("an unlinked file is not synced")
        }
        fn settle(&self) -> Result<(), DiskError> {
            unreachable!("an unlinked file is not settled")
        }
        fn bytes(&self) -> Result<u64, DiskError> {
            Ok(*self.lengths().last().unwrap())
        }
        fn truncate(&self, bytes: u64) -> Result<(), DiskError> {
            self.0.lock().unwrap().push(bytes);
            Ok(())
        }
        fn next_data(&self, _: u64) -> Result<Option<u64>, DiskError> {
            unreachable!("an unlinked file is not scanned")
        }
    }

    #[test]
    fn long_file_is_cut_piece_by_piece_and_a_short_one_is_not() {
        let (long, short) = (Long::new(CUT_BYTES * 5 / 2), Long::new(CUT_BYTES));
        free(Arc::new(long.clone()), |_| true).unwrap();
        free(Arc::new(short.clone()), |_| true).unwrap();
        let half = CUT_BYTES / 2;
        assert_eq!(long.lengths(), [5 * half, 3 * half, half]);
        assert_eq!(short.lengths(), [CUT_BYTES]);
    }

    #[test]
    fn file_that_is_read_is_not_cut_before_the_read_ends() {
        let long = Long::new(CUT_BYTES * 2);
        let file: Arc<dyn DiskFile> = Arc::new(long.clone());
        let reading = Cell::new(Some(Arc::clone(&file)));
        let rests = Cell::new(0);
        let rest = |_| {
            rests.set(rests.get() + 1);
            if rests.get() == 3 {
                assert_eq!(long.lengths().len(), 1, "it is read");
                reading.set(None);
            }
            true
        };
        free(file, rest).unwrap();
        assert_eq!(long.lengths(), [CUT_BYTES * 2, CUT_BYTES]);
    }

    #[test]
    fn file_that_is_read_for_ever_or_a_stop_ends_the_wait() {
        let long = Long::new(CUT_BYTES * 2);
        let file: Arc<dyn DiskFile> = Arc::new(long.clone());
        free(Arc::clone(&file), |_| true).unwrap();
        free(file, |_| false).unwrap();
        assert_eq!(long.lengths(), [CUT_BYTES * 2]);
    }
}
