//! `hulse consume -s NAME`: by a subscription, which goes on where it was.
//!
//! A record is acknowledged when it was written to standard output, so one that is killed in between is printed again by the next
//! run: nothing is lost, and what was printed twice is at most one piece. With `--delivery at_most_once` it is the other way round
//! (`ahead`). Either way no more is acknowledged than is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::select_all;
use hulse_proto::error::{Fault, Reason};
use hulse_sdk::{
    BlockedReason, Client, Consumed, ConsumerNote, DeliveryMode, Error, ReceivedRecord, Start,
    SubscriptionConsumer, SubscriptionType, Unacknowledged,
};
use tokio::time::sleep;

use super::ahead::Ahead;
use super::beginning::Beginning;
use super::printing::{PIECE_BYTES, Printing, write};
use super::silence::Silence;
use crate::arguments;
use crate::commands::link::Link;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};

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
    let printing = Printing::new(session, consume).map_err(Failure::from)?;
    check(consume, subscription)?;
    let client = session.client_over(&Link::default())?;
    let mut open = Vec::new();
    for topic in &consume.topics {
        open.push(begin(session, &client, topic, subscription, consume).await?);
    }
    let again = Again {
        client: &client,
        subscription,
        consume,
        patience: session.globals.timeout.0,
    };
    let mut following = Following {
        session,
        again,
        printing,
        open,
        left: consume.count.unwrap_or(u64::MAX),
        ahead: Ahead::default(),
        out: Vec::with_capacity(2 * PIECE_BYTES),
    };
    let consumed = following.run().await;
    for open in &following.open {
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

/// Refuses what cannot both be.
fn check(consume: &arguments::Consume, subscription: &str) -> Result<(), Failure> {
    if subscription.is_empty() {
        let why = "subscription \"\": it is empty; a subscription is called by 1 or more of [A-Za-z0-9._-], or by tenant/namespace/name";
        let fault = Fault::new(Reason::InvalidName, why);
        return Err(Failure::from_fault("cannot consume", &fault).object("-s"));
    }
    if !(consume.no_ack && consume.delivery == DeliveryMode::AtMostOnce) {
        return Ok(());
    }
    let what = "--no-ack and --delivery at_most_once do not go together";
    Err(Failure::new(Code::Usage, what)
        .why("at_most_once acknowledges a record before it is printed, --no-ack acknowledges none")
        .object(format!("{subscription} of {}", consume.topics.join(", ")))
        .next("leave --delivery out to print without acknowledging; hulse topics peek TOPIC looks at records without a subscription"))
}

/// What is at work until there is enough.
struct Following<'a> {
    session: Session<'a>,
    again: Again<'a>,
    printing: Printing,
    open: Vec<Open>,
    /// Records that are still wanted.
    left: u64,
    /// Of `at_most_once`.
    ahead: Ahead,
    out: Vec<u8>,
}

