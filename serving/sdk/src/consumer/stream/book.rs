//! What is this member's, what goes, and how far the application is. No I/O, no clock.
//!
//! A partition is here from its assignment until it is given back. One that goes is named once (`Revoked`); the call for records after
//! that says that the application is through with it. With its commits answered it is gone: then the coordinator may hear so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hulse_proto::id::PartitionId;
use tokio::time::Instant;

use super::commits::{Commit, Commits, gone};
use super::item::{StreamNote, StreamPartition, StreamRecord, StreamStats};
use crate::consumer::SkipReason;
use crate::error::Error;

/// A partition as the coordinator assigns it.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) at: PartitionId,
    pub(super) topic: Arc<str>,
    /// What is committed.
    pub(super) begin: u64,
}

/// On its way to others.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    since: Instant,
    /// The application has heard of it.
    told: bool,
    /// And has called for records since.
    free: bool,
}

#[derive(Debug)]
struct Part {
    topic: Arc<str>,
    /// Which time it is ours.
    number: u64,
    /// The next offset to be handed out.
    position: u64,
    /// Everything below is here to be handed out.
    fed: u64,
    end: Option<u64>,
    commits: Commits,
    leaving: Option<Leaving>,
}

impl Part {
    fn named(&self, at: PartitionId) -> StreamPartition {
        StreamPartition {
            topic: self.topic.clone(),
            index: at.index,
        }
    }
}

/// What is to be read of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) topic: Arc<str>,
    pub(super) number: u64,
    pub(super) position: u64,
}

/// The book of one member.
#[derive(Debug, Default)]
pub(super) struct Book {
    parts: BTreeMap<PartitionId, Part>,
    /// Of the last assignment; 0: not joined.
    pub(super) epoch: i32,
    /// An assignment came since the member joined.
    pub(super) begun: bool,
    pub(super) notes: VecDeque<StreamNote>,
    /// Its application took a record since the last heartbeat.
    took: bool,
    next_number: u64,
    pub(super) stats: StreamStats,
}

impl Book {
    /// All that the member has from now on.
    pub(super) fn assigned(&mut self, epoch: i32, given: Vec<Given>, now: Instant) {
        self.epoch = epoch;
        self.begun = true;
        let given: BTreeMap<_, _> = given.into_iter().map(|given| (given.at, given)).collect();
        for (at, part) in &mut self.parts {
            match (given.contains_key(at), part.leaving) {
                (false, None) => {
                    part.leaving = Some(Leaving {
                        since: now,
                        told: false,
                        free: false,
                    });
                }
                // It stays after all: read on from where the application is.
                (true, Some(_)) => {
                    part.leaving = None;
                    part.number = self.next_number;
                    self.next_number += 1;
                    part.fed = part.position;
                }
                _ => {}
            }
        }
        let mut new = Vec::new();
        for (at, given) in given {
            if self.parts.contains_key(&at) {
                continue;
            }
            let part = Part {
                topic: given.topic,
                number: self.next_number,
                position: given.begin,
                fed: given.begin,
                end: None,
                commits: Commits::new(given.begin),
                leaving: None,
            };
            self.next_number += 1;
            new.push(part.named(at));
            self.parts.insert(at, part);
        }
        if !new.is_empty() {
            self.notes.push_back(StreamNote::Assigned(new));
        }
        self.note_revoked();
    }

    fn note_revoked(&mut self) {
        let mut going = Vec::new();
        for (at, part) in &mut self.parts {
            if let Some(leaving) = part.leaving.as_mut().filter(|leaving| !leaving.told) {
                leaving.told = true;
                going.push(part.named(*at));
            }
        }
        if !going.is_empty() {
            self.notes.push_back(StreamNote::Revoked(going));
        }
    }

