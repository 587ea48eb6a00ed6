//! DescribeConfigs, and what a new topic may be told. Only what is true is told; of a topic only how long records stay, and how many
//! copies are waited for, can be changed (`alter`).

use std::sync::Arc;

use hulse_proto::ledger::Quorums;
use hulse_proto::limits::BATCH_BYTES_MAX;
use kafka_protocol::messages::create_topics_request::CreatableTopicConfig;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;
use serving_broker::{
    Action, BrokerConfig, Limits, NewTopic, Resource, RetentionPolicy, Setting, Topic,
};

use super::copies;
use super::retained::{RETENTION_BYTES, RETENTION_MS, UNLIMITED, retained};
use super::rows::{Rows, once};
use super::stage::Outcome;
use super::topics::{Refused, refused};
use crate::error_code;
use crate::link::Link;
use crate::names;
use crate::wire::{Broken, Request, text};

/// Kinds of things that have configuration.
pub(super) const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// Where a value comes from.
const OF_TOPIC: i8 = 1;
const OF_BROKER: i8 = 4;
const DEFAULT: i8 = 5;
/// Kinds of values.
const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const LIST: i8 = 7;
/// First version that has the kind of a value.
const KINDS_FROM: i16 = 3;
const TIMESTAMP_TYPE: &str = "message.timestamp.type";
const LOG_APPEND_TIME: &str = "LogAppendTime";
const CREATE_TIME: &str = "CreateTime";

/// One value.
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) source: i8,
    pub(super) read_only: bool,
    kind: i8,
    doc: &'static str,
}

fn default(name: &'static str, value: impl ToString, kind: i8, doc: &'static str) -> Config {
    Config {
        name,
        value: value.to_string(),
        source: DEFAULT,
        read_only: true,
        kind,
        doc,
    }
}

/// How long records stay: what holds, and who says it.
fn retention(config: &BrokerConfig, policy: RetentionPolicy) -> [Config; 2] {
    let usual = BrokerConfig::new(config.name.clone(), "").retention;
    let Limits { time, bytes } = policy.limits(config.retention);
    let wire = RetentionPolicy::from(Limits { time, bytes });
    let source = |of_topic: bool, of_broker: bool| match (of_topic, of_broker) {
        (true, _) => OF_TOPIC,
        (false, true) => OF_BROKER,
        (false, false) => DEFAULT,
    };
    [
        Config {
            read_only: false,
            source: source(
                policy.bytes != Setting::Inherited,
                config.retention.bytes != usual.bytes,
            ),
            ..default(
                RETENTION_BYTES,
                wire.bytes.to_wire().unwrap_or(UNLIMITED),
                LONG,
                "of each partition the newest ledgers with so many bytes stay; -1: all",
            )
        },
        Config {
            read_only: false,
            source: source(
                policy.time != Setting::Inherited,
                config.retention.time != usual.time,
            ),
            ..default(
                RETENTION_MS,
                wire.time.to_wire_ms().unwrap_or(UNLIMITED),
                LONG,
                "records go this long after their append, with their ledger; -1: never",
            )
        },
    ]
}

/// Refuses to change what cannot be changed; naming the value that holds is fine, and so is none.
///
/// # Errors
/// INVALID_CONFIG with what could be said instead.
pub(super) fn check_fixed(
    holds: &[Config],
    name: &str,
    value: Option<&str>,
) -> Result<(), Refused> {
    let why = match holds.iter().find(|config| config.name == name) {
        Some(holds) if value.is_none_or(|value| value == holds.value) => return Ok(()),
        Some(holds) => format!("{name} can only be {} in this release", holds.value),
        None => format!("{name} is not known in this release; leave it out"),
    };
    Err((error_code::INVALID_CONFIG, why))
}

/// What a topic says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said {
    pub(super) log_append_time: bool,
    pub(super) retention: RetentionPolicy,
    pub(super) quorums: Option<Quorums>,
}

impl From<&Topic> for Said {
    fn from(topic: &Topic) -> Self {
        Self {
            log_append_time: topic.log_append_time,
            retention: topic.retention,
            quorums: topic.quorums,
        }
    }
}

impl From<NewTopic> for Said {
    fn from(new: NewTopic) -> Self {
        Self {
            log_append_time: new.log_append_time,
            retention: new.retention,
            quorums: new.quorums,
        }
    }
}

