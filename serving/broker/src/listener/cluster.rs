//! The cell as an operator sees it: its nodes, and how its copies are. All of it is read from metadata, by whichever broker is asked.

use std::collections::BTreeMap;

use bookie_client::{Registration, RegistrationError, RegistrationState};
use bookie_client::{change_registration, list_registrations, upkeep_report};
use bookie_metadata::cell::read_cell;
use bookie_metadata::{MetadataError, list_all};
use bytes::Bytes;
use hulse_proto::error::{ErrorKind, Fault, Reason};
use hulse_proto::id::NodeName;
use hulse_proto::wire::{Message as _, metadata as wire, v1};

use super::front::Front;
use super::wire::invalid;

/// Keys of brokers that run.
const BROKERS: &str = "node/broker/";
/// Keys of bookies that run.
const BOOKIES: &str = "node/bookie/";
/// Keys of partitions, with their last owner.
const PARTITIONS: &str = "part/";

impl Front {
    /// Everything that metadata say of the cell and its nodes. `partitions`: also of each partition's owner.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`; `DATA_DAMAGED` when something there cannot be read.
    pub(super) async fn cluster(
        &self,
        partitions: bool,
    ) -> Result<v1::DescribeClusterResponse, Fault> {
        let cell = read_cell(&*self.metadata).await;
        let cell = cell.map_err(|error| unreadable(error.kind(), &error))?;
        let cell = cell.ok_or_else(|| unreadable(ErrorKind::Corrupt, &"the cell has no record"))?;
        let upkeep = upkeep_report(&*self.metadata).await.map_err(metadata)?;
        let mut brokers = self.brokers().await?;
        if partitions {
            self.count_partitions(&mut brokers).await?;
        }
        let quorums = cell.settings.quorums;
        Ok(v1::DescribeClusterResponse {
            cell_uuid: Bytes::copy_from_slice(cell.cell.0.as_bytes()),
            ensemble: quorums.ensemble,
            write_quorum: quorums.write,
            ack_quorum: quorums.ack,
            created_at_ms: cell.created_at_ms,
            brokers: brokers.into_values().map(|(broker, _)| broker).collect(),
            bookies: self.bookies(upkeep.as_ref()).await?,
            upkeep: upkeep.map(upkeep_words),
            answered_by: self.config.name.to_string(),
            now_ms: self.partitions.with.clock.now_ms(),
        })
    }

    /// An operator's word on a bookie.
    ///
    /// # Errors
    /// `BOOKIE_NOT_FOUND`, `PRECONDITION_FAILED`, `INVALID_REQUEST`, or why metadata did not do it.
    pub(super) async fn change_bookie(
        &self,
        name: &str,
        state: &str,
    ) -> Result<v1::BookieDescription, Fault> {
        let all = [
            RegistrationState::Active,
            RegistrationState::ReadOnly,
            RegistrationState::Draining,
            RegistrationState::Lost,
        ];
        let to = all.into_iter().find(|known| known.name() == state);
        let to = to.ok_or_else(|| invalid(format!("a bookie cannot be made {state:?}")))?;
        let known = NodeName::new(name).map_err(|error| invalid(error.to_string()))?;
        let changed = change_registration(&*self.metadata, &known, to).await;
        let changed = changed.map_err(|error| refused(&error).with("bookie", name))?;
        tracing::warn!(bookie = name, state, "an operator changed a bookie's state");
        let upkeep = upkeep_report(&*self.metadata).await.map_err(metadata)?;
        let live = self.live(BOOKIES).await?;
        Ok(bookie_words(changed, &live, upkeep.as_ref()))
    }

    /// What nodes say of themselves while they run, by name.
    async fn live(&self, prefix: &str) -> Result<BTreeMap<String, wire::Node>, Fault> {
        let rows = list_all(&*self.metadata, prefix).await.map_err(metadata)?;
        let each = rows.into_iter().map(|row| {
            let name = row.key[prefix.len()..].to_owned();
            let node = wire::Node::decode(row.value);
            node.map(|node| (name, node))
                .map_err(|error| unreadable(ErrorKind::Corrupt, &format!("{}: {error}", row.key)))
        });
        each.collect()
    }

    /// Brokers and their present lives, by name.
    async fn brokers(&self) -> Result<BTreeMap<String, (v1::BrokerDescription, Bytes)>, Fault> {
        let live = self.live(BROKERS).await?.into_iter();
        let each = live.map(|(name, node)| {
            let described = v1::BrokerDescription {
                name: name.clone(),
                endpoint: node.endpoint,
                http: node.http,
                registered_ms: node.clock_ms,
                partitions: None,
            };
            (name, (described, node.boot_uuid))
        });
        Ok(each.collect())
    }

