//! The branch `hulse subscriptions`.

use std::time::Duration;

use hulse_proto::error::Reason;
use hulse_sdk::{
    Admin, Cursor, DeadLetters, KeyOrder, NewSubscription, Sharing, Subscription,
    SubscriptionChange, SubscriptionType,
};

use super::cursors::SubscriptionView;
use super::view::SubscriptionRow;
use super::{keeping, moving, pausing, redriving};
use crate::arguments::{self, OfTopic, SharingArgs, Subscriptions, Type};
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::position::{Place, Position};

impl From<Type> for SubscriptionType {
    fn from(kind: Type) -> Self {
        match kind {
            Type::Exclusive => Self::Exclusive,
            Type::Failover => Self::Failover,
            Type::Queue => Self::Queue,
            Type::Keyed => Self::Keyed,
            Type::Stream => Self::Stream,
        }
    }
}

/// Runs one of its commands.
///
/// # Errors
/// The server's; a change that was not confirmed.
pub(crate) async fn run(session: Session<'_>, command: &Subscriptions) -> Result<(), Stop> {
    let client = session.client()?;
    let admin = client.admin();
    match command {
        Subscriptions::List { topic } => list(session, &admin, topic.as_deref()).await,
        Subscriptions::Create {
            of,
            kind,
            from,
            no_hold,
            ttl,
            sharing: args,
        } => {
            let mut new = NewSubscription::new(&of.subscription, &of.topic);
            new.kind = (*kind).into();
            new.start = moving::one_place(&admin, &of.topic, *from).await?;
            new.hold = no_hold.then_some(false);
            new.sharing = sharing(*kind, args)?;
            new.ttl = ttl.map(|ttl| ttl.0);
            keeping::create(session, &admin, new).await
        }
        Subscriptions::Update {
            of,
            hold,
            no_hold,
            ttl,
        } => {
            let change = SubscriptionChange {
                // At most one of the two flags is given.
                hold: (*hold || *no_hold).then_some(*hold),
                ttl: ttl.map(|ttl| ttl.limit().map_or(Duration::ZERO, |ttl| ttl.0)),
                ..SubscriptionChange::default()
            };
            keeping::update(session, &admin, of, change).await
        }
        Subscriptions::Pause { of, time } => pausing::pause(session, &admin, of, *time).await,
        Subscriptions::Resume { of } => pausing::resume(session, &admin, of).await,
        Subscriptions::Redrive {
            of,
            partition,
            times,
        } => redriving::redrive(session, &client, of, *partition, *times).await,
        Subscriptions::Describe { of } => {
            let (subscription, cursors) = described_or_outlived(&admin, of).await?;
            let view = SubscriptionView::new(subscription, cursors);
            if session.output.shape.for_people() {
                session.output.say(&view.headline());
            }
            session.output.one(&view)
        }
        Subscriptions::Seek { of, to, partition } => {
            moving::seek(session, &admin, of, *to, *partition).await
        }
        Subscriptions::Skip {
            of,
            partition,
            records,
        } => moving::skip(session, &admin, of, *partition, *records).await,
        Subscriptions::Clear { of, partition } => {
            moving::clear(session, &admin, of, *partition).await
        }
        Subscriptions::Delete { of, force } => delete(session, &admin, of, *force).await,
    }
}

/// What was chosen of how records are shared; `None`: one consumer gets all of a partition.
fn sharing(kind: Type, args: &SharingArgs) -> Result<Option<Sharing>, Failure> {
    let sharing = Sharing {
        lock: args.lock.map(|lock| lock.0),
        attempts_max: args.max_attempts,
        dead_letters: match (&args.dead_letter_topic, args.drop_dead_letters) {
            (Some(topic), _) => DeadLetters::Topic(topic.clone()),
            (None, true) => DeadLetters::Drop,
            (None, false) => DeadLetters::Park,
        },
        backoff: args.backoff.map(|backoff| backoff.0),
        key_order: match args.key_order {
            arguments::KeyOrder::Sticky => KeyOrder::Sticky,
            arguments::KeyOrder::BlockOnNack => KeyOrder::BlockOnNack,
            arguments::KeyOrder::OneInFlight => KeyOrder::OneInFlight,
        },
        named_slots: args.named_slots,
    };
    let strays = match kind {
        Type::Exclusive | Type::Failover | Type::Stream => sharing != Sharing::default(),
        Type::Queue => sharing.key_order != KeyOrder::Sticky || sharing.named_slots,
        Type::Keyed => false,
    };
    if strays {
        let what = "an option does not go with this type of subscription";
        return Err(Failure::new(Code::Usage, what)
            .why("locks, attempts, dead letters and back-off are of queue and keyed subscriptions, and --key-order and --named-slots of keyed ones")
            .object(format!("--type {}", SubscriptionType::from(kind)))
            .next("choose another --type, or leave the option out"));
    }
    Ok(matches!(kind, Type::Queue | Type::Keyed).then_some(sharing))
}