    /// The member is out: nothing is its any more.
    pub(super) fn lost(&mut self, why: &Error) {
        self.epoch = 0;
        self.begun = false;
        let parts = std::mem::take(&mut self.parts);
        let partitions: Vec<_> = parts.iter().map(|(at, part)| part.named(*at)).collect();
        for part in parts.into_values() {
            part.commits.end();
        }
        // What was said of them is void.
        self.notes
            .retain(|note| !matches!(note, StreamNote::Assigned(_) | StreamNote::Revoked(_)));
        if !partitions.is_empty() {
            let why = why.clone();
            self.notes.push_back(StreamNote::Lost { partitions, why });
        }
    }

    /// The application calls for records: it is through with what it was told that goes. Notes that it has not seen yet are still before it.
    pub(super) fn called(&mut self) {
        let unseen = self
            .notes
            .iter()
            .any(|note| matches!(note, StreamNote::Revoked(_)));
        if unseen {
            return;
        }
        for part in self.parts.values_mut() {
            if let Some(leaving) = &mut part.leaving {
                leaving.free = leaving.told;
            }
        }
    }

    /// Gives back what may go, and what has had its time (`overdue` of when it began to leave). True: something is gone.
    pub(super) fn give_back(&mut self, overdue: impl Fn(Instant) -> bool) -> bool {
        let goes = |part: &Part| {
            part.leaving.is_some_and(|leaving| {
                overdue(leaving.since) || leaving.free && part.commits.is_settled()
            })
        };
        let going: Vec<PartitionId> = self
            .parts
            .iter()
            .filter(|(_, part)| goes(part))
            .map(|(at, _)| *at)
            .collect();
        for at in &going {
            if let Some(part) = self.parts.remove(at) {
                part.commits.end();
            }
        }
        !going.is_empty()
    }

    /// When the first that leaves began to.
    pub(super) fn leaving_since(&self) -> Option<Instant> {
        let leaving = self.parts.values().filter_map(|part| part.leaving);
        leaving.map(|leaving| leaving.since).min()
    }

    /// What the member has, also of what goes.
    pub(super) fn owned(&self) -> impl Iterator<Item = PartitionId> {
        self.parts.keys().copied()
    }

    /// What is to be read, and from where.
    pub(super) fn reading(&self) -> BTreeMap<PartitionId, Reading> {
        let stays = self.parts.iter().filter(|(_, part)| part.leaving.is_none());
        stays
            .map(|(at, part)| {
                let reading = Reading {
                    topic: part.topic.clone(),
                    number: part.number,
                    position: part.position,
                };
                (*at, reading)
            })
            .collect()
    }

    fn ours(&mut self, at: PartitionId, number: u64) -> Option<&mut Part> {
        let part = self.parts.get_mut(&at)?;
        (part.number == number && part.leaving.is_none()).then_some(part)
    }

    /// Records up to here are here to be handed out, of so many that there are.
    pub(super) fn fed(&mut self, at: PartitionId, number: u64, (to, end): (u64, u64)) {
        if let Some(part) = self.ours(at, number) {
            part.fed = part.fed.max(to);
            part.end = Some(part.end.unwrap_or(0).max(end));
        }
    }

    /// Whether a partition is to be handed out of.
    pub(super) fn hands_out(&mut self, at: PartitionId, number: u64) -> bool {
        self.ours(at, number).is_some()
    }

    /// A record is handed out; `false`: it was before, or is not this member's any more.
    pub(super) fn hand(&mut self, at: PartitionId, number: u64, offset: u64) -> bool {
        let Some(part) = self.ours(at, number) else {
            return false;
        };
        if offset < part.position {
            return false;
        }
        part.position = offset + 1;
        self.took = true;
        self.stats.records += 1;
        true
    }

    /// Everything below was handed out or skipped.
    pub(super) fn passed(&mut self, at: PartitionId, number: u64, to: u64) {
        if let Some(part) = self.ours(at, number) {
            part.position = part.position.max(to);
        }
    }