/// How many copies are waited for.
fn waited_for(link: &Link, quorums: Option<Quorums>) -> Config {
    let cell = link.front().cell_quorums();
    Config {
        read_only: false,
        source: if quorums.is_some() { OF_TOPIC } else { DEFAULT },
        ..default(
            copies::MIN_INSYNC,
            quorums.unwrap_or(cell).ack,
            INT,
            "copies that are durable before a record is acknowledged, whatever acks a producer asks for",
        )
    }
}

/// What holds for a topic.
pub(super) fn of_topic(link: &Link, said: Said) -> Vec<Config> {
    let Said {
        log_append_time,
        retention: policy,
        quorums,
    } = said;
    let [retained_bytes, retained_time] = retention(link.front().config(), policy);
    let max = link.front().config().max_batch_bytes;
    let time = Config {
        source: if log_append_time { OF_TOPIC } else { DEFAULT },
        ..default(
            TIMESTAMP_TYPE,
            if log_append_time {
                LOG_APPEND_TIME
            } else {
                CREATE_TIME
            },
            STRING,
            "whose clock a record's timestamp is of: the producer's, or the owner's at its append",
        )
    };
    let size = Config {
        source: if max == BATCH_BYTES_MAX {
            DEFAULT
        } else {
            OF_BROKER
        },
        ..default("max.message.bytes", max, INT, "largest record batch taken")
    };
    vec![
        default(
            "cleanup.policy",
            "delete",
            LIST,
            "records are kept, not compacted",
        ),
        default(
            "compression.type",
            "producer",
            STRING,
            "batches stay as producers made them",
        ),
        size,
        default(
            "message.format.version",
            "3.0-IV1",
            STRING,
            "record batches of magic 2",
        ),
        time,
        waited_for(link, quorums),
        default("preallocate", false, BOOLEAN, "storage sees to it"),
        retained_bytes,
        retained_time,
        default(
            "unclean.leader.election.enable",
            false,
            BOOLEAN,
            "no acknowledged record is given up",
        ),
    ]
}

/// What holds for the broker.
fn of_broker(link: &Link) -> Vec<Config> {
    let config = link.front().config();
    let told = |name, value: String, kind, doc| Config {
        source: OF_BROKER,
        ..default(name, value, kind, doc)
    };
    let expiry = config.producer_expiry.as_millis().to_string();
    let [retained_bytes, retained_time] = retention(config, RetentionPolicy::default());
    vec![
        told(
            "auto.create.topics.enable",
            config.auto_create_topics.to_string(),
            BOOLEAN,
            "whether a look-up of a missing topic makes it",
        ),
        default(
            "default.replication.factor",
            link.front().cell_quorums().write,
            INT,
            "copies of each record, on as many bookies",
        ),
        Config {
            name: "log.retention.bytes",
            read_only: true,
            ..retained_bytes
        },
        told(
            "log.retention.check.interval.ms",
            config.retention_interval.as_millis().to_string(),
            LONG,
            "how often what may go is looked for",
        ),
        Config {
            name: "log.retention.ms",
            read_only: true,
            ..retained_time
        },
        default(
            "log.message.timestamp.type",
            CREATE_TIME,
            STRING,
            "of topics that say nothing",
        ),
        told(
            "message.max.bytes",
            config.max_batch_bytes.to_string(),
            INT,
            "largest record batch taken",
        ),
        told(
            "num.partitions",
            config.default_partitions.to_string(),
            INT,
            "partitions of a topic made without a count",
        ),
        told(
            "producer.id.expiration.ms",
            expiry,
            INT,
            "an idempotent producer that was silent this long is forgotten",
        ),
    ]
}

/// A new topic of these configs, and how many copies are to be waited for. Configs that name what holds anyway are taken.
///
/// # Errors
/// INVALID_CONFIG with what could be said instead.
pub(super) fn of_new_topic(
    link: &Link,
    wanted: &[CreatableTopicConfig],
) -> Result<(NewTopic, Option<u32>), Refused> {
    let mut new = NewTopic::default();
    let mut waited_for = None;
    for config in wanted {
        let name = config.name.as_str();
        let value = config.value.as_ref().map_or("", |value| value.as_str());
        if let Some(change) = retained(name, config.value.as_ref().map(|value| value.as_str()))? {
            change.apply(&mut new.retention);
            continue;
        }
        if let Some(copies) =
            copies::min_insync(name, config.value.as_ref().map(|value| value.as_str()))?
        {
            waited_for = copies;
            continue;
        }
        match (name, value) {
            (TIMESTAMP_TYPE, LOG_APPEND_TIME) => new.log_append_time = true,
            (TIMESTAMP_TYPE, CREATE_TIME) => new.log_append_time = false,
            (TIMESTAMP_TYPE, _) => {
                let why = format!("{name} is {CREATE_TIME} or {LOG_APPEND_TIME}, not {value:?}");
                return Err((error_code::INVALID_CONFIG, why));
            }
            _ => {
                let holds = of_topic(link, Said::default());
                check_fixed(&holds, name, Some(value))?;
            }
        }
    }
    Ok((new, waited_for))
}

