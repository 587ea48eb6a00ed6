//! Fences and recovery reads (storage.md B10–B12).

use hulse_proto::bookie::{
    Address, BookieError, FenceAnswer, FenceRequest, RecoveryReadAnswer, RecoveryReadRequest,
};
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use hulse_proto::mutant::Mutant;

use super::event::{Answer, Effect, Event, Ticket};
use super::groups::{STATE_RECORD_BYTES, Waiter};
use super::node_core::{NodeCore, Purpose};
use crate::ledger::{GroupNumber, LedgerState};
use crate::log::{LimboKind, Record};

impl NodeCore {
    pub(super) fn fence(
        &mut self,
        ticket: Ticket,
        request: FenceRequest,
        effects: &mut Vec<Effect>,
    ) {
        let FenceRequest { to, token } = request;
        if token == FenceToken(0) {
            effects.push(fence_effect(ticket, self.look(&to)));
            return;
        }
        if self.unknown_below_watermark(&to) {
            self.ask_first(to.ledger, Event::Fence { ticket, request }, effects);
            return;
        }
        match self.take_fence(&to, token) {
            Err(error) => effects.push(fence_effect(ticket, Err(error))),
            Ok(group) if self.groups.is_stored(group) => {
                effects.push(self.fence_answer(ticket, to.ledger, token));
            }
            Ok(group) => {
                let ledger = to.ledger;
                self.groups.wait(
                    group,
                    Waiter::Fence {
                        ticket,
                        ledger,
                        token,
                    },
                );
            }
        }
    }

    /// What a fence with token 0 hears: that no fence stands here, or why that cannot be said. Changes nothing, asks nobody.
    fn look(&self, to: &Address) -> Result<FenceAnswer, BookieError> {
        self.check(to)?;
        self.check_log()?;
        let ledger = to.ledger;
        if self.unknown_below_watermark(to) {
            // It may have been deleted, and its fence with it; only metadata know.
            let entry = EntryId(0);
            return Err(BookieError::NotHere { ledger, entry });
        }
        let Some(state) = self.state.ledgers.get(&ledger) else {
            // Above the watermark, a ledger that was ever fenced or deleted here is known.
            return Ok(FenceAnswer {
                token: FenceToken(0),
                confirmed_end: EntryId(0),
                held_end: EntryId(0),
            });
        };
        if state.deleted {
            return Err(BookieError::Deleted { ledger });
        }
        if state.fence > FenceToken(0) {
            return Err(BookieError::StaleToken {
                ledger,
                token: state.fence,
                asked: FenceToken(0),
            });
        }
        if state.limbo().is_some() {
            // It may have lost a fence (S3).
            return Err(BookieError::Limbo { ledger });
        }
        Ok(FenceAnswer {
            token: FenceToken(0),
            confirmed_end: state.confirmed_end,
            held_end: state.entries.end(),
        })
    }

    /// Raises the fence if need be. The group whose durability makes the fence, and all adds accepted before it, durable.
    fn take_fence(&mut self, to: &Address, token: FenceToken) -> Result<GroupNumber, BookieError> {
        self.check(to)?;
        self.check_log()?;
        let ledger = to.ledger;
        if token == FenceToken(0) {
            return Err(BookieError::Invalid {
                why: "a fence token is above 0".to_owned(),
            });
        }
        let state = self.state.ledgers.get(&ledger);
        let (fence, deleted) = state.map_or((FenceToken(0), false), |s| (s.fence, s.deleted));
        if deleted {
            return Err(BookieError::Deleted { ledger });
        }
        if token < fence {
            return Err(BookieError::StaleToken {
                ledger,
                token: fence,
                asked: token,
            });
        }
        if token > fence {
            self.admit_bytes(STATE_RECORD_BYTES, Purpose::State)?;
            let group = self.groups.append(&Record::Fence { ledger, token });
            let state = self.state.ledgers.entry(ledger).or_default();
            state.fence = token;
            state.fence_group = group;
        }
        Ok(self.state.ledgers[&ledger].fence_group)
    }

    fn fence_of_read(
        &mut self,
        to: &Address,
        token: FenceToken,
    ) -> Result<GroupNumber, BookieError> {
        if self.mutation.is(Mutant::ReadWithoutFence) {
            let ledger = to.ledger;
            self.check(to)?;
            self.check_log()?;
            let state = self.state.ledgers.entry(ledger).or_default();
            return match state.deleted {
                true => Err(BookieError::Deleted { ledger }),
                false => Ok(state.fence_group),
            };
        }
        self.take_fence(to, token)
    }

