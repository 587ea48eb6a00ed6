//! Service Admin: topics and ledgers.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{EntryId, LedgerId, PartitionId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::partition_work::Work;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::effects::Rules;
use super::front::Front;
use super::ledgers::describe;
use super::peers::work_on;
use super::wire::topic_name;
use super::{backlog, copies, retention};
use crate::authorise::{Action, Resource};
use crate::topics::{NewTopic, Topic, TopicRules, TopicState};

/// A deletion is answered after this, be it done or not: sooner than clients give up.
const DELETE_PATIENCE: Duration = Duration::from_secs(10);
/// The ledgers of a topic are looked at for so long when it is described.
const COPIES_WAIT: Duration = Duration::from_secs(3);
/// Partitions of a topic that are described at the same time.
const DESCRIBED_AT_ONCE: usize = 64;

/// Service Admin.
pub(super) struct AdminService(pub(super) Arc<Front>);

#[tonic::async_trait]
impl v1::admin_server::Admin for AdminService {
    async fn create_topic(
        &self,
        request: Request<v1::CreateTopicRequest>,
    ) -> Result<Response<v1::CreateTopicResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let name = topic_name(&request.name)?;
            self.0.allow(Action::Create, Resource::Topic(&name))?;
            let new = NewTopic {
                partitions: request.partitions,
                retention: retention::of_new(request.retention.as_ref())?,
                backlog: backlog::of_new(request.backlog_quota.as_ref())?,
                quorums: self
                    .0
                    .new_quorums(copies::asked(request.replication.as_ref()))
                    .await?,
                ..NewTopic::default()
            };
            backlog::has_limit(new.backlog, self.0.config.backlog)?;
            let topic = self.0.topics.create_with(&name, new).await?;
            Ok(v1::CreateTopicResponse {
                topic: Some(self.full(&topic).await),
            })
        };
        self.0.answer("Admin.CreateTopic", work).await
    }

    async fn list_topics(
        &self,
        request: Request<v1::ListTopicsRequest>,
    ) -> Result<Response<v1::ListTopicsResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            self.0
                .allow(Action::Describe, Resource::Namespace(&request.namespace))?;
            let v1::ListTopicsRequest {
                namespace,
                page_token,
                page_size,
            } = &request;
            let page = self
                .0
                .topics
                .list(namespace, page_token, *page_size)
                .await?;
            Ok(v1::ListTopicsResponse {
                topics: page
                    .topics
                    .iter()
                    // Who asks for its namespace by name sees it.
                    .filter(|topic| !namespace.is_empty() || !topic.is_internal())
                    .map(|topic| self.short(topic))
                    .collect(),
                next_page_token: page.next.unwrap_or_default(),
            })
        };
        self.0.answer("Admin.ListTopics", work).await
    }

    async fn describe_topic(
        &self,
        request: Request<v1::DescribeTopicRequest>,
    ) -> Result<Response<v1::DescribeTopicResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let name = topic_name(&request.name)?;
            self.0.allow(Action::Describe, Resource::Topic(&name))?;
            let topic = self.0.topics.get(&name).await?;
            let mut described = self.full(&topic).await;
            for there in self.0.described_elsewhere(&topic).await {
                let of = described.partition.get_mut(there.index as usize);
                of.filter(|of| epoch(of) <= epoch(&there))
                    .into_iter()
                    .for_each(|of| *of = there.clone());
            }
            // What is not told in time is left out.
            let copies = timeout(COPIES_WAIT, self.0.copies_of(&topic)).await;
            described.copies = copies.ok().and_then(Result::ok);
            for damage in self.0.damage(Some(&topic)).await.damage {
                let of = described.partition.get_mut(damage.partition as usize);
                of.into_iter().for_each(|of| of.damage.push(damage.clone()));
            }
            Ok(v1::DescribeTopicResponse {
                topic: Some(described),
            })
        };
        self.0.answer("Admin.DescribeTopic", work).await
    }

    async fn delete_topic(
        &self,
        request: Request<v1::DeleteTopicRequest>,
    ) -> Result<Response<v1::DeleteTopicResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let name = topic_name(&request.name)?;
            self.0.allow(Action::Delete, Resource::Topic(&name))?;
            if !request.topic_uuid.is_empty() {
                let topic = self.0.topics.get(&name).await?;
                if topic.id.to_bytes() != request.topic_uuid {
                    let words = format!("topic {name} is another one by now; it stays");
                    return Err(Fault::new(Reason::TopicNotFound, words));
                }
            }
            let partitions_left = self.0.delete_topic(&name, DELETE_PATIENCE).await?;
            Ok(v1::DeleteTopicResponse { partitions_left })
        };
        self.0.answer("Admin.DeleteTopic", work).await
    }

    async fn add_partitions(
        &self,
        request: Request<v1::AddPartitionsRequest>,
    ) -> Result<Response<v1::AddPartitionsResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let name = topic_name(&request.name)?;
            self.0.allow(Action::Alter, Resource::Topic(&name))?;
            let topic = self
                .0
                .topics
                .add_partitions(&name, request.partitions)
                .await?;
            self.0.cover(&topic).await;
            Ok(v1::AddPartitionsResponse {
                topic: Some(self.full(&topic).await),
            })
        };
        self.0.answer("Admin.AddPartitions", Box::pin(work)).await
    }

    async fn update_topic(
        &self,
        request: Request<v1::UpdateTopicRequest>,
    ) -> Result<Response<v1::UpdateTopicResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let name = topic_name(&request.name)?;
            self.0.allow(Action::Alter, Resource::Topic(&name))?;
            let kept = retention::change(&request)?;
            let held = backlog::change(&request)?;
            let copied = self.0.change_of_copies(&request).await?;
            let now = self.0.topics.get(&name).await?;
            if request.backlog_action.is_some() {
                backlog::has_limit(held(now.backlog), self.0.config.backlog)?;
            }
            if request.dry_run {
                copied.of(now.quorums)?;
                let rules = Rules {
                    retention: kept(now.retention).limits(self.0.config.retention),
                    backlog: held(now.backlog).limits(self.0.config.backlog),
                };
                return Ok(v1::UpdateTopicResponse {
                    effect: self.0.effects(&now, rules).await,
                    topic: Some(self.full(&now).await),
                });
            }
            let change = |now: TopicRules| {
                Ok(TopicRules {
                    retention: kept(now.retention),
                    backlog: held(now.backlog),
                    quorums: copied.of(now.quorums)?,
                })
            };
            let topic = self.0.topics.set_rules(&name, change).await?;
            self.0.topic_changed(&topic);
            Ok(v1::UpdateTopicResponse {
                topic: Some(self.full(&topic).await),
                effect: Vec::new(),
            })
        };
        self.0.answer("Admin.UpdateTopic", work).await
    }

    async fn trim_topic(
        &self,
        request: Request<v1::TrimTopicRequest>,
    ) -> Result<Response<v1::TrimTopicResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let name = topic_name(&request.name)?;
            self.0.allow(Action::Delete, Resource::Topic(&name))?;
            let topic = self.0.topics.get(&name).await?;
            let partition = self.0.trim_all(topic.id, &request.partition).await?;
            Ok(v1::TrimTopicResponse { partition })
        };
        self.0.answer("Admin.TrimTopic", work).await
    }

    async fn list_ledgers(
        &self,
        request: Request<v1::ListLedgersRequest>,
    ) -> Result<Response<v1::ListLedgersResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            if request.topic.is_empty() {
                self.0.allow(Action::Describe, Resource::Cell)?;
                let ledgers = self.0.all_ledgers().await?;
                return Ok(v1::ListLedgersResponse { ledgers });
            }
            let name = topic_name(&request.topic)?;
            self.0.allow(Action::Describe, Resource::Topic(&name))?;
            let topic = self.0.topics.get(&name).await?;
            let mut ledgers = Vec::new();
            self.0.ledgers_of(&topic, &mut ledgers).await?;
            Ok(v1::ListLedgersResponse { ledgers })
        };
        self.0.answer("Admin.ListLedgers", work).await
    }

    async fn list_damage(
        &self,
        request: Request<v1::ListDamageRequest>,
    ) -> Result<Response<v1::ListDamageResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            if request.topic.is_empty() {
                self.0.allow(Action::Describe, Resource::Cell)?;
                return Ok(self.0.damage(None).await);
            }
            let name = topic_name(&request.topic)?;
            self.0.allow(Action::Describe, Resource::Topic(&name))?;
            let topic = self.0.topics.get(&name).await?;
            Ok(self.0.damage(Some(&topic)).await)
        };
        self.0.answer("Admin.ListDamage", work).await
    }

    async fn describe_cluster(
        &self,
        request: Request<v1::DescribeClusterRequest>,
    ) -> Result<Response<v1::DescribeClusterResponse>, Status> {
        let partitions = request.into_inner().partitions;
        let work = async {
            self.0.allow(Action::Describe, Resource::Cell)?;
            self.0.cluster(partitions).await
        };
        self.0.answer("Admin.DescribeCluster", work).await
    }

    async fn list_bookies(
        &self,
        _: Request<v1::ListBookiesRequest>,
    ) -> Result<Response<v1::ListBookiesResponse>, Status> {
        let work = async {
            self.0.allow(Action::Describe, Resource::Cell)?;
            self.0.bookies().await
        };
        self.0.answer("Admin.ListBookies", work).await
    }

    async fn change_bookie(
        &self,
        request: Request<v1::ChangeBookieRequest>,
    ) -> Result<Response<v1::ChangeBookieResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            self.0.allow(Action::Operate, Resource::Cell)?;
            self.0.change_bookie(&request).await
        };
        self.0.answer("Admin.ChangeBookie", work).await
    }

    async fn drain_broker(
        &self,
        request: Request<v1::DrainBrokerRequest>,
    ) -> Result<Response<v1::DrainBrokerResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            self.0.allow(Action::Operate, Resource::Cell)?;
            self.0.drain_broker(request).await
        };
        self.0.answer("Admin.DrainBroker", work).await
    }

    async fn move_partition(
        &self,
        request: Request<v1::MovePartitionRequest>,
    ) -> Result<Response<v1::MovePartitionResponse>, Status> {
        let request = request.into_inner();
        let work = self.0.move_partition(&request);
        self.0.answer("Admin.MovePartition", work).await
    }

    async fn balance_brokers(
        &self,
        request: Request<v1::BalanceBrokersRequest>,
    ) -> Result<Response<v1::BalanceBrokersResponse>, Status> {
        let dry_run = request.into_inner().dry_run;
        let work = async {
            self.0.allow(Action::Operate, Resource::Cell)?;
            let report = Some(self.0.balance_now(dry_run).await?);
            Ok(v1::BalanceBrokersResponse { report })
        };
        self.0.answer("Admin.BalanceBrokers", work).await
    }

    async fn accept_loss(
        &self,
        request: Request<v1::AcceptLossRequest>,
    ) -> Result<Response<v1::AcceptLossResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let ledger = LedgerId(request.ledger);
            self.0.allow(Action::Operate, Resource::Ledger(ledger))?;
            let up_to = request.up_to_entry.map(EntryId);
            let sealed = self.0.partitions.accept_loss(ledger, up_to).await?;
            if self.0.elsewhere(sealed.partition).is_some() {
                // Its owner reads by what it knew before; one that cannot be asked hears of it when it opens anew.
                let reopen = work_on(sealed.partition, Work::Reopen(true));
                if let Err(fault) = self.0.anywhere(reopen).await {
                    tracing::warn!(%fault, "the owner of a partition did not hear that a loss was accepted");
                }
            }
            // The ledger is sealed whatever its topic is called; an unknown name is no failure.
            let topic = self.0.topics.find(sealed.partition.topic).await;
            let name = topic.map_or_else(|_| String::new(), |topic| topic.name.as_str().to_owned());
            tracing::warn!(%ledger, topic = %name, "an operator accepted a loss");
            Ok(v1::AcceptLossResponse {
                ledger: Some(describe(ledger, &name, &sealed)),
            })
        };
        self.0.answer("Admin.AcceptLoss", work).await
    }
}