    async fn count_partitions(
        &self,
        brokers: &mut BTreeMap<String, (v1::BrokerDescription, Bytes)>,
    ) -> Result<(), Fault> {
        for (broker, _) in brokers.values_mut() {
            broker.partitions = Some(0);
        }
        let rows = list_all(&*self.metadata, PARTITIONS).await;
        for row in rows.map_err(metadata)? {
            let Ok(partition) = wire::Partition::decode(row.value) else {
                continue;
            };
            match brokers.get_mut(&partition.owner) {
                Some((broker, boot)) if *boot == partition.owner_boot => {
                    broker.partitions = broker.partitions.map(|count| count + 1);
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn bookies(
        &self,
        upkeep: Option<&wire::UpkeepReport>,
    ) -> Result<Vec<v1::BookieDescription>, Fault> {
        let registered = list_registrations(&*self.metadata).await;
        let live = self.live(BOOKIES).await?;
        let each = registered.map_err(metadata)?.into_iter();
        Ok(each
            .map(|registered| bookie_words(registered, &live, upkeep))
            .collect())
    }
}

fn bookie_words(
    registered: Registration,
    live: &BTreeMap<String, wire::Node>,
    upkeep: Option<&wire::UpkeepReport>,
) -> v1::BookieDescription {
    let name = registered.member.bookie.to_string();
    let incarnation = registered.member.incarnation.to_bytes();
    let counted = upkeep.and_then(|upkeep| {
        let mut rows = upkeep.bookies.iter();
        rows.find(|row| row.bookie == name && row.incarnation == incarnation)
    });
    // A pass that saw no ledger of it has no row of it.
    let looked = upkeep.is_some_and(|upkeep| upkeep.passes > 0);
    let count = |row: Option<u64>| row.or(looked.then_some(0));
    let node = live.get(&name);
    v1::BookieDescription {
        ledgers: count(counted.map(|row| row.ledgers)),
        bytes: count(counted.map(|row| row.bytes)),
        http: node.map_or_else(String::new, |node| node.http.clone()),
        mode: node.map_or_else(String::new, |node| node.mode.clone()),
        endpoint: node.map_or_else(String::new, |node| node.endpoint.clone()),
        state: registered.state.name().to_owned(),
        zone: registered.zone,
        incarnation,
        name,
    }
}

fn upkeep_words(report: wire::UpkeepReport) -> v1::UpkeepDescription {
    let blocked = report.blocked.into_iter().map(|blocked| {
        use wire::blocked_repair::Kind;
        let kind = match blocked.kind() {
            Kind::Settling => "settling",
            Kind::Waiting => "waiting",
            Kind::NoTarget => "no-target",
            Kind::Unreadable => "unreadable",
            Kind::Failing | Kind::Unspecified => "failing",
        };
        v1::BlockedDescription {
            ledger: blocked.ledger,
            first_entry: blocked.first_entry,
            bookie: blocked.bookie,
            kind: kind.to_owned(),
            why: blocked.why,
        }
    });
    v1::UpkeepDescription {
        blocked: blocked.collect(),
        planner: report.planner,
        at_ms: report.at_ms,
        passes: report.passes,
        ledgers: report.ledgers,
        lacking_ledgers: report.lacking_ledgers,
        lacking_since_ms: report.lacking_since_ms,
        bytes_to_copy: report.bytes_to_copy,
        bytes_per_second: report.bytes_per_second,
        blocked_count: report.blocked_count,
    }
}

fn metadata(error: MetadataError) -> Fault {
    unreadable(error.kind(), &error)
}

fn unreadable(kind: ErrorKind, why: &dyn std::fmt::Display) -> Fault {
    let reason = match kind {
        ErrorKind::Corrupt => Reason::DataDamaged,
        ErrorKind::OutcomeUnknown => Reason::MetadataUnknown,
        _ => Reason::MetadataUnavailable,
    };
    Fault::new(reason, why.to_string())
}

fn refused(error: &RegistrationError) -> Fault {
    let reason = match error {
        RegistrationError::Metadata(error) => return metadata(error.clone()),
        RegistrationError::Cell(error) => return unreadable(error.kind(), error),
        RegistrationError::Unknown { .. } => Reason::BookieNotFound,
        RegistrationError::Changing { .. } => Reason::MetadataUnknown,
        RegistrationError::Final { .. }
        | RegistrationError::Runs { .. }
        | RegistrationError::NotEnough { .. } => Reason::PreconditionFailed,
    };
    Fault::new(reason, error.to_string())
}
