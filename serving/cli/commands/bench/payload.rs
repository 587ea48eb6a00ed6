//! Values of measurements: half of each is random, half repeats, so that compression has something to do but not everything.

use bytes::Bytes;
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// How many different ones there are.
const COUNT: usize = 64;
/// The same values in every run.
const SEED: u64 = 7400;

/// Values of one size, taken in turn.
#[derive(Debug)]
pub(super) struct Payloads {
    values: Vec<Bytes>,
    next: usize,
}

impl Payloads {
    /// Values of this many bytes.
    pub(super) fn new(size: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let values = (0..COUNT).map(|_| {
            let mut value = vec![b'x'; size];
            rng.fill_bytes(&mut value[..size / 2]);
            value.into()
        });
        Self {
            values: values.collect(),
            next: 0,
        }
    }

    /// The next one; a reference, not a copy.
    pub(super) fn next(&mut self) -> Bytes {
        self.next = (self.next + 1) % self.values.len();
        self.values[self.next].clone()
    }
}
