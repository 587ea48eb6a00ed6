//! Identity against metadata: the start matrix of storage.md C1–C5.

use bookie_metadata::{
    Compare, MetadataError, MetadataStore, Op, Txn, TxnOutcome, Versioned, counter,
};
use hulse_proto::id::{Incarnation, LedgerId};
use hulse_proto::ledger::{LEDGER_IDS_KEY, LedgerMetadata, LedgerState, Member};
use hulse_proto::wire::metadata as wire;
use prost::Message;
use rand::RngCore;
use uuid::Builder;

use super::StartError;
use crate::config::NodeConfig;
use crate::disk::Disk;
use crate::identity::{IDENTITY_NAME, Identity, IdentityError, read_identity, write_identity};
use crate::log::format::file_number;

/// Conflicts in a row that a registration survives.
const TRIES_MAX: u32 = 5;

/// What metadata says of this node.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Who we are.
    pub identity: Identity,
    /// The registration.
    pub value: wire::Bookie,
}

fn key(config: &NodeConfig) -> String {
    format!("bookie/{}", config.name)
}

async fn registration(
    config: &NodeConfig,
    metadata: &dyn MetadataStore,
) -> Result<Option<(Versioned, wire::Bookie)>, StartError> {
    let Some(found) = metadata.get(&key(config)).await? else {
        return Ok(None);
    };
    match wire::Bookie::decode(&found.value[..]) {
        Ok(value) => Ok(Some((found, value))),
        Err(_) => Err(StartError::Registration {
            name: config.name.clone(),
        }),
    }
}

/// Makes an identity on an empty directory and registers it (C1). An unfinished format is finished or begun anew.
///
/// # Errors
/// [`StartError`]; a directory that holds anything is refused.
pub async fn format(
    config: &NodeConfig,
    disk: &dyn Disk,
    metadata: &dyn MetadataStore,
    rng: &mut (dyn RngCore + Send),
) -> Result<Identity, StartError> {
    check_empty(disk)?;
    let registered = registration(config, metadata).await?;
    let begun = unfinished(disk)?.filter(|begun| begun.cell == config.cell);
    match (&begun, &registered) {
        // The crash came between registration and the last write.
        (Some(begun), Some((_, value))) if same_disk(begun, value) => {
            return finish(disk, begun.clone());
        }
        (_, Some((_, value))) => return Err(disk_lost(config, value)),
        _ => {}
    }
    let identity = begin(config, disk, rng)?;
    register(config, metadata, &identity).await?;
    finish(disk, identity)
}

/// Gives a registered name a new disk (C3): an empty directory becomes the bookie's, and the life of the disk before is over for good.
/// Its copies are made again by upkeep. An unfinished replacement is finished or begun anew.
///
/// The operator's word is that the old disk is gone; what can be seen of it is that no process holds its name.
///
/// # Errors
/// [`StartError`]; a directory that holds anything is refused, and so is a name that runs or that nobody ever had.
pub async fn replace(
    config: &NodeConfig,
    disk: &dyn Disk,
    metadata: &dyn MetadataStore,
    rng: &mut (dyn RngCore + Send),
) -> Result<Identity, StartError> {
    check_empty(disk)?;
    let name = config.name.clone();
    let Some((found, value)) = registration(config, metadata).await? else {
        return Err(StartError::NeverRegistered { name });
    };
    let begun = unfinished(disk)?.filter(|begun| begun.cell == config.cell);
    if let Some(begun) = begun.filter(|begun| same_disk(begun, &value)) {
        return finish(disk, begun);
    }
    let live = format!("node/bookie/{name}");
    if let Some(row) = metadata.get(&live).await? {
        let node = wire::Node::decode(&row.value[..]).unwrap_or_default();
        let endpoint = node.endpoint;
        return Err(StartError::Runs { name, endpoint });
    }
    let identity = begin(config, disk, rng)?;
    // Nobody has begun to run under the name since, and the disk before has not started.
    let compares = vec![
        Compare::Version(found.key, found.version),
        Compare::Absent(live),
    ];
    take_name(config, metadata, &identity, compares).await?;
    finish(disk, identity)
}

fn check_empty(disk: &dyn Disk) -> Result<(), StartError> {
    let names = disk.list()?;
    let foreign = |name: &&String| name.as_str() != IDENTITY_NAME && !name.ends_with(".tmp");
    match names.iter().find(foreign) {
        Some(name) => Err(StartError::NotEmpty { name: name.clone() }),
        None => Ok(()),
    }
}

