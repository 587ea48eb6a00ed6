//! The shape of a cell: quorums, and how many bookies there are to choose from.

use hulse_proto::ledger::Quorums;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;

/// Bookies of a whole cell.
const BOOKIES: u32 = 6;

/// A shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// E, Qw, Qa.
    pub quorums: Quorums,
    /// At least E.
    pub bookies: u32,
}

impl Shape {
    /// One of `shapes` (E, Qw, Qa), each as likely as it is often in the list. Most cells have six bookies, some fewer spares.
    pub fn draw(rng: &mut ChaCha12Rng, shapes: &[(u32, u32, u32)]) -> Self {
        let (ensemble, write, ack) = *shapes.choose(rng).expect("there are shapes");
        let bookies = match rng.random_bool(0.7) {
            true => BOOKIES,
            false => rng.random_range(ensemble..=BOOKIES),
        };
        Self {
            quorums: Quorums {
                ensemble,
                write,
                ack,
            },
            bookies,
        }
    }
}
