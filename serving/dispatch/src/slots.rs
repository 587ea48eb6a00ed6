//! Slots of a KEYED cursor: whose they are, and who still holds records of them (serving.md B4.1–B4.4, B4.10).
//!
//! A slot that changes hands needs no state of its own: it is delivered only to the consumer whose it is, and only if nobody else
//! holds a record of it. So it drains by itself, and check and release are one step (B4.3, B4.4).

use std::sync::Arc;

use hulse_proto::time::TimestampMs;

use crate::facts::{AttachFault, NewSession, SLOTS, SessionId};

/// Nobody's.
pub(crate) const NOBODY: SessionId = SessionId(u32::MAX);

/// A consumer, by its stable name.
#[derive(Debug)]
struct Member {
    name: Arc<str>,
    /// Which of those with this name, from 0.
    ordinal: u32,
    seed: u64,
    weight: f64,
    named: Vec<(u16, u16)>,
    session: SessionId,
    /// It is away, and its slots are kept until then.
    leaves_at: Option<TimestampMs>,
}

/// One slot.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Whose it is.
    target: SessionId,
    /// Who holds records of it, if any are held.
    holder: SessionId,
    held: u32,
}

/// Nobody's, and nothing is held.
const FREE: Slot = Slot {
    target: NOBODY,
    holder: NOBODY,
    held: 0,
};

/// The map, and what is held. Without consumers and held records it takes no memory.
#[derive(Debug)]
pub(crate) struct SlotMap {
    members: Vec<Member>,
    by_name: bool,
    /// All, or none: all are free.
    slots: Vec<Slot>,
    held_total: u64,
}

impl SlotMap {
    pub(crate) fn new(named: bool) -> Self {
        Self {
            members: Vec::new(),
            by_name: named,
            slots: Vec::new(),
            held_total: 0,
        }
    }

    /// Whose the slot is.
    pub(crate) fn target(&self, slot: usize) -> SessionId {
        self.slot(slot).target
    }

    fn slot(&self, slot: usize) -> Slot {
        self.slots.get(slot).copied().unwrap_or(FREE)
    }

    /// Whose all of these are, both inclusive; `None`: of several.
    pub(crate) fn one_target(&self, (first, last): (usize, usize)) -> Option<SessionId> {
        let target = self.target(first);
        let mut others = first + 1..=last;
        others
            .all(|other| self.target(other) == target)
            .then_some(target)
    }

    /// Somebody else than `session` holds records of it.
    pub(crate) fn is_blocked(&self, slot: usize, session: SessionId) -> bool {
        let slot = self.slot(slot);
        slot.held > 0 && slot.holder != session
    }

    /// Slots that their consumer has to wait for. O(slots).
    pub(crate) fn draining(&self) -> usize {
        let slots = 0..SLOTS;
        slots
            .filter(|slot| self.is_blocked(*slot, self.target(*slot)))
            .count()
    }

    /// So many records are held.
    pub(crate) fn hold(&mut self, (first, last): (usize, usize), records: u32, by: SessionId) {
        self.fill();
        for slot in &mut self.slots[first..=last] {
            slot.held += records;
            slot.holder = by;
        }
        self.held_total += u64::from(records) * (last - first + 1) as u64;
    }

    /// And no more; those that are free now are added to `freed`.
    pub(crate) fn release(
        &mut self,
        (first, last): (usize, usize),
        records: u32,
        freed: &mut Vec<u16>,
    ) {
        for (at, slot) in self.slots[first..=last].iter_mut().enumerate() {
            slot.held -= records;
            if slot.held == 0 {
                freed.push((first + at) as u16);
            }
        }
        self.held_total -= u64::from(records) * (last - first + 1) as u64;
        self.shrink();
    }

    fn fill(&mut self) {
        if self.slots.is_empty() {
            self.slots = vec![FREE; SLOTS];
        }
    }

    fn shrink(&mut self) {
        if self.members.is_empty() && self.held_total == 0 {
            self.slots = Vec::new();
        }
    }

    /// Records held, for each slot that they may be of.
    pub(crate) fn held_total(&self) -> u64 {
        self.held_total
    }

