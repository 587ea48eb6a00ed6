//! Makes, finds, lists and ends subscriptions.

use std::collections::BTreeSet;
use std::sync::Arc;

use bookie_metadata::{ListRequest, MetadataStore, Op, list_all};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{SubscriptionId, TopicId};
use hulse_proto::time::TimestampMs;

use super::name::SubscriptionName;
use super::record::{
    PREFIX, StartPoint, SubscribedTopic, Subscription, SubscriptionKind, SubscriptionPage,
};
use super::sharing::Sharing;
use crate::topics::{Changed, Expected, Topic, Topics, change, read};

/// Subscriptions per page when the caller names no number, and at most.
const PAGE: (usize, usize) = (100, 1000);
/// Racing changes of one subscription are taken up again at most this often.
const RACES_MAX: usize = 16;
/// Topics of one subscription: its record stays small.
const TOPICS_MAX: usize = 1_000;

/// What a subscription shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSubscription {
    /// How records are given to consumers.
    pub kind: SubscriptionKind,
    /// Records that are not processed are kept.
    pub hold: bool,
    /// One that is there already must say the same of `hold`, or it is refused; else it stays as it is.
    pub insists_on_hold: bool,
    /// QUEUE and KEYED, of one that is made by this.
    pub sharing: Sharing,
    /// Of one that is made by this: as [`Subscription::ttl_ms`].
    pub ttl_ms: u64,
    /// Where it begins on the topic.
    pub start: StartPoint,
}

/// What of a subscription is changed; `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionUpdate {
    /// Records that are not processed are kept.
    pub hold: Option<bool>,
    /// As [`Subscription::ttl_ms`].
    pub ttl_ms: Option<u64>,
    /// As [`Subscription::paused_until`].
    pub paused_until: Option<TimestampMs>,
}

/// The subscriptions of the cell. Cheap to clone.
#[derive(Clone)]
pub struct Subscriptions {
    store: Arc<dyn MetadataStore>,
    topics: Topics,
}

/// What a change makes of a record.
enum Wanted {
    /// As it is.
    Keep,
    Put(Subscription),
    Delete,
}

impl Subscriptions {
    /// A registry over `store`, of the topics of `topics`.
    pub fn new(store: Arc<dyn MetadataStore>, topics: Topics) -> Self {
        Self { store, topics }
    }

    /// Reads a subscription, as it is now.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`, `METADATA_UNAVAILABLE`, `DATA_DAMAGED`. One that is being deleted is answered.
    pub async fn get(&self, name: &SubscriptionName) -> Result<Subscription, Fault> {
        self.find(name).await?.ok_or_else(|| not_found(name))
    }

    async fn find(&self, name: &SubscriptionName) -> Result<Option<Subscription>, Fault> {
        let stored = read(self.store.get(&Subscription::key(name))).await?;
        stored.as_ref().map(Subscription::decode).transpose()
    }

    /// Lists them in order of their names. `namespace` is `tenant/namespace`, or empty for all.
    ///
    /// # Errors
    /// `INVALID_REQUEST` (a token that is none), `METADATA_UNAVAILABLE`, `DATA_DAMAGED`.
    pub async fn list(
        &self,
        namespace: &str,
        token: &str,
        size: u32,
    ) -> Result<SubscriptionPage, Fault> {
        let prefix = match namespace {
            "" => PREFIX.to_owned(),
            namespace => format!("{PREFIX}{namespace}/"),
        };
        let after = match token {
            "" => None,
            token => Some(Subscription::key(
                &SubscriptionName::parse(token, "").map_err(|_| {
                    let words = "page_token is none that this broker gave; begin without one";
                    Fault::new(Reason::InvalidRequest, words)
                })?,
            )),
        };
        let limit = match size {
            0 => PAGE.0,
            size => (size as usize).min(PAGE.1),
        };
        let request = ListRequest {
            prefix,
            after,
            limit,
            at: None,
        };
        let page = read(self.store.list(request)).await?;
        let subscriptions = page.items.iter().map(Subscription::decode);
        let subscriptions = subscriptions.collect::<Result<Vec<_>, _>>()?;
        let next = match subscriptions.last() {
            Some(last) if page.more => Some(last.name.as_str().to_owned()),
            _ => None,
        };
        Ok(SubscriptionPage {
            subscriptions,
            next,
        })
    }

