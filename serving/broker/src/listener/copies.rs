//! How many copies a topic's records have: as the gRPC wire has it, whether there are so many bookies, and what is there of them.

use std::collections::BTreeSet;

use bookie_client::{RegistrationState, list_registrations};
use futures::stream::{self, StreamExt as _};
use hulse_proto::error::Fault;
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, Quorums};
use hulse_proto::wire::v1;

use super::front::Front;
use super::wire::invalid;
use crate::storage_fault;
use crate::topics::{BookieCount, Copies, Topic, read};

/// Ledgers of a topic that are looked at when it is described.
const LOOKED_AT_MAX: usize = 5_000;
/// Partitions whose chains are read at once.
const AT_ONCE: usize = 16;

/// What is said of copies; `None`: nothing.
pub(super) fn asked(wire: Option<&v1::Replication>) -> Option<Copies> {
    let wire = wire?;
    let copies = Copies {
        ensemble: wire.ensemble,
        write: wire.write_quorum,
        ack: wire.ack_quorum,
    };
    (!copies.is_unsaid()).then_some(copies)
}

/// As the wire has it.
pub(super) fn to_wire(quorums: Quorums) -> v1::Replication {
    v1::Replication {
        ensemble: quorums.ensemble,
        write_quorum: quorums.write,
        ack_quorum: quorums.ack,
    }
}

/// What an update makes of a topic's copies.
pub(super) struct Change {
    asked: Option<Copies>,
    inherit: bool,
    cell: Quorums,
    bookies: BookieCount,
}

impl Change {
    /// What holds after it; `None`: what the cell says.
    ///
    /// # Errors
    /// `INVALID_REPLICATION`: it contradicts itself, or there are fewer bookies than it asks for anew.
    pub(super) fn of(&self, now: Option<Quorums>) -> Result<Option<Quorums>, Fault> {
        let Some(asked) = self.asked else {
            return Ok(now.filter(|_| !self.inherit));
        };
        let before = now.unwrap_or(self.cell);
        let after = asked.apply(before)?;
        // Fewer than before are a help, whoever is there.
        if after.ensemble > before.ensemble || now.is_none() {
            self.bookies.check(after)?;
        }
        Ok(Some(after))
    }
}

impl Front {
    /// E, Qw and Qa of topics that say nothing.
    pub fn cell_quorums(&self) -> Quorums {
        self.partitions.with.client.quorums()
    }

    /// A topic was changed by this broker: its partitions that are open here go by it at once. Other brokers hear of it by their watch.
    pub fn topic_changed(&self, topic: &Topic) {
        self.partitions.topic_changed(topic);
    }

    /// Bookies that may hold new ledgers.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`.
    pub async fn bookie_count(&self) -> Result<BookieCount, Fault> {
        let candidates = read(self.partitions.with.client.candidates()).await?;
        let count = |all: usize| u32::try_from(all).unwrap_or(u32::MAX);
        let live = candidates.iter().filter(|candidate| candidate.live);
        Ok(BookieCount {
            registered: count(candidates.len()),
            live: count(live.count()),
        })
    }

    /// E, Qw and Qa of a new topic that asks for this.
    ///
    /// # Errors
    /// `INVALID_REPLICATION`: it contradicts itself, or there are fewer bookies; `METADATA_UNAVAILABLE`.
    pub async fn new_quorums(&self, asked: Option<Copies>) -> Result<Option<Quorums>, Fault> {
        let Some(asked) = asked else {
            return Ok(None);
        };
        let quorums = asked.apply(self.cell_quorums())?;
        self.bookie_count().await?.check(quorums)?;
        Ok(Some(quorums))
    }

    /// What an update asks for.
    ///
    /// # Errors
    /// `INVALID_REQUEST`: two things at once; `METADATA_UNAVAILABLE`.
    pub(super) async fn change_of_copies(
        &self,
        request: &v1::UpdateTopicRequest,
    ) -> Result<Change, Fault> {
        let asked = asked(request.replication.as_ref());
        if asked.is_some() && request.inherit_replication {
            let words = "copies are either those of the cell or those that are named";
            return Err(invalid(words));
        }
        let bookies = match asked {
            Some(_) => self.bookie_count().await?,
            None => BookieCount::default(),
        };
        Ok(Change {
            asked,
            inherit: request.inherit_replication,
            cell: self.cell_quorums(),
            bookies,
        })
    }

    /// How the copies of a topic's ledgers are, by what metadata say; of very many ledgers of some.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`.
    pub(super) async fn copies_of(&self, topic: &Topic) -> Result<v1::TopicCopies, Fault> {
        let registered = list_registrations(&*self.metadata).await;
        let registered = registered.map_err(|error| storage_fault::metadata(&error))?;
        let there: BTreeSet<(String, String)> = registered
            .into_iter()
            .filter(|found| found.state != RegistrationState::Lost)
            .map(|found| key(&found.member))
            .collect();
        let wanted = topic.quorums.unwrap_or_else(|| self.cell_quorums());
        let mut copies = v1::TopicCopies {
            all: true,
            ..Default::default()
        };
        let mut looks = stream::iter(topic.partition_ids())
            .map(|partition| self.partitions.ledgers(partition))
            .buffered(AT_ONCE);
        while let Some(views) = looks.next().await {
            for metadata in views?.iter().filter_map(|view| view.metadata.as_ref()) {
                copies.ledgers += 1;
                copies.made_with_fewer += u64::from(metadata.quorums.write < wanted.write);
                copies.lacking += u64::from(lacks(metadata, |member| there.contains(&key(member))));
            }
            if copies.ledgers as usize >= LOOKED_AT_MAX {
                copies.all = false;
                break;
            }
        }
        Ok(copies)
    }
}

fn key(member: &Member) -> (String, String) {
    (member.bookie.to_string(), member.incarnation.to_string())
}

/// A closed ledger of which a copy is not there, as far as metadata know.
fn lacks(metadata: &LedgerMetadata, there: impl Fn(&Member) -> bool) -> bool {
    let mut members = metadata
        .fragments
        .iter()
        .flat_map(|fragment| &fragment.ensemble);
    metadata.state == LedgerState::Closed && (!metadata.degraded.is_empty() || !members.all(there))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Quorums = Quorums {
        ensemble: 3,
        write: 3,
        ack: 2,
    };

    fn change(asked: Option<Copies>, inherit: bool, registered: u32) -> Change {
        Change {
            asked,
            inherit,
            cell: CELL,
            bookies: BookieCount {
                registered,
                live: registered,
            },
        }
    }

    #[test]
    fn change_of_nothing_leaves_what_is_said_and_inheriting_takes_it_back() {
        let own = Some(Quorums { ack: 3, ..CELL });
        assert_eq!(change(None, false, 0).of(own), Ok(own));
        assert_eq!(change(None, false, 0).of(None), Ok(None));
        assert_eq!(change(None, true, 0).of(own), Ok(None));
    }

    #[test]
    fn more_than_before_need_bookies_and_fewer_do_not() {
        let five = Some(Copies::factor(5));
        assert!(change(five, false, 4).of(None).is_err());
        assert!(change(five, false, 5).of(None).is_ok());
        let own = change(five, false, 5).of(None).unwrap();
        let four = Some(Copies::factor(4));
        assert!(change(four, false, 3).of(own).is_ok());
    }
}
