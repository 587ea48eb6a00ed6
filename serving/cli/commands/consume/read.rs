//! `hulse consume` without a subscription: a reader on the log.
//!
//! Begins at the end and follows, unless a position, a number or `-e` says otherwise. Positions count per partition: `-o -5` is the last
//! five of each. What is read is printed at once when nothing more is at hand, else in pieces of [`PIECE_BYTES`].

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::select_all;
use hulse_proto::error::Reason;
use hulse_proto::time::WallClock as _;
use hulse_sdk::{Client, Offset, ReadRecord, Reader, Start};

use super::printing::{PIECE_BYTES, Printing, write};
use super::silence::Silence;
use crate::arguments;
use crate::commands::beyond::{self, Held};
use crate::commands::link::Link;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::position::{Place, Position};
use crate::roles::SystemClock;

/// A topic that is being read.
struct Open {
    reader: Reader,
    /// Exclusive end of each partition that has one.
    until: BTreeMap<u32, u64>,
    /// Partitions of `until` that were not read up to it yet.
    unfinished: usize,
}

/// Runs it.
///
/// # Errors
/// The server's, a damaged batch, or the output's.
pub(super) async fn run(session: Session<'_>, consume: &arguments::Consume) -> Result<(), Stop> {
    let mut printing = Printing::new(session, consume).map_err(Failure::from)?;
    let client = session.client_over(&Link::default())?;
    let mut open = Vec::new();
    for topic in &consume.topics {
        open.extend(begin(&client, session, topic, consume).await?);
    }
    let interrupt = tokio::signal::ctrl_c();
    let mut interrupt = std::pin::pin!(interrupt);
    let mut left = consume.count.unwrap_or(u64::MAX);
    let mut out = Vec::with_capacity(2 * PIECE_BYTES);
    let mut silence = Silence::new(consume);
    while !open.is_empty() && left > 0 {
        let next = match next_of(&mut open).now_or_never() {
            Some(next) => next,
            None => {
                write(&mut out)?;
                tokio::select! {
                    biased;
                    _ = &mut interrupt => break,
                    next = next_of(&mut open) => next,
                    () = silence.lasts() => {
                        silence.tell(session.output, consume, left);
                        continue;
                    }
                }
            }
        };
        match next {
            (index, None) => drop(open.swap_remove(index)),
            (index, Some(Ok(record))) => {
                let printed = open[index].takes(&record);
                if printed {
                    silence.ends();
                    printing.print(open[index].reader.topic(), &record, &mut out);
                    left -= 1;
                }
                if open[index].finished() {
                    drop(open.swap_remove(index));
                }
            }
            (index, Some(Err(error))) => {
                write(&mut out)?;
                let topic = open[index].reader.topic().to_owned();
                let object = match error.reason() {
                    Some(Reason::OffsetOutOfRange) => outside(&client, &topic, consume).await,
                    _ => None,
                };
                let object = object.unwrap_or_else(|| topic.clone());
                let failure = Failure::from_sdk("cannot read on", object, &error);
                if !error.is_retryable() || consume.exit {
                    return Err(failure.into());
                }
                session.output.tell(&format!("{failure}"));
            }
        }
        if out.len() >= PIECE_BYTES {
            write(&mut out)?;
        }
    }
    write(&mut out)
}

/// The next record of any topic; `None` for one that is read to its end. Cancel-safe, as `Reader::next` is.
async fn next_of(open: &mut [Open]) -> (usize, Option<Result<ReadRecord, hulse_sdk::Error>>) {
    if let [only] = open {
        return (0, only.reader.next().await.transpose());
    }
    let waiting = open.iter_mut().map(|open| Box::pin(open.reader.next()));
    let (next, index, _) = select_all(waiting).await;
    (index, next.transpose())
}

impl Open {
    /// False for a record at or behind its partition's end.
    fn takes(&mut self, record: &ReadRecord) -> bool {
        let Some(until) = self.until.get(&record.partition).copied() else {
            return true;
        };
        if record.offset.0 + 1 >= until {
            self.until.insert(record.partition, 0);
            self.unfinished -= usize::from(until > 0);
        }
        record.offset.0 < until
    }

