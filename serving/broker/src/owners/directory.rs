//! What the rest of a broker asks: is this partition ours, and whose is it else.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bookie_metadata::{Compare, MetadataStore, Revision};
use bytes::Bytes;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, OwnerEpoch, PartitionId};
use hulse_proto::wire::metadata::Partition;
use hulse_proto::wire::v1;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::redirect::moved_to;
use super::rule::{Holder, KafkaPlace, LiveBroker, LiveBrokers};
use super::view::{View, holder, node_key};
use crate::partition::moved;

/// A client that came before the other brokers are known comes again after this.
const KNOWN_SOON: Duration = Duration::from_millis(100);

/// Whether a broker lives is looked at so often while something is asked of it that it may never answer.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A broker that lives, for people and for other wires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerView {
    /// Its name.
    pub name: NodeName,
    /// "host:port" for clients.
    pub endpoint: Arc<str>,
    /// This start of it.
    pub boot: Bytes,
    /// It gives its partitions away, and gets none.
    pub draining: bool,
    /// Where it serves Kafka's clients.
    pub kafka: Vec<KafkaPlace>,
    /// Partitions that it holds; `None` where they are not counted: a broker that is alone has no view of them.
    pub partitions: Option<usize>,
}

/// Whose a partition is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// This broker's.
    Here,
    /// Another's. It has won the epoch, or, where `holds` is false, may win the next one.
    There {
        broker: NodeName,
        endpoint: Arc<str>,
        epoch: OwnerEpoch,
        holds: bool,
        revision: Revision,
    },
}

/// How far the view is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nobody follows metadata: there is no other broker (tests, and a broker that is not served).
    Off,
    /// The brokers are not known yet.
    Looking,
    /// This broker lives alone.
    Alone,
    /// There are others, or were since the start.
    Among,
}

pub(super) struct Inner {
    me: NodeName,
    boot: Bytes,
    pub(super) store: Arc<dyn MetadataStore>,
    view: Mutex<View>,
    pub(super) stage: watch::Sender<Stage>,
}

/// The directory of owners. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Owners(pub(super) Arc<Inner>);

