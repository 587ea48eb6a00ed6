//! Where a group begins (serving.md B2.12): offsets that are there before the first record is read, so that "latest" is one moment for
//! all members, and a partition that came later begins at its start (case GR-02).

use hulse_proto::id::PartitionId;

use crate::answer::Answer;
use crate::coordinator::Coordinator;
use crate::error::GroupError;
use crate::limits::{OFFSETS_MAX, REQUEST_OFFSETS_MAX};
use crate::request::{Begin, Now, RequestId};
use crate::state::{Change, CommittedOffset};

/// "The epoch of the last record is not known", of an offset that no record stands behind.
const NO_EPOCH: i32 = -1;

type Found = Vec<(PartitionId, Option<CommittedOffset>)>;

impl Coordinator {
    pub(crate) fn begin_topic(&mut self, now: Now, id: RequestId, begin: &Begin) {
        let answer = self.try_begin(now, begin);
        self.answer(&begin.group, id, Answer::Fetched(answer));
    }

    fn try_begin(&mut self, now: Now, begin: &Begin) -> Result<Found, GroupError> {
        let stray = |(partition, _): &(PartitionId, _)| partition.topic != begin.topic;
        if begin.offsets.len() > REQUEST_OFFSETS_MAX || begin.offsets.iter().any(stray) {
            return Err(GroupError::InvalidRequest(
                "a group begins on the partitions of one topic",
            ));
        }
        let known = self.consumer_group(&begin.group);
        if known.is_none_or(|group| !group.members.contains_key(&begin.member)) {
            return Err(GroupError::UnknownMember);
        }
        let offsets = self.state.group(&begin.group).map(|group| &group.offsets);
        let has = |partition| offsets.is_some_and(|offsets| offsets.contains_key(partition));
        let begun = offsets.is_some_and(|offsets| {
            let mut offsets = offsets.keys();
            offsets.any(|partition| partition.topic == begin.topic)
        });
        let missing = begin.offsets.iter().filter(|(at, _)| !has(at));
        let new: Vec<_> = match begun && !begin.later {
            true => Vec::new(),
            false => missing.copied().collect(),
        };
        if offsets.map_or(0, |offsets| offsets.len()) + new.len() > OFFSETS_MAX {
            return Err(GroupError::GroupTooLarge);
        }
        for (partition, offset) in new {
            let offset = CommittedOffset {
                offset,
                leader_epoch: NO_EPOCH,
                metadata: None,
                at: now.wall_ms,
            };
            self.apply(&begin.group, Change::Committed { partition, offset });
        }
        let group = self.state.group(&begin.group);
        let found = begin.offsets.iter().map(|(partition, _)| {
            let offset = group.and_then(|group| group.offsets.get(partition));
            (*partition, offset.cloned())
        });
        Ok(found.collect())
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::Offset;

    use super::*;
    use crate::request::Request;
    use crate::testing::{World, at, commit_of, joins, topic};

    fn begin(world: &mut World, offsets: &[(u32, u64)], later: bool) -> Vec<Option<u64>> {
        let offsets = offsets.iter();
        let request = Begin {
            group: "g".into(),
            member: "m".into(),
            topic: topic(1),
            offsets: offsets
                .map(|(index, offset)| (at(1, *index), Offset(*offset)))
                .collect(),
            later,
        };
        let Answer::Fetched(Ok(found)) = world.ask(Request::Begin(request)) else {
            panic!("refused");
        };
        let found = found.into_iter();
        found
            .map(|(_, offset)| offset.map(|offset| offset.offset.0))
            .collect()
    }

    #[test]
    fn group_begins_once_on_a_topic_and_partitions_that_come_later_begin_by_themselves() {
        let mut world = World::new(&[4]);
        world.ask(Request::Member(Box::new(joins("g", "m"))));
        assert_eq!(
            begin(&mut world, &[(0, 7), (1, 9)], false),
            [Some(7), Some(9)]
        );
        world.moves_now();
        // Another member, a moment later: what "latest" was stands, and a partition beyond it has no offset yet.
        let again = begin(&mut world, &[(0, 8), (1, 10), (2, 3)], false);
        assert_eq!(again, [Some(7), Some(9), None]);
        let later = begin(&mut world, &[(1, 0), (2, 0)], true);
        assert_eq!(later, [Some(9), Some(0)]);
    }

    #[test]
    fn what_is_committed_is_not_begun_anew_and_who_is_no_member_begins_nothing() {
        let mut world = World::new(&[4]);
        world.commit(commit_of("g", "", -1, at(1, 3), 5)).unwrap();
        let stranger = Begin {
            group: "g".into(),
            member: "m".into(),
            topic: topic(1),
            offsets: vec![(at(1, 0), Offset(1))],
            later: true,
        };
        let refused = world.ask(Request::Begin(stranger.clone()));
        assert_eq!(refused, Answer::Fetched(Err(GroupError::UnknownMember)));
        world.ask(Request::Member(Box::new(joins("g", "m"))));
        assert_eq!(begin(&mut world, &[(0, 7), (3, 7)], false), [None, Some(5)]);
        let elsewhere = Begin {
            topic: topic(2),
            ..stranger
        };
        let refused = world.ask(Request::Begin(elsewhere));
        assert!(matches!(
            refused,
            Answer::Fetched(Err(GroupError::InvalidRequest(_)))
        ));
    }
}
