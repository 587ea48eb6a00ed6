//! The production ends of the seams: the date, chance, the memory and limits of this machine, the identity of this boot of the kernel.

use std::time::{SystemTime, UNIX_EPOCH};

use hulse_proto::time::{TimestampMs, WallClock};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::MemoryBudget;
use crate::failure::{Code, Failure};

/// Most connections of gRPC, however many files may be open; of a Kafka listener twice as many.
const CONNECTIONS_MAX: usize = 10_000;

/// The date of the operating system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemClock;

impl WallClock for SystemClock {
    fn now_ms(&self) -> TimestampMs {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// A seed from the operating system: the only chance in the process that nothing can repeat.
///
/// # Errors
/// The operating system has none.
pub(crate) fn seed() -> Result<[u8; 32], Failure> {
    let mut seed = [0; 32];
    OsRng.try_fill_bytes(&mut seed).map_err(|error| {
        Failure::new(Code::File, "no randomness")
            .why(error)
            .object("the operating system's generator")
            .next("look at the system log")
    })?;
    Ok(seed)
}

/// Identity of this boot of the kernel; empty where there is none (storage.md B5).
pub(crate) fn kernel_boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Files that the process may have open at once, raised to what the operating system lets it raise it to.
pub(crate) fn open_files_max() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Clients' connections at once, of gRPC and of each of `kafka` listeners, whose clients have several each. A fifth of the open files
/// at least is left to the log, which would fail for good without one.
pub(crate) fn connections_max(open_files: u64, kafka: usize) -> (usize, usize) {
    let part =
        |files: u64, max: usize| usize::try_from(files).map_or(max, |files| files.clamp(1, max));
    match kafka as u64 {
        0 => (part(open_files / 2, CONNECTIONS_MAX), 1),
        kafka => (
            part(open_files / 5, CONNECTIONS_MAX),
            part(open_files / 5 * 3 / kafka, 2 * CONNECTIONS_MAX),
        ),
    }
}

/// Bytes that the process may use of what the container has.
pub(crate) fn budget_bytes(budget: MemoryBudget, container: u64) -> u64 {
    match budget {
        MemoryBudget::Size(size) => size.0,
        MemoryBudget::Share(share) => container / 100 * u64::from(share),
    }
}

/// What the container may use, or what the machine has.
pub(crate) fn memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
    // Versions 2 and 1 of control groups; "max" or a huge number mean no limit.
    let files = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let limits = files.iter().filter_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.chain([machine]).min().unwrap_or(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ByteSize;

    #[test]
    fn connections_leave_a_fifth_of_the_open_files_to_the_log() {
        assert_eq!(connections_max(1024, 0).0, 512);
        assert_eq!(connections_max(1000, 1), (200, 600));
        assert_eq!(connections_max(1000, 2), (200, 300));
        assert_eq!(connections_max(20_000, 1), (4_000, 12_000));
        assert_eq!(connections_max(1, 1), (1, 1));
        assert_eq!(
            connections_max(u64::MAX, 2),
            (CONNECTIONS_MAX, 2 * CONNECTIONS_MAX)
        );
        assert!(open_files_max() > 0);
    }

    #[test]
    fn budget_is_a_share_of_the_machine_or_a_size() {
        let whole = memory_bytes();
        assert!(whole > 64 << 20, "{whole}");
        let quarter = budget_bytes(MemoryBudget::Share(25), whole);
        assert!(quarter > whole / 5 && quarter <= whole / 4);
        assert_eq!(budget_bytes(MemoryBudget::Size(ByteSize(7)), whole), 7);
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed().unwrap(), seed().unwrap());
    }
}
