//! Credit of one session: what may be sent to this consumer before the application takes something.
//!
//! `open = granted − delivered` is what the broker may still send; it is overdrawn by at most one unit, which is how large units get
//! through small credit. `held` is what came and was not taken. Both together never exceed `max`, but for that unit, so the memory of a
//! consumer is bounded by what it asks for.
//!
//! A grant goes out when half of the most is free again, so one goes out per many units, and always when nothing is held: then
//! `open` is `max` afterwards, hence a consumer that waits is never stuck (serving.md E3).

/// Records and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::consumer) struct Amount {
    pub(in crate::consumer) records: i64,
    pub(in crate::consumer) bytes: i64,
}

/// The book of one session.
#[derive(Debug, Clone, Copy)]
pub(in crate::consumer) struct Credit {
    max: Amount,
    open: Amount,
    held: Amount,
    held_units: u64,
}

impl Credit {
    /// Nothing is granted yet.
    pub(in crate::consumer) fn new(max: Amount) -> Self {
        Self {
            max,
            open: Amount::default(),
            held: Amount::default(),
            held_units: 0,
        }
    }

    /// From now on at most this much; what is granted stays granted.
    pub(in crate::consumer) fn set_max(&mut self, max: Amount) {
        self.max = max;
    }

    /// A unit came.
    pub(in crate::consumer) fn delivered(&mut self, unit: Amount) {
        self.open.records -= unit.records;
        self.open.bytes -= unit.bytes;
        self.held.records += unit.records;
        self.held.bytes += unit.bytes;
        self.held_units += 1;
    }

    /// A unit that came was taken or dropped.
    pub(in crate::consumer) fn returned(&mut self, unit: Amount) {
        self.held.records -= unit.records;
        self.held.bytes -= unit.bytes;
        self.held_units -= 1;
    }

    /// What is to be granted now, if anything.
    pub(in crate::consumer) fn grant(&mut self) -> Option<Amount> {
        let free = |max: i64, open: i64, held: i64| (max - open - held).max(0);
        let grant = Amount {
            records: free(self.max.records, self.open.records, self.held.records),
            bytes: free(self.max.bytes, self.open.bytes, self.held.bytes),
        };
        if grant == Amount::default() {
            return None;
        }
        let worth_it = grant.records * 2 >= self.max.records || grant.bytes * 2 >= self.max.bytes;
        if !worth_it && self.held_units > 0 {
            return None;
        }
        self.open.records += grant.records;
        self.open.bytes += grant.bytes;
        Some(grant)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// The broker's side: sends a unit while both are above 0.
    #[derive(Default)]
    struct Sender {
        granted: Amount,
        delivered: Amount,
    }

    impl Sender {
        fn open(&self) -> Amount {
            Amount {
                records: self.granted.records - self.delivered.records,
                bytes: self.granted.bytes - self.delivered.bytes,
            }
        }

        fn may_send(&self) -> bool {
            self.open().records > 0 && self.open().bytes > 0
        }
    }

    #[test]
    fn credit_is_bounded_and_never_stuck_for_any_sizes_and_any_order() {
        for seed in 0..500 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let max = Amount {
                records: rng.random_range(1..50),
                bytes: rng.random_range(1..5000),
            };
            let (records_max, bytes_max) = (rng.random_range(1..80), rng.random_range(1..8000));
            let mut credit = Credit::new(max);
            let mut sender = Sender::default();
            let (mut under_way, mut held) = (VecDeque::new(), VecDeque::new());
            for _ in 0..400 {
                match rng.random_range(0..4) {
                    0 if sender.may_send() => {
                        let unit = Amount {
                            records: rng.random_range(1..=records_max),
                            bytes: rng.random_range(1..=bytes_max),
                        };
                        sender.delivered.records += unit.records;
                        sender.delivered.bytes += unit.bytes;
                        under_way.push_back(unit);
                    }
                    1 => {
                        if let Some(unit) = under_way.pop_front() {
                            credit.delivered(unit);
                            held.push_back(unit);
                        }
                    }
                    _ => {
                        if let Some(unit) = held.pop_front() {
                            credit.returned(unit);
                        }
                    }
                }
                if let Some(grant) = credit.grant() {
                    sender.granted.records += grant.records;
                    sender.granted.bytes += grant.bytes;
                }
                let open = sender.open();
                assert!(open.records > -records_max && open.records <= max.records);
                assert!(open.bytes > -bytes_max && open.bytes <= max.bytes);
                let waiting: i64 = under_way.iter().chain(&held).map(|unit| unit.records).sum();
                assert!(open.records + waiting <= max.records, "memory, seed {seed}");
                // The application waits and nothing is under way: the broker may send.
                let waits = held.is_empty() && under_way.is_empty();
                assert!(!waits || sender.may_send(), "stuck, seed {seed}");
            }
        }
    }
}
