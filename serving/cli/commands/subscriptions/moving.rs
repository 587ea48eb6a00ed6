//! Moving cursors: seek, skip, clear.

use std::cmp::Ordering;

use hulse_proto::error::Reason;
use hulse_proto::time::WallClock as _;
use hulse_sdk::{Admin, CursorSelection, MovedCursor, Offset, Start};

use super::moved::MovedView;
use super::run::{failed, place};
use crate::arguments::OfTopic;
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::grouped;
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

/// A way to move cursors.
enum Move {
    /// Each of these partitions, or all, to a place.
    Seek(Vec<(Option<u32>, Start)>),
    /// Over so many records of a partition.
    Skip(u32, u64),
    /// Over everything, in a partition or in all.
    Clear(Option<u32>),
}

impl Move {
    /// Moves them, or finds out with `dry_run` what would become of them.
    async fn make(
        &self,
        admin: &Admin,
        of: &OfTopic,
        dry_run: bool,
    ) -> Result<Vec<MovedCursor>, Failure> {
        let moved = match self {
            Self::Skip(partition, records) => {
                let which = which(of, Some(*partition));
                admin.skip_subscription(&which, *records, dry_run).await
            }
            Self::Clear(partition) => {
                let which = which(of, *partition);
                admin.clear_subscription(&which, dry_run).await
            }
            Self::Seek(places) => {
                let mut moved = Vec::new();
                for (partition, start) in places {
                    let which = which(of, *partition);
                    let sought = admin.seek_subscription(&which, *start, dry_run).await;
                    moved.extend(sought.map_err(|error| self.failed(of, &error))?);
                }
                return Ok(moved);
            }
        };
        moved.map_err(|error| self.failed(of, &error))
    }

    fn failed(&self, of: &OfTopic, error: &hulse_sdk::Error) -> Failure {
        let what = match self {
            Self::Seek(_) => "cannot move the cursors",
            Self::Skip(..) => "cannot pass over the records",
            Self::Clear(_) => "cannot clear the backlog",
        };
        failed(what, of, error)
    }
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
    ask_and_make(session, admin, of, &Move::Seek(places)).await
}

/// `hulse subs skip`
pub(super) async fn skip(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    partition: u32,
    records: u64,
) -> Result<(), Stop> {
    ask_and_make(session, admin, of, &Move::Skip(partition, records)).await
}

/// `hulse subs clear`
pub(super) async fn clear(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    partition: Option<u32>,
) -> Result<(), Stop> {
    ask_and_make(session, admin, of, &Move::Clear(partition)).await
}

/// Says what would become of the cursors and asks, unless nothing is done or nobody wants to be asked; then moves them.
async fn ask_and_make(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    wanted: &Move,
) -> Result<(), Stop> {
    let dry_run = session.globals.dry_run;
    if !dry_run && !session.globals.yes {
        let planned = wanted.make(admin, of, true).await?;
        if planned.iter().any(|moved| moved.fault.is_some()) {
            return tell(session, of, &planned);
        }
        confirm(session, &in_words(of, &planned))?;
    }
    let moved = wanted.make(admin, of, dry_run).await?;
    tell(session, of, &moved)
}

/// What becomes of the cursors, for the one who is asked.
fn in_words(of: &OfTopic, planned: &[MovedCursor]) -> String {
    let sum = |of: fn(&MovedCursor) -> u64| planned.iter().map(of).sum::<u64>();
    let (old, new) = (
        sum(|moved| moved.old_backlog_records),
        sum(|moved| moved.new_backlog_records),
    );
    let effect = match old.cmp(&new) {
        Ordering::Less => format!("{} records come again", grouped(new - old)),
        Ordering::Greater => format!("{} records are passed over unread", grouped(old - new)),
        Ordering::Equal => format!("its backlog stays at {} records", grouped(new)),
    };
    let (topic, name) = (&of.topic, &of.subscription);
    let what = match planned {
        [one] => format!(
            "move {name} on {topic}, partition {}, from {} to {}",
            one.partition,
            grouped(one.old_base.0),
            grouped(one.new_base.0)
        ),
        _ => format!("move {} cursors of {name} on {topic}", planned.len()),
    };
    format!("{what}: {effect} (a seek can take it back)")
}

/// How to take a move back, where there was one.
fn way_back(of: &OfTopic, moved: &[MovedCursor]) -> Option<String> {
    let (topic, name) = (&of.topic, &of.subscription);
    let mut changed = moved
        .iter()
        .filter(|moved| moved.old_base != moved.new_base);
    let first = changed.next()?;
    let (partition, to) = match changed.next() {
        None => (first.partition.to_string(), first.old_base.to_string()),
        Some(_) => ("N".to_owned(), "CURRENT".to_owned()),
    };
    Some(format!(
        "hulse subs seek {topic} {name} -p {partition} --to {to} takes it back"
    ))
}

pub(super) fn which(of: &OfTopic, partition: Option<u32>) -> CursorSelection {
    let which = CursorSelection::new(&of.subscription).topic(&of.topic);
    match partition {
        Some(partition) => which.partition(partition),
        None => which,
    }
}

fn tell(session: Session<'_>, of: &OfTopic, moved: &[MovedCursor]) -> Result<(), Stop> {
    let rows: Vec<MovedView> = moved.iter().map(Into::into).collect();
    session.output.list(&rows)?;
    if moved.iter().all(|moved| moved.fault.is_none()) {
        match session.globals.dry_run {
            true => {
                let words = "(dry run, nothing was changed; leave --dry-run out to do it)";
                session.output.say(words);
            }
            false => {
                if let Some(words) = way_back(of, moved) {
                    session.output.say(&words);
                }
            }
        }
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
