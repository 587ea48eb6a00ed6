//! First contact with a ledger: requests wait in order for metadata's word (storage.md B2, G4).

use std::collections::VecDeque;
use std::time::Duration;

use hulse_proto::bookie::{BookieError, Origin};
use hulse_proto::id::{FenceToken, LedgerId};
use hulse_proto::mutant::{Mutant, Mutation};

use super::event::{Effect, Event, Verdict};
use super::groups::STATE_RECORD_BYTES;
use super::node_core::{NodeCore, Queued};
use crate::log::record::entry_record_bytes;

impl NodeCore {
    /// Queues a request behind metadata's word; the first one asks for it.
    pub(super) fn queue(&mut self, ledger: LedgerId, item: Queued, effects: &mut Vec<Effect>) {
        self.verifying_bytes += item.bytes();
        let queue = self.verifying.entry(ledger).or_insert_with(|| {
            effects.push(Effect::Verify { ledger });
            VecDeque::new()
        });
        queue.push_back(item);
    }

    pub(super) fn verified(
        &mut self,
        ledger: LedgerId,
        verdict: &Verdict,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let Some(queue) = self.verifying.remove(&ledger) else {
            return;
        };
        if *verdict == Verdict::Open {
            self.state.ledgers.entry(ledger).or_default().contacted = true;
        }
        for item in queue {
            match item {
                Queued::Add {
                    ticket,
                    request,
                    arrived,
                } => {
                    self.verifying_bytes -= entry_record_bytes(&request.entry) as u64;
                    let spent = now.saturating_sub(arrived);
                    let refusal = self.check_log().err().or_else(|| match request.origin {
                        Origin::Normal => normal_refusal(ledger, verdict, self.mutation),
                        _ => other_refusal(ledger, verdict),
                    });
                    match refusal {
                        Some(error) => effects.push(self.answer_add(ticket, Err(error))),
                        None if spent >= request.timeout => {
                            effects.push(self.answer_add(ticket, Err(self.busy())));
                        }
                        None => {
                            if request.origin != Origin::Normal {
                                self.state.ledgers.entry(ledger).or_default();
                            }
                            self.judge_add(ticket, request, arrived, effects);
                        }
                    }
                }
                Queued::Other(event) => {
                    self.verifying_bytes -= STATE_RECORD_BYTES as u64;
                    self.resume(ledger, event, verdict, effects);
                }
            }
        }
    }

    fn resume(
        &mut self,
        ledger: LedgerId,
        event: Event,
        verdict: &Verdict,
        effects: &mut Vec<Effect>,
    ) {
        match other_refusal(ledger, verdict) {
            Some(error) => effects.extend(super::fences::refuse(event, error)),
            None => {
                self.state.ledgers.entry(ledger).or_default();
                self.on_event(event, effects);
            }
        }
    }
}

fn normal_refusal(ledger: LedgerId, verdict: &Verdict, mutation: Mutation) -> Option<BookieError> {
    match verdict {
        Verdict::Open => None,
        Verdict::Fenced { token } => Some(BookieError::Fenced {
            ledger,
            token: *token,
        }),
        Verdict::NotInEnsemble if mutation.is(Mutant::StrangerEndsWriter) => {
            let token = FenceToken(0);
            Some(BookieError::Fenced { ledger, token })
        }
        Verdict::NotInEnsemble => Some(BookieError::NotInEnsemble { ledger }),
        Verdict::Deleted => Some(BookieError::Deleted { ledger }),
        Verdict::Unavailable => Some(BookieError::MetadataUnavailable),
    }
}

/// Fences, recovery and copies need the ledger to exist, nothing more (G4).
fn other_refusal(ledger: LedgerId, verdict: &Verdict) -> Option<BookieError> {
    match verdict {
        Verdict::Deleted => Some(BookieError::Deleted { ledger }),
        Verdict::Unavailable => Some(BookieError::MetadataUnavailable),
        _ => None,
    }
}
