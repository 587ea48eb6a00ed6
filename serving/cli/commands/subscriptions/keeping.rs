//! Making a subscription, and changing what it keeps. A subscription may have many topics of its namespace, and what it keeps is said
//! once for all of them: so each command says which these are, and lets no records of any go without a word.

use hulse_sdk::{Admin, Cursor, NewSubscription, Start, Subscription, SubscriptionChange};

use super::run::{described, failed, of_topic};
use super::view::SubscriptionRow;
use crate::arguments::OfTopic;
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::config::Period;
use crate::failure::{Code, Failure, Stop};
use crate::format::date_and_time;
use crate::output::grouped;

/// `hulse subs create`
pub(super) async fn create(
    session: Session<'_>,
    admin: &Admin,
    new: NewSubscription,
) -> Result<(), Stop> {
    let of = OfTopic {
        topic: new.topic.clone(),
        subscription: new.name.clone(),
    };
    // Unsaid it is true for one that is made, and one that is there stays as it is.
    let (hold, start) = (new.hold.unwrap_or(true), new.start);
    let cannot = |error: hulse_sdk::Error| failed("cannot create the subscription", &of, &error);
    let name = of_topic(&of.topic, &of.subscription);
    let there = admin.find_subscription(&name, "").await.map_err(cannot)?;
    if let Some(there) = &there {
        agrees(there, &of, hold)?;
    }
    let (_, created) = admin.create_subscription(new).await.map_err(cannot)?;
    let (subscription, cursors) = described(admin, &of).await?;
    // Somebody may have made it in between.
    agrees(&subscription, &of, hold)?;
    let row = SubscriptionRow::new(&subscription, &cursors);
    let begins = begins(start, &of.topic, &cursors);
    let mut words = match (&there, created) {
        (None, true) => {
            format!("{} is created on {}; {begins}", subscription.name, of.topic)
        }
        (Some(there), true) => format!(
            "{} exists already, on {}; now it is on {} too, where {begins}",
            subscription.name,
            topics(&there.topics),
            of.topic
        ),
        (_, false) => format!(
            "{} exists already, on {}; it stays where it is",
            subscription.name,
            topics(&subscription.topics)
        ),
    };
    if hold && !subscription.hold {
        words.push_str(&format!(
            "; it lets retention take records that are not acknowledged, `hulse subs update {} {} --hold` keeps them",
            of.topic, of.subscription
        ));
    }
    session.output.done(&row, &words)
}

/// Where a subscription begins on a topic, and what of it waits.
fn begins(start: Start, topic: &str, cursors: &[Cursor]) -> String {
    let full = |of: &Cursor| of.topic == topic || of.topic.ends_with(&format!("/{topic}"));
    let states = cursors.iter().filter(|cursor| full(cursor));
    let states = states.filter_map(|cursor| cursor.state.as_ref().ok());
    let waiting: u64 = states.map(|state| state.backlog_records).sum();
    let waiting = match waiting {
        0 => "nothing waits for it yet".to_owned(),
        1 => "1 record waits for it".to_owned(),
        many => format!("{} records wait for it", grouped(many)),
    };
    match start {
        Start::Earliest => format!("it begins at the start: {waiting}"),
        Start::Latest => {
            "it begins at the end: what is stored already is not for it (--from start)".to_owned()
        }
        Start::Offset(offset) => format!("it begins at offset {offset}: {waiting}"),
        Start::Time(ms) => format!(
            "it begins at the first record that carries {} or a later time, or at the end where none does: {waiting}",
            date_and_time(ms)
        ),
    }
}

/// Refuses to make what is there already and keeps its records, where they shall not be kept.
fn agrees(there: &Subscription, of: &OfTopic, hold: bool) -> Result<(), Failure> {
    if hold || !there.hold {
        return Ok(());
    }
    let why = format!(
        "it is on {} and keeps records there until they are acknowledged; that is one setting for all of its topics",
        topics(&there.topics)
    );
    Err(
        Failure::new(Code::Conflict, "the subscription exists already and holds")
            .why(why)
            .object(&there.name)
            .next(format!(
                "leave --no-hold out, name another subscription, or see what `hulse subs update {} {} --no-hold --dry-run` says",
                on(there, of),
                of.subscription
            )),
    )
}