/// Writes a new identity that is not registered yet.
fn begin(
    config: &NodeConfig,
    disk: &dyn Disk,
    rng: &mut (dyn RngCore + Send),
) -> Result<Identity, StartError> {
    let identity = Identity {
        cell: config.cell,
        name: config.name.clone(),
        incarnation: Incarnation(random_uuid(rng)),
        disk: random_uuid(rng),
        sync: config.sync,
        registered: false,
    };
    write_identity(disk, &identity)?;
    Ok(identity)
}

/// Takes the name in metadata for this disk, if nobody has it.
async fn register(
    config: &NodeConfig,
    metadata: &dyn MetadataStore,
    identity: &Identity,
) -> Result<(), StartError> {
    take_name(
        config,
        metadata,
        identity,
        vec![Compare::Absent(key(config))],
    )
    .await
}

async fn take_name(
    config: &NodeConfig,
    metadata: &dyn MetadataStore,
    identity: &Identity,
    compares: Vec<Compare>,
) -> Result<(), StartError> {
    let value = wire::Bookie {
        incarnation: identity.incarnation.to_bytes(),
        disk_uuid: identity.disk.as_bytes().to_vec().into(),
        state: wire::bookie::State::Active as i32,
        boot_counter: 0,
        highest_log_file: 0,
        zone: config.zone.clone(),
    };
    let txn = Txn {
        compares,
        ops: vec![Op::put(key(config), value.encode_to_vec())],
    };
    match metadata.txn(txn).await {
        Ok(TxnOutcome::Committed { .. }) => Ok(()),
        Ok(TxnOutcome::Conflict { .. }) | Err(MetadataError::OutcomeUnknown { .. }) => {
            match registration(config, metadata).await? {
                Some((_, value)) if same_disk(identity, &value) => Ok(()),
                Some((_, value)) => Err(disk_lost(config, &value)),
                None => Err(StartError::Metadata(MetadataError::Unavailable {
                    why: "the outcome of the registration is unknown; start again".to_owned(),
                })),
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn disk_lost(config: &NodeConfig, value: &wire::Bookie) -> StartError {
    StartError::DiskLost {
        name: config.name.clone(),
        incarnation: Incarnation::from_slice(&value.incarnation).unwrap_or_default(),
    }
}

fn finish(disk: &dyn Disk, mut identity: Identity) -> Result<Identity, StartError> {
    identity.registered = true;
    write_identity(disk, &identity)?;
    Ok(identity)
}

fn random_uuid(rng: &mut (dyn RngCore + Send)) -> uuid::Uuid {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    Builder::from_random_bytes(bytes).into_uuid()
}

/// The identity of a format that was not finished.
fn unfinished(disk: &dyn Disk) -> Result<Option<Identity>, StartError> {
    match read_identity(disk)? {
        Some(identity) if identity.registered => Err(StartError::NotEmpty {
            name: IDENTITY_NAME.to_owned(),
        }),
        other => Ok(other),
    }
}

fn same_disk(identity: &Identity, value: &wire::Bookie) -> bool {
    value.incarnation[..] == identity.incarnation.0.as_bytes()[..]
        && value.disk_uuid[..] == identity.disk.as_bytes()[..]
}

/// Finds out who this disk is and whether it may serve (C2); formats an empty directory if configured.
///
/// # Errors
/// [`StartError`].
pub async fn identify(
    config: &NodeConfig,
    disk: &dyn Disk,
    metadata: &dyn MetadataStore,
    rng: &mut (dyn RngCore + Send),
) -> Result<Registered, StartError> {
    let identity = match read_identity(disk) {
        Ok(Some(identity)) if identity.registered => identity,
        Ok(begun) => {
            let logs = disk.list()?.iter().any(|name| file_number(name).is_some());
            if begun.is_none() && logs {
                return Err(StartError::IdentityMissing);
            }
            if !config.format_if_empty {
                let known = registration(config, metadata).await?;
                return Err(known.map_or(StartError::NotFormatted, |(_, value)| {
                    disk_lost(config, &value)
                }));
            }
            format(config, disk, metadata, rng).await?
        }
        Err(IdentityError::Disk(error)) => return Err(error.into()),
        Err(error) => return Err(error.into()),
    };
    check_config(config, &identity)?;
    let name = config.name.clone();
    let Some((_, value)) = registration(config, metadata).await? else {
        return Err(StartError::NotRegistered { name });
    };
    check_registration(&identity, &value)?;
    Ok(Registered { identity, value })
}

fn check_config(config: &NodeConfig, identity: &Identity) -> Result<(), StartError> {
    if identity.cell != config.cell {
        return Err(StartError::OtherCell {
            found: identity.cell,
            asked: config.cell,
        });
    }
    if identity.name != config.name {
        return Err(StartError::OtherName {
            found: identity.name.clone(),
            asked: config.name.clone(),
        });
    }
    Ok(())
}

fn check_registration(identity: &Identity, value: &wire::Bookie) -> Result<(), StartError> {
    let name = identity.name.clone();
    if !same_disk(identity, value) {
        return Err(StartError::OtherIncarnation {
            name,
            registered: Incarnation::from_slice(&value.incarnation).unwrap_or_default(),
            found: identity.incarnation,
        });
    }
    match value.state() {
        wire::bookie::State::Active
        | wire::bookie::State::Draining
        | wire::bookie::State::ReadOnly => Ok(()),
        wire::bookie::State::Unspecified => Err(StartError::Registration { name }),
        wire::bookie::State::Retired | wire::bookie::State::Lost => {
            Err(StartError::Retired { name })
        }
    }
}

/// Refuses metadata that never gave the number of a ledger which the disk holds: they are an older copy, would give it again, and
/// another ledger's records would be taken for those of the new one.
///
/// # Errors
/// [`StartError::MetadataOlder`], or of the store.
pub async fn check_numbers(
    metadata: &dyn MetadataStore,
    newest: Option<LedgerId>,
) -> Result<(), StartError> {
    let Some(ledger) = newest else {
        return Ok(());
    };
    let given_below = counter::next_number(metadata, LEDGER_IDS_KEY).await?;
    match ledger.0 < given_below {
        true => Ok(()),
        false => Err(StartError::MetadataOlder { ledger }),
    }
}

/// Raises boot counter and highest log file in metadata (C4).
///
/// # Errors
/// [`StartError`], also when another disk took the name meanwhile.
pub async fn boot_in_metadata(
    config: &NodeConfig,
    metadata: &dyn MetadataStore,
    identity: &Identity,
    boot_counter: u64,
    log_file: u64,
) -> Result<(), StartError> {
    for _ in 0..TRIES_MAX {
        let name = config.name.clone();
        let Some((found, mut value)) = registration(config, metadata).await? else {
            return Err(StartError::NotRegistered { name });
        };
        check_registration(identity, &value)?;
        if value.boot_counter >= boot_counter && value.highest_log_file >= log_file {
            return Ok(());
        }
        value.boot_counter = value.boot_counter.max(boot_counter);
        value.highest_log_file = value.highest_log_file.max(log_file);
        value.zone = config.zone.clone();
        let txn = Txn {
            compares: vec![Compare::Version(found.key, found.version)],
            ops: vec![Op::put(key(config), value.encode_to_vec())],
        };
        match metadata.txn(txn).await {
            Ok(TxnOutcome::Committed { .. }) => return Ok(()),
            // Read again: the counter says whether it took effect.
            Ok(TxnOutcome::Conflict { .. }) | Err(MetadataError::OutcomeUnknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(StartError::Metadata(MetadataError::Unavailable {
        why: format!("registration changed {TRIES_MAX} times meanwhile"),
    }))
}

/// The ledgers that limbo is about (S3): not closed, and this node is in some fragment. Not the last one alone: recovery also reads
/// the entry before its base, which may lie in an older one, and must not take what was lost there for what never was.
///
/// # Errors
/// Of the store. A value that cannot be read counts as in scope: nothing is promised for it.
pub async fn limbo_scope(
    metadata: &dyn MetadataStore,
    identity: &Identity,
) -> Result<Vec<LedgerId>, MetadataError> {
    let me = Member {
        bookie: identity.name.clone(),
        incarnation: identity.incarnation,
    };
    let mut scope = Vec::new();
    for item in bookie_metadata::list_all(metadata, "ledger/").await? {
        let Some(id) = item
            .key
            .strip_prefix("ledger/")
            .and_then(|id| id.parse().ok())
        else {
            continue;
        };
        let concerned = match LedgerMetadata::decode(&item.value) {
            Ok(ledger) => {
                matches!(ledger.state, LedgerState::Open | LedgerState::InRecovery)
                    && ledger
                        .fragments
                        .iter()
                        .any(|fragment| fragment.ensemble.contains(&me))
            }
            Err(_) => true,
        };
        if concerned {
            scope.push(LedgerId(id));
        }
    }
    Ok(scope)
}
