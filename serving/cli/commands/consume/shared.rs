//! `hulse consume -s NAME --type queue|keyed`: a share of a subscription's records.
//!
//! A record is acknowledged when it was written to standard output, so one that is killed in between comes again, here or at another
//! consumer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hulse_sdk::{Client, DeliveryMode, HeldUp, QueueConsumer, QueueMessage};
use tokio::time::{Instant, timeout};

use super::beginning::Beginning;
use super::printing::{PIECE_BYTES, Printing, write};
use super::silence::Silence;
use crate::arguments::{Consume, Type};
use crate::commands::link::Link;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};

/// Records that are taken at a time.
const AT_ONCE: usize = 500;
/// With `-e`, nothing comes for this long before it is asked whether anything is left.
const QUIET: Duration = Duration::from_millis(300);
/// Without, how long one look lasts; bounds nothing.
const LOOK: Duration = Duration::from_secs(3_600);
/// How long other consumers' topics are looked at one after the other.
const TURN: Duration = Duration::from_millis(20);

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(super) async fn run(
    session: Session<'_>,
    consume: &Consume,
    subscription: &str,
) -> Result<(), Stop> {
    let printing = Printing::new(session, consume).map_err(Failure::from)?;
    check(consume, subscription)?;
    let client = session.client_over(&Link::default())?;
    let mut open = Vec::new();
    for topic in &consume.topics {
        open.push(begin(session, &client, topic, subscription, consume).await?);
    }
    let mut sharing = Sharing {
        session,
        client: &client,
        consume,
        printing,
        left: consume.count.unwrap_or(u64::MAX),
        out: Vec::with_capacity(2 * PIECE_BYTES),
        held_up: BTreeMap::new(),
    };
    let interrupt = tokio::signal::ctrl_c();
    let done = tokio::select! {
        biased;
        _ = interrupt => Ok(()),
        done = sharing.run(&open) => done,
    };
    for consumer in &open {
        if let Err(error) = consumer.close().await {
            let topic = consumer.topic();
            session.output.tell(&format!("{topic}: {error}"));
        }
    }
    done
}

/// Refuses what a share cannot be.
fn check(consume: &Consume, subscription: &str) -> Result<(), Failure> {
    let what = match () {
        () if consume.no_ack => "--no-ack",
        () if consume.takeover => "--takeover",
        () if consume.delivery == DeliveryMode::AtMostOnce => "--delivery at_most_once",
        () if !consume.partitions.is_empty() => "--partitions",
        () => return Ok(()),
    };
    Err(
        Failure::new(Code::Usage, format!("{what} does not go with this type"))
            .why("consumers of a queue or keyed subscription share the records of all partitions, and each record is acknowledged by itself")
            .object(format!("{subscription} of {}", consume.topics.join(", ")))
            .next(format!("leave {what} out")),
    )
}

async fn begin(
    session: Session<'_>,
    client: &Client,
    topic: &str,
    subscription: &str,
    consume: &Consume,
) -> Result<QueueConsumer, Failure> {
    let beginning = Beginning::find(&client.admin(), topic, subscription, consume).await?;
    let mut builder = client
        .queue_consumer(topic)
        .subscription(subscription)
        .keyed(consume.kind == Type::Keyed);
    if let Some(start) = beginning.start {
        builder = builder.start(start);
    }
    if let Some(name) = &consume.name {
        builder = builder.name(name);
    }
    for (first, end) in &consume.slots {
        builder = builder.slots(*first..*end);
    }
    if let Some(count) = consume.count {
        // What is not wanted stays for the others.
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(1_000);
        builder = builder.receive_queue_records(count);
    }
    let consumer = builder.build().await.map_err(|error| {
        let object = format!("{subscription} of {topic}");
        Failure::from_sdk("cannot consume", object, &error)
    })?;
    beginning.tell(session.output, topic, subscription);
    Ok(consumer)
}

