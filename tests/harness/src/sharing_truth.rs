//! What the consumers of one QUEUE or KEYED subscription were given, said and were told, and the checker that judges it (serving.md B3,
//! B4; tests 12 to 17 of F2).
//!
//! Words: REDELIVERED, an acked record came again although its receipt was given; TWICE, a record was given to a consumer while another
//! one had it; K1, two consumers had records of one key at once; K2, a record came for the first time behind a later one of its key; COUNT
//! FELL, a record has fewer failed attempts than an owner had shown before.
//!
//! All of it holds within one leader epoch, and for later ones: an owner that does not know yet that it is none may give out what it likes
//! (serving.md, amendment to B11). A consumer judges by the moment at which a delivery left the owner, whenever it hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use hulse_proto::id::OwnerEpoch;
use tokio::time::Instant;

use crate::cursor_truth::CursorTruth;

/// A record that was given to somebody.
#[derive(Debug, Clone)]
pub struct Given {
    /// Which.
    pub offset: u64,
    /// Its key; `None`: of no key.
    pub key: Option<Bytes>,
    /// Failed attempts, as the delivery says.
    pub failed: u16,
    /// When it left the owner.
    pub at: Instant,
}

/// Who has a record.
#[derive(Debug, Clone)]
struct Held {
    attachment: u64,
    key: Option<Bytes>,
    at: Instant,
}

/// One owner's deliveries.
#[derive(Debug, Default)]
struct Epoch {
    held: BTreeMap<u64, Held>,
    /// Of each key the last record that came for the first time.
    first: BTreeMap<Bytes, u64>,
}

/// The truth of one subscription, whose cursor was made at offset 0 and is never moved.
#[derive(Debug)]
pub struct SharingTruth {
    /// Who asked for which ack, and has which receipt.
    pub cursor: CursorTruth,
    keyed: bool,
    /// A record is surely the consumer's for so long; `None`: until it answers.
    lock: Option<Duration>,
    epochs: BTreeMap<OwnerEpoch, Epoch>,
    /// Every record that some owner gave out.
    given: BTreeSet<u64>,
    receipts: BTreeMap<u64, (OwnerEpoch, Instant)>,
    /// Attachments that went.
    gone: BTreeSet<u64>,
    /// Most failed attempts that owners of an epoch have shown.
    failed: BTreeMap<u64, BTreeMap<OwnerEpoch, u16>>,
}

impl SharingTruth {
    /// Of a subscription whose locks last so long, in ms by the owner's clock; 0: for ever.
    pub fn new(keyed: bool, lock_ms: i64) -> Self {
        // The owner's clock may run a hundredth faster than time.
        let surely = u64::try_from(lock_ms).unwrap_or(0) * 98 / 100;
        Self {
            cursor: CursorTruth::default(),
            keyed,
            lock: (surely > 0).then(|| Duration::from_millis(surely)),
            epochs: BTreeMap::new(),
            given: BTreeSet::new(),
            receipts: BTreeMap::new(),
            gone: BTreeSet::new(),
            failed: BTreeMap::new(),
        }
    }

    /// A record is given to an attachment. Answers what is wrong with it.
    pub fn give(&mut self, owner: OwnerEpoch, attachment: u64, given: &Given) -> Vec<String> {
        let mut wrong = Vec::new();
        let offset = given.offset;
        if let Some((epoch, at)) = self.receipts.get(&offset)
            && *epoch <= owner
            && given.at > *at
        {
            wrong.push(format!(
                "REDELIVERED offset {offset} has a receipt of owner {epoch}, and owner {owner} gives it to attachment {attachment}"
            ));
        }
        wrong.extend(self.count(owner, given));
        let (lock, gone) = (self.lock, self.gone.contains(&attachment));
        // What some owner gave out before may wait for its time, without a failure (K3).
        let is_first = self.given.insert(offset);
        let epoch = self.epochs.entry(owner).or_default();
        let overlaps = |held: &Held| {
            let (first, second) = (held.at.min(given.at), held.at.max(given.at));
            let ends = lock.is_some_and(|lock| second >= first + lock);
            // What was on its way when its consumer went is nobody's.
            !gone && held.attachment != attachment && !ends
        };
        if let Some(held) = epoch.held.get(&offset).filter(|held| overlaps(held)) {
            wrong.push(format!(
                "TWICE offset {offset} is at attachments {} and {attachment} of owner {owner}",
                held.attachment
            ));
        }
        if let Some(key) = given.key.as_ref().filter(|_| self.keyed) {
            let of_key = |held: &&Held| held.key.as_ref() == Some(key) && overlaps(held);
            if let Some(held) = epoch.held.values().find(of_key) {
                wrong.push(format!(
                    "K1 key of offset {offset} is at attachments {} and {attachment} of owner {owner}",
                    held.attachment
                ));
            }
            if given.failed == 0 && is_first {
                let last = epoch.first.entry(key.clone()).or_insert(offset);
                if *last > offset {
                    wrong.push(format!(
                        "K2 offset {offset} comes for the first time behind {last} of its key, of owner {owner}"
                    ));
                }
                *last = offset.max(*last);
            }
        }
        let held = Held {
            attachment,
            key: given.key.clone(),
            at: given.at,
        };
        if !gone {
            epoch.held.insert(offset, held);
        }
        wrong
    }