impl Owners {
    /// Of this broker in this life; every partition is its own until it is followed.
    pub(crate) fn new(me: NodeName, boot: Bytes, store: Arc<dyn MetadataStore>) -> Self {
        Self(Arc::new(Inner {
            me,
            boot,
            store,
            view: Mutex::default(),
            stage: watch::Sender::new(Stage::Off),
        }))
    }

    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        self.0
            .view
            .lock()
            .expect("no code panics while it holds this lock")
    }

    fn is_me(&self, name: &NodeName, broker: &LiveBroker) -> bool {
        *name == self.0.me && broker.boot == self.0.boot
    }

    /// No other broker lives, nor did since the start: nothing is asked.
    pub(crate) fn alone(&self) -> bool {
        matches!(*self.0.stage.borrow(), Stage::Off | Stage::Alone)
    }

    /// Recomputes the stage after the brokers have changed.
    pub(super) fn restage(&self) {
        let stage = {
            let view = self.view();
            let live = view.live();
            let others = live.iter().any(|(name, broker)| !self.is_me(name, broker));
            match others {
                _ if !view.knows_brokers() => Stage::Looking,
                true => Stage::Among,
                false => Stage::Alone,
            }
        };
        self.0.stage.send_if_modified(|now| {
            // Holders are followed from the first other broker on.
            let next = if *now == Stage::Among {
                Stage::Among
            } else {
                stage
            };
            std::mem::replace(now, next) != next
        });
    }

    /// Waits until the brokers are known, at most so long.
    pub(crate) async fn brokers_within(&self, patience: Duration) {
        let mut stage = self.0.stage.subscribe();
        let known = stage.wait_for(|stage| *stage != Stage::Looking);
        drop(timeout(patience, known).await);
    }

    /// What is said of a partition that another broker owns, without reading.
    pub(crate) fn redirect(&self, partition: PartitionId) -> Option<Fault> {
        if self.alone() || !self.knows_holders() {
            return None;
        }
        let owner = self.to_wire(partition, &self.place(partition))?;
        Some(moved_to(&owner))
    }

    /// Waits until brokers and holders are known, at most so long.
    pub(crate) async fn known_within(&self, patience: Duration) {
        let mut stage = self.0.stage.subscribe();
        let known = stage.wait_for(|stage| match stage {
            Stage::Looking => false,
            Stage::Off | Stage::Alone => true,
            Stage::Among => self.knows_holders(),
        });
        // Later is as good: until then nothing is opened.
        drop(timeout(patience, known).await);
    }

    /// Whether this broker may win the next epoch of a partition whose key is this.
    ///
    /// # Errors
    /// `PARTITION_MOVED` with the way; `METADATA_UNAVAILABLE` while the brokers are not known.
    pub(crate) fn judge(
        &self,
        partition: PartitionId,
        key: Option<(&Partition, Revision)>,
    ) -> Result<(), Fault> {
        if *self.0.stage.borrow() == Stage::Looking {
            let why = "the other brokers are not known yet; retry";
            return Err(Fault::new(Reason::MetadataUnavailable, why).retry_after(KNOWN_SOON));
        }
        if self.alone() {
            return Ok(());
        }
        let found = key.and_then(|(record, revision)| holder(record, revision));
        match self.place_of(partition, found.as_ref()) {
            Place::Here => Ok(()),
            place => Err(moved_to(
                &self.to_wire(partition, &place).unwrap_or_default(),
            )),
        }
    }

    /// Whose a partition is, when this is what its key says.
    pub(crate) fn place_of(&self, partition: PartitionId, found: Option<&Holder>) -> Place {
        let view = self.view();
        let Some((verdict, broker)) = view.owner(partition, found) else {
            return Place::Here;
        };
        if self.is_me(verdict.broker, broker) {
            return Place::Here;
        }
        Place::There {
            broker: verdict.broker.clone(),
            endpoint: Arc::clone(&broker.endpoint),
            epoch: found.map_or(OwnerEpoch(0), |found| found.epoch),
            holds: verdict.holds,
            revision: view.revision(),
        }
    }

    /// What is said of a partition that was open here when its key says this.
    pub(crate) fn taken_by(&self, partition: PartitionId, holder: &Holder) -> Fault {
        let place = self.place_of(partition, Some(holder));
        match self.to_wire(partition, &place) {
            Some(owner) if matches!(place, Place::There { holds: true, .. }) => moved_to(&owner),
            _ => moved(),
        }
    }

    /// What must hold while this broker wins a partition that another life had: that life is not registered. So the owner of before
    /// knows by its lease alone whether it still is one. `None`: nobody had it, or this broker itself, whose name no other life has.
    pub(crate) fn of_the_dead(&self, record: &Partition) -> Option<Compare> {
        let before = NodeName::new(&record.owner).ok()?;
        if before == self.0.me || *self.0.stage.borrow() == Stage::Off {
            return None;
        }
        let key = node_key(&before);
        Some(match self.view().live().get(&before) {
            Some(other_life) => Compare::Version(key, other_life.revision),
            None => Compare::Absent(key),
        })
    }

    /// Whose a partition is, as far as is known without reading.
    pub(crate) fn place(&self, partition: PartitionId) -> Place {
        if self.alone() {
            return Place::Here;
        }
        let found = self.view().holder(partition);
        self.place_of(partition, found.as_ref())
    }

    /// Who gets a partition when this broker leaves; `None` when there is no other.
    pub(crate) fn heir(&self, partition: PartitionId) -> Option<NodeName> {
        let view = self.view();
        let staying = view
            .live()
            .iter()
            .filter(|(name, live)| !live.draining && !self.is_me(name, live));
        let staying: LiveBrokers = staying
            .map(|(name, live)| (name.clone(), live.clone()))
            .collect();
        let heir = view.heir(partition, &staying)?;
        Some(heir.clone())
    }

    /// Whether holders are known without reading.
    pub(crate) fn knows_holders(&self) -> bool {
        self.view().knows_holders()
    }

    /// The last holder that was heard of.
    pub(crate) fn holder(&self, partition: PartitionId) -> Option<Holder> {
        self.view().holder(partition)
    }

    /// Another broker's place as clients hear of it; `None`: it is here.
    pub(crate) fn to_wire(
        &self,
        partition: PartitionId,
        place: &Place,
    ) -> Option<v1::PartitionOwner> {
        let Place::There {
            broker,
            endpoint,
            epoch,
            holds,
            revision,
        } = place
        else {
            return None;
        };
        Some(v1::PartitionOwner {
            index: partition.index,
            endpoint: endpoint.to_string(),
            leader_epoch: if *holds { epoch.0 } else { 0 },
            broker: broker.as_str().to_owned(),
            revision: revision.0,
        })
    }

    /// Answers when this life of a broker is over, as far as is heard. Cancel-safe.
    pub(crate) async fn is_over(&self, broker: &BrokerView) {
        let lives = || {
            let view = self.view();
            let found = view.live().get(&broker.name);
            found.is_some_and(|found| found.boot == broker.boot)
        };
        while lives() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// The newest revision that was heard of.
    pub(crate) fn revision(&self) -> Revision {
        self.view().revision()
    }

    /// The brokers that live, by name.
    pub(crate) fn brokers(&self) -> Vec<BrokerView> {
        let view = self.view();
        let counted = view.knows_holders();
        let brokers = view.live().iter().map(|(name, broker)| BrokerView {
            name: name.clone(),
            endpoint: Arc::clone(&broker.endpoint),
            boot: broker.boot.clone(),
            draining: broker.draining,
            kafka: broker.kafka.clone(),
            partitions: counted.then(|| view.held_by(name, &broker.boot)),
        });
        brokers.collect()
    }
}
