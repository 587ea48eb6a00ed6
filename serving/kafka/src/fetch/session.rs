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
/// A session that was not used for this long is dropped …
const EVICTED_AFTER: Duration = Duration::from_secs(120);
/// … by what comes this long after the last look for such.
const SWEPT_EVERY: Duration = Duration::from_secs(10);
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
    /// When unused sessions were looked for.
    swept: Instant,
}

/// The sessions of one listener.
#[derive(Debug)]
pub(crate) struct Sessions(Mutex<Table>);

/// The session that a request names, and its word to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asking {
    pub(super) session: i32,
    pub(super) epoch: i32,
}

/// How an answer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Telling {
    /// The session; 0: none.
    pub(super) session: i32,
    /// Only what changed is told.
    pub(super) incremental: bool,
}

/// What a request means with its session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) telling: Telling,
    /// Everything that is fetched.
    pub(super) spots: Vec<Spot>,
}

impl Sessions {
    /// None yet; numbers are counted from `seed`, so that those of an earlier start are not met again.
    pub(crate) fn new(seed: i32) -> Self {
        Self(Mutex::new(Table {
            // Sessions have positive numbers.
            next: seed & i32::MAX,
            sessions: HashMap::new(),
            partitions: 0,
            swept: Instant::now(),
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
        asked: Asking,
        spots: Vec<Spot>,
        forgotten: Vec<ForgottenTopic>,
    ) -> Result<Plan, Code> {
        let mut table = self.lock();
        table.sweep();
        if asked.epoch == FINAL || asked.epoch == INITIAL {
            table.remove(asked.session);
            let new = match asked.epoch {
                INITIAL => table.begin(&spots),
                _ => None,
            };
            return Ok(Plan {
                telling: Telling {
                    session: new.unwrap_or(0),
                    incremental: false,
                },
                spots,
            });
        }
        table.go_on(asked, spots, forgotten)
    }

    /// Leaves what the client knows already out of an incremental answer, and notes what it is told.
    pub(super) fn tell(&self, telling: Telling, partitions: &mut Vec<(Spot, Found)>) {
        let mut table = self.lock();
        let Some(session) = table.sessions.get_mut(&telling.session) else {
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
            changed || !telling.incremental
        });
    }
}

impl Table {
    fn remove(&mut self, session: i32) {
        if let Some(gone) = self.sessions.remove(&session) {
            self.partitions -= gone.partitions.len();
        }
    }

    /// Drops what is unused, now and then.
    fn sweep(&mut self) {
        if self.swept.elapsed() < SWEPT_EVERY {
            return;
        }
        self.swept = Instant::now();
        let unused = |session: &Session| session.used.elapsed() >= EVICTED_AFTER;
        let gone = self.sessions.extract_if(|_, session| unused(session));
        let gone: usize = gone.map(|(_, session)| session.partitions.len()).sum();
        self.partitions -= gone;
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
        session.put(spots);
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
        asked: Asking,
        spots: Vec<Spot>,
        forgotten: Vec<ForgottenTopic>,
    ) -> Result<Plan, Code> {
        let room = PARTITIONS_MAX - self.partitions;
        let session = self.sessions.get_mut(&asked.session);
        let session = session.ok_or(error_code::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != asked.epoch {
            return Err(error_code::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.new_ones(&spots) > room {
            self.remove(asked.session);
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
        session.put(&spots);
        session.epoch = asked.epoch.checked_add(1).unwrap_or(INITIAL + 1);
        session.used = Instant::now();
        let after = session.partitions.len();
        let all = session.partitions.values();
        let all = all.map(|partition| partition.spot.clone()).collect();
        self.partitions = self.partitions + after - before;
        Ok(Plan {
            telling: Telling {
                session: asked.session,
                incremental: true,
            },
            spots: all,
        })
    }
}

impl Session {
    /// How many of these it does not have; one that is named twice counts twice.
    fn new_ones(&self, spots: &[Spot]) -> usize {
        let known = |spot: &&Spot| {
            let key = (spot.topic.clone(), spot.index);
            self.partitions.contains_key(&key)
        };
        spots.len() - spots.iter().filter(known).count()
    }

    fn put(&mut self, spots: &[Spot]) {
        for of_topic in spots.chunk_by(|left, right| left.topic == right.topic) {
            let topic = self.own(&of_topic[0].topic);
            for spot in of_topic {
                let spot = Spot {
                    topic: topic.clone(),
                    ..spot.clone()
                };
                let key = (topic.clone(), spot.index);
                let told = self.partitions.get(&key).and_then(|known| known.told);
                self.partitions.insert(key, Partition { spot, told });
            }
        }
    }

    /// The topic as the session keeps it: its name is there once for all of its partitions, and is no slice of a request.
    fn own(&self, topic: &TopicKey) -> TopicKey {
        let begin = (topic.clone(), i32::MIN);
        let known = self.partitions.range(begin..).next();
        let known = known.filter(|((known, _), _)| known == topic);
        known.map_or_else(|| topic.to_owned(), |((known, _), _)| known.clone())
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::protocol::StrBytes;
    use uuid::Uuid;

    use super::*;

    fn spots(count: usize) -> Vec<Spot> {
        let spot = |index| Spot {
            topic: TopicKey {
                name: StrBytes::from_static_str("t"),
                id: Uuid::nil(),
            },
            index,
            offset: 0,
            bytes_max: 1,
            epoch: -1,
        };
        (0..count as i32).map(spot).collect()
    }

    #[test]
    fn name_is_kept_once_for_all_partitions_of_a_topic() {
        let sessions = Sessions::new(1);
        let new = Asking {
            session: 0,
            epoch: INITIAL,
        };
        let asked = spots(100);
        let session = sessions.plan(new, asked.clone(), vec![]).unwrap();
        let session = session.telling.session;
        let ask = |epoch, spots| {
            let plan = sessions.plan(Asking { session, epoch }, spots, vec![]);
            plan.unwrap().spots
        };
        let mut more = spots(200).split_off(100);
        more.iter_mut()
            .for_each(|spot| spot.topic = spot.topic.to_owned());
        for kept in [ask(1, vec![]), ask(2, more)] {
            let at = |spot: &Spot| spot.topic.name.as_ptr();
            assert!(kept.iter().all(|spot| at(spot) == at(&kept[0])));
            assert_ne!(at(&kept[0]), at(&asked[0]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unused_sessions_are_dropped() {
        let sessions = Sessions::new(1);
        let new = Asking {
            session: 0,
            epoch: INITIAL,
        };
        sessions.plan(new, spots(9), vec![]).unwrap();
        tokio::time::advance(EVICTED_AFTER).await;
        sessions.plan(new, spots(5), vec![]).unwrap();
        let table = sessions.lock();
        assert_eq!((table.sessions.len(), table.partitions), (1, 5));
    }

    #[test]
    fn numbers_are_counted_from_the_seed_whatever_its_sign() {
        for seed in [7, i32::MIN + 7] {
            let new = Asking {
                session: 0,
                epoch: INITIAL,
            };
            let plan = Sessions::new(seed).plan(new, spots(1), vec![]).unwrap();
            assert_eq!(plan.telling.session, 8);
        }
    }

    #[test]
    fn full_table_takes_requests_for_what_its_sessions_have() {
        let sessions = Sessions::new(1);
        let first = |count| {
            let new = Asking {
                session: 0,
                epoch: INITIAL,
            };
            sessions.plan(new, spots(count), vec![]).unwrap()
        };
        let session = first(100).telling.session;
        assert!(first(PARTITIONS_MAX - 100).telling.session > 0);
        assert_eq!(first(1).telling.session, 0, "the table is full");
        let ask = |epoch, count| sessions.plan(Asking { session, epoch }, spots(count), vec![]);
        assert_eq!(ask(1, 100).unwrap().spots.len(), 100);
        let gone = ask(2, 101).unwrap_err();
        assert_eq!(gone, error_code::FETCH_SESSION_ID_NOT_FOUND);
    }
}
