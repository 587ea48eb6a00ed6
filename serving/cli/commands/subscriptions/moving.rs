//! Moving cursors: seek, skip, clear.

use hulse_proto::error::Reason;
use hulse_proto::time::WallClock as _;
use hulse_sdk::{Admin, CursorSelection, MovedCursor, Offset, Start};

use super::run::{failed, place};
use super::view::MovedView;
use crate::arguments::OfTopic;
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::position::{Place, Position};
use crate::roles::SystemClock;

/// The SDK's own word for a place, where it has one.
fn simple(place: Place) -> Option<Start> {
    match place {
        Place::Start => Some(Start::Earliest),
        Place::End => Some(Start::Latest),
        Place::At(offset) => Some(Start::Offset(Offset(offset))),
        Place::Time(_) | Place::Ago(_) => place.time(SystemClock.now_ms()).map(Start::Time),
        Place::BeforeEnd(_) | Place::AfterStart(_) => None,
    }
}

/// A place that is the same words for every partition.
///
/// # Errors
/// It counts from an end of each partition, and the topic has several.
pub(crate) async fn one_place(
    admin: &Admin,
    topic: &str,
    position: Position,
) -> Result<Start, Failure> {
    let at = place(position)?;
    if let Some(start) = simple(at) {
        return Ok(start);
    }
    let described = admin.describe_topic(topic).await;
    let described =
        described.map_err(|error| Failure::from_sdk("cannot find the position", topic, &error))?;
    if described.partitions > 1 {
        return Err(Failure::new(
            Code::Usage,
            "this position is another one in each partition",
        )
        .why(format!("the topic has {} partitions", described.partitions))
        .object(topic)
        .next("create it at start or end, then `hulse subs seek` with the position"));
    }
    Ok(Start::Offset(offset_of(admin, topic, 0, at).await?))
}

async fn offset_of(
    admin: &Admin,
    topic: &str,
    partition: u32,
    at: Place,
) -> Result<Offset, Failure> {
    let bounds = admin.offsets(topic, partition, None).await;
    let bounds =
        bounds.map_err(|error| Failure::from_sdk("cannot find the position", topic, &error))?;
    Ok(Offset(at.offset(bounds.start.0, bounds.end.0, None)))
}

/// Where each partition is to go: one word for all, or an offset for each.
async fn places(
    admin: &Admin,
    topic: &str,
    at: Place,
    partition: Option<u32>,
) -> Result<Vec<(Option<u32>, Start)>, Failure> {
    if let Some(start) = simple(at) {
        return Ok(Vec::from([(partition, start)]));
    }
    let partitions = match partition {
        Some(partition) => partition..partition + 1,
        None => {
            let described = admin.describe_topic(topic).await;
            let described = described
                .map_err(|error| Failure::from_sdk("cannot find the position", topic, &error))?;
            0..described.partitions
        }
    };
    let mut places = Vec::new();
    for partition in partitions {
        let offset = offset_of(admin, topic, partition, at).await?;
        places.push((Some(partition), Start::Offset(offset)));
    }
    Ok(places)
}

/// `hulse subs seek`
pub(super) async fn seek(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    to: Position,
    partition: Option<u32>,
) -> Result<(), Stop> {
    let places = places(admin, &of.topic, place(to)?, partition).await?;
    if !agreed(session, of, "move the cursors")? {
        return Ok(());
    }
    let mut moved = Vec::new();
    for (partition, start) in places {
        let dry_run = session.globals.dry_run;
        let sought = admin
            .seek_subscription(&which(of, partition), start, dry_run)
            .await;
        moved.extend(sought.map_err(|error| failed("cannot move the cursors", of, &error))?);
    }
    tell(session, of, &moved)
}

/// `hulse subs skip`
pub(super) async fn skip(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    partition: u32,
    records: u64,
) -> Result<(), Stop> {
    if !agreed(session, of, &format!("pass over {records} records"))? {
        return Ok(());
    }
    let dry_run = session.globals.dry_run;
    let moved = admin
        .skip_subscription(&which(of, Some(partition)), records, dry_run)
        .await;
    let moved = moved.map_err(|error| failed("cannot pass over the records", of, &error))?;
    tell(session, of, &moved)
}

/// `hulse subs clear`
pub(super) async fn clear(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    partition: Option<u32>,
) -> Result<(), Stop> {
    if !agreed(session, of, "pass over everything")? {
        return Ok(());
    }
    let dry_run = session.globals.dry_run;
    let moved = admin
        .clear_subscription(&which(of, partition), dry_run)
        .await;
    let moved = moved.map_err(|error| failed("cannot clear the backlog", of, &error))?;
    tell(session, of, &moved)
}

fn which(of: &OfTopic, partition: Option<u32>) -> CursorSelection {
    let which = CursorSelection::new(&of.subscription).topic(&of.topic);
    match partition {
        Some(partition) => which.partition(partition),
        None => which,
    }
}

/// A dry run needs nobody's word.
fn agreed(session: Session<'_>, of: &OfTopic, what: &str) -> Result<bool, Failure> {
    if session.globals.dry_run {
        return Ok(true);
    }
    confirm(
        session,
        &format!("{what} of {} on {}", of.subscription, of.topic),
    )
}

fn tell(session: Session<'_>, of: &OfTopic, moved: &[MovedCursor]) -> Result<(), Stop> {
    let rows: Vec<MovedView> = moved.iter().map(Into::into).collect();
    session.output.list(&rows)?;
    if session.globals.dry_run && moved.iter().all(|moved| moved.fault.is_none()) {
        session.output.say("(dry run, nothing changed; add --yes)");
    }
    let fault = moved
        .iter()
        .find_map(|moved| Some((moved.partition, moved.fault.as_ref()?)));
    match fault {
        None => Ok(()),
        // A position that was named is a word of the command line.
        Some((partition, fault)) if fault.reason == Reason::OffsetOutOfRange => Err(Failure::new(
            Code::Usage,
            "a cursor was not moved",
        )
        .why(fault)
        .object(format!(
            "{} of {}, partition {partition}",
            of.subscription, of.topic
        ))
        .next(format!(
            "hulse topics describe {} shows the offsets that exist; -p N moves one partition only",
            of.topic
        ))
        .into()),
        Some((partition, fault)) => {
            let object = format!("{} of {}, partition {partition}", of.subscription, of.topic);
            Err(Failure::from_fault("a cursor was not moved", fault)
                .object(object)
                .into())
        }
    }
}