    /// The answer to a fence whose group is stored; a newer token may have come meanwhile.
    pub(super) fn fence_answer(
        &self,
        ticket: Ticket,
        ledger: LedgerId,
        token: FenceToken,
    ) -> Effect {
        let answer = match self.state.ledgers.get(&ledger) {
            Some(state) if !state.deleted => match state.fence == token {
                true => Ok(FenceAnswer {
                    token,
                    confirmed_end: state.confirmed_end,
                    held_end: state.entries.end(),
                }),
                false => Err(BookieError::StaleToken {
                    ledger,
                    token: state.fence,
                    asked: token,
                }),
            },
            _ => Err(BookieError::Deleted { ledger }),
        };
        fence_effect(ticket, answer)
    }

    pub(super) fn recovery_read(
        &mut self,
        ticket: Ticket,
        request: RecoveryReadRequest,
        effects: &mut Vec<Effect>,
    ) {
        let RecoveryReadRequest { to, token, entry } = request;
        if self.unknown_below_watermark(&to) {
            let event = Event::RecoveryRead { ticket, request };
            self.ask_first(to.ledger, event, effects);
            return;
        }
        let fence_group = match self.fence_of_read(&to, token) {
            Ok(group) => group,
            Err(error) => {
                effects.push(read_effect(ticket, Err(error)));
                return;
            }
        };
        let state = &self.state.ledgers[&to.ledger];
        let pending = state.pending.get(&entry).map(|pending| pending.group);
        let group = pending.map_or(fence_group, |group| group.max(fence_group));
        if !self.groups.is_stored(group) {
            self.groups
                .wait(group, Waiter::RecoveryRead { ticket, request });
            return;
        }
        if !state.damaged.contains(&entry)
            && let Some(wanted) = state.entries.want(entry)
        {
            let ledger = to.ledger;
            effects.push(Effect::ReadEntry {
                ticket,
                ledger,
                wanted,
            });
            return;
        }
        let answer = match self.mutation.is(Mutant::NegativeFromLimbo) {
            true => Ok(RecoveryReadAnswer::Negative {
                unsynced_limbo: false,
            }),
            false => missing(state, &request),
        };
        effects.push(read_effect(ticket, answer));
    }
}

/// What is said of an entry that is not here, once the fence is durable and nothing is under way (B11).
fn missing(
    state: &LedgerState,
    request: &RecoveryReadRequest,
) -> Result<RecoveryReadAnswer, BookieError> {
    let (ledger, entry) = (request.to.ledger, request.entry);
    if state.damaged.contains(&entry) {
        return Err(BookieError::Damaged { ledger, entry });
    }
    match state.limbo() {
        None => Ok(RecoveryReadAnswer::Negative {
            unsynced_limbo: false,
        }),
        Some(LimboKind::Unsynced) => Ok(RecoveryReadAnswer::Negative {
            unsynced_limbo: true,
        }),
        Some(LimboKind::Damage) => Err(BookieError::Damaged { ledger, entry }),
        Some(LimboKind::Stale) => Err(BookieError::Limbo { ledger }),
    }
}

fn fence_effect(ticket: Ticket, answer: Result<FenceAnswer, BookieError>) -> Effect {
    Effect::Answer {
        ticket,
        answer: Answer::Fence(answer),
    }
}

fn read_effect(ticket: Ticket, answer: Result<RecoveryReadAnswer, BookieError>) -> Effect {
    Effect::Answer {
        ticket,
        answer: Answer::RecoveryRead(answer),
    }
}

/// The answer to someone who waited for a group that will never be stored.
pub(super) fn fail(waiter: Waiter, error: BookieError) -> Option<Effect> {
    let (ticket, answer) = match waiter {
        Waiter::Add { ticket, .. } => (ticket, Answer::Add(Err(error))),
        Waiter::Fence { ticket, .. } => (ticket, Answer::Fence(Err(error))),
        Waiter::RecoveryRead { ticket, .. } => (ticket, Answer::RecoveryRead(Err(error))),
        Waiter::Delete { ticket } => (ticket, Answer::Delete(Err(error))),
        Waiter::DeadBelow { .. } | Waiter::Unlink { .. } => return None,
    };
    Some(Effect::Answer { ticket, answer })
}

/// The answer to a queued request that is refused.
pub(super) fn refuse(event: Event, error: BookieError) -> Option<Effect> {
    match event {
        Event::Fence { ticket, .. } => Some(fence_effect(ticket, Err(error))),
        Event::RecoveryRead { ticket, .. } => Some(read_effect(ticket, Err(error))),
        _ => None,
    }
}
