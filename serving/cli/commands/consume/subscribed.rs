//! `hulse consume -s NAME`: by a subscription, which goes on where it was.
//!
//! A record is acknowledged when it was written to standard output, so one that is killed in between is printed again by the next
//! run: nothing is lost, and what was printed twice is at most one piece. With `--delivery at_most_once` it is the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::select_all;
use hulse_proto::error::Reason;
use hulse_sdk::{
    Client, Consumed, ConsumerNote, Error, ReceivedRecord, Start, SubscriptionConsumer,
    Unacknowledged,
};
use tokio::time::sleep;

use super::printing::{PIECE_BYTES, print, write};
use super::read::default_position;
use crate::arguments;
use crate::commands::session::Session;
use crate::commands::subscriptions::one_place;
use crate::failure::{Failure, Stop};
use crate::format::Printer;

/// Between two looks for a topic that was deleted.
const PAUSE: Duration = Duration::from_millis(200);

/// A topic that is being consumed.
struct Open {
    consumer: SubscriptionConsumer,
    /// Partitions of which the end was told.
    ended: BTreeSet<u32>,
    partitions: usize,
    /// The last record of each partition that was printed and not acknowledged.
    printed: BTreeMap<u32, ReceivedRecord>,
}

/// Runs it.
///
/// # Errors
/// The server's, another consumer's take-over, or the output's.
pub(super) async fn run(
    session: Session<'_>,
    consume: &arguments::Consume,
    subscription: &str,
) -> Result<(), Stop> {
    let mut printer = Printer::new(&consume.format).map_err(Failure::from)?;
    let client = session.client()?;
    let mut open = Vec::new();
    for topic in &consume.topics {
        open.push(begin(&client, topic, subscription, consume).await?);
    }
    let again = Again {
        client: &client,
        subscription,
        consume,
        patience: session.globals.timeout.0,
    };
    let consumed = follow(session, &again, &mut printer, &mut open).await;
    for open in &open {
        let left: Unacknowledged = open.consumer.close().await.unwrap_or_default();
        let topic = open.consumer.topic();
        if !left.is_empty() && !consume.no_ack {
            session.output.tell(&format!(
                "not acknowledged of {topic}: {left}; they come again"
            ));
        }
    }
    consumed
}

/// Prints until there is enough, or ^C.
async fn follow(
    session: Session<'_>,
    again: &Again<'_>,
    printer: &mut Printer,
    open: &mut [Open],
) -> Result<(), Stop> {
    let consume = again.consume;
    let interrupt = tokio::signal::ctrl_c();
    let mut interrupt = std::pin::pin!(interrupt);
    let mut left = consume.count.unwrap_or(u64::MAX);
    let mut out = Vec::with_capacity(2 * PIECE_BYTES);
    while left > 0 && !(consume.exit && open.iter().all(Open::has_ended)) {
        let next = match next_of(open).now_or_never() {
            Some(next) => next,
            None => {
                flush(&mut out, open, consume.no_ack)?;
                tokio::select! {
                    biased;
                    _ = &mut interrupt => return Ok(()),
                    next = next_of(open) => next,
                }
            }
        };
        let (index, next) = next;
        let from = &mut open[index];
        match next {
            Ok(Some(Consumed::Record(record))) => {
                print(session, printer, from.consumer.topic(), &record, &mut out);
                from.printed.insert(record.partition, record);
                left -= 1;
            }
            Ok(Some(Consumed::Note(note))) => from.take_note(session, &note),
            Ok(Some(_)) => {}
            Ok(None) => return flush(&mut out, open, consume.no_ack),
            Err(error) => {
                let topic = from.consumer.topic().to_owned();
                flush(&mut out, open, consume.no_ack)?;
                if error.reason().is_some_and(is_gone) {
                    session.output.tell(&format!(
                        "{topic} was deleted; waiting for one of this name"
                    ));
                    open[index] = tokio::select! {
                        biased;
                        _ = &mut interrupt => return Ok(()),
                        begun = again.begin(&topic) => begun?,
                    };
                    continue;
                }
                let failure = Failure::from_sdk("cannot consume on", topic, &error);
                // A gap was told; the partition is attached anew and goes on.
                if error.gap().is_none() {
                    return Err(failure.into());
                }
                session.output.tell(&failure.to_string());
            }
        }
        if out.len() >= PIECE_BYTES {
            flush(&mut out, open, consume.no_ack)?;
        }
    }
    flush(&mut out, open, consume.no_ack)
}

