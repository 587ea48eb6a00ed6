//! Decayed rates: what a partition has to do now, from what was counted. No I/O and no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use hulse_proto::id::PartitionId;

/// What was counted so long ago weighs a third.
const DECAY: Duration = Duration::from_secs(20);

/// A rate that forgets. The first sample counts in full: a partition that was just opened shows its rate, if roughly.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Rate {
    bytes: f64,
    seconds: f64,
}

impl Rate {
    fn add(&mut self, bytes: u64, time: Duration) {
        let kept = (-time.as_secs_f64() / DECAY.as_secs_f64()).exp();
        self.bytes = self.bytes * kept + bytes as f64;
        self.seconds = self.seconds * kept + time.as_secs_f64();
    }

    fn per_second(self) -> u64 {
        match self.seconds > 0.0 {
            true => (self.bytes / self.seconds).round() as u64,
            false => 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Metered {
    /// Under which it is open: its count begins anew with each.
    epoch: u32,
    counted: u64,
    rate: Rate,
}

/// The rates of the partitions that a broker has open.
#[derive(Debug, Default)]
pub(super) struct Meter {
    all: BTreeMap<PartitionId, Metered>,
    last: Option<Duration>,
}

impl Meter {
    /// What is counted of each open partition at `now` (since any moment, always the same), with its leader epoch. Others are forgotten.
    pub(super) fn sample(
        &mut self,
        open: impl Iterator<Item = (PartitionId, u32, u64)>,
        now: Duration,
    ) {
        let time = now.saturating_sub(self.last.replace(now).unwrap_or(now));
        let mut before = std::mem::take(&mut self.all);
        for (id, epoch, counted) in open {
            let known = before.remove(&id).filter(|known| known.epoch == epoch);
            let metered = match known {
                Some(mut known) if !time.is_zero() => {
                    known.rate.add(counted.saturating_sub(known.counted), time);
                    Metered { counted, ..known }
                }
                // Counted since the last sample at the longest.
                None if !time.is_zero() => {
                    let mut rate = Rate::default();
                    rate.add(counted, time);
                    Metered {
                        epoch,
                        counted,
                        rate,
                    }
                }
                Some(known) => known,
                None => Metered {
                    epoch,
                    counted,
                    rate: Rate::default(),
                },
            };
            self.all.insert(id, metered);
        }
    }

    /// Bytes per second of each.
    pub(super) fn rates(&self) -> impl Iterator<Item = (PartitionId, u64)> {
        self.all
            .iter()
            .map(|(id, metered)| (*id, metered.rate.per_second()))
    }

    /// Of all together.
    pub(super) fn total(&self) -> u64 {
        self.rates()
            .map(|(_, rate)| rate)
            .fold(0, u64::saturating_add)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::TopicId;
    use uuid::Uuid;

    use super::*;

    fn id(index: u32) -> PartitionId {
        PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index,
        }
    }

    #[test]
    fn rate_is_told_from_the_first_sample_on_and_follows_what_changes() {
        let mut meter = Meter::default();
        let mut counted = 0;
        let mut sample = |meter: &mut Meter, second: u64, bytes: u64, epoch| {
            counted += bytes;
            let open = [(id(0), epoch, counted)];
            meter.sample(open.into_iter(), Duration::from_secs(second));
            meter.total()
        };
        assert_eq!(sample(&mut meter, 0, 0, 1), 0);
        assert_eq!(sample(&mut meter, 2, 2_000, 1), 1_000);
        let mut last = 1_000;
        for second in (4..60).step_by(2) {
            let now = sample(&mut meter, second, 6_000, 1);
            assert!(now > last && now <= 3_000, "{now} after {last}");
            last = now;
        }
        assert!(last > 2_800, "{last}");
        // Under another epoch it was counted anew.
        meter.sample([(id(0), 2, 500)].into_iter(), Duration::from_secs(60));
        assert_eq!(meter.total(), 250);
        meter.sample(std::iter::empty(), Duration::from_secs(62));
        assert_eq!((meter.total(), meter.count()), (0, 0));
    }
}