    /// The subscription with this topic in it, made or added where it was not; and whether it was.
    ///
    /// # Errors
    /// `SUBSCRIPTION_EXISTS` of another type, or with the other `hold` than was insisted on, `SUBSCRIPTION_DELETING`, `INVALID_REQUEST`, `OVERLOADED` (too many topics),
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`.
    pub async fn join(
        &self,
        name: &SubscriptionName,
        topic: &Topic,
        new: NewSubscription,
    ) -> Result<(Subscription, bool), Fault> {
        if name.namespace() != super::name::namespace_of(&topic.name) {
            let words = format!(
                "subscription {name} and topic {} are of two namespaces; a subscription is of the namespace of its topics",
                topic.name
            );
            return Err(Fault::new(Reason::InvalidRequest, words));
        }
        let id = SubscriptionId(self.topics.mint());
        let of_topic = SubscriptionId(self.topics.mint());
        let created_at = self.topics.now_ms();
        let mut joined = false;
        let result = self.change(name, |found| {
            let mut wanted = match found {
                Some(found) => check(found, &new)?,
                None => Subscription {
                    name: name.clone(),
                    id,
                    kind: new.kind,
                    hold: new.hold,
                    sharing: new.sharing.clone(),
                    ttl_ms: new.ttl_ms,
                    paused_until: 0,
                    deleting: false,
                    created_at,
                    topics: Vec::new(),
                    version: Default::default(),
                },
            };
            match wanted.topic(topic.id) {
                Some(known) if known.deleting => return Err(deleting(name)),
                Some(_) => return Ok(Wanted::Keep),
                None => wanted.sharing.check_topic(&topic.name)?,
            }
            if wanted.topics.len() >= TOPICS_MAX {
                let words =
                    format!("subscription {name} has {TOPICS_MAX} topics, and no room for more");
                return Err(Fault::new(Reason::Overloaded, words));
            }
            joined = true;
            let start = match new.start {
                StartPoint::Unsaid if wanted.id != id && topic.created_at >= wanted.created_at => {
                    StartPoint::Earliest
                }
                StartPoint::Unsaid => StartPoint::Latest,
                said => said,
            };
            let cursor = match wanted.topics.is_empty() && wanted.id == id {
                true => id,
                false => of_topic,
            };
            wanted.topics.push(SubscribedTopic {
                cursor,
                topic: topic.id,
                partitions: topic.partitions,
                start,
                deleting: false,
            });
            Ok(Wanted::Put(wanted))
        });
        let subscription = result.await?.ok_or_else(|| not_found(name))?;
        Ok((subscription, joined))
    }

    /// The record of a group, made where there is none.
    ///
    /// # Errors
    /// `SUBSCRIPTION_EXISTS` of another type, `SUBSCRIPTION_DELETING`, `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`, `DATA_DAMAGED`.
    pub async fn claim_group(&self, name: &SubscriptionName) -> Result<Subscription, Fault> {
        let id = SubscriptionId(self.topics.mint());
        let created_at = self.topics.now_ms();
        let claimed = self.change(name, |found| match found {
            Some(found) if found.deleting => Err(deleting(name)),
            Some(found) => is_kind(&found, SubscriptionKind::Stream).map(|()| Wanted::Keep),
            None => Ok(Wanted::Put(Subscription {
                name: name.clone(),
                id,
                kind: SubscriptionKind::Stream,
                hold: false,
                sharing: Sharing::default(),
                deleting: false,
                created_at,
                topics: Vec::new(),
                ttl_ms: 0,
                paused_until: 0,
                version: Default::default(),
            })),
        });
        claimed.await?.ok_or_else(|| not_found(name))
    }

    /// The group is gone: its record goes. Of another type nothing is changed.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`, `DATA_DAMAGED`.
    pub async fn release_group(&self, name: &SubscriptionName) -> Result<(), Fault> {
        let released = self.change(name, |found| {
            let group = found.is_some_and(|found| found.kind == SubscriptionKind::Stream);
            Ok(if group { Wanted::Delete } else { Wanted::Keep })
        });
        released.await.map(drop)
    }

    /// The names of all groups.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `DATA_DAMAGED`.
    pub(crate) async fn groups(&self) -> Result<Vec<SubscriptionName>, Fault> {
        let all = read(list_all(&*self.store, PREFIX)).await?;
        let all = all.iter().map(Subscription::decode);
        let mut groups = all.collect::<Result<Vec<_>, _>>()?;
        groups.retain(|found| found.kind == SubscriptionKind::Stream);
        Ok(groups.into_iter().map(|found| found.name).collect())
    }