/// The next thing of any topic. Cancel-safe, as the consumer's is.
async fn next_of(open: &[Open]) -> (usize, Result<Option<Consumed>, Error>) {
    let waiting = open.iter().map(|open| Box::pin(open.consumer.next()));
    let (next, index, _) = select_all(waiting).await;
    (index, next)
}

/// Writes what was printed, and acknowledges it.
fn flush(out: &mut Vec<u8>, open: &mut [Open], no_ack: bool) -> Result<(), Stop> {
    write(out)?;
    for open in open {
        for record in std::mem::take(&mut open.printed).into_values() {
            if !no_ack {
                // What becomes of it is told at the end.
                drop(open.consumer.ack_cumulative(&record));
            }
        }
    }
    Ok(())
}

/// The topic of this name is none that this consumer may go on with.
fn is_gone(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::TopicDeleting | Reason::TopicNotFound | Reason::TopicRecreated
    )
}

/// What is needed to consume a topic that was deleted and made again.
struct Again<'a> {
    client: &'a Client,
    subscription: &'a str,
    consume: &'a arguments::Consume,
    /// How long its name is waited for.
    patience: Duration,
}

impl Again<'_> {
    /// Begins with the topic that has the name now, at its start: all of it came while the subscription was there.
    async fn begin(&self, topic: &str) -> Result<Open, Failure> {
        let deadline = Instant::now() + self.patience;
        loop {
            let begun = begin_at(self.client, topic, self.subscription, self.consume, None).await;
            match begun {
                Err(failure)
                    if Instant::now() < deadline
                        && [Reason::TopicDeleting, Reason::TopicNotFound]
                            .iter()
                            .any(|reason| failure.is(*reason)) =>
                {
                    sleep(PAUSE).await;
                }
                begun => return begun,
            }
        }
    }
}

impl Open {
    fn has_ended(&self) -> bool {
        self.ended.len() >= self.partitions
    }

    fn take_note(&mut self, session: Session<'_>, note: &ConsumerNote) {
        let topic = self.consumer.topic();
        match note {
            ConsumerNote::EndOfPartition { partition, .. } => {
                self.ended.insert(*partition);
            }
            ConsumerNote::Skipped {
                partition,
                offsets,
                why,
            } => session.output.tell(&format!(
                "{topic}, partition {partition}: offsets {} to {} will not come ({why:?})",
                offsets.start,
                offsets.end - 1
            )),
            ConsumerNote::Blocked { message, over, .. } if !over => {
                session.output.tell(&format!("{topic}: held up: {message}"));
            }
            ConsumerNote::Active { partition, active } => {
                let words = if *active { "active" } else { "standing by" };
                session
                    .output
                    .say(&format!("{topic}, partition {partition}: {words}"));
            }
            _ => {}
        }
    }
}

async fn begin(
    client: &Client,
    topic: &str,
    subscription: &str,
    consume: &arguments::Consume,
) -> Result<Open, Failure> {
    // What nobody asks for the server knows best: a topic that was made again meanwhile is consumed whole.
    let start = match consume.offset {
        None if !(consume.count.is_some() || consume.exit) => None,
        said => {
            let position = said.unwrap_or_else(|| default_position(consume));
            Some(one_place(&client.admin(), topic, position).await?)
        }
    };
    begin_at(client, topic, subscription, consume, start).await
}

async fn begin_at(
    client: &Client,
    topic: &str,
    subscription: &str,
    consume: &arguments::Consume,
    start: Option<Start>,
) -> Result<Open, Failure> {
    let mut builder = client
        .consumer(topic)
        .subscription(subscription)
        .subscription_type(consume.kind.into())
        .takeover(consume.takeover)
        .delivery_mode(consume.delivery)
        .tell_end(consume.exit);
    if let Some(start) = start {
        builder = builder.start(start);
    }
    if let Some(name) = &consume.name {
        builder = builder.name(name);
    }
    if !consume.partitions.is_empty() {
        builder = builder.partitions(consume.partitions.iter().copied());
    }
    let consumer = builder.build().await;
    let consumer = consumer.map_err(|error| {
        Failure::from_sdk(
            "cannot consume",
            format!("{subscription} of {topic}"),
            &error,
        )
    })?;
    Ok(Open {
        partitions: consumer.partitions().len(),
        consumer,
        ended: BTreeSet::new(),
        printed: BTreeMap::new(),
    })
}
