//! What classic consumers put into the bytes of their protocol: subscriptions and assignments of the protocol type `consumer`.
//!
//! The coordinator hands these bytes on unchanged (case KA-06). It looks inside only to answer which topics a group has, and where
//! classic members share a group with members of the newer protocol. Bytes that are none are no fault: they are opaque then.
//! Big-endian, as on Kafka's wire.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::ID_BYTES_MAX;

/// The protocol type whose bytes are understood.
pub(crate) const CONSUMER: &str = "consumer";
/// Version of the assignments that are written; all later ones have the same fields.
const ASSIGNMENT_VERSION: i16 = 0;

/// A subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) topics: BTreeSet<Arc<str>>,
    /// What it has, and goes on with.
    pub(crate) owned: Vec<(Arc<str>, u32)>,
    pub(crate) rack: Option<Arc<str>>,
}

fn i16(bytes: &mut &[u8]) -> Option<i16> {
    (bytes.len() >= 2).then(|| bytes.get_i16())
}

fn i32(bytes: &mut &[u8]) -> Option<i32> {
    (bytes.len() >= 4).then(|| bytes.get_i32())
}

fn text(bytes: &mut &[u8]) -> Option<Arc<str>> {
    let length = usize::try_from(i16(bytes)?).ok()?;
    if length > bytes.len() || length > ID_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(&bytes[..length]).ok()?.into();
    bytes.advance(length);
    Some(text)
}

/// How many things of at least `each` bytes.
fn count(bytes: &mut &[u8], each: usize) -> Option<usize> {
    let count = usize::try_from(i32(bytes)?).ok()?;
    (count.checked_mul(each)? <= bytes.len()).then_some(count)
}

fn skip_nullable_bytes(bytes: &mut &[u8]) -> Option<()> {
    let length = usize::try_from(i32(bytes)?.max(0)).ok()?;
    (length <= bytes.len()).then(|| bytes.advance(length))
}

fn partitions(bytes: &mut &[u8]) -> Option<Vec<(Arc<str>, u32)>> {
    let mut all = Vec::new();
    for _ in 0..count(bytes, 6)? {
        let topic = text(bytes)?;
        for _ in 0..count(bytes, 4)? {
            all.push((topic.clone(), u32::try_from(i32(bytes)?).ok()?));
        }
    }
    Some(all)
}

impl Subscription {
    /// Reads the bytes of a member.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let version = i16(bytes)?;
        let count = count(bytes, 2)?;
        let topics = (0..count).map(|_| text(bytes));
        let mut this = Self {
            topics: topics.collect::<Option<_>>()?,
            ..Self::default()
        };
        skip_nullable_bytes(bytes)?;
        if version >= 1 && !bytes.is_empty() {
            this.owned = partitions(bytes)?;
        }
        if version >= 2 && !bytes.is_empty() {
            i32(bytes)?;
        }
        if version >= 3 && bytes.len() >= 2 && bytes[..2] != [0xff, 0xff] {
            this.rack = Some(text(bytes)?);
        }
        Some(this)
    }
}

/// Reads the bytes of an assignment.
pub(crate) fn decode_assignment(mut bytes: &[u8]) -> Option<Vec<(Arc<str>, u32)>> {
    let bytes = &mut bytes;
    // A member without partitions may have got no bytes at all.
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    i16(bytes)?;
    partitions(bytes)
}

/// The bytes of an assignment; one without partitions is well-formed too (case KA-06).
pub(crate) fn encode_assignment(partitions: &BTreeMap<Arc<str>, Vec<u32>>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(ASSIGNMENT_VERSION);
    out.put_i32(partitions.len() as i32);
    for (topic, indexes) in partitions {
        out.put_i16(topic.len() as i16);
        out.put_slice(topic.as_bytes());
        out.put_i32(indexes.len() as i32);
        for index in indexes {
            out.put_i32(*index as i32);
        }
    }
    out.put_i32(-1);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subscription(version: i16) -> Vec<u8> {
        let mut out = version.to_be_bytes().to_vec();
        out.extend([0, 0, 0, 2, 0, 1, b'b', 0, 1, b'a']);
        out.extend([0xff; 4]);
        if version >= 1 {
            out.extend([0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5]);
        }
        if version >= 2 {
            out.extend([0, 0, 0, 9]);
        }
        if version >= 3 {
            out.extend([0, 2, b'r', b'1']);
        }
        out
    }

    #[test]
    fn subscription_of_each_version_is_read() {
        for version in 0..=4 {
            let read = Subscription::decode(&subscription(version.min(3))).unwrap();
            assert_eq!(read.topics, ["a".into(), "b".into()].into());
            let owned = vec![("a".into(), 0), ("a".into(), 5)];
            assert_eq!(read.owned, if version >= 1 { owned } else { vec![] });
            assert_eq!(read.rack.is_some(), version >= 3);
        }
    }

    #[test]
    fn subscription_with_counts_that_lie_is_opaque() {
        let mut bytes = subscription(1);
        bytes[2..6].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(Subscription::decode(&bytes), None);
        assert_eq!(Subscription::decode(b""), None);
        assert_eq!(decode_assignment(&[0, 0, 0x7f, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn assignment_roundtrips_also_when_empty() {
        let some = BTreeMap::from([(Arc::from("t"), vec![0, 7])]);
        let read = decode_assignment(&encode_assignment(&some)).unwrap();
        assert_eq!(read, [("t".into(), 0), ("t".into(), 7)]);
        let none = encode_assignment(&BTreeMap::new());
        assert_eq!(none.len(), 10);
        assert_eq!(decode_assignment(&none), Some(vec![]));
    }

    proptest! {
        #[test]
        fn decode_rejects_or_reads_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(read) = Subscription::decode(&bytes) {
                prop_assert!(read.topics.len() <= bytes.len());
            }
            let _ = decode_assignment(&bytes);
        }
    }
}