    /// Changes what it says of its cursors; they are told by whoever asks for this.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`, `SUBSCRIPTION_DELETING`, `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`, `DATA_DAMAGED`; `INVALID_REQUEST`:
    /// a pause of one whose consumers do not share.
    pub async fn update(
        &self,
        name: &SubscriptionName,
        said: SubscriptionUpdate,
    ) -> Result<Subscription, Fault> {
        let changed = self.change(name, |found| {
            let mut wanted = found.ok_or_else(|| not_found(name))?;
            if wanted.deleting {
                return Err(deleting(name));
            }
            if said.paused_until.is_some() && !wanted.kind.is_shared() {
                return Err(not_shared(&wanted, "paused"));
            }
            let before = wanted.clone();
            wanted.hold = said.hold.unwrap_or(wanted.hold);
            wanted.ttl_ms = said.ttl_ms.unwrap_or(wanted.ttl_ms);
            wanted.paused_until = said.paused_until.unwrap_or(wanted.paused_until);
            Ok(match wanted == before {
                true => Wanted::Keep,
                false => Wanted::Put(wanted),
            })
        });
        changed.await?.ok_or_else(|| not_found(name))
    }

    /// Marks a subscription that the caller has read, or its part for one topic, as being deleted. `None`: there is none.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`: it, or its part, was deleted and made again meanwhile; `METADATA_UNAVAILABLE`,
    /// `METADATA_UNKNOWN`, `DATA_DAMAGED`.
    pub async fn begin_delete(
        &self,
        known: &Subscription,
        topic: Option<TopicId>,
    ) -> Result<Option<Subscription>, Fault> {
        let name = &known.name;
        self.change(name, |found| {
            let Some(mut wanted) = found else {
                return Ok(Wanted::Keep);
            };
            if wanted.id != known.id {
                return Err(made_again(name));
            }
            let before = wanted.clone();
            match topic {
                None => wanted.deleting = true,
                Some(topic) => {
                    let part = wanted.topics.iter_mut().find(|part| part.topic == topic);
                    match part {
                        None => return Err(not_of_topic(name)),
                        Some(part) if Some(part.cursor) != known.cursor(topic) => {
                            return Err(made_again(name));
                        }
                        Some(part) => part.deleting = true,
                    }
                }
            }
            Ok(match wanted == before {
                true => Wanted::Keep,
                false => Wanted::Put(wanted),
            })
        })
        .await
    }

    /// The last step of a deletion: the cursors are gone. Of another identity nothing is changed.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`, `DATA_DAMAGED`.
    pub async fn finish_delete(
        &self,
        gone: &Subscription,
        topic: Option<TopicId>,
    ) -> Result<(), Fault> {
        let finished = self.change(&gone.name, |found| {
            let Some(mut wanted) = found.filter(|found| found.id == gone.id) else {
                return Ok(Wanted::Keep);
            };
            match topic {
                None => return Ok(Wanted::Delete),
                Some(topic) => wanted
                    .topics
                    .retain(|known| known.topic != topic || !known.deleting),
            }
            Ok(Wanted::Put(wanted))
        });
        finished.await.map(drop)
    }

    /// What all cursors of the cell are called, those of deletions under way too.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `DATA_DAMAGED`.
    pub(super) async fn cursors(&self) -> Result<BTreeSet<(TopicId, SubscriptionId)>, Fault> {
        let all = read(list_all(&*self.store, PREFIX)).await?;
        let mut cursors = BTreeSet::new();
        for stored in &all {
            let topics = Subscription::decode(stored)?.topics;
            cursors.extend(topics.iter().map(|known| (known.topic, known.cursor)));
        }
        Ok(cursors)
    }

    /// Every subscription that has this topic.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `DATA_DAMAGED`.
    pub async fn of_topic(&self, topic: &Topic) -> Result<Vec<Subscription>, Fault> {
        let prefix = format!("{PREFIX}{}/", super::name::namespace_of(&topic.name));
        let all = read(list_all(&*self.store, &prefix)).await?;
        let all = all.iter().map(Subscription::decode);
        let mut of_topic = all.collect::<Result<Vec<_>, _>>()?;
        of_topic.retain(|subscription| subscription.topic(topic.id).is_some());
        Ok(of_topic)
    }

