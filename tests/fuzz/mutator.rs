//! Damages an input as wires, disks and attackers do. The same generator gives the same damage.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Inputs do not grow beyond this, so that a run stays quick.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Numbers at which lengths, counts and signs go wrong.
const NUMBERS: [i64; 20] = [
    0,
    1,
    -1,
    2,
    7,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    1 << 20,
    8 << 20,
    64 << 20,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX,
    i64::MIN,
];

/// Changes `input` in one to four ways. `other` is another kept input, to be spliced in.
pub fn damage(input: &mut Vec<u8>, other: &[u8], rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(1..=4) {
        damage_once(input, other, rng);
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn damage_once(input: &mut Vec<u8>, other: &[u8], rng: &mut ChaCha8Rng) {
    if input.is_empty() {
        input.extend_from_slice(other);
        return;
    }
    let at = rng.random_range(0..input.len());
    match rng.random_range(0..11) {
        0 | 1 => input[at] ^= 1 << rng.random_range(0..8),
        2 => input[at] = rng.random(),
        3 | 4 => overwrite(input, at, &number(rng)),
        5 => drop(input.splice(at..at, number(rng))),
        6 => drop(input.splice(at..at, varint(pick(rng)))),
        7 => input.truncate(at),
        8 => drop(input.drain(at..(at + rng.random_range(1..=16)).min(input.len()))),
        9 => {
            let end = (at + rng.random_range(1..=64)).min(input.len());
            let again = input[at..end].to_vec();
            let times = 1 << rng.random_range(0..4);
            drop(input.splice(at..at, again.repeat(times)));
        }
        _ => splice(input, at, other, rng),
    }
}

fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    let end = (at + bytes.len()).min(input.len());
    input[at..end].copy_from_slice(&bytes[..end - at]);
}

/// The head of `input` and the tail of `other`: lengths agree with neither.
fn splice(input: &mut Vec<u8>, at: usize, other: &[u8], rng: &mut ChaCha8Rng) {
    input.truncate(at);
    let from = rng.random_range(0..=other.len());
    input.extend_from_slice(&other[from..]);
}

fn pick(rng: &mut ChaCha8Rng) -> i64 {
    let number = NUMBERS[rng.random_range(0..NUMBERS.len())];
    number.wrapping_add(rng.random_range(-1..=1))
}

/// An interesting number of one, two, four or eight bytes in either byte order.
fn number(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let number = pick(rng);
    let width = 1 << rng.random_range(0..4);
    if rng.random() {
        number.to_be_bytes()[8 - width..].to_vec()
    } else {
        number.to_le_bytes()[..width].to_vec()
    }
}

/// The number as protobuf has it, which is also Kafka's after zigzag.
fn varint(number: i64) -> Vec<u8> {
    let mut rest = number as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

#[test]
fn same_seed_gives_the_same_damage() {
    use rand::SeedableRng;
    let run = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut input = b"some bytes to be damaged".to_vec();
        (0..200).for_each(|_| damage(&mut input, b"other", &mut rng));
        input
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