/// The full name of a subscription that is named beside a topic, in whose namespace a short name is.
pub(crate) fn of_topic(topic: &str, subscription: &str) -> String {
    match (subscription.contains('/'), topic.rsplit_once('/')) {
        (false, Some((namespace, _))) => format!("{namespace}/{subscription}"),
        _ => subscription.to_owned(),
    }
}

/// What went wrong with a subscription of a topic.
pub(super) fn failed(what: &str, of: &OfTopic, error: &hulse_sdk::Error) -> Failure {
    let short = |name: &str| match name.chars().count() {
        0 => "\"\"".to_owned(),
        1..=64 => name.to_owned(),
        _ => format!("{}..", name.chars().take(64).collect::<String>()),
    };
    let object = format!("{} of {}", short(&of.subscription), short(&of.topic));
    Failure::from_sdk(what, object, error)
}

async fn list(session: Session<'_>, admin: &Admin, topic: Option<&str>) -> Result<(), Stop> {
    let cannot = |error: hulse_sdk::Error| {
        Failure::from_sdk(
            "cannot list subscriptions",
            topic.unwrap_or("all topics"),
            &error,
        )
    };
    let listed = admin.list_subscriptions("", topic.unwrap_or("")).await;
    let mut rows = Vec::new();
    for subscription in listed.map_err(cannot)? {
        let described = admin
            .describe_subscription(&subscription.name, topic.unwrap_or(""), false)
            .await;
        match described {
            Ok((subscription, cursors)) => rows.push(SubscriptionRow::new(&subscription, &cursors)),
            // It was deleted meanwhile.
            Err(error) if error.kind() == hulse_sdk::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot(error).into()),
        }
    }
    session.output.list(&rows)
}

/// A subscription, and its cursors on the topic that it is named beside.
pub(super) async fn described(
    admin: &Admin,
    of: &OfTopic,
) -> Result<(Subscription, Vec<Cursor>), Failure> {
    let described = admin
        .describe_subscription(&of.subscription, &of.topic, false)
        .await;
    described.map_err(|error| failed("cannot describe the subscription", of, &error))
}

async fn delete(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    force: bool,
) -> Result<(), Stop> {
    let (subscription, cursors) = described_or_outlived(admin, of).await?;
    let row = SubscriptionRow::new(&subscription, &cursors);
    let what = match subscription.topics.is_empty() {
        true if subscription.kind == SubscriptionType::Stream => {
            format!("delete the group {}", subscription.name)
        }
        true => format!(
            "delete {}, which has outlived its topics",
            subscription.name
        ),
        false => format!(
            "take {} from {} and forget its backlog of {}",
            subscription.name,
            of.topic,
            row.backlog()
        ),
    };
    if !confirm(session, &what)? {
        return Ok(());
    }
    // The last topic takes the subscription with it.
    let topic = match &subscription.topics[..] {
        [] | [_] => "",
        _ => &of.topic,
    };
    let deleted = admin
        .delete_subscription(&subscription.name, topic, force)
        .await;
    deleted.map_err(|error| failed("cannot delete the subscription", of, &error))?;
    session
        .output
        .done(&row, &format!("deleted {}", subscription.name))
}

/// As [`described`], and also one that has no topic any more.
async fn described_or_outlived(
    admin: &Admin,
    of: &OfTopic,
) -> Result<(Subscription, Vec<Cursor>), Failure> {
    match described(admin, of).await {
        Err(failure) => match outlived(admin, of, &failure).await? {
            Some(subscription) => Ok((subscription, Vec::new())),
            None => Err(failure),
        },
        described => described,
    }
}

/// A subscription of this name that has no topic any more, where `failure` says that the topic, or its part of it, is gone.
async fn outlived(
    admin: &Admin,
    of: &OfTopic,
    failure: &Failure,
) -> Result<Option<Subscription>, Failure> {
    let gone = [
        Reason::TopicNotFound,
        Reason::TopicDeleting,
        Reason::SubscriptionNotFound,
    ];
    if !gone.iter().any(|reason| failure.is(*reason)) {
        return Ok(None);
    }
    let name = of_topic(&of.topic, &of.subscription);
    let found = admin.find_subscription(&name, "").await;
    let found = found.map_err(|error| failed("cannot find the subscription", of, &error))?;
    Ok(found.filter(|subscription| subscription.topics.is_empty()))
}

/// A position that names a place rather than a range.
///
/// # Errors
/// It is a range.
pub(super) fn place(position: Position) -> Result<Place, Failure> {
    match position.until {
        None => Ok(position.from),
        Some(_) => Err(Failure::new(Code::Usage, "a range is no place to move to")
            .why("a cursor goes on from one position")
            .object("the position")
            .next("write its first part only")),
    }
}
