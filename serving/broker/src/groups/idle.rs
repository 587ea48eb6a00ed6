//! Members of groups that have no partition, counted for people: a topic has fewer partitions than a group has members.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::PartitionId;
use serving_groups::{Answer, Description, GroupState, GroupType, MemberDescription, Request};

use crate::listener::Front;

/// How often they are counted, on the shards that are coordinated here.
const EVERY: Duration = Duration::from_secs(5);

impl Front {
    /// Goes on for ever.
    pub(crate) async fn count_idle_members(self: Arc<Self>) {
        loop {
            tokio::time::sleep(EVERY).await;
            let mut idle = BTreeMap::new();
            for shard in self.groups.begun() {
                // A shard that moves is counted where it goes.
                if let Err(fault) = self.idle_of(shard, &mut idle).await {
                    tracing::debug!(%shard, %fault, "members of groups cannot be counted now");
                }
            }
            self.metrics.subscriptions().set_idle_members(&idle);
        }
    }

    async fn idle_of(
        &self,
        shard: PartitionId,
        idle: &mut BTreeMap<Arc<str>, u64>,
    ) -> Result<(), Fault> {
        let Answer::Listed(groups) = self.ask_shard(shard, Request::List).await? else {
            return Ok(());
        };
        let stable = groups.iter();
        let stable = stable.filter(|group| group.state == GroupState::Stable);
        for listing in stable {
            let group = listing.group.clone();
            let described = self.ask_shard(shard, Request::Describe { group });
            if let Answer::Described(Ok(found)) = described.await? {
                let count = without(&found);
                if count > 0 {
                    idle.insert(listing.group.clone(), count);
                }
            }
        }
        Ok(())
    }
}

/// Members without a partition, of a group in which everybody has what it should.
fn without(group: &Description) -> u64 {
    let has_none = |member: &&MemberDescription| match group.listing.kind {
        GroupType::Classic => has_no_topic(&member.assignment),
        GroupType::Consumer => member.assigned.is_empty(),
    };
    group.members.iter().filter(has_none).count() as u64
}

/// By the leader's words: version (2 bytes), number of topics (4 bytes), …. Nothing at all: no topic either.
fn has_no_topic(assignment: &[u8]) -> bool {
    let count = assignment.get(2..6).and_then(|bytes| bytes.try_into().ok());
    count.is_none_or(|bytes| i32::from_be_bytes(bytes) <= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignment_without_topics_is_told_from_others() {
        for (bytes, none) in [
            (&b""[..], true),
            (&[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], true),
            (&[0, 1, 0, 0, 0, 1, 0, 1, b't'], false),
        ] {
            assert_eq!(has_no_topic(bytes), none, "{bytes:?}");
        }
    }
}
