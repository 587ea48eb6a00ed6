//! When a snapshot is due, what is uploaded, what may be deleted after (compute.md B6).
//!
//! # Invariants
//! 1. A snapshot holds a committed state, frozen at the end of an epoch.
//! 2. Its pointer is committed after the object is there, in an ordinary epoch. Whoever was fenced can upload, never publish.
//! 3. The changelog is cut only below the older kept snapshot, after the newer one's pointer is committed. A successor that finds the
//!    newest damaged can go back to the older.
//! 4. Objects are deleted only if they are of an older producer, or were dropped from the kept ones by a committed pointer: one
//!    that was fenced cannot delete what its successor needs.

use std::collections::VecDeque;

use bytes::Bytes;
use hulse_proto::entry::crc32c;
use hulse_proto::time::TimestampMs;

use super::effect::Producer;
use crate::codec::CodecError;
use crate::codec::changelog::{Meta, Pointer};
use crate::codec::snapshot::{RowCodecs, Snapshot};
use crate::id::Fingerprint;
use crate::limits::Limits;
use crate::restore::SNAPSHOTS_KEPT;
use crate::state::State;
use crate::watermark::millis;

/// A state to be uploaded in the background. Epochs go on meanwhile.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Name of the object.
    pub path: String,
    snapshot: Snapshot,
    changelog_end: u64,
}

impl Upload {
    /// The object, and the pointer to give to [`super::Task::on_uploaded`] once it is there.
    ///
    /// # Errors
    /// [`CodecError`]: a row is not its table's.
    pub fn encode(&self, codecs: &RowCodecs) -> Result<(Bytes, Pointer), CodecError> {
        let object = self.snapshot.encode(codecs)?;
        let pointer = Pointer {
            epoch: self.snapshot.epoch,
            changelog_end: self.changelog_end,
            bytes: object.len() as u64,
            checksum: crc32c(&object),
            path: self.path.clone(),
        };
        Ok((object, pointer))
    }
}

/// What may go, in the background and in any order; none of it is needed for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cleaning {
    /// Delete the records of the changelog below this offset.
    Truncate {
        /// Exclusive.
        before: u64,
    },
    /// Delete this snapshot.
    Delete {
        /// Name of the object.
        path: String,
    },
    /// Delete every snapshot below `prefix` that [`is_orphan`] says is one.
    Sweep {
        /// Of the task's snapshots.
        prefix: String,
        /// The producer that sweeps.
        by: Producer,
        /// Those that are needed.
        keep: Vec<String>,
    },
}

/// True for a snapshot that an older producer left and that no committed pointer names. A name that is none of ours is not.
pub fn is_orphan(path: &str, prefix: &str, by: Producer, keep: &[String]) -> bool {
    let name = path
        .strip_prefix(prefix)
        .and_then(|name| name.strip_suffix(SUFFIX));
    let mut parts = name.into_iter().flat_map(|name| name.split('-'));
    let id = parts.next().and_then(|id| id.parse().ok());
    let epoch = parts.next().and_then(|epoch| epoch.parse().ok());
    let producer = id.zip(epoch).map(|(id, epoch)| Producer { id, epoch });
    producer.is_some_and(|producer| producer < by) && !keep.iter().any(|kept| kept == path)
}

/// Ending of the name of a snapshot.
const SUFFIX: &str = ".snapshot";

/// The snapshots of a task.
#[derive(Debug)]
pub(super) struct Snapshots {
    prefix: String,
    fingerprint: Fingerprint,
    /// Committed and needed, oldest first.
    kept: VecDeque<Pointer>,
    /// Uploaded, to be published with the next epoch.
    pub(super) ready: Option<Pointer>,
    upload: Option<Upload>,
    under_way: bool,
    changelog_bytes: u64,
    last_bytes: u64,
    last_at: Option<TimestampMs>,
    cleaning: Vec<Cleaning>,
}

