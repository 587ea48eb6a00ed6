//! Dead letters: copies of records that failed too often, for the topic that the subscription names (serving.md B3.11).
//!
//! A copy is a batch of one record of an idempotent producer that only this cursor is, in this life of it: its id follows from
//! subscription, partition and state epoch, its sequence is durable before it is sent. So one that is sent again, also by the next owner,
//! is stored once. Copies of a cursor go one after the other, in order of their sequences.

use std::collections::VecDeque;
use std::sync::OnceLock;

use bytes::Bytes;
use hulse_proto::batch::{
    BatchBuilder, BatchError, BatchHeader, Compression, Header, ProducerStamp, Record, decode,
};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, ProducerId, SubscriptionId, TopicName};
use serving_dispatch::{LetterWanted, Why};
use tokio::sync::{mpsc, oneshot};

use crate::log::LogReader;

/// A letter for another topic; the answer comes when it is durable there.
pub(crate) struct Posted {
    pub(crate) topic: TopicName,
    pub(crate) batch: Bytes,
    pub(crate) done: oneshot::Sender<Result<(), Fault>>,
}

/// Where letters go out. Opened once by the listener, which knows the way to every partition. Each cursor has one on its way.
#[derive(Default)]
pub(crate) struct Letterbox(OnceLock<mpsc::UnboundedSender<Posted>>);

impl Letterbox {
    /// What is posted; `None`: somebody takes it already.
    pub(crate) fn open(&self) -> Option<mpsc::UnboundedReceiver<Posted>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.set(sender).ok().map(|()| receiver)
    }

    async fn post(&self, topic: TopicName, batch: Bytes) -> Result<(), Fault> {
        let (done, answer) = oneshot::channel();
        let posted = Posted { topic, batch, done };
        let sent = self
            .0
            .get()
            .is_some_and(|sender| sender.send(posted).is_ok());
        let nobody = || {
            let words = "nobody takes dead letters at this broker now; it is tried again";
            Fault::new(Reason::ShuttingDown, words)
        };
        match sent {
            true => answer.await.unwrap_or_else(|_| Err(nobody())),
            false => Err(nobody()),
        }
    }
}

/// Where a cursor's letters come from, and where they go.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) subscription: SubscriptionId,
    /// "tenant/namespace/name".
    pub(super) name: std::sync::Arc<str>,
    pub(super) partition: PartitionId,
    /// What the log calls the partition.
    pub(super) of: std::sync::Arc<str>,
    pub(super) to: TopicName,
}

/// What became of a letter.
#[derive(Debug)]
pub(crate) struct LetterEnd {
    pub(super) state_epoch: u32,
    pub(super) seq: u64,
    pub(super) result: Result<(), Fault>,
}

/// Letters of a cursor that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    waiting: VecDeque<LetterWanted>,
    busy: bool,
}

impl Outgoing {
    /// One that is asked for again, as it was not copied in time, is not sent twice.
    pub(super) fn push(&mut self, letter: LetterWanted) {
        let same = |other: &LetterWanted| {
            (other.state_epoch, other.seq) == (letter.state_epoch, letter.seq)
        };
        if !self.waiting.iter().any(same) {
            self.waiting.push_back(letter);
        }
    }

