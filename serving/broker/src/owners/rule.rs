//! The rule (ARCHITECTURE D9): the holder of the partition's key while its lease lives; else the pin; else the rendezvous winner among
//! the brokers that live. No I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use bookie_metadata::Revision;
use bytes::Bytes;
use hulse_proto::id::{NodeName, OwnerEpoch, PartitionId};

/// Where a broker serves Kafka's clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaPlace {
    /// Name of the listener.
    pub listener: String,
    /// What is dialled.
    pub host: String,
    /// On which port.
    pub port: u16,
}

/// A broker whose lease stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveBroker {
    /// This start of it.
    pub(crate) boot: Bytes,
    /// "host:port" for clients.
    pub(crate) endpoint: Arc<str>,
    /// It gives its partitions away, and gets none.
    pub(crate) draining: bool,
    /// By the name of its listener.
    pub(crate) kafka: Vec<KafkaPlace>,
    /// The revision that registered it.
    pub(crate) revision: Revision,
}

/// The brokers that live, by name.
pub(crate) type LiveBrokers = BTreeMap<NodeName, LiveBroker>;

/// What a partition's key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Who won its epoch last.
    pub(crate) broker: NodeName,
    /// In which of its lives.
    pub(crate) boot: Bytes,
    /// Which epoch.
    pub(crate) epoch: OwnerEpoch,
    /// The revision that says so.
    pub(crate) revision: Revision,
}

/// Whose a partition is, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict<'a> {
    pub(crate) broker: &'a NodeName,
    /// It has won the epoch that the key names; else it is the one that may win the next.
    pub(crate) holds: bool,
}

/// The owner; `None` while no broker lives.
pub(crate) fn owner<'a>(
    partition: PartitionId,
    holder: Option<&Holder>,
    pin: Option<&NodeName>,
    live: &'a LiveBrokers,
) -> Option<Verdict<'a>> {
    let holding = holder.and_then(|holder| {
        let (broker, found) = live.get_key_value(&holder.broker)?;
        // Another life of the same name holds nothing.
        (found.boot == holder.boot).then_some(broker)
    });
    if let Some(broker) = holding {
        return Some(Verdict {
            broker,
            holds: true,
        });
    }
    let staying = |broker: &&NodeName| live.get(*broker).is_some_and(|found| !found.draining);
    let pinned = pin
        .and_then(|pin| live.get_key_value(pin))
        .map(|(name, _)| name);
    let broker = pinned
        .filter(staying)
        .or_else(|| winner(partition, live.keys().filter(staying)))
        // When all of them leave, the last ones serve on.
        .or_else(|| winner(partition, live.keys()))?;
    Some(Verdict {
        broker,
        holds: false,
    })
}

/// The broker with the highest weight for this partition: when one comes or goes, only its own partitions have another winner.
pub(crate) fn winner<'a>(
    partition: PartitionId,
    among: impl Iterator<Item = &'a NodeName>,
) -> Option<&'a NodeName> {
    among.max_by_key(|broker| (weight(partition, broker), broker.as_str()))
}

/// FNV-1a over what is weighed, mixed so that neighbouring partitions do not go together. The same in every version: brokers of two
/// versions agree.
fn weight(partition: PartitionId, broker: &NodeName) -> u64 {
    let index = partition.index.to_be_bytes();
    let topic = partition.topic.0.as_bytes();
    let bytes = topic.iter().chain(&index).chain(broker.as_str().as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hulse_proto::id::TopicId;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn name(number: u8) -> NodeName {
        NodeName::new(&format!("broker-{number}")).unwrap()
    }

    fn boot(number: u8) -> Bytes {
        Bytes::copy_from_slice(&[number])
    }

    fn live(brokers: impl IntoIterator<Item = (u8, u8, bool)>) -> LiveBrokers {
        let brokers = brokers.into_iter().map(|(number, life, draining)| {
            let broker = LiveBroker {
                boot: boot(life),
                endpoint: format!("h{number}:7400").into(),
                draining,
                kafka: Vec::new(),
                revision: Revision(1),
            };
            (name(number), broker)
        });
        brokers.collect()
    }

    fn partition(index: u32) -> PartitionId {
        PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index,
        }
    }

    fn holder(number: u8, life: u8) -> Holder {
        Holder {
            broker: name(number),
            boot: boot(life),
            epoch: OwnerEpoch(3),
            revision: Revision(9),
        }
    }

    #[test]
    fn winners_are_spread_evenly_and_stay_when_another_broker_goes() {
        let all = live((0..5).map(|number| (number, 0, false)));
        let mut without = all.clone();
        without.remove(&name(3));
        let mut count = BTreeMap::new();
        for index in 0..10_000 {
            let before = winner(partition(index), all.keys()).unwrap();
            let after = winner(partition(index), without.keys()).unwrap();
            assert!(before == after || *before == name(3));
            *count.entry(before.clone()).or_insert(0_u32) += 1;
        }
        assert!(
            count.values().all(|of| (1_800..2_200).contains(of)),
            "{count:?}"
        );
    }

    #[test]
    fn weights_are_those_of_every_version() {
        let of = |index, number| weight(partition(index), &name(number));
        let two = live([(1, 0, false), (2, 0, false)]);
        let winners: Vec<_> = (0..8)
            .map(|index| winner(partition(index), two.keys()).unwrap().as_str())
            .map(|name| name.trim_start_matches("broker-").to_owned())
            .collect();
        // Brokers of two versions would each call the other the owner if this ever changed.
        assert_eq!(of(0, 1), 15_900_720_464_137_667_398);
        assert_eq!(winners.concat(), "12221221");
    }

    proptest! {
        /// Whatever is known, the owner is one broker that lives: the holder first, then a pin that stays, then one that stays.
        #[test]
        fn owner_is_the_holder_then_the_pin_then_a_winner(
            brokers in proptest::collection::btree_map(0_u8..6, (0_u8..3, any::<bool>()), 0..6),
            held in proptest::option::of((0_u8..6, 0_u8..3)),
            pin in proptest::option::of(0_u8..6),
            index in 0_u32..1000,
        ) {
            let all = live(brokers.iter().map(|(number, (life, draining))| (*number, *life, *draining)));
            let holder = held.map(|(number, life)| holder(number, life));
            let pinned = pin.map(name);
            let found = owner(partition(index), holder.as_ref(), pinned.as_ref(), &all);
            prop_assert_eq!(found.is_none(), all.is_empty());
            let Some(found) = found else { return Ok(()) };
            let lives = |number: u8, life: u8| brokers.get(&number).is_some_and(|found| found.0 == life);
            let stays: BTreeSet<u8> = brokers.iter().filter(|(_, found)| !found.1).map(|(number, _)| *number).collect();
            match (held, pin) {
                (Some((number, life)), _) if lives(number, life) => {
                    prop_assert_eq!(found, Verdict { broker: &name(number), holds: true });
                }
                (_, Some(pin)) if stays.contains(&pin) => {
                    prop_assert_eq!(found, Verdict { broker: &name(pin), holds: false });
                }
                _ => {
                    prop_assert!(!found.holds);
                    let winner_stays = stays.iter().any(|number| name(*number) == *found.broker);
                    prop_assert_eq!(winner_stays, !stays.is_empty());
                }
            }
        }
    }
}
