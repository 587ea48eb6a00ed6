//! What the process may hold in memory, and who gets which part of it (storage.md K1, K2).

use hulse_proto::size::about as size;

use super::seams::{budget_bytes, memory_bytes};
use crate::config::Config;
use crate::failure::{Code, Failure};

/// Shares of the budget, percent; what is left is for tiering and everything else.
const INGRESS_SHARE: u64 = 15;
const IN_FLIGHT_SHARE: u64 = 30;
const TAIL_SHARE: u64 = 30;
const READ_SHARE: u64 = 10;
/// Recent entries in memory at most: what is older is in the page cache of the same machine already.
const TAIL_BYTES_MAX: u64 = 64 << 20;
/// All maxima together may take this much of what the container has, percent.
const CONTAINER_SHARE_MAX: u64 = 70;

/// The parts, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// What the container or the machine has.
    container: u64,
    budget: u64,
    /// Brokers of the process; what follows is of each of them, but for the queue.
    pub(crate) brokers: u32,
    /// Produce requests between socket and answer, on all listeners. A batch keeps its room until it is answered, so entries that are
    /// being stored are within it, too.
    pub(crate) ingress: u64,
    /// Of one ledger: entries sent to bookies and not confirmed.
    pub(crate) in_flight: u64,
    /// Recent entries, for readers at the end of a log.
    pub(crate) tail: u64,
    /// What reads hold ahead of their connections.
    pub(crate) reads: u64,
    /// Adds that wait for the disk; beside the budget.
    queue: u64,
}

impl Memory {
    /// Splits what the configuration allows.
    ///
    /// # Errors
    /// The maxima are more than the container bears.
    pub(crate) fn split(config: &Config) -> Result<Self, Failure> {
        Self::of(config, memory_bytes(), (1, 1))
    }

    /// As [`Memory::split`], of a process with so many brokers, which share it, and bookies, each of which has a queue.
    ///
    /// # Errors
    /// As [`Memory::split`].
    pub(crate) fn split_of_several(
        config: &Config,
        (brokers, bookies): (u32, u32),
    ) -> Result<Self, Failure> {
        Self::of(config, memory_bytes(), (brokers, bookies))
    }

    fn of(
        config: &Config,
        container: u64,
        (brokers, bookies): (u32, u32),
    ) -> Result<Self, Failure> {
        let budget = budget_bytes(config.memory.budget, container);
        let share = |percent: u64| budget / 100 * percent / u64::from(brokers);
        let memory = Self {
            container,
            budget,
            brokers,
            ingress: share(INGRESS_SHARE),
            in_flight: share(IN_FLIGHT_SHARE),
            tail: share(TAIL_SHARE).min(TAIL_BYTES_MAX),
            reads: share(READ_SHARE),
            queue: config
                .bookie
                .queue_size
                .0
                .saturating_mul(u64::from(bookies)),
        };
        let most = container / 100 * CONTAINER_SHARE_MAX;
        if memory.budget.saturating_add(memory.queue) <= most {
            return Ok(memory);
        }
        Err(Failure::new(Code::Config, "memory is promised that is not there")
            .why(format!(
                "memory.budget {} and bookie.queue_size {} are more than {CONTAINER_SHARE_MAX} % of the {} there are",
                size(memory.budget),
                size(memory.queue),
                size(container)
            ))
            .object("memory.budget")
            .next("lower memory.budget or bookie.queue_size, or give the container more memory"))
    }

    /// The split, for a person.
    pub(crate) fn line(&self) -> String {
        let each = match self.brokers {
            1 => String::new(),
            many => format!(", for each of {many} brokers"),
        };
        format!(
            "{} of {}{each}: requests {}, recent records {}, reads {}; disk queue {}",
            size(self.budget),
            size(self.container),
            size(self.ingress),
            size(self.tail),
            size(self.reads),
            size(self.queue)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ByteSize, MemoryBudget};

    #[test]
    fn budget_is_split_and_more_than_there_is_is_refused() {
        let mut config = Config::default();
        let memory = Memory::of(&config, 8 << 30, (1, 1)).unwrap();
        assert_eq!(memory.budget, (8 << 30) / 100 * 25);
        assert_eq!(memory.tail, TAIL_BYTES_MAX);
        assert!(memory.ingress + memory.tail + memory.reads < memory.budget);
        assert!(
            memory.line().contains("of 8GiB: requests 307.2MiB"),
            "{}",
            memory.line()
        );
        let shared = Memory::of(&config, 8 << 30, (2, 3)).unwrap();
        assert_eq!(shared.ingress, memory.ingress / 2);
        assert_eq!(shared.queue, 3 * memory.queue);
        assert!(
            shared
                .line()
                .contains("of 8GiB, for each of 2 brokers: requests")
        );
        config.memory.budget = MemoryBudget::Size(ByteSize(6 << 30));
        assert!(Memory::of(&config, 8 << 30, (1, 1)).is_err());
        config.memory.budget = MemoryBudget::Share(25);
        assert!(
            Memory::of(&config, 100 << 20, (1, 1)).is_err(),
            "the queue alone is too much"
        );
    }
}
