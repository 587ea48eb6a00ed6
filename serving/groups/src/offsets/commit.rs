//! OffsetCommit and OffsetFetch.

use std::sync::Arc;

use hulse_proto::mutant::Mutant;

use crate::answer::Answer;
use crate::coordinator::Coordinator;
use crate::error::GroupError;
use crate::limits::{
    OFFSET_METADATA_BYTES_MAX, OFFSETS_MAX, REQUEST_OFFSETS_BYTES_MAX, REQUEST_OFFSETS_MAX,
};
use crate::request::{Commit, FetchOffsets, NewOffset, Now, RequestId};
use crate::state::{Change, CommittedOffset, ConsumerMember};

/// What an offset takes as a record, beside its metadata and the name of the group.
const RECORD_BYTES: usize = 64;

type Results = Vec<(hulse_proto::id::PartitionId, Result<(), GroupError>)>;

impl Coordinator {
    pub(crate) fn commit(&mut self, now: Now, id: RequestId, commit: &Commit) {
        let answer = self.try_commit(now, commit);
        self.answer(&commit.group, id, Answer::Committed(answer));
    }

    fn try_commit(&mut self, now: Now, commit: &Commit) -> Result<Results, GroupError> {
        check_size(commit)?;
        let member = self.committer(now, commit)?;
        let member = member.and_then(|member| {
            self.consumer_group(&commit.group)?
                .members
                .get(&member)
                .cloned()
        });
        let mut results = Vec::with_capacity(commit.offsets.len());
        for new in &commit.offsets {
            let result = self.may_commit(commit, member.as_ref(), new);
            if result.is_ok() {
                let offset = CommittedOffset {
                    offset: new.offset,
                    leader_epoch: new.leader_epoch,
                    metadata: new.metadata.clone(),
                    at: now.wall_ms,
                };
                let partition = new.partition;
                self.apply(&commit.group, Change::Committed { partition, offset });
            }
            results.push((new.partition, result));
        }
        Ok(results)
    }

    /// Who commits: a member of the newer protocol, or `None`: a classic one, or nobody of a group that is empty.
    fn committer(&mut self, now: Now, commit: &Commit) -> Result<Option<Arc<str>>, GroupError> {
        // Some clients say an id of their own also where they are in no group; Kafka looks at the generation only.
        let outsider = commit.epoch < 0;
        if self.has_consumer_members(&commit.group) {
            return self.consumer_committer(now, commit).map(Some);
        }
        let known = self.state.group(&commit.group).is_some();
        let Some(live) = self.classic_live(&commit.group) else {
            return match (outsider, known) {
                (true, _) => Ok(None),
                (false, true) => Err(GroupError::UnknownMember),
                (false, false) if commit.member_epochs => Err(GroupError::GroupNotFound),
                (false, false) => Err(GroupError::IllegalGeneration),
            };
        };
        if outsider && live.is_empty() {
            return Ok(None);
        }
        match self.mutation.is(Mutant::OldGenerationCommits) {
            true => live.check_member(&commit.member, commit.instance.as_ref())?,
            false => {
                live.check_generation(&commit.member, commit.instance.as_ref(), commit.epoch)?
            }
        }
        // B6: between join and sync nobody knows what it has; while members only join, everybody still has what it had (GR-01).
        if live.is_completing() {
            return Err(GroupError::RebalanceInProgress);
        }
        self.classic_heard(now, &commit.group, &commit.member);
        Ok(None)
    }

    fn consumer_committer(&mut self, now: Now, commit: &Commit) -> Result<Arc<str>, GroupError> {
        let group = self.consumer_group(&commit.group);
        let group = group.ok_or(GroupError::GroupNotFound)?;
        let known = group.members.get(&commit.member);
        let known = known.ok_or(GroupError::UnknownMember)?;
        let epoch = known.current.epoch;
        let member = commit.member.clone();
        match &known.facts.classic {
            Some(_) if commit.epoch != epoch => Err(GroupError::IllegalGeneration),
            Some(_) => {
                self.restart_session(now, &commit.group, &member);
                Ok(member)
            }
            None if !commit.member_epochs => Err(GroupError::IllegalGeneration),
            // B7: newer is none of ours; an older one may still cover a partition.
            None if commit.epoch > epoch || commit.epoch < 0 => Err(GroupError::StaleMemberEpoch),
            None => Ok(member),
        }
    }