impl Snapshots {
    pub(super) fn new(task: &str, fingerprint: Fingerprint) -> Self {
        Self {
            prefix: format!("{task}/"),
            fingerprint,
            kept: VecDeque::new(),
            ready: None,
            upload: None,
            under_way: false,
            changelog_bytes: 0,
            last_bytes: 0,
            last_at: None,
            cleaning: Vec::new(),
        }
    }

    /// A task was restored from a changelog of so many bytes: whatever was under way belongs to another life. The bytes count, so
    /// that a task which often crashes gets its snapshot all the same.
    pub(super) fn restored(&mut self, kept: Vec<Pointer>, changelog_bytes: u64, by: Producer) {
        let keep = kept.iter().map(|pointer| pointer.path.clone()).collect();
        *self = Self {
            changelog_bytes,
            last_bytes: kept.last().map_or(0, |newest| newest.bytes),
            kept: kept.into(),
            cleaning: vec![Cleaning::Sweep {
                prefix: self.prefix.clone(),
                by,
                keep,
            }],
            ..Self::new(self.prefix.trim_end_matches('/'), self.fingerprint)
        };
    }

    /// An epoch is committed, with a pointer if one was ready; freezes the state if a snapshot is due.
    pub(super) fn committed(
        &mut self,
        appended: &Appended,
        state: &State,
        meta: &Meta,
        by: Producer,
        limits: &Limits,
    ) {
        if let Some(pointer) = appended.pointer.clone() {
            self.published(pointer);
        }
        self.changelog_bytes += appended.bytes;
        let since = *self.last_at.get_or_insert(meta.epoch_time);
        let aged = meta.epoch_time.saturating_sub(since) >= millis(limits.snapshot_after);
        let grown = self.changelog_bytes >= limits.snapshot_after_bytes.max(self.last_bytes);
        if self.under_way || self.ready.is_some() || !(aged || grown) {
            return;
        }
        (self.under_way, self.changelog_bytes, self.last_at) = (true, 0, Some(meta.epoch_time));
        self.upload = Some(Upload {
            path: format!(
                "{}{}-{}-{}{SUFFIX}",
                self.prefix, by.id, by.epoch, meta.epoch
            ),
            snapshot: Snapshot {
                epoch: meta.epoch,
                fingerprint: self.fingerprint,
                state: state.clone(),
            },
            changelog_end: appended.last + 1,
        });
    }

    fn published(&mut self, pointer: Pointer) {
        self.ready = None;
        self.last_bytes = pointer.bytes;
        self.kept.push_back(pointer);
        while self.kept.len() > SNAPSHOTS_KEPT {
            let dropped = self.kept.pop_front();
            self.cleaning
                .extend(dropped.map(|dropped| Cleaning::Delete { path: dropped.path }));
        }
        if let (SNAPSHOTS_KEPT, Some(oldest)) = (self.kept.len(), self.kept.front()) {
            let before = oldest.changelog_end;
            self.cleaning.push(Cleaning::Truncate { before });
        }
    }

    pub(super) fn take_upload(&mut self) -> Option<Upload> {
        self.upload.take()
    }

    /// An upload ended. One of another life of the task is not heard: its path names another producer.
    pub(super) fn uploaded(&mut self, pointer: Option<Pointer>, by: Producer) {
        let ours = format!("{}{}-{}-", self.prefix, by.id, by.epoch);
        match pointer {
            Some(pointer) if pointer.path.starts_with(&ours) && self.under_way => {
                self.under_way = false;
                self.ready = Some(pointer);
            }
            Some(_) => {}
            None => self.under_way = false,
        }
    }

    pub(super) fn take_cleaning(&mut self) -> Vec<Cleaning> {
        std::mem::take(&mut self.cleaning)
    }

    /// The mutant that cuts the changelog before the pointer is committed.
    pub(super) fn truncate_early(&mut self) {
        let before = self.ready.as_ref().map(|ready| ready.changelog_end);
        self.cleaning
            .extend(before.map(|before| Cleaning::Truncate { before }));
    }
}

/// What an epoch put into the changelog.
#[derive(Debug, Clone, Default)]
pub(super) struct Appended {
    pub(super) last: u64,
    pub(super) bytes: u64,
    pub(super) pointer: Option<Pointer>,
}
