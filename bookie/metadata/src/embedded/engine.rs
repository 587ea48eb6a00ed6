//! The redb file: opened, formatted, written in groups, opened anew after an error. Blocking; used by one thread at a time.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redb::{
    Builder, Database, DatabaseError, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable,
    StorageError, WriteTransaction,
};

use super::backend::{AnyBackend, Medium};
use super::error::OpenError;
use super::files::{Lock, Reserve};
use super::rows::{KEYS, LEASED, META, RowError, Tables, decode};
use super::store::EmbeddedOptions;
use crate::basis::apply;
use crate::basis::history::Change;
use crate::store::{Revision, Versioned};

/// Format of the tables; see `rows.rs`.
pub const FORMAT_VERSION: u64 = 1;
/// Memory for pages while a new file is made.
const FORMAT_CACHE_BYTES: usize = 1 << 20;
/// Pause before the second try to reopen; doubles.
const REOPEN_PAUSE: Duration = Duration::from_millis(20);
/// Boots a file can live through: a lease number has 32 bits for its boot.
const BOOTS_MAX: u64 = u32::MAX as u64;

/// The newest committed state; stays readable while later ones are written.
pub(super) struct Snapshot {
    table: ReadOnlyTable<&'static str, &'static [u8]>,
    /// What it shows.
    pub(super) revision: Revision,
}

impl Snapshot {
    /// Reads a row.
    pub(super) fn get(&self, key: &str) -> Result<Option<Versioned>, RowError> {
        match self.table.get(key)? {
            Some(bytes) => decode(key, bytes.value()).map(Some),
            None => Ok(None),
        }
    }

    /// Rows from `start` on, in bytewise order.
    pub(super) fn from(
        &self,
        start: std::ops::Bound<&str>,
    ) -> Result<impl Iterator<Item = Result<Versioned, RowError>>, RowError> {
        let range = self
            .table
            .range::<&str>((start, std::ops::Bound::Unbounded))?;
        Ok(range.map(|item| {
            let (key, bytes) = item?;
            decode(key.value(), bytes.value())
        }))
    }
}

/// The open file.
pub(super) struct Engine {
    path: PathBuf,
    medium: Box<dyn Medium>,
    cache_bytes: usize,
    reopen_tries: u32,
    sync_failed: Arc<AtomicBool>,
    // Dropped in this order: the file before its lock.
    /// `None` after a reopening failed or the store was closed.
    db: Option<Database>,
    beside: Beside,
}

/// The files beside the redb file; a test's medium has none.
#[derive(Default)]
pub(super) struct Beside {
    /// Room for a repair.
    pub(super) reserve: Option<Reserve>,
    /// Keeps others out.
    pub(super) lock: Option<Lock>,
}

/// What opening found and did.
pub(super) struct Opened {
    /// The engine.
    pub(super) engine: Engine,
    /// Of the opened state.
    pub(super) snapshot: Snapshot,
    /// The state before keys of old leases went; the oldest that can be shown.
    pub(super) floor: Revision,
    /// The keys of old leases that went.
    pub(super) changes: Vec<Change>,
    /// Grows by one with each opening.
    pub(super) boot: u64,
}

