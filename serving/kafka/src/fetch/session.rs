//! Fetch sessions (KIP-227): a client that reads many partitions names only what changed, and is told only what changed.
//!
//! A session lives on this broker alone; a client whose session is gone is told so and begins another.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use kafka_protocol::messages::fetch_request::ForgottenTopic;
use tokio::time::Instant;

use super::spot::{Found, Spot, TopicKey};
use crate::error_code::{self, Code};

/// Sessions at once.
const SESSIONS_MAX: usize = 1000;
/// Partitions of all of them.
const PARTITIONS_MAX: usize = 200_000;
/// A session that was not used for this long makes room for another.
const EVICTED_AFTER: Duration = Duration::from_secs(120);
/// The epoch of a request that begins a session, and of one that wants none.
const INITIAL: i32 = 0;
const FINAL: i32 = -1;

/// What was last told of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    high_watermark: i64,
    log_start: i64,
}

#[derive(Debug)]
struct Partition {
    spot: Spot,
    told: Option<Told>,
}

#[derive(Debug)]
struct Session {
    /// Of the next request.
    epoch: i32,
    used: Instant,
    partitions: BTreeMap<(TopicKey, i32), Partition>,
}

#[derive(Debug)]
struct Table {
    next: i32,
    sessions: HashMap<i32, Session>,
    partitions: usize,
}

/// The sessions of one listener.
#[derive(Debug)]
pub(crate) struct Sessions(Mutex<Table>);

/// What a request means with its session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The session; 0: none.
    pub(super) session: i32,
    /// Only what changed is told.
    pub(super) incremental: bool,
    /// Everything that is fetched.
    pub(super) spots: Vec<Spot>,
}

impl Sessions {
    /// None yet; numbers are counted from `seed`, so that those of an earlier start are not met again.
    pub(crate) fn new(seed: i32) -> Self {
        Self(Mutex::new(Table {
            next: seed,
            sessions: HashMap::new(),
            partitions: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// What a request of this session, epoch and these changes fetches.
    ///
    /// # Errors
    /// The code that tells the client to begin anew.
    pub(super) fn plan(
        &self,
        (session, epoch): (i32, i32),
        spots: Vec<Spot>,
        forgotten: Vec<ForgottenTopic>,
    ) -> Result<Plan, Code> {
        let mut table = self.lock();
        if epoch == FINAL || epoch == INITIAL {
            table.remove(session);
            let begun = match epoch {
                INITIAL => table.begin(&spots),
                _ => None,
            };
            return Ok(Plan {
                session: begun.unwrap_or(0),
                incremental: false,
                spots,
            });
        }
        table.go_on((session, epoch), spots, forgotten)
    }

    /// Leaves what the client knows already out of an incremental answer, and notes what it is told.
    pub(super) fn tell(&self, plan: (i32, bool), partitions: &mut Vec<(Spot, Found)>) {
        let (session, incremental) = plan;
        let mut table = self.lock();
        let Some(session) = table.sessions.get_mut(&session) else {
            return;
        };
        partitions.retain(|(spot, found)| {
            let key = (spot.topic.clone(), spot.index);
            let Some(partition) = session.partitions.get_mut(&key) else {
                return true;
            };
            let new = Told {
                high_watermark: found.high_watermark,
                log_start: found.log_start,
            };
            let failed = found.code != error_code::NONE;
            let changed = failed || found.bytes > 0 || partition.told != Some(new);
            // After an error everything is told again.
            partition.told = (!failed).then_some(new);
            changed || !incremental
        });
    }
}

impl Table {
    fn remove(&mut self, session: i32) {
        if let Some(gone) = self.sessions.remove(&session) {
            self.partitions -= gone.partitions.len();
        }
    }

    /// A new session; `None`: there is no room.
    fn begin(&mut self, spots: &[Spot]) -> Option<i32> {
        if spots.is_empty() || spots.len() > PARTITIONS_MAX {
            return None;
        }
        while self.sessions.len() >= SESSIONS_MAX || self.partitions + spots.len() > PARTITIONS_MAX
        {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.used);
            let (oldest, session) = oldest?;
            if session.used.elapsed() < EVICTED_AFTER {
                return None;
            }
            let oldest = *oldest;
            self.remove(oldest);
        }
        let mut session = Session {
            epoch: INITIAL + 1,
            used: Instant::now(),
            partitions: BTreeMap::new(),
        };
        for spot in spots {
            session.put(spot);
        }
        self.partitions += session.partitions.len();
        let number = loop {
            // From 1 on; 0 is no session.
            self.next = self
                .next
                .checked_add(1)
                .filter(|next| *next > 0)
                .unwrap_or(1);
            if !self.sessions.contains_key(&self.next) {
                break self.next;
            }
        };
        self.sessions.insert(number, session);
        Some(number)
    }

    fn go_on(
        &mut self,
        (number, epoch): (i32, i32),
        spots: Vec<Spot>,
        forgotten: Vec<ForgottenTopic>,
    ) -> Result<Plan, Code> {
        let room = PARTITIONS_MAX - self.partitions;
        let session = self.sessions.get_mut(&number);
        let session = session.ok_or(error_code::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != epoch {
            return Err(error_code::INVALID_FETCH_SESSION_EPOCH);
        }
        if spots.len() > room {
            self.remove(number);
            return Err(error_code::FETCH_SESSION_ID_NOT_FOUND);
        }
        let before = session.partitions.len();
        for topic in forgotten {
            let key = TopicKey {
                name: topic.topic.0,
                id: topic.topic_id,
            };
            for index in topic.partitions {
                session.partitions.remove(&(key.clone(), index));
            }
        }
        for spot in &spots {
            session.put(spot);
        }
        session.epoch = epoch.checked_add(1).unwrap_or(INITIAL + 1);
        session.used = Instant::now();
        let after = session.partitions.len();
        let all = session.partitions.values();
        let all = all.map(|partition| partition.spot.clone()).collect();
        self.partitions = self.partitions + after - before;
        Ok(Plan {
            session: number,
            incremental: true,
            spots: all,
        })
    }
}

impl Session {
    fn put(&mut self, spot: &Spot) {
        let key = (spot.topic.clone(), spot.index);
        match self.partitions.get_mut(&key) {
            Some(partition) => {
                let topic = partition.spot.topic.clone();
                partition.spot = Spot {
                    topic,
                    ..spot.clone()
                };
            }
            None => {
                let topic = spot.topic.to_owned();
                let key = (topic.clone(), spot.index);
                let spot = Spot {
                    topic,
                    ..spot.clone()
                };
                self.partitions.insert(key, Partition { spot, told: None });
            }
        }
    }
}