    /// Offsets are not handed out.
    pub(super) fn skipped(
        &mut self,
        at: PartitionId,
        number: u64,
        (first, end): (u64, u64),
        why: SkipReason,
    ) {
        let Some(part) = self.ours(at, number) else {
            return;
        };
        let first = first.max(part.position);
        if end <= first {
            return;
        }
        let partition = part.named(at);
        if matches!(why, SkipReason::Lost | SkipReason::Trimmed) {
            self.stats.offsets_gone += end - first;
        }
        self.notes.push_back(StreamNote::Skipped {
            partition,
            offsets: first..end,
            why,
        });
    }

    pub(super) fn unreadable(&mut self, at: PartitionId, number: u64, why: Error) {
        if let Some(part) = self.ours(at, number) {
            let partition = part.named(at);
            self.notes
                .push_back(StreamNote::Unreadable { partition, why });
        }
    }

    /// Everything of a record's partition up to it is processed.
    pub(super) fn commit(&mut self, record: &StreamRecord) -> Commit {
        match self.parts.get_mut(&record.at) {
            // Also of what goes: it was handed out here.
            Some(part) if part.number >= record.number && part.position > record.offset.0 => {
                part.commits.want(record.record.offset.0 + 1)
            }
            _ => Commit::refused(gone()),
        }
    }

    /// Everything of a partition below this is processed, or is to count so.
    pub(super) fn commit_to(&mut self, at: PartitionId, number: u64, end: u64) -> Commit {
        match self.ours(at, number) {
            Some(part) => part.commits.want(end),
            None => Commit::refused(gone()),
        }
    }

    /// Everything that was handed out is processed.
    pub(super) fn commit_all(&mut self) -> Vec<Commit> {
        let parts = self.parts.values_mut();
        let parts = parts.filter(|part| part.position > part.commits.durable);
        parts.map(|part| part.commits.want(part.position)).collect()
    }

    /// The topic of a partition.
    pub(super) fn topic_of(&self, at: PartitionId) -> Option<Arc<str>> {
        self.parts.get(&at).map(|part| part.topic.clone())
    }

    /// What is to be committed now.
    pub(super) fn take_commits(&mut self) -> Vec<(PartitionId, u64)> {
        let parts = self.parts.iter_mut();
        parts
            .filter_map(|(at, part)| Some((*at, part.commits.take()?)))
            .collect()
    }

    pub(super) fn committed(&mut self, at: PartitionId, result: Result<(), Error>) {
        if let Some(part) = self.parts.get_mut(&at) {
            part.commits.answered(result);
        }
    }

    /// The stream broke: what was under way is sent again.
    pub(super) fn unanswered(&mut self) {
        for part in self.parts.values_mut() {
            part.commits.unanswered();
        }
    }

    /// Every commit has its answer.
    pub(super) fn is_settled(&self) -> bool {
        self.parts.values().all(|part| part.commits.is_settled())
    }

    /// What the next heartbeat says of the application: it took a record; records wait.
    pub(super) fn progress(&mut self) -> (bool, bool) {
        let mut stays = self.parts.values().filter(|part| part.leaving.is_none());
        let waiting = stays.any(|part| part.fed > part.position);
        (std::mem::take(&mut self.took), waiting)
    }

    /// Everything that there was when the owners last spoke is handed out; with no partition, once the member has joined.
    pub(super) fn at_end(&self) -> bool {
        let at_end = |part: &Part| part.end.is_some_and(|end| part.position >= end);
        self.begun && self.parts.values().all(at_end)
    }

