//! The branch `hulse topics`.

use hulse_sdk::{Admin, BacklogAction, BacklogQuota, NewTopic, Retention, TopicChange};

use super::losing::{Losses, effect_words, held_words};
use super::name::NameView;
use super::view::{TopicRow, TopicView};
use super::{copy, describe, peek, trim};
use crate::arguments::{BacklogFlags, BacklogPolicy, RetentionFlags, Topics};
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::grouped;

/// Runs one of its commands.
///
/// # Errors
/// The server's; a deletion that was not confirmed.
pub(crate) async fn run(session: Session<'_>, command: &Topics) -> Result<(), Stop> {
    let client = session.client()?;
    let admin = client.admin();
    match command {
        Topics::List { namespace } => {
            let listed = admin.list_topics(namespace.as_deref().unwrap_or("")).await;
            let listed = listed.map_err(|error| {
                let object = namespace.as_deref().unwrap_or("all namespaces");
                Failure::from_sdk("cannot list topics", object, &error)
            })?;
            let rows: Vec<TopicRow> = listed.iter().map(Into::into).collect();
            session.output.list(&rows)
        }
        Topics::Create {
            topics,
            partitions,
            copies,
            retention,
            backlog,
        } => {
            let asked = copies.asked().map_err(|why| contradiction(topics, why))?;
            let new = NewTopic {
                partitions: partitions.unwrap_or(0),
                replication: asked.flatten(),
                retention: Retention {
                    time: retention.retention.map(Into::into).unwrap_or_default(),
                    bytes: retention.retention_size.map(Into::into).unwrap_or_default(),
                },
                backlog_quota: BacklogQuota {
                    bytes: backlog.backlog_size.map(Into::into).unwrap_or_default(),
                    time: backlog.backlog_age.map(Into::into).unwrap_or_default(),
                    action: backlog.backlog_policy.and_then(action),
                },
            };
            create(session, &admin, topics, new).await
        }
        Topics::Update {
            topics,
            copies,
            retention,
            backlog,
        } => {
            let asked = copies.asked().map_err(|why| contradiction(topics, why))?;
            let change = TopicChange {
                replication: asked,
                ..change(retention, backlog)
            };
            update(session, &admin, topics, change).await
        }
        Topics::Trim(trimmed) => trim::run(session, &admin, trimmed).await,
        Topics::Describe { topic } => describe::run(session, &admin, topic).await,
        Topics::Delete { topics } => delete(session, &admin, topics).await,
        Topics::Peek(peek) => peek::run(session, &client, peek).await,
        Topics::Copy(copy) => copy::run(session, &client, copy).await,
        Topics::Partitions { topic, total } => {
            let grown = admin.add_partitions(topic, *total).await;
            let grown = grown.map_err(|error| {
                Failure::from_sdk("cannot change the partitions", topic, &error)
            })?;
            let view = TopicView::from(grown);
            let words = format!("{} now has {}", view.topic(), view.partitions());
            session.output.done(&view, &words)
        }
    }
}

async fn create(
    session: Session<'_>,
    admin: &Admin,
    topics: &[String],
    new: NewTopic,
) -> Result<(), Stop> {
    let mut made = Vec::new();
    for topic in topics {
        let created = admin.create_topic_with(topic, new).await;
        match created {
            Ok(created) => {
                let view = TopicView::from(created);
                let words = format!("{} is created with {}", view.topic(), view.made_of());
                session.output.say(&words);
                say_warning(session, &view, new.replication.is_some());
                made.push(view);
            }
            Err(error) => {
                // Those that were made are told all the same.
                told(session, &made)?;
                let failure = Failure::from_sdk("cannot create the topic", topic, &error);
                return Err(failure.into());
            }
        }
    }
    told(session, &made)
}

/// What a choice of copies costs, to whoever made it.
fn say_warning(session: Session<'_>, view: &TopicView, chosen: bool) {
    if let Some(warning) = view.copies().warning().filter(|_| chosen) {
        session.output.say(&warning);
    }
}

fn contradiction(topics: &[String], why: String) -> Failure {
    Failure::new(Code::Usage, "the flags contradict each other")
        .why(why)
        .object(topics.join(", "))
        .next("leave one of them out")
}