    /// The next one, when none is on its way.
    pub(super) fn next(&mut self) -> Option<LetterWanted> {
        if self.busy {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.busy = true;
        Some(next)
    }

    /// The cursor was moved: numbers begin anew.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }

    /// One came to its end. Behind one that failed nothing is sent: all are asked for again, in order.
    pub(super) fn ended(&mut self, failed: bool) {
        self.busy = false;
        if failed {
            self.waiting.clear();
        }
    }
}

/// Copies a record.
pub(super) async fn send(
    log: LogReader,
    with: std::sync::Arc<crate::partition::Collaborators>,
    address: Address,
    letter: LetterWanted,
) -> LetterEnd {
    let sent = async {
        let Some(batch) = copy(&log, &address, &letter).await? else {
            // It is gone from the log: there is nothing to be copied, and its offset is passed over.
            return Ok(());
        };
        with.letters.post(address.to.clone(), batch).await
    };
    LetterEnd {
        result: sent.await,
        state_epoch: letter.state_epoch,
        seq: letter.seq,
    }
}

async fn copy(
    log: &LogReader,
    address: &Address,
    letter: &LetterWanted,
) -> Result<Option<Bytes>, Fault> {
    let chunk = match log.read(letter.offset, 1).await {
        Err(fault) if fault.reason == Reason::OffsetOutOfRange => return Ok(None),
        read => read?,
    };
    for batch in chunk.batches {
        let copy = copy_of(&batch.bytes, address, letter).map_err(|error| {
            let (offset, of) = (letter.offset, &address.of);
            let words = format!("record {offset} of {of} cannot be copied: {error}");
            Fault::new(Reason::DataDamaged, words)
        })?;
        if copy.is_some() {
            return Ok(copy);
        }
    }
    Ok(None)
}

/// The letter of a record in this batch; `None`: it is not in there. What a producer packed so that nobody can read it has a letter too,
/// that says why and has no bytes: else it would keep all later letters of the cursor for ever.
fn copy_of(
    batch: &Bytes,
    address: &Address,
    letter: &LetterWanted,
) -> Result<Option<Bytes>, BatchError> {
    let header = BatchHeader::view(batch)?;
    let records = match decode(batch) {
        // The producer's bytes are not as it sent them: what is damaged here may be whole at another bookie.
        Err(error @ BatchError::Crc { .. }) => return Err(error),
        decoded => decoded,
    };
    let at = letter.offset.0.checked_sub(header.base_offset.0);
    let said = |timestamp| headers(address, letter, timestamp);
    let record = match records {
        Ok(mut records) => match records
            .iter()
            .position(|it| at == Some(it.offset_delta.into()))
        {
            Some(found) => records.swap_remove(found),
            None => return Ok(None),
        },
        Err(_) if at.is_none_or(|at| at > u64::from(header.last_offset_delta)) => return Ok(None),
        Err(error) => {
            let why = ("hulse.dead-letter.unreadable", error.to_string());
            let empty = without_bytes(said(header.max_timestamp), header.max_timestamp, why);
            return one(&empty, address, letter);
        }
    };
    let mut full = record;
    let (timestamp, bytes) = (full.timestamp, full.value.as_ref().map_or(0, Bytes::len));
    full.headers.extend(said(timestamp));
    match one(&full, address, letter) {
        // It was stored compressed, and fits in no batch as it is.
        Err(BatchError::RecordTooLarge { .. }) => {
            let why = ("hulse.dead-letter.omitted", bytes.to_string());
            one(
                &without_bytes(said(timestamp), timestamp, why),
                address,
                letter,
            )
        }
        copied => copied,
    }
}

/// A letter that tells of a record whose bytes are not in it, and why.
fn without_bytes(
    mut headers: Vec<Header>,
    timestamp: i64,
    (key, value): (&'static str, String),
) -> Record {
    headers.push(Header {
        key: Bytes::from_static(key.as_bytes()),
        value: Some(Bytes::from(value)),
    });
    Record {
        offset_delta: 0,
        timestamp,
        key: None,
        value: None,
        headers,
    }
}

fn one(
    record: &Record,
    address: &Address,
    letter: &LetterWanted,
) -> Result<Option<Bytes>, BatchError> {
    let mut builder = BatchBuilder::new(Compression::None)?;
    builder.push_stored(&record.view())?;
    Ok(Some(builder.build(Some(stamp(address, letter)))))
}

/// Where the record comes from and why it is a dead letter, for people and programs.
fn headers(address: &Address, letter: &LetterWanted, timestamp: i64) -> Vec<Header> {
    let why = match (letter.asked, letter.why) {
        (true, _) => "rejected",
        (false, Why::Rejected) => "failed",
        (false, Why::LockExpired) => "lock_expired",
        (false, Why::Crashed) => "consumer_crashed",
        (false, Why::None) => "unknown",
    };
    let said = [
        ("source", address.of.to_string()),
        ("topic_id", address.partition.topic.0.to_string()),
        ("partition", address.partition.index.to_string()),
        ("offset", letter.offset.0.to_string()),
        ("timestamp", timestamp.to_string()),
        ("subscription", address.name.to_string()),
        ("attempts", letter.failed.to_string()),
        ("reason", why.to_owned()),
    ];
    let header = |(name, value): (&str, String)| Header {
        key: Bytes::from(format!("hulse.dead-letter.{name}")),
        value: Some(Bytes::from(value)),
    };
    said.map(header).into()
}

/// The producer that a cursor is until it is moved. Ids that are given out count up from 0, so these, with the second bit set, are nobody
/// else's.
fn stamp(address: &Address, letter: &LetterWanted) -> ProducerStamp {
    let parts = address.subscription.0.as_bytes().iter();
    let parts = parts.chain(address.partition.topic.0.as_bytes());
    let numbers = [address.partition.index, letter.state_epoch].map(u32::to_le_bytes);
    let all = parts.copied().chain(numbers.into_iter().flatten());
    // FNV-1a.
    let hash = all.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ProducerStamp {
        id: ProducerId((hash >> 2 | 1 << 62) as i64),
        epoch: 0,
        base_sequence: (letter.seq & u64::from(u32::MAX >> 1)) as i32,
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::batch::{BATCH_HEADER_BYTES, RecordRef};
    use hulse_proto::id::{Offset, TopicId};
    use hulse_proto::limits::{BATCH_BYTES_MAX, RECORD_BYTES_MAX};
    use uuid::Uuid;

    use super::*;

    fn letter(seq: u64) -> LetterWanted {
        LetterWanted {
            offset: Offset(seq + 7),
            state_epoch: 1,
            seq,
            failed: 5,
            why: Why::Rejected,
            asked: false,
        }
    }

    #[test]
    fn letters_go_one_by_one_and_those_behind_a_failure_are_asked_for_again() {
        let mut outgoing = Outgoing::default();
        for seq in [0, 1, 1, 2] {
            outgoing.push(letter(seq));
        }
        assert_eq!(outgoing.next().map(|it| it.seq), Some(0));
        assert_eq!(outgoing.next(), None);
        outgoing.ended(false);
        assert_eq!(outgoing.next().map(|it| it.seq), Some(1));
        outgoing.ended(true);
        assert_eq!(outgoing.next(), None);
        outgoing.push(letter(1));
        assert_eq!(outgoing.next().map(|it| it.seq), Some(1));
    }

    fn address(index: u32) -> Address {
        Address {
            subscription: SubscriptionId(Uuid::from_u128(1)),
            name: "s".into(),
            partition: PartitionId {
                topic: TopicId(Uuid::from_u128(2)),
                index,
            },
            of: "t/0".into(),
            to: "dead".parse().unwrap(),
        }
    }

    fn batch(value: &[u8], compression: Compression) -> Vec<u8> {
        let mut builder = BatchBuilder::new(compression).unwrap();
        let value = Some(value);
        let record = RecordRef {
            timestamp: 1,
            key: None,
            value,
            headers: &[],
        };
        builder.push_stored(&record).unwrap();
        builder.build(None).to_vec()
    }

    fn copied(batch: Vec<u8>) -> Record {
        let wanted = LetterWanted {
            offset: Offset(0),
            ..letter(0)
        };
        let copy = copy_of(&batch.into(), &address(0), &wanted).unwrap();
        decode(&copy.unwrap()).unwrap().remove(0)
    }

    #[test]
    fn record_as_large_as_may_be_has_a_letter() {
        let small = copied(batch(b"poison", Compression::None));
        assert_eq!(small.value.as_deref(), Some(&b"poison"[..]));
        assert_eq!(small.headers.len(), 8);
        for bytes in [RECORD_BYTES_MAX - 8, 3 * RECORD_BYTES_MAX] {
            let value = vec![7; bytes];
            let large = copied(batch(&value, Compression::None));
            assert_eq!(large.value.as_deref(), Some(&value[..]));
            assert_eq!(large.headers.len(), 8);
        }
    }

    /// Kafka's producers may store one that fits in a batch with compression alone.
    #[test]
    fn record_that_fits_in_no_batch_has_a_letter_that_says_so() {
        let fits = BATCH_BYTES_MAX - BATCH_HEADER_BYTES - 200;
        let found = copied(batch(&vec![7; fits], Compression::Zstd));
        assert_eq!(found.value, None);
        let last = found.headers.last().unwrap();
        assert_eq!(last.key[..], b"hulse.dead-letter.omitted"[..]);
        assert_eq!(last.value.as_deref(), Some(fits.to_string().as_bytes()));
    }

    /// Its checksum is right, as the producer made it so.
    #[test]
    fn batch_that_nobody_can_unpack_has_letters_that_say_so() {
        let mut bytes = batch(&[7; 1_000], Compression::Zstd);
        for byte in &mut bytes[BATCH_HEADER_BYTES..] {
            *byte = 0xEE;
        }
        let damaged = copy_of(&bytes.clone().into(), &address(0), &letter(0));
        let Err(BatchError::Crc { computed, .. }) = damaged else {
            panic!("{damaged:?}");
        };
        bytes[17..21].copy_from_slice(&computed.to_be_bytes());
        let found = copied(bytes);
        assert_eq!((found.key, found.value), (None, None));
        let last = found.headers.last().unwrap();
        assert_eq!(last.key[..], b"hulse.dead-letter.unreadable"[..]);
    }

    #[test]
    fn producer_of_letters_is_one_of_its_own_per_cursor_and_epoch() {
        let first = stamp(&address(0), &letter(3));
        assert_eq!(first, stamp(&address(0), &letter(3)));
        assert_eq!(first.base_sequence, 3);
        assert!(first.id.0 > 1 << 61);
        let moved = LetterWanted {
            state_epoch: 2,
            ..letter(3)
        };
        assert_ne!(first.id, stamp(&address(0), &moved).id);
        assert_ne!(first.id, stamp(&address(1), &letter(3)).id);
    }
}