    fn may_commit(
        &self,
        commit: &Commit,
        member: Option<&ConsumerMember>,
        new: &NewOffset,
    ) -> Result<(), GroupError> {
        if new
            .metadata
            .as_ref()
            .is_some_and(|text| text.len() > OFFSET_METADATA_BYTES_MAX)
        {
            return Err(GroupError::OffsetMetadataTooLarge);
        }
        if let Some(member) = member.filter(|_| commit.held_only) {
            let current = &member.current;
            let partition = &new.partition;
            if !current.assigned.contains_key(partition) && !current.revoking.contains(partition) {
                return Err(GroupError::StaleMemberEpoch);
            }
        }
        if let Some(member) = member.filter(|member| commit.epoch < member.current.epoch) {
            // It had this partition already at the epoch that it says, and has it still.
            let since = member.current.assigned.get(&new.partition);
            let stale = since.is_none_or(|since| commit.epoch < *since);
            if stale && !self.mutation.is(Mutant::StaleEpochCommits) {
                return Err(GroupError::StaleMemberEpoch);
            }
        }
        let offsets = self.state.group(&commit.group).map(|group| &group.offsets);
        let full = offsets.is_some_and(|offsets| {
            offsets.len() >= OFFSETS_MAX && !offsets.contains_key(&new.partition)
        });
        match full {
            true => Err(GroupError::GroupTooLarge),
            false => Ok(()),
        }
    }

    pub(crate) fn fetch_offsets(&mut self, id: RequestId, fetch: &FetchOffsets) {
        let answer = self.try_fetch(fetch);
        self.answer(&fetch.group, id, Answer::Fetched(answer));
    }

    fn try_fetch(
        &self,
        fetch: &FetchOffsets,
    ) -> Result<Vec<(hulse_proto::id::PartitionId, Option<CommittedOffset>)>, GroupError> {
        if let Some((member, epoch)) = &fetch.member
            && self.has_consumer_members(&fetch.group)
        {
            let group = self.consumer_group(&fetch.group);
            let known = group.and_then(|group| group.members.get(member));
            let known = known.ok_or(GroupError::UnknownMember)?;
            if known.current.epoch != *epoch {
                return Err(GroupError::StaleMemberEpoch);
            }
        }
        let group = self.state.group(&fetch.group);
        Ok(match &fetch.partitions {
            Some(partitions) => {
                let of = |partition| group?.offsets.get(partition).cloned();
                partitions
                    .iter()
                    .map(|partition| (*partition, of(partition)))
                    .collect()
            }
            None => {
                let all = group.into_iter().flat_map(|group| &group.offsets);
                all.map(|(partition, offset)| (*partition, Some(offset.clone())))
                    .collect()
            }
        })
    }
}

fn check_size(commit: &Commit) -> Result<(), GroupError> {
    let metadata = commit.offsets.iter();
    let metadata = metadata.map(|new| new.metadata.as_ref().map_or(0, |text| text.len()));
    // What is too long by itself is refused by itself.
    let metadata = metadata.map(|bytes| bytes.min(OFFSET_METADATA_BYTES_MAX));
    let each = RECORD_BYTES + commit.group.len();
    let bytes = metadata.sum::<usize>() + each * commit.offsets.len();
    match commit.offsets.len() > REQUEST_OFFSETS_MAX || bytes > REQUEST_OFFSETS_BYTES_MAX {
        true => Err(GroupError::InvalidRequest("too many offsets at once")),
        false => Ok(()),
    }
}