    /// Every partition has an end and was read up to it.
    fn finished(&self) -> bool {
        !self.until.is_empty() && self.unfinished == 0
    }
}

/// Where to begin when no position is given.
pub(super) fn default_position(consume: &arguments::Consume) -> Position {
    let from_start = consume.count.is_some() || consume.exit;
    Position {
        from: if from_start { Place::Start } else { Place::End },
        until: None,
    }
}

/// The SDK's own word for a place, where it has one.
fn simple(place: Place, now_ms: i64) -> Option<Start> {
    match place {
        Place::Start => Some(Start::Earliest),
        Place::End => Some(Start::Latest),
        Place::At(offset) => Some(Start::Offset(Offset(offset))),
        Place::Time(_) | Place::Ago(_) => place.time(now_ms).map(Start::Time),
        Place::BeforeEnd(_) | Place::AfterStart(_) => None,
    }
}

/// Opens a topic; `None` when the range holds nothing.
async fn begin(
    client: &Client,
    session: Session<'_>,
    topic: &str,
    consume: &arguments::Consume,
) -> Result<Option<Open>, Failure> {
    let position = consume.offset.unwrap_or_else(|| default_position(consume));
    let now_ms = SystemClock.now_ms();
    let failed = |error: hulse_sdk::Error| Failure::from_sdk("cannot consume", topic, &error);
    let mut builder = client
        .reader(topic)
        .follow(!consume.exit)
        .retry_timeout(session.globals.timeout.0.max(Duration::from_secs(1)));
    let mut until = BTreeMap::new();
    let looked = match is_looked_up(position) {
        true => ranges(client, topic, consume, position, now_ms).await?,
        false => Vec::new(),
    };
    if consume.offset.is_some() && looked.iter().all(Range::is_empty) && !looked.is_empty() {
        tell_nothing(session, client, topic, consume, &looked).await;
    }
    match (simple(position.from, now_ms), position.until) {
        (Some(start), None) => {
            builder = builder.start(start);
            if !consume.partitions.is_empty() {
                builder = builder.partitions(consume.partitions.iter().copied());
            }
        }
        (_, stop) => {
            let wanted = looked
                .iter()
                .filter(|range| stop.is_none() || range.start < range.end);
            let partitions: Vec<u32> = wanted.clone().map(|range| range.partition).collect();
            if partitions.is_empty() {
                return Ok(None);
            }
            for range in wanted {
                let start = Start::Offset(Offset(range.start));
                builder = builder.start_at(range.partition, start);
                if stop.is_some() {
                    until.insert(range.partition, range.end);
                }
            }
            // What is there already ends by itself, also behind offsets that hold no record.
            let all_there =
                stop.is_some() && looked.iter().all(|range| range.end <= range.high_watermark);
            builder = builder
                .partitions(partitions)
                .follow(!consume.exit && !all_there);
        }
    }
    let reader = builder.build().await.map_err(|error| {
        let failure = failed(error);
        match consume.partitions.is_empty() || !failure.is_code(Code::Usage) {
            true => failure,
            false => failure.next(format!(
                "hulse topics describe {topic} shows its partitions"
            )),
        }
    })?;
    Ok(Some(Open {
        unfinished: until.len(),
        reader,
        until,
    }))
}

/// A position that is found by looking at each partition, and that may be behind all of its records without being wrong.
fn is_looked_up(position: Position) -> bool {
    position.until.is_some() || !matches!(position.from, Place::Start | Place::End | Place::At(_))
}

/// Says that nothing is there, and what becomes of the command.
async fn tell_nothing(
    session: Session<'_>,
    client: &Client,
    topic: &str,
    consume: &arguments::Consume,
    looked: &[Range],
) {
    let Some(position) = consume.offset else {
        return;
    };
    let held: Vec<Held> = looked.iter().map(Range::held).collect();
    let is_behind = |range: &Range| range.start >= range.high_watermark;
    let words = match position.until {
        Some(until) if !looked.iter().all(is_behind) => format!(
            "nothing of {topic} lies from {} up to {until}",
            position.from
        ),
        _ => beyond::words(client, topic, position.from, &held).await,
    };
    let waits = match (position.until, consume.exit) {
        (None, false) => "; it waits for what comes",
        _ => "",
    };
    session.output.say(&format!("{words}{waits}"));
}

