//! Which etcd answers: releases before 3.4.31, and of 3.5 before 3.5.13, end leases wrongly. A leader that was frozen, was replaced and
//! wakes still believes that it leads, and ends leases that were renewed at its successor: every node's registration may go with them.
//! Nothing is lost by that (ARCHITECTURE D6), but nodes register anew and partitions change hands.

use std::time::Duration;

use futures::future::join_all;
use hulse_proto::wire::etcd;
use hulse_proto::wire::etcd::maintenance_client::MaintenanceClient;
use tokio::time::timeout;

use super::links::{classify, unavailable};
use super::store::EtcdStore;
use crate::store::MetadataError;

/// How long a member may take to say it.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The first release of each line that ends no lease at waking; older lines have none, newer ones all have it.
const FIXED: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];

/// An endpoint, and which release of etcd it runs.
#[derive(Debug)]
pub struct EndpointVersion {
    /// As it is configured.
    pub endpoint: String,
    /// As `3.5.16`; or why it does not say.
    pub version: Result<String, MetadataError>,
}

impl EndpointVersion {
    /// True of a release whose frozen leader may end leases when it wakes.
    pub fn ends_leases(&self) -> bool {
        self.version.as_deref().is_ok_and(ends_leases)
    }
}

impl EtcdStore {
    /// Asks every endpoint for its release, all at once; within two seconds.
    pub async fn versions(&self) -> Vec<EndpointVersion> {
        let asked = self.0.links.each().map(|(endpoint, channel)| async move {
            let mut member = MaintenanceClient::new(channel);
            let answer = timeout(ANSWER_MAX, member.status(etcd::StatusRequest {})).await;
            let version = match answer {
                Ok(Ok(status)) => Ok(status.into_inner().version),
                Ok(Err(status)) => Err(unavailable(classify(status))),
                Err(_) => Err(MetadataError::Unavailable {
                    why: format!("etcd: no answer within {ANSWER_MAX:?}"),
                }),
            };
            EndpointVersion {
                endpoint: endpoint.to_owned(),
                version,
            }
        });
        join_all(asked).await
    }
}

/// False also of what is no version: nothing is known of it.
fn ends_leases(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(str::parse::<u32>);
    let mut part = || parts.next()?.ok();
    let (Some(major), Some(minor), Some(patch)) = (part(), part(), part()) else {
        return false;
    };
    let line = FIXED
        .iter()
        .find(|fixed| (fixed.0, fixed.1) == (major, minor));
    match line {
        Some(fixed) => patch < fixed.2,
        None => (major, minor) < (FIXED[0].0, FIXED[0].1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_that_end_leases_are_told_from_those_that_do_not() {
        for old in [
            "3.3.27",
            "3.4.0",
            "3.4.30",
            "3.5.0",
            "3.5.12",
            "3.5.12+git",
            "2.3.8",
        ] {
            assert!(ends_leases(old), "{old}");
        }
        for good in [
            "3.4.31",
            "3.4.40-pre",
            "3.5.13",
            "3.5.21",
            "3.6.0",
            "4.0.0",
            "",
            "3",
            "main",
        ] {
            assert!(!ends_leases(good), "{good}");
        }
    }
}
