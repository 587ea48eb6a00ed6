//! Dead letters go back to work.
//!
//! Those that are parked are the owner's to deliver again. Those in a dead-letter topic are sent to the topic that they come from. Which of
//! them were is remembered by a subscription of the dead-letter topic, `NAME.redrive.TOPIC-ID`: a letter counts as processed there when its copy is
//! durable, so one that is cut short loses none, and sends at most what was under way twice. How often a record went round is in its
//! header `hulse.redrive`, so that it does not do so for ever.

use std::time::Duration;

use hulse_proto::limits::RECORD_BYTES_MAX;
use hulse_sdk::{
    Admin, Client, DeadLetters, QueueConsumer, QueueMessage, ReadRecord, Record, Sharing, Start,
    Subscription,
};

use super::moved::RedrivenView;
use super::run::{described, failed};
use crate::arguments::OfTopic;
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::grouped;

/// Headers that the broker gives to a dead letter begin with this.
const LETTER: &str = "hulse.dead-letter.";
/// How often a record went back.
const TIMES: &str = "hulse.redrive";
/// Letters that are taken at a time.
const AT_ONCE: usize = 500;
/// Nothing comes for this long: that was all.
const QUIET: Duration = Duration::from_secs(1);

/// What of a dead-letter topic goes back, and what stays because it did so often enough.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sorted {
    goes: u64,
    stays: u64,
}

/// `hulse subs redrive`
pub(super) async fn redrive(
    session: Session<'_>,
    client: &Client,
    of: &OfTopic,
    partition: Option<u32>,
    times: u32,
) -> Result<(), Stop> {
    let admin = client.admin();
    let (subscription, _) = described(&admin, of).await?;
    match &subscription.sharing.dead_letters {
        DeadLetters::Topic(letters) => {
            if partition.is_some() {
                return Err(Failure::new(
                    Code::Usage,
                    "--partition does not go with a dead-letter topic",
                )
                .why("letters of all partitions stand in one topic")
                .object(letters)
                .next("leave --partition out")
                .into());
            }
            let redrive = Redrive {
                client,
                of,
                subscription: &subscription,
                letters,
                topic_id: topic_id(&admin, of).await?,
                times,
            };
            redrive.run(session).await
        }
        _ => parked(session, &admin, of, partition).await,
    }
}

async fn topic_id(admin: &Admin, of: &OfTopic) -> Result<String, Failure> {
    let described = admin.describe_topic(&of.topic).await;
    let described = described.map_err(|error| failed("cannot describe the topic", of, &error))?;
    Ok(described.id.to_string())
}

async fn parked(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    partition: Option<u32>,
) -> Result<(), Stop> {
    let which = super::moving::which(of, partition);
    let ask = async |dry_run: bool| {
        let redriven = admin.redrive_subscription(&which, dry_run).await;
        redriven.map_err(|error| failed("cannot redrive the dead letters", of, &error))
    };
    let planned = ask(true).await?;
    let records: u64 = planned.iter().map(|moved| moved.redriven_records).sum();
    let what = format!(
        "try {} parked records of {} on {} anew",
        grouped(records),
        of.subscription,
        of.topic
    );
    let done = match confirm(session, &what)? {
        true => ask(false).await?,
        false => planned,
    };
    let rows: Vec<RedrivenView> = done.iter().map(Into::into).collect();
    session.output.list(&rows)?;
    match done
        .iter()
        .find_map(|moved| Some((moved.partition, moved.fault.as_ref()?)))
    {
        None => Ok(()),
        Some((partition, fault)) => {
            let object = format!("{} of {}, partition {partition}", of.subscription, of.topic);
            let failure = Failure::from_fault("dead letters were not redriven", fault);
            Err(failure.object(object).into())
        }
    }
}

/// Out of a dead-letter topic.
struct Redrive<'a> {
    client: &'a Client,
    of: &'a OfTopic,
    subscription: &'a Subscription,
    letters: &'a str,
    /// A topic that was made anew under the same name gets no letters of the one before.
    topic_id: String,
    times: u32,
}

/// Largest letter that is sent again: a record may be so large, and has one header more then.
const BYTES_MAX: usize = RECORD_BYTES_MAX - 64;

/// Key, value and headers.
fn bytes_of(letter: &ReadRecord) -> usize {
    let headers = letter.headers.iter();
    let headers = headers.map(|it| it.key.len() + it.value.as_ref().map_or(0, |value| value.len()));
    let key = letter.key.as_ref().map_or(0, |key| key.len());
    let value = letter.value.as_ref().map_or(0, |value| value.len());
    key + value + headers.sum::<usize>()
}

/// What becomes of one letter.
enum Fate {
    /// It is of another subscription or topic.
    Foreign,
    Stays,
    Goes(Record),
}