impl Engine {
    /// Opens what lies on `medium`, which must have been formatted, and ends the leases of earlier boots.
    pub(super) fn open(
        path: &Path,
        medium: Box<dyn Medium>,
        options: &EmbeddedOptions,
        beside: Beside,
    ) -> Result<Opened, OpenError> {
        // redb asserts on some bytes that it never wrote; bytes from a disk must not end the process.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            Self::open_trusting(path, medium, options, beside)
        }));
        opened.unwrap_or_else(|_| {
            Err(OpenError::Damaged {
                path: path.to_owned(),
                why: "its pages contradict each other".to_owned(),
            })
        })
    }

    fn open_trusting(
        path: &Path,
        medium: Box<dyn Medium>,
        options: &EmbeddedOptions,
        beside: Beside,
    ) -> Result<Opened, OpenError> {
        let backend = medium
            .open()
            .map_err(|error| OpenError::io(path, "open", error))?;
        let sync_failed = Arc::new(AtomicBool::new(false));
        let backend = AnyBackend::new(backend, Arc::clone(&sync_failed));
        let db = open_database(path, backend, options.cache_bytes)?;
        check_format(path, &db)?;
        let mut engine = Self {
            path: path.to_owned(),
            medium,
            cache_bytes: options.cache_bytes,
            reopen_tries: options.reopen_tries,
            sync_failed,
            db: Some(db),
            beside,
        };
        let boot = match engine.boot() {
            // A disk that is full to the last byte: the reserve is there for this.
            Err(RowError::Redb(_)) if engine.beside.reserve.is_some() => {
                engine.reopen().and_then(|_| engine.boot())
            }
            other => other,
        };
        let (floor, changes, boot) = boot.map_err(|error| fault(path, "write", error))?;
        let snapshot = engine
            .snapshot()
            .map_err(|error| fault(path, "read", error))?;
        Ok(Opened {
            engine,
            snapshot,
            floor,
            changes,
            boot,
        })
    }

    fn boot(&mut self) -> Result<(Revision, Vec<Change>, u64), RowError> {
        let txn = self.begin()?;
        let floor = revision_of(&txn)?;
        let boot = meta(&txn, "boot")? + 1;
        if boot > BOOTS_MAX {
            return Err(RowError::Damaged(format!("boot counter is {boot}")));
        }
        let mut tables = tables(&txn)?;
        let mut old = BTreeSet::new();
        for item in tables.leased.iter()? {
            old.insert(item?.0.value().to_owned());
        }
        let revision = Revision(floor.0 + 1);
        let changes = apply::remove(&mut tables, old, revision)?;
        drop(tables);
        let revision = if changes.is_empty() { floor } else { revision };
        set_meta(&txn, "boot", boot)?;
        finish(txn, revision)?;
        Ok((floor, changes, boot))
    }

    fn db(&self) -> Result<&Database, RowError> {
        self.db
            .as_ref()
            .ok_or_else(|| RowError::Redb(redb::Error::DatabaseClosed))
    }

    /// Begins a durable write transaction.
    pub(super) fn begin(&self) -> Result<WriteTransaction, RowError> {
        let mut txn = self.db()?.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        // An unclean end must not cost a walk of the whole file at the next start (storage.md Z3).
        txn.set_quick_repair(true);
        Ok(txn)
    }

    /// The newest committed state.
    pub(super) fn snapshot(&self) -> Result<Snapshot, RowError> {
        let txn = self.db()?.begin_read()?;
        let revision = txn.open_table(META)?.get("revision")?.map(|v| v.value());
        let revision = revision.ok_or_else(|| RowError::Damaged("no revision".to_owned()))?;
        Ok(Snapshot {
            table: txn.open_table(KEYS)?,
            revision: Revision(revision),
        })
    }

    /// Closes the file and lets others have it.
    pub(super) fn close(&mut self) {
        self.db = None;
        self.beside.lock = None;
    }

    /// After a good commit: makes the reserve again if it was given up.
    pub(super) fn refill_reserve(&mut self) {
        if let Some(reserve) = &mut self.beside.reserve {
            reserve.make();
        }
    }

    /// Closes the file and opens it again after an error.
    pub(super) fn reopen(&mut self) -> Result<Snapshot, RowError> {
        if let Some(reserve) = &mut self.beside.reserve {
            reserve.give_up();
        }
        let mut pause = REOPEN_PAUSE;
        let mut tries = 1;
        loop {
            // Closed first: redb refuses two handles of one file.
            self.db = None;
            match self.reopen_once() {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) if tries >= self.reopen_tries => return Err(error),
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), ?error, tries, "metadata file cannot be reopened yet");
                }
            }
            tries += 1;
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    fn reopen_once(&mut self) -> Result<Snapshot, RowError> {
        let io = |error: io::Error| RowError::Redb(redb::Error::Io(error));
        let backend = self.medium.open().map_err(io)?;
        let backend = AnyBackend::new(backend, Arc::clone(&self.sync_failed));
        backend.settle().map_err(io)?;
        let db = open_database(&self.path, backend, self.cache_bytes)
            .map_err(|error| io(io::Error::other(error)))?;
        self.db = Some(db);
        self.snapshot()
    }
}

/// The tables of a write transaction.
pub(super) fn tables(txn: &WriteTransaction) -> Result<Tables<'_>, RowError> {
    Ok(Tables {
        keys: txn.open_table(KEYS)?,
        leased: txn.open_table(LEASED)?,
    })
}