/// Names the partitions in which the wanted offset does not exist; `None` where that is not what is wrong, or nobody can tell.
async fn outside(client: &Client, topic: &str, consume: &arguments::Consume) -> Option<String> {
    let position = consume.offset?;
    let Place::At(offset) = position.from else {
        return None;
    };
    let now_ms = SystemClock.now_ms();
    // From the start, so that each range tells its partition's own bounds.
    let bounds = Position {
        from: Place::Start,
        until: Some(Place::End),
    };
    let bounds = ranges(client, topic, consume, bounds, now_ms).await.ok()?;
    name_outside(topic, offset, &bounds)
}

fn name_outside(topic: &str, offset: u64, bounds: &[Range]) -> Option<String> {
    let names: Vec<String> = bounds
        .iter()
        .filter(|range| !(range.start..=range.end).contains(&offset))
        .map(|range| format!("{} ({} to {})", range.partition, range.start, range.end))
        .collect();
    match &names[..] {
        [] => None,
        [only] => Some(format!("{topic}, partition {only}")),
        _ => Some(format!("{topic}, partitions {}", names.join(", "))),
    }
}

/// Offsets of a range in one partition.
#[derive(Debug, Clone, Copy)]
struct Range {
    partition: u32,
    start: u64,
    /// Exclusive.
    end: u64,
    log_start: u64,
    high_watermark: u64,
}

impl Range {
    /// Nothing that is stored now is in it.
    fn is_empty(&self) -> bool {
        self.start >= self.end.min(self.high_watermark)
    }

    /// What its partition holds.
    fn held(&self) -> Held {
        Held {
            partition: self.partition,
            start: self.log_start,
            end: self.high_watermark,
        }
    }
}

async fn ranges(
    client: &Client,
    topic: &str,
    consume: &arguments::Consume,
    position: Position,
    now_ms: i64,
) -> Result<Vec<Range>, Failure> {
    let admin = client.admin();
    let failed =
        |error: hulse_sdk::Error| Failure::from_sdk("cannot find the position", topic, &error);
    let count = admin
        .describe_topic(topic)
        .await
        .map_err(failed)?
        .partitions;
    let partitions = match consume.partitions.is_empty() {
        true => (0..count).collect(),
        false => consume.partitions.clone(),
    };
    if let Some(wrong) = partitions.iter().find(|partition| **partition >= count) {
        return Err(Failure::new(Code::Usage, "there is no such partition")
            .why(format!(
                "the topic has {count}, 0 to {}",
                count.saturating_sub(1)
            ))
            .object(format!("{topic}, partition {wrong}"))
            .next("hulse topics describe TOPIC"));
    }
    let mut ranges = Vec::new();
    for partition in partitions {
        let from_time = position.from.time(now_ms);
        let bounds = admin
            .offsets(topic, partition, from_time)
            .await
            .map_err(failed)?;
        let (start, end) = (bounds.start.0, bounds.end.0);
        let found = |offset: Option<Offset>| offset.map(|offset| offset.0);
        let until = match position.until {
            None => u64::MAX,
            Some(place) => {
                let at = match place.time(now_ms) {
                    None => None,
                    time => {
                        admin
                            .offsets(topic, partition, time)
                            .await
                            .map_err(failed)?
                            .at_time
                    }
                };
                place.offset(start, end, found(at))
            }
        };
        ranges.push(Range {
            partition,
            start: position.from.offset(start, end, found(bounds.at_time)),
            end: until,
            log_start: start,
            high_watermark: end,
        });
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_outside_is_blamed_on_the_partitions_that_do_not_hold_it() {
        let bounds = [(0, 0, 9), (1, 0, 3), (4, 5, 9)].map(|(partition, start, end)| Range {
            partition,
            start,
            end,
            log_start: start,
            high_watermark: end,
        });
        let named = |offset| name_outside("t", offset, &bounds);
        assert_eq!(named(7).as_deref(), Some("t, partition 1 (0 to 3)"));
        assert_eq!(
            named(4).as_deref(),
            Some("t, partitions 1 (0 to 3), 4 (5 to 9)")
        );
        assert_eq!(name_outside("t", 9, &bounds[..1]), None);
    }
}
