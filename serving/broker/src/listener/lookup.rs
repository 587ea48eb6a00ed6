//! Service Lookup: names to identities and places.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::wire::v1;
use tonic::{Request, Response, Status};

use super::front::Front;
use super::wire::{invalid, topic_name};
use crate::authorise::{Action, Resource};

/// Names in one request.
const NAMES_MAX: usize = 1000;

/// Longest wait for what metadata say of owners; then the rule alone says who may be one.
const KNOWN_MAX: Duration = Duration::from_secs(1);

/// Service Lookup.
pub(super) struct LookupService(pub(super) Arc<Front>);

#[tonic::async_trait]
impl v1::lookup_server::Lookup for LookupService {
    async fn resolve(
        &self,
        request: Request<v1::ResolveRequest>,
    ) -> Result<Response<v1::ResolveResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let count = request.topics.len();
            if count > NAMES_MAX {
                let words =
                    format!("{count} names are more than {NAMES_MAX}; ask in several calls");
                return Err(invalid(words));
            }
            self.0.partitions.with.owners.known_within(KNOWN_MAX).await;
            let mut topics = Vec::with_capacity(count);
            for name in &request.topics {
                topics.push(match self.resolve_one(name, request.auto_create).await {
                    Ok(resolved) => resolved,
                    Err(fault) => {
                        self.0.metrics.fault(fault.reason);
                        let fault = Some(fault.to_wire());
                        v1::ResolvedTopic {
                            name: name.clone(),
                            fault,
                            ..Default::default()
                        }
                    }
                });
            }
            let brokers = self.0.endpoints();
            Ok(v1::ResolveResponse { topics, brokers })
        };
        self.0.answer("Lookup.Resolve", work).await
    }
}

impl LookupService {
    async fn resolve_one(&self, name: &str, auto_create: bool) -> Result<v1::ResolvedTopic, Fault> {
        let name = topic_name(name)?;
        let action = if auto_create {
            Action::Create
        } else {
            Action::Describe
        };
        self.0.allow(action, Resource::Topic(&name))?;
        let topic = self.0.topics.resolve(&name, auto_create).await?;
        Ok(v1::ResolvedTopic {
            name: topic.name.as_str().to_owned(),
            topic_uuid: topic.id.to_bytes(),
            partitions: topic
                .partition_ids()
                .map(|id| self.0.owner_of(id))
                .collect(),
            fault: None,
        })
    }
}