/// What a policy says; `None`: what the cluster says.
fn action(policy: BacklogPolicy) -> Option<BacklogAction> {
    match policy {
        BacklogPolicy::Hold => Some(BacklogAction::Hold),
        BacklogPolicy::Reject => Some(BacklogAction::Reject),
        BacklogPolicy::Evict => Some(BacklogAction::Evict),
        BacklogPolicy::Default => None,
    }
}

fn change(retention: &RetentionFlags, backlog: &BacklogFlags) -> TopicChange {
    TopicChange {
        retention_time: retention.retention.map(Into::into),
        retention_bytes: retention.retention_size.map(Into::into),
        backlog_bytes: backlog.backlog_size.map(Into::into),
        backlog_time: backlog.backlog_age.map(Into::into),
        backlog_action: backlog.backlog_policy.map(action),
        replication: None,
    }
}

async fn update(
    session: Session<'_>,
    admin: &Admin,
    topics: &[String],
    change: TopicChange,
) -> Result<(), Stop> {
    if change == TopicChange::default() {
        let failure = Failure::new(Code::Usage, "nothing is said to be changed")
            .why("no --retention, no --backlog and no copies flag is given")
            .object(topics.join(", "))
            .next("say what shall hold, e.g. --retention 30d");
        return Err(failure.into());
    }
    let mut effects = Vec::new();
    for topic in topics {
        let effect = admin.update_effect(topic, change).await;
        let effect =
            effect.map_err(|error| Failure::from_sdk("cannot change the topic", topic, &error))?;
        effects.extend(effect_words(topic, &effect));
    }
    // What removes nothing needs nobody's word.
    if effects.is_empty() && session.globals.dry_run {
        let words = "would remove nothing that is there now (dry run, nothing was changed)";
        session.output.say(words);
        return Ok(());
    }
    if !effects.is_empty() && !confirm(session, &effects.join("; "))? {
        return Ok(());
    }
    let mut changed = Vec::new();
    for topic in topics {
        match admin.update_topic(topic, change).await {
            Ok(topic) => {
                let view = TopicView::from(topic);
                session.output.say(&view.kept());
                say_warning(session, &view, matches!(change.replication, Some(Some(_))));
                changed.push(view);
            }
            Err(error) => {
                told(session, &changed)?;
                let failure = Failure::from_sdk("cannot change the topic", topic, &error);
                return Err(failure.into());
            }
        }
    }
    told(session, &changed)
}

async fn delete(session: Session<'_>, admin: &Admin, topics: &[String]) -> Result<(), Stop> {
    let mut held = Vec::new();
    for topic in topics {
        let failed = |error| Failure::from_sdk("cannot look at the topic", topic, &error);
        let losses = Losses::find(admin, topic, None).await?.words();
        let described = describe::opened(admin, topic).await.map_err(failed)?;
        held.push(format!("{}{losses}", held_words(&described)));
    }
    let what = match (topics, &held[..]) {
        ([topic], [held]) => format!("delete {topic} with everything in it, {held}"),
        _ => {
            let each = topics.iter().zip(&held);
            let each = each.map(|(topic, held)| format!("\n  {topic}: {held}"));
            let names = topics.join(", ");
            format!(
                "delete {names} with everything in them{}",
                each.collect::<String>()
            )
        }
    };
    if !confirm(session, &what)? {
        return Ok(());
    }
    let mut gone = Vec::new();
    for topic in topics {
        let watched = admin.delete_topic_watched(topic, |left| {
            let words = format!(
                "deleting {topic}: {} partitions are left",
                grouped(left.into())
            );
            session.output.say(&words);
        });
        match watched.await {
            Ok(()) => {
                session.output.say(&format!("deleted {topic}"));
                gone.push(NameView::new(topic));
            }
            Err(error) => {
                told(session, &gone)?;
                let failure = Failure::from_sdk("cannot delete the topic", topic, &error);
                return Err(failure.into());
            }
        }
    }
    told(session, &gone)
}

/// What was done, for a program; a person was told in sentences.
fn told<V: crate::output::View>(session: Session<'_>, done: &[V]) -> Result<(), Stop> {
    match session.output.shape.for_programs() {
        true => session.output.list(done),
        false => Ok(()),
    }
}
