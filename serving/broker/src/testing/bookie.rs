//! A bookie in memory, enough for one owner after another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call, EntryHead, FenceAnswer, FenceRequest,
    Origin, ReadRequest, RecoveryReadAnswer, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::entry::EntryClass;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use tokio::sync::watch;

#[derive(Default)]
struct Stored {
    entries: BTreeMap<EntryId, StoredEntry>,
    fence: FenceToken,
    confirmed_end: EntryId,
    deleted: bool,
}

/// Answers adds only while [`MemoryBookie::hold`] does not say otherwise.
#[derive(Default)]
pub struct MemoryBookie {
    ledgers: Arc<Mutex<BTreeMap<LedgerId, Stored>>>,
    held: watch::Sender<bool>,
    full: AtomicBool,
    no_meta: AtomicBool,
}

impl MemoryBookie {
    /// An empty one that answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on records are refused, or taken again.
    pub fn fill(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// True while they are.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// From now on META entries are refused, or taken again.
    pub fn refuse_meta(&self, refuse: bool) {
        self.no_meta.store(refuse, Ordering::Relaxed);
    }

    /// Adds are stored and not answered, or answered again.
    pub fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// Loses the end of a ledger, as a disk does that was not synced before the power went.
    pub fn lose_tail(&self, ledger: LedgerId, from: EntryId) {
        if let Some(stored) = self.lock().get_mut(&ledger) {
            drop(stored.entries.split_off(&from));
            stored.confirmed_end = stored.confirmed_end.min(from);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LedgerId, Stored>> {
        self.ledgers
            .lock()
            .expect("no code panics while it holds this lock")
    }

    fn with<T: Send + 'static>(
        &self,
        to: Address,
        work: impl FnOnce(&mut Stored) -> Result<T, BookieError>,
    ) -> Call<T> {
        let mut ledgers = self.lock();
        let stored = ledgers.entry(to.ledger).or_default();
        let result = if stored.deleted {
            Err(BookieError::Deleted { ledger: to.ledger })
        } else {
            work(stored)
        };
        Box::pin(async move { result })
    }
}

impl BookieCalls for MemoryBookie {
    fn add(&self, request: AddRequest) -> Call<()> {
        let data = request.entry.header().class == EntryClass::Data;
        if self.is_full() && data && request.origin == Origin::Normal {
            let why = "for a test".to_owned();
            return Box::pin(async { Err(BookieError::ReadOnly { why }) });
        }
        let meta = request.entry.header().class == EntryClass::Meta;
        if meta && self.no_meta.load(Ordering::Relaxed) && request.origin == Origin::Normal {
            let why = "for a test".to_owned();
            return Box::pin(async { Err(BookieError::ReadOnly { why }) });
        }
        let ledger = request.to.ledger;
        let done = self.with(request.to, |stored| {
            if request.origin == Origin::Normal && stored.fence > FenceToken(0) {
                return Err(BookieError::Fenced {
                    ledger,
                    token: stored.fence,
                });
            }
            if request.origin == Origin::Normal {
                stored.confirmed_end = stored.confirmed_end.max(request.confirmed_end);
            }
            let AddRequest {
                entry,
                confirmed_end,
                ..
            } = request;
            let id = entry.header().entry;
            stored.entries.insert(
                id,
                StoredEntry {
                    entry,
                    confirmed_end,
                },
            );
            Ok(())
        });
        let mut held = self.held.subscribe();
        Box::pin(async move {
            let _ = held.wait_for(|held| !held).await;
            done.await
        })
    }

    fn fence(&self, request: FenceRequest) -> Call<FenceAnswer> {
        self.with(request.to, |stored| {
            if request.token < stored.fence {
                return Err(BookieError::StaleToken {
                    ledger: request.to.ledger,
                    token: stored.fence,
                    asked: request.token,
                });
            }
            stored.fence = stored.fence.max(request.token);
            let held_end = stored
                .entries
                .last_key_value()
                .map_or(EntryId(0), |(id, _)| id.next());
            let confirmed_end = stored.confirmed_end;
            Ok(FenceAnswer {
                token: stored.fence,
                confirmed_end,
                held_end,
            })
        })
    }

    fn recovery_read(&self, request: RecoveryReadRequest) -> Call<RecoveryReadAnswer> {
        self.with(request.to, |stored| {
            stored.fence = stored.fence.max(request.token);
            Ok(match stored.entries.get(&request.entry) {
                Some(entry) => RecoveryReadAnswer::Positive(entry.clone()),
                None => RecoveryReadAnswer::Negative {
                    unsynced_limbo: false,
                },
            })
        })
    }

    fn read(&self, request: ReadRequest) -> Call<Vec<StoredEntry>> {
        self.with(request.to, |stored| run(stored, &request))
    }

    fn read_heads(&self, request: ReadRequest) -> Call<Vec<EntryHead>> {
        self.with(request.to, |stored| {
            let heads = run(stored, &request)?.into_iter().map(|found| EntryHead {
                header: *found.entry.header(),
                envelope: found.entry.envelope(),
            });
            Ok(heads.collect())
        })
    }

    fn delete(&self, to: Address) -> Call<()> {
        let mut ledgers = self.lock();
        *ledgers.entry(to.ledger).or_default() = Stored {
            deleted: true,
            ..Stored::default()
        };
        Box::pin(async { Ok(()) })
    }
}

fn run(stored: &Stored, request: &ReadRequest) -> Result<Vec<StoredEntry>, BookieError> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut next = request.first;
    for (id, entry) in stored.entries.range(request.first..request.end) {
        if *id != next || bytes > request.max_bytes {
            break;
        }
        bytes += entry.entry.header().payload_len;
        next = id.next();
        found.push(entry.clone());
    }
    if found.is_empty() {
        return Err(BookieError::NotHere {
            ledger: request.to.ledger,
            entry: request.first,
        });
    }
    Ok(found)
}