/// What is at work until there is enough.
struct Sharing<'a> {
    session: Session<'a>,
    client: &'a Client,
    consume: &'a Consume,
    printing: Printing,
    /// Records that are still wanted.
    left: u64,
    out: Vec<u8>,
    /// Of each topic, the partitions of which nothing comes.
    held_up: BTreeMap<String, Vec<HeldUp>>,
}

impl Sharing<'_> {
    async fn run(&mut self, open: &[QueueConsumer]) -> Result<(), Stop> {
        let mut silence = Silence::new(self.consume);
        loop {
            let mut came = false;
            for consumer in open {
                let wait = match (open.len(), self.consume.exit) {
                    (1, false) => LOOK,
                    (1, true) => QUIET,
                    _ => TURN,
                };
                let look = self.look(consumer, wait, &mut silence);
                came |= look.await?;
                if self.left == 0 {
                    return Ok(());
                }
            }
            if self.consume.exit && !came && self.is_over(open).await? {
                return Ok(());
            }
        }
    }

    /// Prints what a topic has; answers whether it had anything.
    async fn look(
        &mut self,
        consumer: &QueueConsumer,
        wait: Duration,
        silence: &mut Silence,
    ) -> Result<bool, Stop> {
        let wanted = usize::try_from(self.left).unwrap_or(AT_ONCE).min(AT_ONCE);
        let until = Instant::now() + wait;
        let topic = consumer.topic();
        let received = loop {
            let known = self.held_up.entry(topic.to_owned()).or_default().clone();
            let left = until.saturating_duration_since(Instant::now());
            tokio::select! {
                biased;
                received = consumer.receive(wanted, left) => break received,
                held_up = consumer.held_up_anew(&known) => self.tell_held_up(topic, held_up),
                () = silence.lasts() => silence.tell(self.session.output, self.consume, self.left),
            }
        };
        let messages = received.map_err(|error| {
            Failure::from_sdk("cannot consume on", consumer.topic().to_owned(), &error)
        })?;
        if messages.is_empty() {
            return Ok(false);
        }
        silence.ends();
        self.print(consumer, messages)?;
        Ok(true)
    }

    /// Says once why nothing comes, and once that it does again.
    fn tell_held_up(&mut self, topic: &str, now: Vec<HeldUp>) {
        let before = self.held_up.insert(topic.to_owned(), now.clone());
        let before = before.unwrap_or_default();
        // Partitions of one topic are held up for the same reason, mostly: one line is enough.
        let whys: BTreeSet<&str> = now.iter().map(|it| it.message.as_str()).collect();
        let known: BTreeSet<&str> = before.iter().map(|it| it.message.as_str()).collect();
        for why in whys.difference(&known) {
            self.session.output.tell(&format!("{topic}: {why}"));
        }
        if now.is_empty() && !before.is_empty() {
            let words = format!("{topic}: nothing holds it up any more");
            self.session.output.tell(&words);
        }
    }

    /// What was printed is acknowledged.
    fn print(&mut self, consumer: &QueueConsumer, messages: Vec<QueueMessage>) -> Result<(), Stop> {
        for message in &messages {
            self.printing
                .print(consumer.topic(), message, &mut self.out);
        }
        write(&mut self.out)?;
        for message in &messages {
            // Its receipt is waited for at the end.
            drop(consumer.ack(message));
        }
        self.left = self.left.saturating_sub(messages.len() as u64);
        Ok(())
    }

    /// Nothing is left but what others have, or what waits for its time or for good.
    async fn is_over(&self, open: &[QueueConsumer]) -> Result<bool, Stop> {
        let admin = self.client.admin();
        for consumer in open {
            let (topic, name) = (consumer.topic(), consumer.subscription());
            let asked = timeout(
                self.session.globals.timeout.0,
                admin.describe_subscription(name, topic, false),
            );
            let Ok(Ok((_, cursors))) = asked.await else {
                return Ok(false);
            };
            let over = cursors.iter().all(|cursor| {
                cursor.state.as_ref().is_ok_and(|state| {
                    let aside = state.unacked_records + state.delayed_records + state.dead_records;
                    state.backlog_records <= aside
                })
            });
            if !over {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
