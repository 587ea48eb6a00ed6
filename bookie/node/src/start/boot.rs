//! Recovery of the log and the decision on limbo, without metadata.

use std::collections::BTreeSet;
use std::sync::Arc;

use hulse_proto::id::LedgerId;
use hulse_proto::time::TimestampMs;
use rand::RngCore;

use crate::config::NodeConfig;
use crate::core::{Event, NodeCore, NodeState, Rebuild};
use crate::disk::Disk;
use crate::identity::{
    Boot, Identity, IdentityError, forget_kernel, read_boot, write_boot, write_identity,
};
use crate::log::recovery::{LogError, Recovered, RottenEntry, recover};
use crate::log::writer::{Head, LogWriter, WriterSetup};
use crate::log::{DamagedRange, LimboKind, Record};

/// What is known about this start besides the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFacts {
    /// Who we are.
    pub identity: Identity,
    /// Boot counter in metadata.
    pub boot_in_metadata: u64,
    /// Highest log file that metadata remembers.
    pub log_file_in_metadata: u64,
}

/// A recovered log, before anything was written.
pub struct Booted {
    facts: BootFacts,
    last: Boot,
    recovered: Recovered,
    state: NodeState,
    new_damage: Vec<DamagedRange>,
    /// Why open ledgers must go into limbo; empty: they need not.
    pub limbo: BTreeSet<LimboKind>,
    /// This start's number.
    pub counter: u64,
}

impl Booted {
    /// What the scan found.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The ledgers that limbo is about, given those that metadata name (S3): also each that would take the writer's adds without
    /// another look, because its fence may be what was lost.
    pub fn limbo_scope(&self, named: &[LedgerId]) -> Vec<LedgerId> {
        if self.limbo.is_empty() {
            return Vec::new();
        }
        let named = named.iter().copied();
        let all: BTreeSet<LedgerId> = named.chain(self.state.open_to_writers()).collect();
        all.into_iter().collect()
    }

    /// The ledger of the highest number that the log tells of.
    pub fn newest_ledger(&self) -> Option<LedgerId> {
        self.state
            .ledgers
            .last_key_value()
            .map(|(ledger, _)| *ledger)
    }

    /// Damage that no earlier start has seen.
    pub fn new_damage(&self) -> &[DamagedRange] {
        &self.new_damage
    }
}

/// Scans the log. Writes nothing, unless the disk fails.
///
/// # Errors
/// Of the disk, the boot file or the log.
pub fn recover_log(
    config: &NodeConfig,
    disk: &dyn Disk,
    facts: BootFacts,
) -> Result<Booted, super::StartError> {
    let last = match read_boot(disk) {
        // The counter in metadata still tells an old disk; without the file nothing speaks for a clean stop.
        Err(IdentityError::Damaged { .. }) => Boot {
            counter: facts.boot_in_metadata,
            ..Boot::default()
        },
        other => other?,
    };
    let survived = !last.kernel.is_empty() && last.kernel == config.kernel_boot_id;
    let mut rebuild = Rebuild::default();
    let identity = facts.identity.of_disk();
    let mut recovered = recover(disk, &identity, survived, config.mutation, &mut rebuild)
        .inspect_err(|_| forget_kernel(disk))?;
    let mut state = rebuild.finish(&mut recovered)?;
    state.forget_dead(|_, _| true);
    let known = &state.known_damage;
    let new_damage: Vec<DamagedRange> = recovered
        .damage
        .iter()
        .filter(|range| !known.contains(range))
        .copied()
        .collect();
    let mut limbo = BTreeSet::new();
    if !new_damage.is_empty() {
        limbo.insert(LimboKind::Damage);
    }
    if !facts.identity.sync.always() && !last.clean && !survived && last.counter > 0 {
        limbo.insert(LimboKind::Unsynced);
    }
    let behind = facts.boot_in_metadata > last.counter
        || (recovered.next_file <= facts.log_file_in_metadata && facts.boot_in_metadata > 0);
    if behind {
        limbo.insert(LimboKind::Stale);
    }
    let counter = last.counter.max(facts.boot_in_metadata) + 1;
    Ok(Booted {
        facts,
        last,
        recovered,
        state,
        new_damage,
        limbo,
        counter,
    })
}

/// Makes the decisions durable, with limbo for `scope`, and gives the core and the writer.
///
/// # Errors
/// Of the log; the next start begins again.
pub fn open_log(
    config: &NodeConfig,
    disk: &Arc<dyn Disk>,
    mut booted: Booted,
    scope: &[LedgerId],
    (rng, now): (Box<dyn RngCore + Send>, TimestampMs),
) -> Result<(NodeCore, LogWriter), LogError> {
    let mut records: Vec<Record> = booted
        .new_damage
        .iter()
        .copied()
        .map(Record::KnownDamage)
        .collect();
    for kind in &booted.limbo {
        records.extend(booted.state.enter_limbo(scope, *kind, booted.counter));
    }
    let setup = WriterSetup {
        disk: Arc::clone(disk),
        identity: booted.facts.identity.of_disk(),
        file_bytes: config.file_cap(),
        sync: config.sync,
        rng,
        created_at: now,
    };
    booted.state.known_damage.extend(booted.new_damage);
    let void = booted.recovered.void.clone();
    let rotten = std::mem::take(&mut booted.recovered.rotten);
    let rotten = rotten
        .into_iter()
        .filter(|rotten| booted.state.is_at(rotten));
    let rotten: Vec<RottenEntry> = rotten.collect();
    let head = Head {
        decided: records,
        snapshot: booted.state.snapshot(),
    };
    let writer = LogWriter::start(setup, booted.recovered, &head)?;
    let snapshot = writer.snapshot_file();
    booted.state.replay_from = snapshot.unwrap_or(booted.state.replay_from);
    booted.state.sealed_below = writer.sealed_below();
    // The first file's seals say so on the disk. A void file whose number is taken again is void no more.
    for file in void
        .into_iter()
        .filter(|file| *file != writer.current_file())
    {
        booted.state.removed.insert(file, file + 1);
    }
    if booted.facts.identity.sync != config.sync {
        let identity = Identity {
            sync: config.sync,
            ..booted.facts.identity.clone()
        };
        write_identity(disk.as_ref(), &identity)?;
    }
    let boot = Boot {
        counter: booted.counter,
        kernel: config.kernel_boot_id.clone(),
        clean: false,
    };
    debug_assert!(boot.counter > booted.last.counter, "boot counters grow");
    write_boot(disk.as_ref(), &boot)?;
    let limits = config.limits();
    let identity = booted.facts.identity.of_disk();
    let core = NodeCore::new(identity, booted.state, limits, writer.room());
    let mut core = core.mutated(config.mutation);
    for RottenEntry {
        ledger,
        entry,
        location,
    } in rotten
    {
        let damaged = Event::EntryDamaged {
            ledger,
            entry,
            file: location.file,
        };
        core.on_event(damaged, &mut Vec::new());
    }
    Ok((core, writer))
}
