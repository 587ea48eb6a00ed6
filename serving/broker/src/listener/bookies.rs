//! Bookies as an operator sees them, and the operator's word on them.

use std::collections::BTreeMap;

use bookie_client::{
    Registration, RegistrationError, RegistrationState, change_registration, list_registrations,
    upkeep_report,
};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::NodeName;
use hulse_proto::wire::metadata::blocked_repair::Kind;
use hulse_proto::wire::{metadata as wire, v1};

use super::front::Front;
use crate::topics::Topic;

/// What an operator may say.
const SAID: [RegistrationState; 4] = [
    RegistrationState::Active,
    RegistrationState::ReadOnly,
    RegistrationState::Draining,
    RegistrationState::Lost,
];

impl Front {
    /// All bookies, and what upkeep reported last.
    pub(super) async fn bookies(&self) -> Result<v1::ListBookiesResponse, Fault> {
        let metadata = &*self.metadata;
        let registered = list_registrations(metadata).await.map_err(store)?;
        let report = upkeep_report(metadata).await.map_err(store)?;
        let report = report.as_ref();
        let described = registered.iter().map(|found| describe(found, report));
        Ok(v1::ListBookiesResponse {
            bookies: described.collect(),
            upkeep: report.map(upkeep),
        })
    }

    /// Says what is to become of a bookie.
    pub(super) async fn change_bookie(
        &self,
        request: &v1::ChangeBookieRequest,
    ) -> Result<v1::ChangeBookieResponse, Fault> {
        let name = NodeName::new(&request.name)
            .map_err(|error| Fault::new(Reason::InvalidName, error.to_string()))?;
        let to = SAID.into_iter().find(|state| state.name() == request.state);
        let Some(to) = to else {
            let words = format!(
                "a bookie can be active, read-only, draining or lost, not {:?}",
                request.state
            );
            return Err(super::wire::invalid(words));
        };
        if to == RegistrationState::Draining {
            self.topics_can_do_without(&name).await?;
        }
        let changed = change_registration(&*self.metadata, &name, to).await;
        let changed = changed.map_err(refused)?;
        tracing::info!(bookie = %name, state = to.name(), "an operator's word on a bookie");
        Ok(v1::ChangeBookieResponse {
            bookie: Some(describe(&changed, None)),
        })
    }
}

impl Front {
    /// Refuses to let a bookie go without which a topic could have no new ledger.
    async fn topics_can_do_without(&self, name: &NodeName) -> Result<(), Fault> {
        let ensemble = |topic: &Topic| topic.quorums.map_or(0, |quorums| quorums.ensemble);
        let Some((topic, ensemble)) = self.topics.largest(ensemble) else {
            return Ok(());
        };
        let all = list_registrations(&*self.metadata).await.map_err(store)?;
        let active = all
            .iter()
            .filter(|found| found.state == RegistrationState::Active);
        let left = active.filter(|found| found.member.bookie != *name).count();
        if left >= ensemble as usize {
            return Ok(());
        }
        let words = format!(
            "topic {topic} asks for ledgers of {ensemble} bookies, and without {name} {left} are active: add one first, or let it ask for fewer (hulse topics update {topic} -r {left})"
        );
        Err(Fault::new(Reason::PreconditionFailed, words))
    }
}

fn store(error: bookie_metadata::MetadataError) -> Fault {
    refused(RegistrationError::Metadata(error))
}

fn refused(error: RegistrationError) -> Fault {
    let reason = match &error {
        RegistrationError::Metadata(error) => return crate::storage_fault::metadata(error),
        RegistrationError::Unknown { .. } => Reason::BookieNotFound,
        RegistrationError::Changing { .. } => Reason::MetadataUnknown,
        RegistrationError::Cell(_)
        | RegistrationError::Final { .. }
        | RegistrationError::Runs { .. }
        | RegistrationError::NotEnough { .. } => Reason::PreconditionFailed,
    };
    Fault::new(reason, error.to_string())
}

fn describe(found: &Registration, report: Option<&wire::UpkeepReport>) -> v1::BookieDescription {
    let incarnation = found.member.incarnation.to_bytes();
    let of = report.map(|report| {
        let mut all = report.bookies.iter();
        let named = |of: &&wire::BookieUpkeep| {
            of.bookie == found.member.bookie.as_str() && of.incarnation == incarnation
        };
        all.find(named).map_or((0, 0), |of| (of.ledgers, of.bytes))
    });
    let rate = report.map_or(0, |report| report.bytes_per_second);
    let moves = found.state == RegistrationState::Draining && rate > 0;
    v1::BookieDescription {
        name: found.member.bookie.to_string(),
        incarnation: found.member.incarnation.to_string(),
        state: found.state.name().to_owned(),
        zone: found.zone.clone(),
        live: found.live.is_some(),
        mode: found
            .live
            .as_ref()
            .map_or(String::new(), |live| live.mode.clone()),
        endpoint: found
            .live
            .as_ref()
            .map_or(String::new(), |live| live.endpoint.clone()),
        http: found
            .live
            .as_ref()
            .map_or(String::new(), |live| live.http.clone()),
        ledgers: of.map(|of| of.0),
        bytes: of.map(|of| of.1),
        seconds_left: of.filter(|_| moves).map(|of| of.1.div_ceil(rate)),
    }
}

fn upkeep(report: &wire::UpkeepReport) -> v1::UpkeepDescription {
    let kinds = BTreeMap::from([
        (Kind::Settling as i32, "settling"),
        (Kind::Waiting as i32, "waiting"),
        (Kind::NoTarget as i32, "no-target"),
        (Kind::Unreadable as i32, "unreadable"),
        (Kind::Failing as i32, "failing"),
    ]);
    let blocked = report.blocked.iter().map(|blocked| v1::BlockedDescription {
        ledger: blocked.ledger,
        first_entry: blocked.first_entry,
        bookie: blocked.bookie.clone(),
        kind: kinds
            .get(&blocked.kind)
            .copied()
            .unwrap_or("failing")
            .to_owned(),
        why: blocked.why.clone(),
        since_ms: blocked.since_ms,
    });
    v1::UpkeepDescription {
        planner: report.planner.clone(),
        at_ms: report.at_ms,
        passes: report.passes,
        ledgers: report.ledgers,
        lacking_ledgers: report.lacking_ledgers,
        lacking_since_ms: report.lacking_since_ms,
        bytes_to_copy: report.bytes_to_copy,
        copied_bytes: report.copied_bytes,
        bytes_per_second: report.bytes_per_second,
        blocked: blocked.collect(),
        blocked_count: report.blocked_count,
        pass_ms: report.pass_ms,
        passed_at_ms: report.passed_at_ms,
    }
}
