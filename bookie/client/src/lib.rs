//! `bookie-client`: ledgers as their users see them: create, append, read, seal, recover, delete, wherever their bytes live.
//!
//! Main path: [`LedgerClient::create`] → [`LedgerWriter::append`] → the writer core (numbers, write set, acks, last confirmed)
//! → `BookieCalls::add` of each member → in-order completion. A member that fails is replaced on the way. After an owner's death:
//! [`LedgerClient::recover`], then [`LedgerClient::reader`].
//!
//! # Invariants
//! 1. An append is answered with success only when its entry and all before it have Qa acks from members that metadata names
//!    (storage.md W3–W5).
//! 2. A closed ledger has one end and one content for every reader, for ever (R10, B13).
//! 3. An answer that says "not written" is a promise; all others are "unknown" (W6, W13, W14).
//! 4. While an ensemble change is unresolved, only members of both ensembles count (amended W4).
//! 5. A metadata change with an unknown outcome is resolved only by a read of another version (amended M3).
//!
//! The protocol cores ([`writer::WriterCore`], [`recovery::RecoveryCore`], [`metadata::Proposal`]) do no I/O and have no clock: an
//! external loop can drive them. Everything async around them is thin.
//!
//! Not here: who owns a partition, what an entry means, how calls travel.
//!
//! Reading order: [`quorum`], [`writer`], [`recovery`], [`metadata`], [`LedgerClient`], [`LedgerReader`].

mod config;
mod create;
mod damage;
mod delete;
mod departures;
mod directory;
mod error;
mod fences;
mod ledger_client;
pub mod mailbox;
pub mod metadata;
mod placement;
pub mod quorum;
mod reader;
pub mod recovery;
mod settling;
mod standing;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tiered;
mod whereabouts;
pub mod writer;

pub use config::ClientConfig;
pub use directory::{
    BookieDirectory, Candidate, Dial, Listed, LiveBookie, RegisteredBookies, Registration,
    RegistrationError, RegistrationState, UPKEEP_REPORT_KEY, change_registration, list_bookies,
    list_registrations, retire_drained, upkeep_report,
};
pub use error::{
    AppendError, CloseError, CreateError, DeleteError, GuardFailed, MemberAnswer, MemberAnswers,
    NotWritten, ReadError, RecoverError, RollError, SettleError, WriterEnd,
};
pub use fences::Fences;
pub use ledger_client::{LedgerClient, NewLedger};
pub use placement::choose_replacement;
pub use reader::LedgerReader;
pub use standing::Standing;
pub use writer::{Appended, LedgerWriter};