impl Redrive<'_> {
    async fn run(&self, session: Session<'_>) -> Result<(), Stop> {
        let planned = self.planned().await?;
        let what = format!(
            "send {} dead letters of {} from {} to {} again",
            grouped(planned.goes),
            self.subscription.name,
            self.letters,
            self.of.topic
        );
        let done = match confirm(session, &what)? {
            true if planned.goes > 0 => self.send().await?,
            _ => planned,
        };
        session.output.list(&[RedrivenView {
            topic: self.of.topic.clone(),
            partition: None,
            from: self.letters.to_owned(),
            records: Some(done.goes),
            left: done.stays,
            fault: None,
        }])
    }

    /// Remembers which letters went back. Named by what is unique: letters of several subscriptions and topics may share a topic.
    fn memory(&self) -> String {
        let name = self.subscription.name.replace('/', ".");
        format!("{name}.redrive.{}", self.topic_id)
    }

    fn failed(&self, error: &hulse_sdk::Error) -> Failure {
        let object = format!("{} of {}", self.subscription.name, self.letters);
        Failure::from_sdk("cannot redrive the dead letters", object, error)
    }

    /// What would go, without a trace.
    async fn planned(&self) -> Result<Sorted, Failure> {
        let mut sorted = Sorted::default();
        let admin = self.client.admin();
        if admin
            .describe_topic(self.letters)
            .await
            .is_err_and(|error| error.kind() == hulse_sdk::ErrorKind::NotFound)
        {
            // It is made at the first letter.
            return Ok(sorted);
        }
        let memory = self.memory();
        let known = admin.describe_subscription(&memory, self.letters, true);
        let cursors = match known.await {
            Ok((_, cursors)) => cursors,
            Err(error) if error.kind() == hulse_sdk::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.failed(&error)),
        };
        let went = |record: &ReadRecord| {
            let mut cursors = cursors.iter();
            let cursor = cursors.find(|cursor| cursor.partition == record.partition);
            let state = cursor.and_then(|cursor| cursor.state.as_ref().ok());
            state.is_some_and(|state| {
                let at = record.offset;
                at < state.base || state.acked.iter().any(|range| range.contains(&at.0))
            })
        };
        let reader = self.client.reader(self.letters).start(Start::Earliest);
        let reader = reader.follow(false).build().await;
        let mut reader = reader.map_err(|error| self.failed(&error))?;
        while let Some(record) = reader.next().await.map_err(|error| self.failed(&error))? {
            match self.fate(&record) {
                _ if went(&record) => {}
                Fate::Goes(_) => sorted.goes += 1,
                Fate::Stays => sorted.stays += 1,
                Fate::Foreign => {}
            }
        }
        Ok(sorted)
    }

    async fn send(&self) -> Result<Sorted, Failure> {
        let failed = |error: hulse_sdk::Error| self.failed(&error);
        let consumer = self
            .client
            .queue_consumer(self.letters)
            .subscription(self.memory())
            .start(Start::Earliest)
            .sharing(Sharing {
                attempts_max: Some(0),
                ..Sharing::default()
            })
            .build()
            .await
            .map_err(failed)?;
        let sent = self.send_all(&consumer).await;
        // What was not answered comes back, and that counts for nothing.
        let closed = consumer.close().await;
        let sorted = sent.map_err(failed)?;
        closed.map_err(failed)?;
        Ok(sorted)
    }

    async fn send_all(&self, consumer: &QueueConsumer) -> Result<Sorted, hulse_sdk::Error> {
        let producer = self.client.producer(&self.of.topic).auto_create(false);
        let producer = producer.build().await?;
        let (mut sorted, mut stay) = (Sorted::default(), Vec::new());
        loop {
            let messages = consumer.receive(AT_ONCE, QUIET).await?;
            if messages.is_empty() {
                break;
            }
            let mut under_way: Vec<(QueueMessage, _)> = Vec::new();
            for message in messages {
                match self.fate(&message) {
                    Fate::Foreign => drop(consumer.ack(&message)),
                    // It has no answer, and is this consumer's until it closes.
                    Fate::Stays => stay.push(message),
                    Fate::Goes(record) => {
                        let ticket = producer.send(record).await?;
                        under_way.push((message, ticket));
                    }
                }
            }
            for (message, ticket) in under_way {
                ticket.await?;
                consumer.ack(&message).await?;
                sorted.goes += 1;
            }
        }
        producer.close().await?;
        sorted.stays = stay.len() as u64;
        Ok(sorted)
    }

    fn fate(&self, letter: &ReadRecord) -> Fate {
        let header = |name: &str| {
            let found = letter.headers.iter().rfind(|header| header.key == name)?;
            std::str::from_utf8(found.value.as_ref()?).ok()
        };
        let of = |name: &str| header(&format!("{LETTER}{name}"));
        let ours = of("subscription") == Some(self.subscription.name.as_str());
        if !ours || of("topic_id") != Some(self.topic_id.as_str()) {
            return Fate::Foreign;
        }
        let times: u32 = header(TIMES).and_then(|it| it.parse().ok()).unwrap_or(0);
        // Its bytes are not in the letter, or more than a producer may send: only the topic that it comes from has it.
        let whole = of("omitted").is_none() && of("unreadable").is_none();
        if times >= self.times || !whole || bytes_of(letter) > BYTES_MAX {
            return Fate::Stays;
        }
        let own = letter.headers.iter();
        let own = own.filter(|it| !it.key.starts_with(LETTER.as_bytes()) && it.key != TIMES);
        let mut record = match &letter.value {
            Some(value) => Record::new(value.clone()),
            None => Record::tombstone(letter.key.clone().unwrap_or_default()),
        };
        if let Some(key) = &letter.key {
            record = record.key(key.clone());
        }
        let record = record.headers(own.cloned());
        let record = record.header(TIMES, (times + 1).to_string());
        // Where it was before, whoever chose that.
        match of("partition").and_then(|it| it.parse().ok()) {
            Some(partition) => Fate::Goes(record.partition(partition)),
            None => Fate::Goes(record),
        }
    }
}