    fn count(&mut self, owner: OwnerEpoch, given: &Given) -> Option<String> {
        let counts = self.failed.entry(given.offset).or_default();
        let highest = counts.range(..=owner).max_by_key(|(_, failed)| **failed);
        let highest = highest.map(|(epoch, failed)| (*epoch, *failed));
        let shown = counts.entry(owner).or_default();
        *shown = given.failed.max(*shown);
        let (epoch, before) = highest?;
        (before > given.failed).then(|| {
            format!(
                "COUNT FELL of offset {}: owner {epoch} had shown {before} failed attempts, owner {owner} shows {}",
                given.offset, given.failed
            )
        })
    }

    /// The attachment answers a record, or is about to: it may be somebody else's from now on.
    pub fn let_go(&mut self, owner: OwnerEpoch, attachment: u64, offset: u64) {
        let epoch = self.epochs.entry(owner).or_default();
        let theirs = |held: &Held| held.attachment == attachment;
        if epoch.held.get(&offset).is_some_and(theirs) {
            epoch.held.remove(&offset);
        }
    }

    /// The attachment goes.
    pub fn leave(&mut self, owner: OwnerEpoch, attachment: u64) {
        self.gone.insert(attachment);
        let epoch = self.epochs.entry(owner).or_default();
        epoch.held.retain(|_, held| held.attachment != attachment);
    }

    /// An ack has its receipt.
    pub fn receive(&mut self, owner: OwnerEpoch, offset: u64, now: Instant) {
        self.receipts.entry(offset).or_insert((owner, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK_MS: i64 = 1_000;

    fn given(offset: u64, key: &'static str, failed: u16, at: Instant) -> Given {
        Given {
            offset,
            key: Some(Bytes::from_static(key.as_bytes())),
            failed,
            at,
        }
    }

    fn later(at: Instant, ms: u64) -> Instant {
        at + Duration::from_millis(ms)
    }

    #[track_caller]
    fn finds(found: &[String], word: &str) {
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(word), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn records_that_are_acked_held_or_out_of_order_are_found() {
        let (mut truth, now) = (SharingTruth::new(true, LOCK_MS), Instant::now());
        let owner = OwnerEpoch(2);
        assert!(truth.give(owner, 1, &given(5, "a", 0, now)).is_empty());
        finds(&truth.give(owner, 2, &given(5, "b", 1, now)), "TWICE");
        truth.leave(owner, 2);
        assert!(truth.give(owner, 1, &given(6, "a", 0, now)).is_empty());
        finds(&truth.give(owner, 4, &given(7, "a", 1, now)), "K1");
        truth.leave(owner, 1);
        truth.leave(owner, 4);
        // On its way when its consumer went.
        assert!(truth.give(owner, 2, &given(8, "a", 0, now)).is_empty());
        finds(&truth.give(owner, 3, &given(4, "a", 0, now)), "K2");
        truth.let_go(owner, 3, 4);
        truth.receive(owner, 4, now);
        let again = given(4, "a", 0, later(now, 1));
        finds(&truth.give(owner, 9, &again), "REDELIVERED");
        assert!(truth.give(OwnerEpoch(1), 9, &again).is_empty());
        finds(&truth.give(OwnerEpoch(3), 9, &again), "REDELIVERED");
    }

    #[tokio::test(start_paused = true)]
    async fn lock_that_may_have_ended_holds_nothing() {
        let (mut truth, now) = (SharingTruth::new(true, LOCK_MS), Instant::now());
        let owner = OwnerEpoch(1);
        assert!(truth.give(owner, 1, &given(1, "a", 0, now)).is_empty());
        let ended = later(now, 980);
        assert!(truth.give(owner, 2, &given(1, "a", 1, ended)).is_empty());
        // Who hears of a delivery late judges by when it left.
        let late = given(2, "a", 0, later(now, 500));
        finds(&truth.give(owner, 3, &late), "K1");
    }

    #[tokio::test(start_paused = true)]
    async fn count_that_falls_is_found_over_owners_and_not_of_one_that_is_none() {
        let (mut truth, now) = (SharingTruth::new(false, 0), Instant::now());
        let mut give = |owner, failed| {
            let found = truth.give(OwnerEpoch(owner), 1, &given(1, "a", failed, now));
            found.len()
        };
        assert_eq!(give(2, 1), 0);
        assert_eq!(give(1, 0), 0);
        assert_eq!(give(3, 0), 1);
        assert_eq!(give(4, 1), 0);
    }
}
