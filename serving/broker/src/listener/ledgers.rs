//! Ledgers as an operator sees them.

use hulse_proto::error::Fault;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{Degraded, LedgerKind, LedgerMetadata, LedgerState, LossKind};
use hulse_proto::wire::v1;

use super::front::Front;
use crate::topics::Topic;

/// Topics whose ledgers one request lists when it names none.
const TOPICS_MAX: u32 = 1000;
/// Ledgers that one answer holds: what fits into a message with room to spare.
const LEDGERS_MAX: usize = 20_000;

impl Front {
    /// The ledgers of one topic, of its partitions in order.
    pub(super) async fn ledgers_of(
        &self,
        topic: &Topic,
        into: &mut Vec<v1::LedgerDescription>,
    ) -> Result<(), Fault> {
        for partition in topic.partition_ids() {
            for view in self.partitions.ledgers(partition).await? {
                if into.len() == LEDGERS_MAX {
                    let words = format!("there are more than {LEDGERS_MAX} ledgers; name a topic");
                    return Err(super::wire::invalid(words));
                }
                into.push(match &view.metadata {
                    Some(metadata) => describe(view.ledger, topic.name.as_str(), metadata),
                    None => v1::LedgerDescription {
                        ledger: view.ledger.0,
                        topic: topic.name.as_str().to_owned(),
                        partition: partition.index,
                        kind: kind(view.kind).to_owned(),
                        state: "deleted".to_owned(),
                        ..Default::default()
                    },
                });
            }
        }
        Ok(())
    }

    /// The ledgers of every topic.
    pub(super) async fn all_ledgers(&self) -> Result<Vec<v1::LedgerDescription>, Fault> {
        let mut ledgers = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.topics.list("", &token, TOPICS_MAX).await?;
            for topic in &page.topics {
                self.ledgers_of(topic, &mut ledgers).await?;
            }
            match page.next {
                Some(next) => token = next,
                None => return Ok(ledgers),
            }
        }
    }
}

/// One ledger in words.
pub(super) fn describe(
    ledger: LedgerId,
    topic: &str,
    metadata: &LedgerMetadata,
) -> v1::LedgerDescription {
    let state = match metadata.state {
        LedgerState::Open => "open",
        LedgerState::InRecovery => "in_recovery",
        LedgerState::Closed => "closed",
        LedgerState::Deleting => "deleting",
    };
    let loss = match metadata.loss.as_ref().map(|loss| loss.kind) {
        None => "",
        Some(LossKind::TailLost) => "tail_lost",
        Some(LossKind::Accepted) => "accepted",
    };
    let closed = metadata.closed.as_ref();
    let members = &metadata.last_fragment().ensemble;
    v1::LedgerDescription {
        ledger: ledger.0,
        topic: topic.to_owned(),
        partition: metadata.partition.index,
        kind: kind(metadata.kind).to_owned(),
        state: state.to_owned(),
        base_offset: metadata.base_offset.0,
        end_entry: closed.map(|closed| closed.end.0),
        record_count: closed.map(|closed| closed.record_count),
        bytes: closed.map(|closed| closed.bytes),
        bookies: members
            .iter()
            .map(|member| member.bookie.as_str().to_owned())
            .collect(),
        loss: loss.to_owned(),
        lacking: metadata.degraded.iter().map(lacking).collect(),
        loss_from_entry: metadata.loss.map(|loss| loss.from.0),
    }
}

fn lacking(degraded: &Degraded) -> v1::LackingCopies {
    let bookies = degraded.bookies.iter();
    v1::LackingCopies {
        first_entry: degraded.first.0,
        end_entry: degraded.end.0,
        bookies: bookies.map(ToString::to_string).collect(),
    }
}

pub(super) fn kind(kind: LedgerKind) -> &'static str {
    match kind {
        LedgerKind::Log => "log",
        LedgerKind::State => "state",
    }
}
