//! On whom to count (storage.md X7, C3, C7): who is there, who is to go, and who is gone.
//!
//! Nothing here is decided by a clock alone: a bookie that was silent for long enough is *given up*, which costs copies and never data,
//! as whoever took its place held everything before the change.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bookie_client::{Candidate, Registration, RegistrationState};
use hulse_proto::id::NodeName;
use hulse_proto::ledger::Member;

/// Whether a member counts as a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It is registered in this life, and runs.
    Present,
    /// The same, and it does not run now; it is waited for.
    Silent,
    /// It runs or did just now, and its copies are to be moved away.
    Leaving,
    /// Its copies do not count any more.
    Gone(GoneWhy),
}

/// Why a member is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoneWhy {
    /// Its disk was replaced, or is not registered at all.
    OtherDisk,
    /// An operator said so, or it was retired.
    Declared,
    /// It has been silent for too long.
    SilentTooLong,
}

impl fmt::Display for GoneWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherDisk => "its disk is another one now",
            Self::Declared => "it is lost or retired",
            Self::SilentTooLong => "it has been silent for too long",
        })
    }
}

/// The bookies of the cell, as an auditor has seen them.
#[derive(Debug, Clone)]
pub struct Fleet {
    lost_after: Duration,
    bookies: BTreeMap<NodeName, Seen>,
}

#[derive(Debug, Clone)]
struct Seen {
    registration: Registration,
    /// Since when it does not run, in this auditor's time.
    silent_since: Option<Duration>,
}

impl Fleet {
    /// Nobody yet. A bookie that is silent for `lost_after` is given up.
    pub fn new(lost_after: Duration) -> Self {
        Self {
            lost_after,
            bookies: BTreeMap::new(),
        }
    }

    /// What metadata says now; `now` is passing time of any origin. True when somebody came, went, or is meant to.
    pub fn update(&mut self, registered: Vec<Registration>, now: Duration) -> bool {
        let before = std::mem::take(&mut self.bookies);
        let mut changed = before.len() != registered.len();
        for registration in registered {
            let known = before.get(&registration.member.bookie);
            let same = known.is_some_and(|known| {
                let old = &known.registration;
                old.member == registration.member
                    && old.state == registration.state
                    && old.live.is_some() == registration.live.is_some()
            });
            changed |= !same;
            let silent_since = match &registration.live {
                Some(_) => None,
                None => Some(known.and_then(|known| known.silent_since).unwrap_or(now)),
            };
            let name = registration.member.bookie.clone();
            let seen = Seen {
                registration,
                silent_since,
            };
            self.bookies.insert(name, seen);
        }
        changed
    }

    /// Whether a member counts.
    pub fn trust(&self, member: &Member, now: Duration) -> Trust {
        let Some(seen) = self.bookies.get(&member.bookie) else {
            return Trust::Gone(GoneWhy::OtherDisk);
        };
        if seen.registration.member.incarnation != member.incarnation {
            return Trust::Gone(GoneWhy::OtherDisk);
        }
        let silent = seen.silent_since.map(|since| now.saturating_sub(since));
        let given_up = silent.is_some_and(|silent| silent >= self.lost_after);
        match seen.registration.state {
            RegistrationState::Lost | RegistrationState::Retired => Trust::Gone(GoneWhy::Declared),
            RegistrationState::Draining if !given_up => Trust::Leaving,
            _ if given_up => Trust::Gone(GoneWhy::SilentTooLong),
            _ if silent.is_some() => Trust::Silent,
            _ => Trust::Present,
        }
    }

    /// When the next silent bookie is given up, if none returns.
    pub fn next_given_up(&self, now: Duration) -> Option<Duration> {
        let waits = self.bookies.values().filter_map(|seen| seen.silent_since);
        waits
            .map(|since| since + self.lost_after)
            .filter(|at| *at > now)
            .min()
    }

    /// Who may take copies.
    pub fn candidates(&self) -> Vec<Candidate> {
        let all = self.bookies.values();
        all.filter_map(|seen| seen.registration.candidate())
            .collect()
    }

    /// All of them, by name.
    pub fn registrations(&self) -> impl Iterator<Item = &Registration> {
        self.bookies.values().map(|seen| &seen.registration)
    }
}

#[cfg(test)]
mod tests {
    use bookie_client::LiveBookie;
    use hulse_proto::id::Incarnation;
    use uuid::Uuid;

    use super::*;

    fn registered(life: u128, state: RegistrationState, live: bool) -> Registration {
        Registration {
            member: Member {
                bookie: NodeName::new("b").unwrap(),
                incarnation: Incarnation(Uuid::from_u128(life)),
            },
            state,
            zone: String::new(),
            live: live.then(|| LiveBookie {
                mode: "normal".to_owned(),
                endpoint: "here:1".to_owned(),
                http: String::new(),
            }),
        }
    }

    #[test]
    fn silent_bookie_is_waited_for_and_given_up_and_counts_again_when_it_returns() {
        let minute = Duration::from_secs(60);
        let mut fleet = Fleet::new(10 * minute);
        let b = registered(1, RegistrationState::Active, true).member;
        assert!(fleet.update(vec![registered(1, RegistrationState::Active, true)], minute));
        assert_eq!(fleet.trust(&b, minute), Trust::Present);
        assert!(fleet.update(
            vec![registered(1, RegistrationState::Active, false)],
            2 * minute
        ));
        assert!(!fleet.update(
            vec![registered(1, RegistrationState::Active, false)],
            9 * minute
        ));
        assert_eq!(fleet.trust(&b, 11 * minute), Trust::Silent);
        assert_eq!(fleet.next_given_up(11 * minute), Some(12 * minute));
        assert_eq!(
            fleet.trust(&b, 12 * minute),
            Trust::Gone(GoneWhy::SilentTooLong)
        );
        fleet.update(
            vec![registered(1, RegistrationState::Active, true)],
            13 * minute,
        );
        assert_eq!(fleet.trust(&b, 99 * minute), Trust::Present);
    }

    #[test]
    fn what_metadata_says_comes_before_what_is_seen() {
        let mut fleet = Fleet::new(Duration::from_secs(600));
        let b = registered(1, RegistrationState::Active, true).member;
        let mut trust = |registration| {
            fleet.update(vec![registration], Duration::ZERO);
            fleet.trust(&b, Duration::ZERO)
        };
        use RegistrationState::{Active, Draining, Lost, ReadOnly, Retired};
        assert_eq!(trust(registered(1, ReadOnly, true)), Trust::Present);
        assert_eq!(trust(registered(1, Draining, true)), Trust::Leaving);
        assert_eq!(trust(registered(1, Draining, false)), Trust::Leaving);
        assert_eq!(
            trust(registered(1, Lost, true)),
            Trust::Gone(GoneWhy::Declared)
        );
        assert_eq!(
            trust(registered(1, Retired, true)),
            Trust::Gone(GoneWhy::Declared)
        );
        assert_eq!(
            trust(registered(2, Active, true)),
            Trust::Gone(GoneWhy::OtherDisk)
        );
        fleet.update(Vec::new(), Duration::ZERO);
        assert_eq!(
            fleet.trust(&b, Duration::ZERO),
            Trust::Gone(GoneWhy::OtherDisk)
        );
    }
}