    /// Somebody comes. Slots move to it and to nobody else.
    pub(crate) fn join(&mut self, new: &NewSession, session: SessionId) -> Result<(), AttachFault> {
        self.check_named(new)?;
        let away = self
            .members
            .iter()
            .position(|member| member.leaves_at.is_some() && member.name == new.name);
        if let Some(at) = away {
            let before = std::mem::replace(&mut self.members[at].session, session);
            self.members[at].leaves_at = None;
            for slot in self.slots.iter_mut().filter(|it| it.target == before) {
                slot.target = session;
            }
            return Ok(());
        }
        let is_used = |ordinal: u32| {
            let mut all = self.members.iter();
            all.any(|member| member.name == new.name && member.ordinal == ordinal)
        };
        let ordinal = (0..).find(|ordinal| !is_used(*ordinal));
        let ordinal = ordinal.expect("members are fewer than numbers");
        let member = Member {
            name: new.name.clone(),
            ordinal,
            seed: seed(&new.name, ordinal),
            weight: f64::from(new.weight.max(1)),
            named: new.slots.clone(),
            session,
            leaves_at: None,
        };
        self.fill();
        for slot in 0..SLOTS {
            let taken = match self.by_name {
                true => has(&member.named, slot),
                false => self.holder_of_target(slot).is_none_or(|owner| {
                    let (mine, theirs) = (score(&member, slot), score(owner, slot));
                    mine > theirs
                }),
            };
            if taken {
                self.slots[slot].target = session;
            }
        }
        self.members.push(member);
        Ok(())
    }

    fn holder_of_target(&self, slot: usize) -> Option<&Member> {
        let target = self.target(slot);
        self.members.iter().find(|member| member.session == target)
    }

    fn check_named(&self, new: &NewSession) -> Result<(), AttachFault> {
        if !self.by_name {
            return Ok(());
        }
        for &(first, end) in &new.slots {
            if first >= end || usize::from(end) > SLOTS {
                return Err(AttachFault::NoSlots { first, end });
            }
            for member in &self.members {
                let back = member.leaves_at.is_some() && member.name == new.name;
                let mut theirs = member.named.iter();
                if !back && theirs.any(|(from, to)| first < *to && *from < end) {
                    return Err(AttachFault::SlotsTaken {
                        first,
                        end,
                        holder: member.name.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Somebody is away until then, and its slots are kept.
    pub(crate) fn away(&mut self, session: SessionId, until: TimestampMs) {
        let mut members = self.members.iter_mut();
        if let Some(member) = members.find(|member| member.session == session) {
            member.leaves_at = Some(until);
        }
    }

    /// Somebody goes. Its slots move, and no others.
    pub(crate) fn leave(&mut self, session: SessionId) {
        self.members.retain(|member| member.session != session);
        for slot in 0..SLOTS {
            if self.target(slot) != session {
                continue;
            }
            let best = self
                .members
                .iter()
                .filter(|_| !self.by_name)
                .max_by(|a, b| score(a, slot).total_cmp(&score(b, slot)));
            self.slots[slot].target = best.map_or(NOBODY, |member| member.session);
        }
        self.shrink();
    }

    /// When the next one that is away is gone.
    pub(crate) fn next_leave(&self) -> Option<TimestampMs> {
        let all = self.members.iter();
        all.filter_map(|member| member.leaves_at).min()
    }

    /// Those that are away for too long.
    pub(crate) fn overdue(&self, now: TimestampMs) -> Vec<SessionId> {
        let all = self.members.iter();
        all.filter(|member| member.leaves_at.is_some_and(|at| at <= now))
            .map(|member| member.session)
            .collect()
    }
}

fn has(named: &[(u16, u16)], slot: usize) -> bool {
    named
        .iter()
        .any(|(first, end)| (usize::from(*first)..usize::from(*end)).contains(&slot))
}

/// FNV-1a: names are few and slots are mixed in after it.
fn seed(name: &str, ordinal: u32) -> u64 {
    let bytes = name.bytes().chain(ordinal.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Weighted rendezvous: the highest has the slot.
fn score(member: &Member, slot: usize) -> f64 {
    let mixed = crate::chance::mix(member.seed ^ (slot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // In (0, 1): 53 bits, and half a step above 0.
    let unit = ((mixed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -member.weight / unit.ln()
}
