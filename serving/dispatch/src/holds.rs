//! Holds: what one delivery gave to one consumer, and until when. Runs name their hold; one without runs is none any more.

use std::collections::BTreeSet;

use hulse_proto::time::TimestampMs;

use crate::facts::SessionId;
use crate::range::OffsetRange;

/// One delivery, or the part of it whose lock was renewed by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) session: SessionId,
    /// All of its records lie within.
    pub(crate) span: OffsetRange,
    /// 0: no lock.
    pub(crate) lock_until: TimestampMs,
    /// Records of runs that name it.
    records: u64,
}

/// All of them, numbered from 0; numbers are used again.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    all: Vec<Hold>,
    free: Vec<u32>,
    locks: BTreeSet<(TimestampMs, u32)>,
    by_session: BTreeSet<(SessionId, u32)>,
}

impl Holds {
    pub(crate) fn get(&self, id: u32) -> Hold {
        self.all[id as usize]
    }

    /// Makes one for `records`.
    pub(crate) fn make(
        &mut self,
        session: SessionId,
        span: OffsetRange,
        lock_until: TimestampMs,
        records: u64,
    ) -> u32 {
        let hold = Hold {
            session,
            span,
            lock_until,
            records,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = hold;
                id
            }
            None => {
                self.all.push(hold);
                (self.all.len() - 1) as u32
            }
        };
        self.by_session.insert((session, id));
        self.lock(id, lock_until);
        id
    }

    /// The lock ends then; 0: never.
    pub(crate) fn lock(&mut self, id: u32, until: TimestampMs) {
        let hold = &mut self.all[id as usize];
        self.locks.remove(&(hold.lock_until, id));
        hold.lock_until = until;
        if until != 0 {
            self.locks.insert((until, id));
        }
    }

    /// So many more records name it.
    pub(crate) fn add_records(&mut self, id: u32, records: u64) {
        self.all[id as usize].records += records;
    }

    /// So many records name it no more. Answers whether it is gone.
    pub(crate) fn drop_records(&mut self, id: u32, records: u64) -> bool {
        let hold = &mut self.all[id as usize];
        hold.records -= records;
        if hold.records > 0 {
            return false;
        }
        let (session, until) = (hold.session, hold.lock_until);
        self.locks.remove(&(until, id));
        self.by_session.remove(&(session, id));
        self.free.push(id);
        true
    }

    /// A lock that has ended; it is none any more.
    pub(crate) fn take_expired(&mut self, now: TimestampMs) -> Option<u32> {
        let (until, id) = self.locks.first().copied()?;
        if until > now {
            return None;
        }
        self.locks.pop_first();
        Some(id)
    }

    /// When a lock ends next.
    pub(crate) fn next_lock(&self) -> Option<TimestampMs> {
        self.locks.first().map(|(until, _)| *until)
    }

    pub(crate) fn of_session(&self, session: SessionId) -> Vec<u32> {
        let all = self.by_session.range((session, 0)..=(session, u32::MAX));
        all.map(|(_, id)| *id).collect()
    }

    pub(crate) fn has_session(&self, session: SessionId) -> bool {
        let mut all = self.by_session.range((session, 0)..=(session, u32::MAX));
        all.next().is_some()
    }

    #[cfg(test)]
    pub(crate) fn records(&self, id: u32) -> u64 {
        self.all[id as usize].records
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