/// A topic that the subscription can be named beside: the one that was, if it is on it.
fn on<'a>(there: &'a Subscription, of: &'a OfTopic) -> &'a str {
    let has = |topic: &&String| **topic == of.topic || topic.ends_with(&format!("/{}", of.topic));
    match (
        there.topics.iter().any(|topic| has(&topic)),
        there.topics.first(),
    ) {
        (false, Some(first)) => first,
        _ => &of.topic,
    }
}

/// `hulse subs update`
pub(super) async fn update(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    change: SubscriptionChange,
) -> Result<(), Stop> {
    let cannot = |error: hulse_sdk::Error| failed("cannot update the subscription", of, &error);
    // It must be on the topic that it is named beside; what is changed is changed on all of its topics.
    let (named, _) = described(admin, of).await?;
    let all = || admin.describe_subscription(&named.name, "", false);
    let (subscription, cursors) = all().await.map_err(cannot)?;
    let what = effect(&subscription, &cursors, &change);
    let lets_go = change.hold == Some(false) && subscription.hold;
    let ages = change.ttl.is_some_and(|ttl| !ttl.is_zero());
    let loses = (lets_go || ages) && is_behind(&cursors);
    if (loses || session.globals.dry_run) && !confirm(session, &what)? {
        return Ok(());
    }
    let updated = admin
        .update_subscription(&of.subscription, &of.topic, change)
        .await;
    updated.map_err(cannot)?;
    let (subscription, cursors) = all().await.map_err(cannot)?;
    let row = SubscriptionRow::new(&subscription, &cursors);
    let holds = change.hold.map(|hold| match hold {
        true => "keeps records until they are acknowledged".to_owned(),
        false => "lets retention take records that are not acknowledged".to_owned(),
    });
    let ttl = change.ttl.map(|ttl| match ttl.is_zero() {
        true => "lets no record grow too old".to_owned(),
        false => format!("passes over records that are older than {}", Period(ttl)),
    });
    let words: Vec<String> = holds.into_iter().chain(ttl).collect();
    let (words, on) = (words.join(" and "), topics(&subscription.topics));
    session
        .output
        .done(&row, &format!("{} {words}, on {on}", subscription.name))
}

/// What a change does, topic by topic.
fn effect(subscription: &Subscription, cursors: &[Cursor], change: &SubscriptionChange) -> String {
    let holds = change.hold.map(|hold| holding(subscription, cursors, hold));
    let ttl = change.ttl.map(|ttl| {
        let (name, on) = (&subscription.name, topics(&subscription.topics));
        match ttl.is_zero() {
            true => format!("let no record of {on} grow too old for {name}"),
            false => format!(
                "let {name} pass over records of {on} that are older than {}, acknowledged or not",
                Period(ttl)
            ),
        }
    });
    let all: Vec<String> = holds.into_iter().chain(ttl).collect();
    all.join(" and ")
}

fn holding(subscription: &Subscription, cursors: &[Cursor], hold: bool) -> String {
    let name = &subscription.name;
    match (subscription.hold, hold) {
        (_, true) => format!(
            "keep records of {} until {name} has acknowledged them",
            topics(&subscription.topics)
        ),
        (false, false) => format!("change nothing: {name} lets retention take them already"),
        (true, false) => {
            let each: Vec<String> = subscription
                .topics
                .iter()
                .map(|topic| format!("{topic} {}", backlog(topic, cursors)))
                .collect();
            format!(
                "let retention take what {name} has not acknowledged: {}",
                each.join(", ")
            )
        }
    }
}

/// "3 records", and of how many partitions nobody can tell.
fn backlog(topic: &str, cursors: &[Cursor]) -> String {
    let of_topic = || cursors.iter().filter(|cursor| cursor.topic == topic);
    let known = of_topic().filter_map(|cursor| cursor.state.as_ref().ok());
    let records = match known.map(|state| state.backlog_records).sum::<u64>() {
        1 => "1 record".to_owned(),
        records => format!("{} records", grouped(records)),
    };
    match of_topic().filter(|cursor| cursor.state.is_err()).count() {
        0 => records,
        silent => format!("{records} (more may be: {silent} partitions do not answer)"),
    }
}

/// True when a record may go that is not acknowledged.
fn is_behind(cursors: &[Cursor]) -> bool {
    let behind = |cursor: &Cursor| match &cursor.state {
        Ok(state) => state.backlog_records > 0,
        Err(_) => true,
    };
    cursors.iter().any(behind)
}

fn topics(names: &[String]) -> String {
    match names {
        [] => "no topic any more".to_owned(),
        _ => names.join(", "),
    }
}
