//! Requests of the Kafka wire as its clients send them, byte by byte, from which mutation starts.

use crate::seeds::Seeds;

/// One request: key and version, then the body; the header has correlation 1 and no name.
struct Sample {
    name: &'static str,
    key: i16,
    version: i16,
    /// Headers of flexible requests end with tags.
    flexible: bool,
    body: &'static str,
}

const fn sample(
    name: &'static str,
    (key, version): (i16, i16),
    flexible: bool,
    body: &'static str,
) -> Sample {
    Sample {
        name,
        key,
        version,
        flexible,
        body,
    }
}

/// Bodies in hexadecimal digits; blanks are for the eye.
const SAMPLES: &[Sample] = &[
    sample("versions-0", (18, 0), false, ""),
    sample("versions-4", (18, 4), true, "02 61 02 31 00"),
    sample("metadata-4", (3, 4), false, "00000002 0001 61 0002 6263 01"),
    sample(
        "metadata-12",
        (3, 12),
        true,
        "03 00000000000000000000000000000007 02 61 00 00000000000000000000000000000000 03 6263 00 01 00 00",
    ),
    sample(
        "produce-7",
        (0, 7),
        false,
        "ffff ffff 00007530 00000001 0001 61 00000002 00000000 00000004 01020304 00000001 ffffffff",
    ),
    sample(
        "produce-9",
        (0, 9),
        true,
        "00 ffff 00007530 02 02 61 02 00000000 05 01020304 00 00 00",
    ),
    sample(
        "produce-13",
        (0, 13),
        true,
        "00 0001 00007530 02 00000000000000000000000000000007 03 00000000 05 01020304 00 00000001 00 00 00 00",
    ),
    sample(
        "fetch-4",
        (1, 4),
        false,
        "ffffffff 000001f4 00000001 00100000 00 00000001 0001 61 00000001 00000000 0000000000000005 00100000",
    ),
    sample(
        "fetch-11",
        (1, 11),
        false,
        "ffffffff 000001f4 00000001 00100000 00 00000001 00000002 00000001 0001 61 00000001 00000000 00000003 0000000000000005 ffffffffffffffff 00100000 00000001 0001 62 00000001 00000002 0004 7261636b",
    ),
    sample(
        "fetch-15",
        (1, 15),
        true,
        "000001f4 00000001 00100000 00 00000000 ffffffff 02 00000000000000000000000000000007 02 00000000 00000003 0000000000000005 ffffffff ffffffffffffffff 00100000 00 00 02 00000000000000000000000000000008 02 00000002 00 01 02 00 03 03 6162 01 0d 00000001 0000000000000002 00",
    ),
    sample(
        "fetch-17",
        (1, 17),
        true,
        "000001f4 00000001 00100000 00 00000000 ffffffff 02 00000000000000000000000000000007 02 00000000 00000003 0000000000000005 ffffffff ffffffffffffffff 00100000 01 00 10 00000000000000000000000000000009 00 01 01 00",
    ),
    sample(
        "offsets-1",
        (2, 1),
        false,
        "ffffffff 00000001 0001 61 00000001 00000000 ffffffffffffffff",
    ),
    sample(
        "offsets-10",
        (2, 10),
        true,
        "ffffffff 00 02 02 61 02 00000000 ffffffff fffffffffffffffe 00 00 00007530 00",
    ),
    sample(
        "epoch-2",
        (23, 2),
        false,
        "00000001 0001 61 00000001 00000000 ffffffff 00000001",
    ),
    sample(
        "epoch-4",
        (23, 4),
        true,
        "fffffffe 02 02 61 02 00000000 ffffffff 00000001 00 00 00",
    ),
    sample("coordinator-0", (10, 0), false, "0001 67"),
    sample("coordinator-4", (10, 4), true, "00 03 02 67 02 68 00"),
    sample("producer-id-0", (22, 0), false, "ffff 00007530"),
    sample(
        "producer-id-4",
        (22, 4),
        true,
        "00 00007530 ffffffffffffffff ffff 00",
    ),
    sample(
        "create-2",
        (19, 2),
        false,
        "00000001 0001 61 ffffffff 0001 00000001 00000000 00000001 00000001 00000001 0001 6b 0001 76 00007530 00",
    ),
    sample(
        "create-7",
        (19, 7),
        true,
        "02 02 61 00000001 0001 01 02 02 6b 02 76 00 00 00007530 00 00",
    ),
    sample(
        "delete-1",
        (20, 1),
        false,
        "00000002 0001 61 0001 62 00007530",
    ),
    sample(
        "delete-6",
        (20, 6),
        true,
        "02 00 00000000000000000000000000000007 00 00007530 00",
    ),
    sample(
        "partitions-0",
        (37, 0),
        false,
        "00000001 0001 61 00000002 00000001 00000001 00000001 00007530 00",
    ),
    sample(
        "partitions-3",
        (37, 3),
        true,
        "02 02 61 00000002 00 00 00007530 00 00",
    ),
    sample(
        "configs-1",
        (32, 1),
        false,
        "00000001 02 0001 61 00000001 0001 6b 00",
    ),
    sample("configs-4", (32, 4), true, "02 02 02 61 00 00 01 01 00"),
    sample("cluster-2", (60, 2), true, "00 01 00 00"),
    sample(
        "topic-partitions-0",
        (75, 0),
        true,
        "02 02 61 00 000007d0 01 02 62 00000001 00 00",
    ),
];

/// The frames without their lengths.
pub fn requests() -> Seeds {
    let frames = SAMPLES.iter().map(|sample| {
        let mut frame = Vec::new();
        frame.extend(sample.key.to_be_bytes());
        frame.extend(sample.version.to_be_bytes());
        frame.extend(1_i32.to_be_bytes());
        frame.extend((-1_i16).to_be_bytes());
        if sample.flexible {
            frame.push(0);
        }
        frame.extend(unhex(sample.body));
        (sample.name, frame)
    });
    frames.collect()
}

/// The bytes of hexadecimal digits; what is none is passed over.
pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "an odd number of digits: {text}");
    pairs.iter().map(|[high, low]| high << 4 | low).collect()
}
