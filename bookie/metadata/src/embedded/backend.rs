//! Where redb's bytes lie: a file, or what a test puts in its place.

use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// Bytes rewritten at a time by [`AnyBackend::settle`].
const REWRITE_BYTES: usize = 1 << 20;

/// Opens the same bytes again, as often as needed.
pub(crate) trait Medium: Send + 'static {
    /// A new handle; the former one is closed.
    fn open(&self) -> io::Result<Box<dyn StorageBackend>>;
}

/// A file that exists.
pub(super) struct FileMedium(pub(super) PathBuf);

impl Medium for FileMedium {
    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        let file = OpenOptions::new().read(true).write(true).open(&self.0)?;
        let backend = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Box::new(backend))
    }
}

/// A boxed backend, since redb takes them by type; remembers that a sync failed.
#[derive(Debug)]
pub(super) struct AnyBackend {
    bytes: Box<dyn StorageBackend>,
    sync_failed: Arc<AtomicBool>,
}

impl AnyBackend {
    /// Wraps one; `sync_failed` outlives it.
    pub(super) fn new(bytes: Box<dyn StorageBackend>, sync_failed: Arc<AtomicBool>) -> Self {
        Self { bytes, sync_failed }
    }

    /// Makes durable what is read from here on.
    ///
    /// After a failed sync the kernel may show bytes that the disk never got and call them clean. Written anew they are
    /// dirty again, and the sync that follows speaks for them. Without a failed sync, that sync is enough.
    pub(super) fn settle(&self) -> io::Result<()> {
        if self.sync_failed.load(Ordering::Relaxed) {
            self.rewrite()?;
        }
        self.sync_data()?;
        self.sync_failed.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn rewrite(&self) -> io::Result<()> {
        let len = self.bytes.len()?;
        let mut buffer = vec![0; REWRITE_BYTES];
        let mut offset = 0;
        while offset < len {
            let part = usize::try_from(len - offset)
                .unwrap_or(usize::MAX)
                .min(REWRITE_BYTES);
            self.bytes.read(offset, &mut buffer[..part])?;
            self.bytes.write(offset, &buffer[..part])?;
            offset += part as u64;
        }
        Ok(())
    }
}

impl StorageBackend for AnyBackend {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.bytes.sync_data();
        if synced.is_err() {
            self.sync_failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.bytes.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.bytes.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.bytes.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.bytes.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.bytes.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.bytes.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.bytes.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.bytes.query_lock_range(start, end)
    }
}
