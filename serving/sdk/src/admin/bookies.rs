//! The bookies of a cluster, and what upkeep says of their copies.

use std::time::Duration;

use hulse_proto::wire::v1;

use super::handle::Admin;
use crate::error::Error;

/// What is to become of a bookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BookieState {
    /// It takes ledgers.
    Active,
    /// It takes no more records, and keeps what it has.
    ReadOnly,
    /// It takes no more ledgers; its copies are moved away, and then it is retired.
    Draining,
    /// Its disk is gone for good: its copies are made again at once. Only of one that does not run.
    Lost,
}

impl BookieState {
    fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::ReadOnly => "read-only",
            Self::Draining => "draining",
            Self::Lost => "lost",
        }
    }
}

/// A bookie that is or was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bookie {
    /// Its name.
    pub name: String,
    /// Identity of the life of its disk.
    pub incarnation: String,
    /// `active`, `read-only`, `draining`, `retired` or `lost`.
    pub state: String,
    /// Failure domain; may be empty.
    pub zone: String,
    /// While it runs: what it says of itself, and where it is called.
    pub live: Option<LiveBookie>,
    /// Ledgers that name it, and about how many bytes of closed ones; `None`: not known.
    pub holds: Option<(u64, u64)>,
    /// While it is draining and copies are made: how long that takes yet.
    pub time_left: Option<Duration>,
}

/// A bookie that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveBookie {
    /// `normal`, `low`, `readonly`, `reserve`, `failed` or `starting`.
    pub mode: String,
    /// `host:port`
    pub endpoint: String,
    /// `host:port` of its metrics and health; empty: not told.
    pub http: String,
}

/// Why a place in a ledger is not repaired or moved now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// Of this ledger,
    pub ledger: u64,
    /// from this entry on,
    pub first_entry: u64,
    /// the copy of this bookie.
    pub bookie: String,
    /// `settling`, `waiting`, `no-target`, `unreadable` or `failing`.
    pub kind: String,
    /// In words.
    pub why: String,
    /// Since when, ms since 1970 by the planner's clock.
    pub since_ms: i64,
}

/// What upkeep found last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upkeep {
    /// The bookie whose process plans.
    pub planner: String,
    /// When it reported, by its clock.
    pub at_ms: i64,
    /// Passes that it has made.
    pub passes: u64,
    /// Ledgers of the last one.
    pub ledgers: u64,
    /// Those with fewer good copies than they should have.
    pub lacking_ledgers: u64,
    /// Since when there have been any; `None`: there are none.
    pub lacking_since_ms: Option<i64>,
    /// About how many bytes are to be copied, also those that only move.
    pub bytes_to_copy: u64,
    /// That were.
    pub copied_bytes: u64,
    /// How fast.
    pub bytes_per_second: u64,
    /// What cannot be done now; at most some hundred.
    pub blocked: Vec<Blocked>,
    /// All of it.
    pub blocked_count: u64,
    /// How long the last pass over all ledgers took.
    pub pass_took: Duration,
    /// When it ended, ms since 1970 by the planner's clock.
    pub passed_at_ms: i64,
}

/// Bookies, and their upkeep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bookies {
    /// By name.
    pub bookies: Vec<Bookie>,
    /// `None`: nothing was reported yet.
    pub upkeep: Option<Upkeep>,
}

impl Bookie {
    pub(super) fn from_wire(wire: v1::BookieDescription) -> Self {
        let live = LiveBookie {
            mode: wire.mode,
            endpoint: wire.endpoint,
            http: wire.http,
        };
        Self {
            name: wire.name,
            incarnation: wire.incarnation,
            state: wire.state,
            zone: wire.zone,
            live: wire.live.then_some(live),
            holds: wire.ledgers.zip(wire.bytes),
            time_left: wire.seconds_left.map(Duration::from_secs),
        }
    }
}

impl Upkeep {
    pub(super) fn from_wire(wire: v1::UpkeepDescription) -> Self {
        let blocked = wire.blocked.into_iter().map(|blocked| Blocked {
            ledger: blocked.ledger,
            first_entry: blocked.first_entry,
            bookie: blocked.bookie,
            kind: blocked.kind,
            why: blocked.why,
            since_ms: blocked.since_ms,
        });
        Self {
            planner: wire.planner,
            at_ms: wire.at_ms,
            passes: wire.passes,
            ledgers: wire.ledgers,
            lacking_ledgers: wire.lacking_ledgers,
            lacking_since_ms: (wire.lacking_since_ms != 0).then_some(wire.lacking_since_ms),
            bytes_to_copy: wire.bytes_to_copy,
            copied_bytes: wire.copied_bytes,
            bytes_per_second: wire.bytes_per_second,
            blocked: blocked.collect(),
            blocked_count: wire.blocked_count,
            pass_took: Duration::from_millis(wire.pass_ms),
            passed_at_ms: wire.passed_at_ms,
        }
    }
}

impl Admin {
    /// The bookies that are or were, and what upkeep found last.
    ///
    /// # Errors
    /// Why it could not be asked.
    pub async fn list_bookies(&self) -> Result<Bookies, Error> {
        let request = v1::ListBookiesRequest {};
        let answer = self.ask(request, |mut admin, request| async move {
            admin.list_bookies(request).await
        });
        let answer = answer.await?;
        Ok(Bookies {
            bookies: answer.bookies.into_iter().map(Bookie::from_wire).collect(),
            upkeep: answer.upkeep.map(Upkeep::from_wire),
        })
    }

    /// Says what is to become of a bookie. What follows of it takes its time: [`Admin::list_bookies`] shows how far it is.
    ///
    /// # Errors
    /// BOOKIE_NOT_FOUND, PRECONDITION_FAILED (it runs, or too few would be left), …; or the outcome is unknown.
    pub async fn change_bookie(&self, name: &str, to: BookieState) -> Result<Bookie, Error> {
        let request = v1::ChangeBookieRequest {
            name: name.to_owned(),
            state: to.name().to_owned(),
        };
        let answer = self.change(request, |mut admin, request| async move {
            admin.change_bookie(request).await
        });
        let bookie = answer.await?.bookie;
        bookie
            .map(Bookie::from_wire)
            .ok_or_else(|| Error::wrong_answer("no bookie"))
    }
}
