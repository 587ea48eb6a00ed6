//! What was sent and what became of it, and the checker of the cases: LOST, DUP, GHOST, ORDER, REUSE.
//!
//! Every record carries its producer and its number. Its outcome is acknowledged (with a place), failed (surely not written), or
//! unknown; an unknown one may be there once or not at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hulse_sdk::{Client, Error, Producer, Record, Start};

/// Producer and number.
pub(crate) type Id = (u32, u64);
/// Partition and offset.
pub(crate) type Place = (u32, u64);

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was sent, and nothing is known yet.
    Sent,
    /// It is durable, in this place.
    Acked(Place),
    /// It was not written.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// The truth file of one run.
#[derive(Default)]
pub(crate) struct Truth {
    fates: Mutex<BTreeMap<Id, Fate>>,
}

impl Truth {
    pub(crate) fn note(&self, id: Id, fate: Fate) {
        let mut fates = self.fates.lock().expect("nothing panics under this lock");
        fates.insert(id, fate);
    }

    /// How many records have this kind of fate.
    pub(crate) fn count(&self, wanted: impl Fn(Fate) -> bool) -> usize {
        let fates = self.fates.lock().expect("nothing panics under this lock");
        fates.values().filter(|fate| wanted(**fate)).count()
    }

    /// How many records of this producer have an answer.
    pub(crate) fn answered_to(&self, producer: u32) -> usize {
        let fates = self.fates.lock().expect("nothing panics under this lock");
        let of = fates.range((producer, 0)..=(producer, u64::MAX));
        of.filter(|(_, fate)| **fate != Fate::Sent).count()
    }

    /// Panics when what was found is not what may be there.
    pub(crate) fn check(&self, found: &[(Place, Id)], what: &str) {
        let faults = self.faults(found);
        let shown: Vec<&String> = faults.iter().take(20).collect();
        assert!(
            faults.is_empty(),
            "{what}: {} faults: {shown:#?}",
            faults.len()
        );
    }

    /// Everything that must not be so.
    fn faults(&self, found: &[(Place, Id)]) -> Vec<String> {
        let fates = self.fates.lock().expect("nothing panics under this lock");
        let mut faults = Vec::new();
        let mut places = BTreeMap::<Id, Place>::new();
        let mut last = BTreeMap::<(u32, u32), Id>::new();
        for (place, id) in found {
            if let Some(before) = places.insert(*id, *place) {
                faults.push(format!("DUP: {id:?} at {before:?} and at {place:?}"));
            }
            match fates.get(id) {
                None => faults.push(format!("GHOST: {id:?} at {place:?} was never sent")),
                Some(Fate::Failed) => {
                    faults.push(format!(
                        "GHOST: {id:?} at {place:?} was reported as not written"
                    ));
                }
                Some(_) => {}
            }
            let before = last.insert((place.0, id.0), *id);
            if before.is_some_and(|before| before.1 >= id.1) {
                faults.push(format!("ORDER: {id:?} at {place:?} follows {before:?}"));
            }
        }
        for (id, fate) in fates.iter() {
            let Fate::Acked(place) = fate else {
                continue;
            };
            match places.get(id) {
                None => faults.push(format!("LOST: {id:?}, acknowledged at {place:?}")),
                Some(there) if there != place => {
                    faults.push(format!(
                        "REUSE: {id:?}, acknowledged at {place:?}, is at {there:?}"
                    ));
                }
                Some(_) => {}
            }
        }
        faults
    }
}

/// A producer that numbers what it sends.
pub(crate) struct Numbered {
    truth: Arc<Truth>,
    producer: Arc<Producer>,
    number: u32,
    next: u64,
    waiting: Vec<tokio::task::JoinHandle<()>>,
}

impl Numbered {
    pub(crate) fn new(truth: &Arc<Truth>, producer: Producer, number: u32) -> Self {
        Self {
            truth: Arc::clone(truth),
            producer: Arc::new(producer),
            number,
            next: 0,
            waiting: Vec::new(),
        }
    }

    /// Sends the next number, padded; its fate is noted when it is known.
    pub(crate) async fn send(&mut self, bytes: usize) {
        let id = (self.number, self.next);
        self.next += 1;
        self.truth.note(id, Fate::Sent);
        let text = format!("{} {} ", id.0, id.1);
        let record = Record::new(format!("{text:.<bytes$}")).key(format!("{}", id.0));
        match self.producer.send(record).await {
            Err(error) => self.truth.note(id, fate(&error)),
            Ok(ticket) => {
                let truth = Arc::clone(&self.truth);
                self.waiting.push(tokio::spawn(async move {
                    let fate = match ticket.await {
                        Ok(receipt) => {
                            let offset = receipt.offset.expect("a quorum answers with an offset");
                            Fate::Acked((receipt.partition, offset.0))
                        }
                        Err(error) => fate(&error),
                    };
                    truth.note(id, fate);
                }));
            }
        }
    }

    /// Waits until the fate of everything is known.
    pub(crate) async fn settled(&mut self) {
        for waiting in self.waiting.drain(..) {
            waiting.await.expect("a ticket does not panic");
        }
    }
}

fn fate(error: &Error) -> Fate {
    match error.possibly_written() {
        true => Fate::Unknown,
        false => Fate::Failed,
    }
}

/// Everything in the topic from its start to its end as it is now.
pub(crate) async fn read_all(client: &Client, topic: &str) -> Vec<(Place, Id)> {
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = reader.build().await.expect("the topic can be read");
    let mut found = Vec::new();
    while let Some(record) = reader.next().await.expect("the topic can be read") {
        let place = (record.partition, record.offset.0);
        found.push((place, id_of(&record.value.unwrap_or_default())));
    }
    found
}

/// The producer and the number of a record.
pub(crate) fn id_of(value: &[u8]) -> Id {
    let text = std::str::from_utf8(value).expect("records are text");
    let mut words = text.split(' ');
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let id = number().zip(number());
    let (producer, number) = id.unwrap_or_else(|| panic!("{text:.80} was never sent"));
    (u32::try_from(producer).expect("few producers"), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(fates: &[(Id, Fate)]) -> Truth {
        let truth = Truth::default();
        for (id, fate) in fates {
            truth.note(*id, *fate);
        }
        truth
    }

    fn faults(truth: &Truth, found: &[(Place, Id)]) -> String {
        truth.faults(found).join("; ")
    }

    #[test]
    fn checker_finds_what_is_lost_doubled_reordered_reused_or_never_sent() {
        let all = truth(&[
            ((1, 0), Fate::Acked((0, 0))),
            ((1, 1), Fate::Acked((0, 1))),
            ((1, 2), Fate::Unknown),
            ((2, 0), Fate::Failed),
        ]);
        let right = [((0, 0), (1, 0)), ((0, 1), (1, 1))];
        all.check(&right, "without the unknown one");
        all.check(&[right[0], right[1], ((0, 2), (1, 2))], "with it");
        assert!(faults(&all, &right[..1]).contains("LOST: (1, 1)"));
        let twice = [right[0], right[1], ((0, 2), (1, 1))];
        assert!(faults(&all, &twice).contains("DUP: (1, 1)"));
        let back = [((0, 0), (1, 1)), ((0, 1), (1, 0))];
        let told = faults(&all, &back);
        assert!(told.contains("ORDER") && told.contains("REUSE"), "{told}");
        let refused = [right[0], right[1], ((0, 2), (2, 0))];
        assert!(faults(&all, &refused).contains("not written"));
        let strange = [right[0], right[1], ((0, 2), (7, 0))];
        assert!(faults(&all, &strange).contains("never sent"));
    }
}