    /// A topic is gone, and the cursors with it: no subscription of its namespace names it any more.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`, `DATA_DAMAGED`.
    pub async fn forget_topic(&self, topic: &Topic) -> Result<(), Fault> {
        for subscription in self.of_topic(topic).await? {
            let forgotten = self.change(&subscription.name, |found| {
                let Some(mut wanted) = found else {
                    return Ok(Wanted::Keep);
                };
                wanted.topics.retain(|known| known.topic != topic.id);
                Ok(Wanted::Put(wanted))
            });
            forgotten.await?;
        }
        Ok(())
    }

    /// Puts what `want` makes of the record in its place; asked again after each race. Answers the record, or `None` when there is none.
    async fn change(
        &self,
        name: &SubscriptionName,
        mut want: impl FnMut(Option<Subscription>) -> Result<Wanted, Fault>,
    ) -> Result<Option<Subscription>, Fault> {
        let key = Subscription::key(name);
        let mut found = self.find(name).await?;
        for _ in 0..RACES_MAX {
            let expected = Expected {
                key: &key,
                version: found.as_ref().map(|found| found.version),
            };
            let (op, put) = match want(found.clone())? {
                Wanted::Keep => return Ok(found),
                Wanted::Delete => (Op::Delete { key: key.clone() }, None),
                Wanted::Put(wanted) => (Op::put(key.clone(), wanted.encode()), Some(wanted)),
            };
            match change(&*self.store, expected, op).await? {
                Changed::Committed(revision) => {
                    return Ok(put.map(|mut put| {
                        put.version = revision;
                        put
                    }));
                }
                Changed::Differs { current, .. } => {
                    found = current.as_ref().map(Subscription::decode).transpose()?;
                }
            }
        }
        let words = format!("subscription {name} is changed by too many at once; try again");
        Err(Fault::new(Reason::Overloaded, words))
    }
}

fn is_kind(found: &Subscription, kind: SubscriptionKind) -> Result<(), Fault> {
    if found.kind == kind {
        return Ok(());
    }
    let words = format!(
        "subscription {} exists and is {}, not {}; use that type, or another name",
        found.name,
        found.kind.as_str(),
        kind.as_str()
    );
    Err(Fault::new(Reason::SubscriptionExists, words).with("type", found.kind.as_str()))
}

fn check(found: Subscription, new: &NewSubscription) -> Result<Subscription, Fault> {
    if found.deleting {
        return Err(deleting(&found.name));
    }
    is_kind(&found, new.kind)?;
    if new.insists_on_hold && found.hold != new.hold {
        let does = match found.hold {
            true => "keeps records until they are acknowledged",
            false => "lets retention take records that are not acknowledged",
        };
        let words = format!(
            "subscription {} exists and {does}, which is one setting for all of its topics ({}); leave hold unsaid, use another name, or update the subscription",
            found.name,
            found.topics.len()
        );
        let fault = Fault::new(Reason::SubscriptionExists, words);
        return Err(fault.with("hold", found.hold));
    }
    Ok(found)
}

fn deleting(name: &SubscriptionName) -> Fault {
    let words = format!(
        "subscription {name} is being deleted; wait until it is gone, then the name may be used again"
    );
    Fault::new(Reason::SubscriptionDeleting, words).with("subscription", name)
}

fn not_found(name: &SubscriptionName) -> Fault {
    let words = format!("subscription {name} does not exist; create it or check the name");
    Fault::new(Reason::SubscriptionNotFound, words).with("subscription", name)
}

/// What is asked goes with records that are shared out only.
pub(crate) fn not_shared(subscription: &Subscription, what: &str) -> Fault {
    let words = format!(
        "subscription {} is {}, and only queue and keyed ones can be {what}",
        subscription.name,
        subscription.kind.as_str()
    );
    Fault::new(Reason::InvalidRequest, words)
}

fn made_again(name: &SubscriptionName) -> Fault {
    let words = format!("subscription {name} was deleted and made again meanwhile");
    Fault::new(Reason::SubscriptionNotFound, words)
}

fn not_of_topic(name: &SubscriptionName) -> Fault {
    let words = format!("subscription {name} does not have this topic");
    Fault::new(Reason::SubscriptionNotFound, words).with("subscription", name)
}