impl Front {
    /// What this broker knows of partitions, in their order.
    pub(super) async fn describe_partitions(
        &self,
        ids: impl Iterator<Item = PartitionId>,
    ) -> Vec<v1::PartitionDescription> {
        let described = ids.map(|id| self.describe_partition(id));
        let described = futures::stream::iter(described).buffered(DESCRIBED_AT_ONCE);
        described.collect().await
    }

    async fn describe_partition(&self, id: PartitionId) -> v1::PartitionDescription {
        let (offsets, fault) = match self.partitions.opened(id) {
            Some(open) => match open.told_offsets().await {
                Ok(offsets) => (Some(offsets), None),
                Err(fault) => (None, Some(fault)),
            },
            None if self.elsewhere(id).is_some() => (None, None),
            None => (None, self.partitions.last_fault(id)),
        };
        v1::PartitionDescription {
            index: id.index,
            owner: Some(self.owner_of(id)),
            log_start: offsets.map(|offsets| offsets.log_start.0),
            high_watermark: offsets.map(|offsets| offsets.high_watermark.0),
            stored_bytes: offsets.map(|offsets| offsets.stored_bytes),
            fault: fault.map(|fault| fault.to_wire()),
            backlog: self.backlogs.worst(id).map(backlog::kept),
            damage: Vec::new(),
        }
    }
}

