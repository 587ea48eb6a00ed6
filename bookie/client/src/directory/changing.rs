//! What operators say of a bookie: read-only, draining, lost, and back (storage.md C3, C7).
//!
//! Every change compares the version that it was made from. Only upkeep retires a bookie, once no ledger names it.

use bookie_metadata::cell::{CellError, read_cell};
use bookie_metadata::{Compare, MetadataError, MetadataStore, Op, Txn, TxnOutcome};
use hulse_proto::id::NodeName;
use hulse_proto::ledger::Member;
use hulse_proto::wire::{Message as _, metadata as wire};

use super::listing::{
    Registration, RegistrationState, decode, list_registrations, registration_key,
};

/// Where the planner of upkeep writes what it found last.
pub const UPKEEP_REPORT_KEY: &str = "upkeep/report";
/// Tries while others change the same registration.
const TRIES_MAX: u32 = 5;

/// Why a bookie's registration was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// The store did not do it.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The cell record cannot be read.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// No bookie of this name was ever registered.
    #[error("there is no bookie {name}; there are {known}")]
    Unknown {
        /// As asked.
        name: NodeName,
        /// Those that are, as a list.
        known: String,
    },
    /// It is retired or lost: its disk never serves again.
    #[error("bookie {name} is {state}, which is for ever; a new disk needs `hulse bookie replace`")]
    Final {
        /// It.
        name: NodeName,
        /// `lost` or `retired`.
        state: &'static str,
    },
    /// It runs, so its disk is not lost.
    #[error(
        "bookie {name} runs at {endpoint}; stop it first, or move its ledgers away with `hulse bookies decommission {name}`"
    )]
    Runs {
        /// It.
        name: NodeName,
        /// Where.
        endpoint: String,
    },
    /// Those that stay could not hold a ledger.
    #[error(
        "without {name} there are {left} bookies for new ledgers, and every ledger needs {ensemble}; add a bookie first"
    )]
    NotEnough {
        /// It.
        name: NodeName,
        /// That stay.
        left: usize,
        /// That a ledger needs.
        ensemble: usize,
    },
    /// Others changed it again and again, or the outcome is unknown.
    #[error(
        "the registration of bookie {name} changes meanwhile, or its outcome is unknown; look, and try again"
    )]
    Changing {
        /// It.
        name: NodeName,
    },
}

impl RegistrationState {
    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::ReadOnly => "read-only",
            Self::Draining => "draining",
            Self::Retired => "retired",
            Self::Lost => "lost",
        }
    }

    pub(super) fn to_wire(self) -> wire::bookie::State {
        use wire::bookie::State;
        match self {
            Self::Active => State::Active,
            Self::ReadOnly => State::ReadOnly,
            Self::Draining => State::Draining,
            Self::Retired => State::Retired,
            Self::Lost => State::Lost,
        }
    }
}

/// An operator's word: a bookie is to be [`RegistrationState::Active`], `ReadOnly`, `Draining` or `Lost`. One that is so already is left
/// as it is. The registration as it is then.
///
/// # Errors
/// [`RegistrationError`]. Safe to drop and to repeat.
pub async fn change_registration(
    metadata: &dyn MetadataStore,
    name: &NodeName,
    to: RegistrationState,
) -> Result<Registration, RegistrationError> {
    for _ in 0..TRIES_MAX {
        let all = list_registrations(metadata).await?;
        let Some(found) = all.iter().find(|found| found.member.bookie == *name) else {
            let known: Vec<&str> = all
                .iter()
                .map(|found| found.member.bookie.as_str())
                .collect();
            let known = match known.is_empty() {
                true => "none yet".to_owned(),
                false => known.join(", "),
            };
            let name = name.clone();
            return Err(RegistrationError::Unknown { name, known });
        };
        if found.state == to {
            return Ok(found.clone());
        }
        allowed(metadata, &all, found, to).await?;
        if put(metadata, found, to).await? {
            let state = to;
            return Ok(Registration {
                state,
                ..found.clone()
            });
        }
    }
    Err(RegistrationError::Changing { name: name.clone() })
}

async fn allowed(
    metadata: &dyn MetadataStore,
    all: &[Registration],
    found: &Registration,
    to: RegistrationState,
) -> Result<(), RegistrationError> {
    let name = found.member.bookie.clone();
    let ended = matches!(
        found.state,
        RegistrationState::Lost | RegistrationState::Retired
    );
    if ended || to == RegistrationState::Retired {
        let state = match ended {
            true => found.state.name(),
            false => to.name(),
        };
        return Err(RegistrationError::Final { name, state });
    }
    match (to, &found.live) {
        (RegistrationState::Lost, Some(live)) => Err(RegistrationError::Runs {
            name,
            endpoint: live.endpoint.clone(),
        }),
        (RegistrationState::Draining, _) => {
            let ensemble = read_cell(metadata).await?;
            let ensemble = ensemble.map_or(1, |cell| cell.settings.quorums.ensemble as usize);
            let others = all.iter().filter(|other| other.member.bookie != name);
            let left = others
                .filter(|other| other.state == RegistrationState::Active)
                .count();
            match left < ensemble {
                true => Err(RegistrationError::NotEnough {
                    name,
                    left,
                    ensemble,
                }),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Writes the state if the registration is of this life and state; false: it is not, or the outcome is unknown.
async fn put(
    metadata: &dyn MetadataStore,
    found: &Registration,
    to: RegistrationState,
) -> Result<bool, MetadataError> {
    let key = registration_key(&found.member.bookie);
    let Some(row) = metadata.get(&key).await? else {
        return Ok(false);
    };
    let mut value: wire::Bookie = decode(&key, row.value)?;
    let same = value.incarnation == found.member.incarnation.to_bytes();
    if !same || value.state() != found.state.to_wire() {
        return Ok(false);
    }
    value.set_state(to.to_wire());
    let txn = Txn {
        compares: vec![Compare::Version(key.clone(), row.version)],
        ops: vec![Op::put(key, value.encode_to_vec())],
    };
    match metadata.txn(txn).await {
        Ok(TxnOutcome::Committed { .. }) => Ok(true),
        Ok(TxnOutcome::Conflict { .. }) | Err(MetadataError::OutcomeUnknown { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Upkeep's word: no ledger names this life of a draining bookie any more (C7). False when it is not draining, or not this life.
///
/// # Errors
/// Of the store.
pub async fn retire_drained(
    metadata: &dyn MetadataStore,
    member: &Member,
) -> Result<bool, MetadataError> {
    let all = list_registrations(metadata).await?;
    let found = all
        .iter()
        .find(|found| found.member == *member && found.state == RegistrationState::Draining);
    match found {
        Some(found) => put(metadata, found, RegistrationState::Retired).await,
        None => Ok(false),
    }
}

/// What the planner of upkeep found last; `None`: there was none yet.
///
/// # Errors
/// Of the store; `Corrupt` when it cannot be read.
pub async fn upkeep_report(
    metadata: &dyn MetadataStore,
) -> Result<Option<wire::UpkeepReport>, MetadataError> {
    let found = metadata.get(UPKEEP_REPORT_KEY).await?;
    found
        .map(|row| decode(UPKEEP_REPORT_KEY, row.value))
        .transpose()
}