fn meta(txn: &WriteTransaction, name: &str) -> Result<u64, RowError> {
    let table = txn.open_table(META)?;
    let value = table.get(name)?.map(|value| value.value());
    value.ok_or_else(|| RowError::Damaged(format!("no {name} in the meta table")))
}

fn set_meta(txn: &WriteTransaction, name: &str, value: u64) -> Result<(), RowError> {
    txn.open_table(META)?.insert(name, value)?;
    Ok(())
}

/// The last committed revision.
pub(super) fn revision_of(txn: &WriteTransaction) -> Result<Revision, RowError> {
    meta(txn, "revision").map(Revision)
}

/// Commits, durably.
pub(super) fn finish(txn: WriteTransaction, revision: Revision) -> Result<(), RowError> {
    set_meta(&txn, "revision", revision.0)?;
    txn.commit()?;
    Ok(())
}

/// Makes an empty store on an empty backend.
pub(super) fn format(path: &Path, medium: &dyn Medium) -> Result<(), OpenError> {
    let backend = medium
        .open()
        .map_err(|error| OpenError::io(path, "open", error))?;
    let backend = AnyBackend::new(backend, Arc::default());
    let db = open_database(path, backend, FORMAT_CACHE_BYTES)?;
    let write = || -> Result<(), RowError> {
        let mut txn = db.begin_write()?;
        txn.set_quick_repair(true);
        drop(tables(&txn)?);
        set_meta(&txn, "format", FORMAT_VERSION)?;
        set_meta(&txn, "boot", 0)?;
        finish(txn, Revision(0))
    };
    write().map_err(|error| fault(path, "format", error))
}

fn fault(path: &Path, doing: &'static str, error: RowError) -> OpenError {
    match error {
        RowError::Redb(redb::Error::Io(source)) => OpenError::io(path, doing, source),
        RowError::Redb(error) => OpenError::Damaged {
            path: path.to_owned(),
            why: error.to_string(),
        },
        RowError::Damaged(why) => OpenError::Damaged {
            path: path.to_owned(),
            why,
        },
    }
}

fn open_database(
    path: &Path,
    backend: AnyBackend,
    cache_bytes: usize,
) -> Result<Database, OpenError> {
    let opened = Builder::new()
        .set_cache_size(cache_bytes)
        .create_with_backend(backend);
    let path_owned = path.to_owned();
    match opened {
        Ok(db) => Ok(db),
        Err(DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch) => {
            Err(OpenError::Locked {
                path: path_owned,
                holder: "a process that opened it as a plain redb file".to_owned(),
            })
        }
        Err(DatabaseError::Storage(StorageError::Io(error)))
            if error.kind() == io::ErrorKind::InvalidData =>
        {
            Err(OpenError::NotMetadata {
                path: path_owned,
                why: error.to_string(),
            })
        }
        Err(DatabaseError::Storage(StorageError::Io(error))) => {
            Err(OpenError::io(path, "read", error))
        }
        Err(DatabaseError::UpgradeRequired(version)) => Err(OpenError::NotMetadata {
            path: path_owned,
            why: format!("a redb file of format {version}, which no release of hulse wrote"),
        }),
        Err(error) => Err(OpenError::Damaged {
            path: path_owned,
            why: error.to_string(),
        }),
    }
}

fn check_format(path: &Path, db: &Database) -> Result<(), OpenError> {
    let read = || -> Result<Option<u64>, RowError> {
        let txn = db.begin_read()?;
        Ok(txn.open_table(META)?.get("format")?.map(|v| v.value()))
    };
    let not_ours = |why: String| OpenError::NotMetadata {
        path: path.to_owned(),
        why,
    };
    match read() {
        Ok(Some(found)) if found > FORMAT_VERSION => Err(OpenError::NewerFormat {
            path: path.to_owned(),
            found,
            known: FORMAT_VERSION,
        }),
        Ok(Some(FORMAT_VERSION)) => Ok(()),
        Ok(Some(other)) => Err(not_ours(format!("its format is {other}"))),
        Ok(None) => Err(not_ours("a redb file without a format".to_owned())),
        Err(RowError::Redb(
            redb::Error::TableDoesNotExist(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_),
        )) => Err(not_ours("a redb file of another program".to_owned())),
        Err(error) => Err(fault(path, "read", error)),
    }
}