/// A thing that has configuration.
enum Thing {
    Topic(Said),
    Broker,
}

/// Answers DescribeConfigs: a row for each thing asked for, each once.
pub(super) async fn describe(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: DescribeConfigsRequest = request.decode()?;
    let form = Form {
        synonyms: message.include_synonyms,
        docs: message.include_documentation && request.version >= KINDS_FROM,
        kinds: request.version >= KINDS_FROM,
    };
    let resources = once(message.resources, |resource| {
        (resource.resource_type, resource.resource_name.clone())
    });
    let mut found = Vec::with_capacity(resources.len());
    for resource in &resources {
        found.push(find(link, resource).await);
    }
    let mut rows = Rows::new(link);
    let mut results = Vec::with_capacity(resources.len());
    for (resource, found) in resources.into_iter().zip(found) {
        let configs = match found {
            Ok(thing) => configs(link, &thing, &resource, &mut rows).await,
            Err(refused) => Err(refused),
        };
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
            .with_error_message(None);
        results.push(match configs {
            Ok(configs) => {
                let configs = configs.into_iter().map(|config| form.tell(config));
                result.with_configs(configs.collect())
            }
            Err((code, why)) => result
                .with_error_code(code)
                .with_error_message(Some(text(why))),
        });
    }
    let code = error_code::first_error(results.iter().map(|row| row.error_code));
    let response = DescribeConfigsResponse::default().with_results(results);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// What of a thing's values is asked for.
async fn configs(
    link: &Link,
    thing: &Thing,
    resource: &DescribeConfigsResource,
    rows: &mut Rows<'_>,
) -> Result<Vec<Config>, Refused> {
    let mut configs = match thing {
        Thing::Topic(said) => of_topic(link, *said),
        Thing::Broker => of_broker(link),
    };
    if let Some(keys) = &resource.configuration_keys
        && !keys.is_empty()
    {
        configs.retain(|config| keys.iter().any(|key| key.as_str() == config.name));
    }
    let counted = rows.add(configs.len()).await;
    counted.map_err(|fault| refused(link, fault))?;
    Ok(configs)
}

async fn find(link: &Link, resource: &DescribeConfigsResource) -> Result<Thing, Refused> {
    let front = link.front();
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        TOPIC => {
            let name = names::parse(name).map_err(|fault| refused(link, fault))?;
            front
                .allow(Action::Describe, Resource::Topic(&name))
                .map_err(|fault| refused(link, fault))?;
            let topic = front.topics().resolve(&name, false).await;
            let topic = topic.map_err(|fault| refused(link, fault))?;
            Ok(Thing::Topic(Said::from(&topic)))
        }
        BROKER if name.is_empty() || name == link.served.node_id.to_string() => {
            front
                .allow(Action::Describe, Resource::Cell)
                .map_err(|fault| refused(link, fault))?;
            Ok(Thing::Broker)
        }
        BROKER => {
            let why = format!("broker {name} is not this one; ask it");
            Err((error_code::INVALID_REQUEST, why))
        }
        other => {
            let why = format!("things of kind {other} have no configuration here");
            Err((error_code::INVALID_REQUEST, why))
        }
    }
}

/// What an answer tells of each value.
struct Form {
    synonyms: bool,
    docs: bool,
    kinds: bool,
}

impl Form {
    fn tell(&self, config: Config) -> DescribeConfigsResourceResult {
        let value = Some(text(config.value));
        let mut told = DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str(config.name))
            .with_value(value.clone())
            .with_read_only(config.read_only)
            .with_config_source(config.source)
            .with_documentation(None);
        if self.synonyms {
            told.synonyms = vec![
                DescribeConfigsSynonym::default()
                    .with_name(StrBytes::from_static_str(config.name))
                    .with_value(value)
                    .with_source(config.source),
            ];
        }
        if self.kinds {
            told.config_type = config.kind;
        }
        if self.docs {
            told.documentation = Some(StrBytes::from_static_str(config.doc));
        }
        told
    }
}