    /// What the member has, for people.
    pub(super) fn partitions(&self) -> Vec<StreamPartition> {
        let parts = self.parts.iter();
        parts.map(|(at, part)| part.named(*at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use hulse_proto::id::TopicId;
    use uuid::Uuid;

    use super::*;

    fn at(index: u32) -> PartitionId {
        PartitionId {
            topic: TopicId(Uuid::from_u128(1)),
            index,
        }
    }

    fn given(parts: &[(u32, u64)]) -> Vec<Given> {
        let parts = parts.iter();
        parts
            .map(|(index, begin)| Given {
                at: at(*index),
                topic: "public/default/t".into(),
                begin: *begin,
            })
            .collect()
    }

    fn book(parts: &[(u32, u64)]) -> (Book, Instant) {
        let mut book = Book::default();
        let now = Instant::now();
        book.assigned(1, given(parts), now);
        (book, now)
    }

    fn number(book: &Book, index: u32) -> u64 {
        book.reading()[&at(index)].number
    }

    const NEVER: fn(Instant) -> bool = |_| false;

    #[tokio::test]
    async fn partition_that_goes_is_kept_until_the_application_calls_again_and_its_commits_are_answered()
     {
        let (mut book, now) = book(&[(0, 5), (1, 0)]);
        let first = number(&book, 0);
        assert!(book.hand(at(0), first, 5));
        book.assigned(2, given(&[(1, 0)]), now);
        assert!(!book.hand(at(0), first, 6), "nothing more of it");
        assert_eq!(book.reading().len(), 1);
        book.called();
        assert!(!book.give_back(NEVER), "nobody has heard of it");
        while book.notes.pop_front().is_some() {}
        let commits = book.commit_all();
        assert_eq!(book.take_commits(), [(at(0), 6)]);
        book.called();
        assert!(!book.give_back(NEVER), "its commit is under way");
        book.committed(at(0), Ok(()));
        assert!(book.give_back(NEVER));
        assert_eq!(book.owned().collect::<Vec<_>>(), [at(1)]);
        for commit in commits {
            commit.now_or_never().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn partition_that_stays_after_all_goes_on_and_the_others_are_not_disturbed() {
        let (mut book, now) = book(&[(0, 5), (1, 0)]);
        let numbers = (number(&book, 0), number(&book, 1));
        assert!(book.hand(at(0), numbers.0, 5));
        book.assigned(2, given(&[(1, 0)]), now);
        book.assigned(3, given(&[(0, 5), (1, 0)]), now);
        assert_eq!(number(&book, 1), numbers.1, "it is read on");
        let again = number(&book, 0);
        assert!(again > numbers.0);
        assert_eq!(book.reading()[&at(0)].position, 6);
        assert!(
            !book.hand(at(0), numbers.0, 6),
            "what was fetched before is void"
        );
        assert!(book.hand(at(0), again, 6));
    }

    #[tokio::test]
    async fn application_that_never_calls_loses_the_partition_when_its_time_is_over() {
        let (mut book, now) = book(&[(0, 5)]);
        let first = number(&book, 0);
        book.hand(at(0), first, 5);
        book.assigned(2, given(&[]), now);
        assert_eq!(book.leaving_since(), Some(now));
        assert!(!book.give_back(|since| since < now));
        assert!(book.give_back(|since| since <= now));
        assert!(book.at_end() && book.owned().next().is_none());
    }

    #[tokio::test]
    async fn member_that_is_out_has_nothing_and_its_commits_are_refused() {
        let (mut book, now) = book(&[(0, 5)]);
        let first = number(&book, 0);
        book.hand(at(0), first, 5);
        let under_way = book.commit_to(at(0), first, 6);
        book.take_commits();
        book.lost(&gone());
        let error = under_way.now_or_never().unwrap().unwrap_err();
        assert!(error.possibly_written());
        assert!(matches!(book.notes.back(), Some(StreamNote::Lost { .. })));
        book.assigned(1, given(&[(0, 6)]), now);
        assert!(!book.hand(at(0), first, 6), "of the former time");
    }

    #[tokio::test]
    async fn heartbeat_says_whether_records_wait_and_whether_any_was_taken() {
        let (mut book, _) = book(&[(0, 0)]);
        let first = number(&book, 0);
        assert_eq!(book.progress(), (false, false));
        book.fed(at(0), first, (3, 3));
        assert_eq!(book.progress(), (false, true));
        for offset in 0..3 {
            assert!(!book.at_end());
            book.hand(at(0), first, offset);
        }
        assert!(book.at_end());
        assert_eq!(book.progress(), (true, false));
        book.skipped(at(0), first, (1, 5), SkipReason::Trimmed);
        assert_eq!(
            book.stats.offsets_gone, 2,
            "what was handed out is not gone"
        );
    }
}