/// Under which epoch a broker says that it serves a partition.
fn epoch(described: &v1::PartitionDescription) -> u32 {
    described
        .owner
        .as_ref()
        .map_or(0, |owner| owner.leader_epoch)
}

impl AdminService {
    async fn full(&self, topic: &Topic) -> v1::TopicDescription {
        let partition = self.0.describe_partitions(topic.partition_ids()).await;
        v1::TopicDescription {
            partition,
            ..self.short(topic)
        }
    }

    /// A topic without its partitions.
    fn short(&self, topic: &Topic) -> v1::TopicDescription {
        let state = match topic.state {
            TopicState::Active => "active",
            TopicState::Deleting => "deleting",
        };
        let effective = topic.retention.limits(self.0.config.retention);
        let quota = topic.backlog.limits(self.0.config.backlog);
        v1::TopicDescription {
            name: topic.name.as_str().to_owned(),
            topic_uuid: topic.id.to_bytes(),
            partitions: topic.partitions,
            created_at_ms: topic.created_at,
            state: state.to_owned(),
            partition: Vec::new(),
            retention: Some(retention::to_wire(topic.retention)),
            effective_retention: Some(retention::to_wire(effective.into())),
            partitions_left: self.0.topics.partitions_left(topic.id),
            backlog_quota: Some(backlog::to_wire(topic.backlog)),
            effective_backlog_quota: Some(backlog::to_wire(quota.into())),
            replication: topic.quorums.map(copies::to_wire),
            effective_replication: Some(copies::to_wire(
                topic.quorums.unwrap_or_else(|| self.0.cell_quorums()),
            )),
            copies: None,
        }
    }
}