impl Following<'_> {
    /// Prints until there is enough, or ^C.
    async fn run(&mut self) -> Result<(), Stop> {
        let interrupt = tokio::signal::ctrl_c();
        let mut interrupt = std::pin::pin!(interrupt);
        let mut silence = Silence::new(self.again.consume);
        loop {
            while !self.has_enough() {
                let next = match next_of(&self.open).now_or_never() {
                    Some(next) => next,
                    None => tokio::select! {
                        biased;
                        _ = &mut interrupt => return self.interrupted(),
                        next = self.flush_and_wait() => next?,
                        () = silence.lasts() => {
                            silence.tell(self.session.output, self.again.consume, self.left);
                            continue;
                        }
                    },
                };
                let (index, next) = next;
                match next {
                    Ok(Some(Consumed::Record(record))) => {
                        silence.ends();
                        self.take(index, record);
                    }
                    Ok(Some(Consumed::Note(note))) => {
                        let no_ack = self.again.consume.no_ack;
                        self.open[index].take_note(self.session, &note, no_ack);
                        if let Some(failure) = self.no_more(index, &note) {
                            self.flush().await?;
                            return Err(failure.into());
                        }
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return self.flush().await,
                    Err(error) => tokio::select! {
                        biased;
                        _ = &mut interrupt => return self.interrupted(),
                        done = self.fail(index, &error) => done?,
                    },
                }
                if self.out.len() >= PIECE_BYTES || self.ahead.is_full() {
                    tokio::select! {
                        biased;
                        _ = &mut interrupt => return self.interrupted(),
                        done = self.flush() => done?,
                    }
                }
            }
            self.flush().await?;
            // What was not printed after all is wanted still.
            if self.has_enough() {
                return Ok(());
            }
        }
    }

    /// Nothing comes any more, as nothing of what came is acknowledged.
    fn no_more(&self, index: usize, note: &ConsumerNote) -> Option<Failure> {
        let ConsumerNote::Blocked {
            reason: BlockedReason::UnackedOfConsumer | BlockedReason::UnackedOfCursor,
            over: false,
            message,
            ..
        } = note
        else {
            return None;
        };
        let topic = self.open[index].consumer.topic();
        self.again.consume.no_ack.then(|| {
            Failure::new(Code::Conflict, "no more records come unless some are acknowledged")
                .why(format!("{message}; --no-ack acknowledges none"))
                .object(format!("{} of {topic}", self.again.subscription))
                .next(format!(
                    "hulse consume {topic} -o start, without -s, reads as many as you like and acknowledges none; leave --no-ack out to go on with the subscription"
                ))
        })
    }

    fn has_enough(&self) -> bool {
        self.left == 0 || (self.again.consume.exit && self.open.iter().all(Open::has_ended))
    }

    /// What was printed is acknowledged; what is not acknowledged is not printed.
    fn interrupted(&mut self) -> Result<(), Stop> {
        write(&mut self.out)?;
        self.acknowledge();
        Ok(())
    }

    /// Cancel-safe: what is waited for is not lost.
    async fn flush_and_wait(&mut self) -> Result<(usize, Next), Stop> {
        self.flush().await?;
        Ok(next_of(&self.open).await)
    }

    fn take(&mut self, index: usize, record: ReceivedRecord) {
        self.left -= 1;
        if self.again.consume.delivery == DeliveryMode::AtMostOnce {
            self.left += self.ahead.push(index, record);
            return;
        }
        let from = &mut self.open[index];
        let topic = from.consumer.topic();
        self.printing.print(topic, &record, &mut self.out);
        from.printed.insert(record.partition, record);
    }

    /// Writes what is to be printed; by the mode it is acknowledged afterwards or before.
    async fn flush(&mut self) -> Result<(), Stop> {
        if self.again.consume.delivery == DeliveryMode::AtMostOnce {
            let consumers: Vec<_> = self.open.iter().map(|open| &open.consumer).collect();
            let (records, withheld) = self.ahead.acknowledged(&consumers).await;
            for (index, record) in records {
                let topic = self.open[index].consumer.topic();
                self.printing.print(topic, &record, &mut self.out);
            }
            for one in withheld {
                self.left += one.records;
                self.session.output.tell(&format!(
                    "{}, partition {}: {} records are not printed, since it is not certain that they are acknowledged: {}",
                    self.open[one.topic].consumer.topic(), one.partition, one.records, one.why
                ));
            }
        }
        write(&mut self.out)?;
        self.acknowledge();
        Ok(())
    }

    /// Acknowledges what was printed before.
    fn acknowledge(&mut self) {
        for open in &mut self.open {
            for record in std::mem::take(&mut open.printed).into_values() {
                if !self.again.consume.no_ack {
                    // What becomes of it is told at the end.
                    drop(open.consumer.ack_cumulative(&record));
                }
            }
        }
    }

    /// Goes on after an error where that can be.
    async fn fail(&mut self, index: usize, error: &Error) -> Result<(), Stop> {
        let topic = self.open[index].consumer.topic().to_owned();
        self.flush().await?;
        if error.reason().is_some_and(is_gone) {
            self.session.output.tell(&format!(
                "{topic} was deleted; waiting for one of this name"
            ));
            self.open[index] = self.again.begin(&topic).await?;
            return Ok(());
        }
        let failure = Failure::from_sdk("cannot consume on", topic, error);
        // A gap was told; the partition is attached anew and goes on.
        if error.gap().is_none() {
            return Err(failure.into());
        }
        self.session.output.tell(&failure.to_string());
        Ok(())
    }
}

/// What a consumer answers.
type Next = Result<Option<Consumed>, Error>;

/// The next thing of any topic. Cancel-safe, as the consumer's is.
async fn next_of(open: &[Open]) -> (usize, Next) {
    let waiting = open.iter().map(|open| Box::pin(open.consumer.next()));
    let (next, index, _) = select_all(waiting).await;
    (index, next)
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

    /// Says what a person should know of it. With `no_ack`, that nothing comes any more is how the command ends.
    fn take_note(&mut self, session: Session<'_>, note: &ConsumerNote, no_ack: bool) {
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
            ConsumerNote::Blocked { message, over, .. } if !over && !no_ack => {
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

/// Begins, and says what a person should know of it.
async fn begin(
    session: Session<'_>,
    client: &Client,
    topic: &str,
    subscription: &str,
    consume: &arguments::Consume,
) -> Result<Open, Failure> {
    let beginning = Beginning::find(&client.admin(), topic, subscription, consume).await?;
    let open = begin_at(client, topic, subscription, consume, beginning.start).await?;
    beginning.tell(session.output, topic, subscription);
    if SubscriptionType::from(consume.kind) == SubscriptionType::Failover {
        tell_stand_by(session, client, &open).await;
    }
    Ok(open)
}

/// A standby may wait for days: says for whom. Nothing is told where nobody can be asked; the notes of the consumer say what follows.
async fn tell_stand_by(session: Session<'_>, client: &Client, open: &Open) {
    let consumer = &open.consumer;
    let asked = client.admin();
    let asked = asked.describe_subscription(consumer.subscription(), consumer.topic(), false);
    let Ok((_, cursors)) = asked.await else {
        return;
    };
    let wanted = consumer.partitions();
    let mut others: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for cursor in cursors
        .iter()
        .filter(|cursor| wanted.contains(&cursor.partition))
    {
        let attached = cursor.state.iter().flat_map(|state| &state.consumers);
        for other in attached.filter(|other| other.active && other.name != consumer.name()) {
            others
                .entry(&other.name)
                .or_default()
                .push(cursor.partition);
        }
    }
    for (name, partitions) in others {
        let partitions: Vec<String> = partitions.iter().map(u32::to_string).collect();
        session.output.say(&format!(
            "{}, partition {}: standing by: {name} is active",
            consumer.topic(),
            partitions.join(", ")
        ));
    }
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
