//! `hulse consume -s NAME --type stream`: as a member of a group, which shares the partitions with its other members.
//!
//! Records are committed when they were written to standard output, so those of one that is killed in between come again, here or at
//! another member.

use std::collections::BTreeMap;
use std::time::Duration;

use hulse_sdk::{DeliveryMode, StreamConsumer, StreamItem, StreamNote, StreamRecord};
use tokio::time::{Instant, timeout_at};

use super::printing::{PIECE_BYTES, Printing, write};
use super::read::default_position;
use super::silence::Silence;
use crate::arguments::Consume;
use crate::commands::link::Link;
use crate::commands::session::Session;
use crate::commands::subscriptions::one_place;
use crate::failure::{Code, Failure, Stop};

/// Records that are taken at a time.
const AT_ONCE: usize = 500;
/// With `-e`, nothing comes for this long before it is asked whether anything is left.
const QUIET: Duration = Duration::from_millis(300);
/// Without, how long one look lasts; bounds nothing.
const LOOK: Duration = Duration::from_secs(3_600);

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(super) async fn run(session: Session<'_>, consume: &Consume, group: &str) -> Result<(), Stop> {
    let printing = Printing::new(session, consume).map_err(Failure::from)?;
    check(consume, group)?;
    let consumer = join(session, consume, group).await?;
    let mut member = Member {
        session,
        consume,
        printing,
        left: consume.count.unwrap_or(u64::MAX),
        out: Vec::with_capacity(2 * PIECE_BYTES),
    };
    let interrupt = tokio::signal::ctrl_c();
    let done = tokio::select! {
        biased;
        _ = interrupt => Ok(()),
        done = member.run(&consumer) => done,
    };
    if let Err(error) = consumer.close().await {
        session.output.tell(&format!("{group}: {error}"));
    }
    done
}

/// Refuses what a member cannot be.
fn check(consume: &Consume, group: &str) -> Result<(), Failure> {
    let what = match () {
        () if consume.takeover => "--takeover",
        () if !consume.partitions.is_empty() => "--partitions",
        () if consume.no_ack && consume.delivery == DeliveryMode::AtMostOnce => "--no-ack",
        () => return Ok(()),
    };
    Err(
        Failure::new(Code::Usage, format!("{what} does not go with this"))
            .why("the coordinator of a stream subscription gives its partitions to the members; at_most_once acknowledges before it prints")
            .object(format!("{group} of {}", consume.topics.join(", ")))
            .next(format!("leave {what} out")),
    )
}

async fn join(
    session: Session<'_>,
    consume: &Consume,
    group: &str,
) -> Result<StreamConsumer, Failure> {
    let client = session.client_over(&Link::default())?;
    let mut builder = client
        .stream_consumer(consume.topics.iter())
        .group(group)
        .delivery_mode(consume.delivery);
    if let Some(name) = &consume.name {
        builder = builder.instance(name);
    }
    // What nobody asks for the server knows best: a topic that was made after the group is consumed whole.
    let said = consume.offset.is_some() || consume.count.is_some() || consume.exit;
    if let Some(topic) = consume.topics.first().filter(|_| said) {
        let position = consume.offset.unwrap_or_else(|| default_position(consume));
        builder = builder.start(one_place(&client.admin(), topic, position).await?);
    }
    builder.build().await.map_err(|error| {
        let object = format!("{group} of {}", consume.topics.join(", "));
        Failure::from_sdk("cannot consume", object, &error)
    })
}

/// What is at work until there is enough.
struct Member<'a> {
    session: Session<'a>,
    consume: &'a Consume,
    printing: Printing,
    /// Records that are still wanted.
    left: u64,
    out: Vec<u8>,
}

impl Member<'_> {
    async fn run(&mut self, consumer: &StreamConsumer) -> Result<(), Stop> {
        let mut silence = Silence::new(self.consume);
        while self.left > 0 {
            let records = self.take(consumer, &mut silence).await?;
            if records.is_empty() {
                if self.consume.exit && consumer.at_end() {
                    break;
                }
                continue;
            }
            silence.ends();
            self.print(consumer, &records)?;
        }
        Ok(())
    }

    /// What is there; notes are told.
    async fn take(
        &self,
        consumer: &StreamConsumer,
        silence: &mut Silence,
    ) -> Result<Vec<StreamRecord>, Stop> {
        let most = usize::try_from(self.left).unwrap_or(AT_ONCE).min(AT_ONCE);
        let wait = if self.consume.exit { QUIET } else { LOOK };
        let mut until = Instant::now() + wait;
        let mut records = Vec::new();
        while records.len() < most {
            let next = tokio::select! {
                biased;
                next = timeout_at(until, consumer.next()) => next,
                () = silence.lasts() => {
                    silence.tell(self.session.output, self.consume, self.left);
                    continue;
                }
            };
            let Ok(next) = next else {
                break;
            };
            let next = next.map_err(|error| {
                Failure::from_sdk("cannot consume on", consumer.group().to_owned(), &error)
            })?;
            match next {
                Some(StreamItem::Record(record)) => {
                    records.push(record);
                    // And what else is here already.
                    until = Instant::now();
                }
                Some(StreamItem::Note(note)) => {
                    self.tell(&note);
                    // Of partitions that go nothing more is taken before what was is printed.
                    if !records.is_empty() {
                        break;
                    }
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(records)
    }

    /// What was printed is committed.
    fn print(&mut self, consumer: &StreamConsumer, records: &[StreamRecord]) -> Result<(), Stop> {
        let mut last = BTreeMap::new();
        for record in records {
            self.printing.print(&record.topic, record, &mut self.out);
            last.insert((&record.topic, record.partition), record);
        }
        write(&mut self.out)?;
        if !self.consume.no_ack {
            for record in last.into_values() {
                // Its receipt is waited for at the end.
                drop(consumer.commit(record));
            }
        }
        self.left = self.left.saturating_sub(records.len() as u64);
        Ok(())
    }

    fn tell(&self, note: &StreamNote) {
        let output = self.session.output;
        match note {
            StreamNote::Assigned(partitions) => {
                output.say(&format!("assigned: {}", named(partitions)));
            }
            StreamNote::Revoked(partitions) => {
                output.say(&format!("goes to others: {}", named(partitions)));
            }
            StreamNote::Lost { partitions, why } => {
                output.tell(&format!("lost: {} ({why})", named(partitions)));
            }
            StreamNote::Skipped {
                partition,
                offsets,
                why,
            } => output.tell(&format!(
                "{partition}: offsets {} to {} are not there ({why:?})",
                offsets.start,
                offsets.end.saturating_sub(1)
            )),
            StreamNote::Unreadable { partition, why } => {
                output.tell(&format!("{partition}: {why}"));
            }
            _ => {}
        }
    }
}

fn named(partitions: &[hulse_sdk::StreamPartition]) -> String {
    let named: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    named.join(", ")
}
