//! The shell of recovery: runs attempts, and begins anew when another recoverer was faster (R10).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{MetadataError, Txn};
use futures::Future;
use futures::stream::{FuturesUnordered, StreamExt};
use hulse_proto::bookie::{BookieError, Call};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, Member};
use rand::Rng;
use rand::seq::SliceRandom;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::core::RecoveryCore;
use super::event::{BookieAsk, Policy, RecoveryConfig, RecoveryEffect, RecoveryEvent};
use crate::error::{MemberAnswer, RecoverError};
use crate::ledger_client::Inner;

/// Longest random wait before an attempt begins anew; doubles each time, so that two recoverers do not beat one another for ever.
const RESTART_WAIT: Duration = Duration::from_millis(200);
const RESTART_WAIT_MAX: Duration = Duration::from_millis(1_600);
/// How far ahead the timer is set when nothing waits.
const IDLE: Duration = Duration::from_secs(3600);

type EventToCome = Pin<Box<dyn Future<Output = RecoveryEvent> + Send>>;

pub(crate) async fn recover(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    part: Txn,
    policy: Policy,
) -> Result<LedgerMetadata, RecoverError> {
    let deadline = Instant::now() + inner.config.recovery_deadline;
    let mut most = RESTART_WAIT;
    loop {
        let nonces = [inner.nonce(), inner.nonce()];
        let config = RecoveryConfig {
            policy,
            part: part.clone(),
            deadline: deadline.saturating_duration_since(Instant::now()),
            now_ms: inner.clock.now_ms(),
            ..RecoveryConfig::new(inner.cell, ledger, &inner.config, nonces)
        };
        let result = attempt(inner, RecoveryCore::new(config)).await;
        let result = result.map_err(|error| match found_deleted(&error) {
            true => RecoverError::Superseded { ledger },
            false => error,
        });
        let wait = inner.with_rng(|rng| rng.random_range(Duration::ZERO..most));
        most = (most * 2).min(RESTART_WAIT_MAX);
        match result {
            Err(RecoverError::Superseded { .. }) if Instant::now() + wait < deadline => {
                tracing::debug!(%ledger, "another recoverer was faster; starting anew");
                sleep(wait).await;
            }
            other => return other,
        }
    }
}

/// A member has a tombstone: somebody closed and deleted the ledger since this attempt read metadata, so nothing is damaged.
fn found_deleted(error: &RecoverError) -> bool {
    let RecoverError::Damaged { members, .. } = error else {
        return false;
    };
    let deleted = |answer: &MemberAnswer| matches!(answer.error, Some(BookieError::Deleted { .. }));
    members.0.iter().any(deleted)
}

async fn attempt(
    inner: &Arc<Inner>,
    mut core: RecoveryCore,
) -> Result<LedgerMetadata, RecoverError> {
    let started = Instant::now();
    let mut pending = FuturesUnordered::<EventToCome>::new();
    let mut event = RecoveryEvent::Start;
    loop {
        for effect in core.on_event(started.elapsed(), event) {
            match effect {
                RecoveryEffect::Done(result) => return result,
                RecoveryEffect::ReadMetadata(key) => {
                    pending.push(read_metadata(inner.clone(), key))
                }
                RecoveryEffect::ListBookies => pending.push(list_bookies(inner.clone())),
                RecoveryEffect::Commit(txn) => pending.push(send_txn(inner.clone(), txn)),
                RecoveryEffect::Ask {
                    position,
                    member,
                    ask,
                } => pending.push(ask_member(inner, position, &member, ask)),
            }
        }
        let wakeup = core.next_wakeup().unwrap_or(IDLE);
        event = tokio::select! {
            biased;
            Some(event) = pending.next(), if !pending.is_empty() => event,
            () = sleep_until(started + wakeup) => RecoveryEvent::Tick,
        };
    }
}

fn read_metadata(inner: Arc<Inner>, key: String) -> EventToCome {
    Box::pin(async move {
        let answer = timeout(inner.config.read_timeout, inner.metadata.get(&key)).await;
        RecoveryEvent::MetadataRead(answer.unwrap_or_else(|_| {
            Err(MetadataError::Unavailable {
                why: "no answer in time".to_owned(),
            })
        }))
    })
}

fn send_txn(inner: Arc<Inner>, txn: Txn) -> EventToCome {
    Box::pin(async move {
        let answer = timeout(inner.config.read_timeout, inner.metadata.txn(txn)).await;
        RecoveryEvent::MetadataAnswer(answer.unwrap_or_else(|_| {
            Err(MetadataError::OutcomeUnknown {
                why: "no answer in time".to_owned(),
            })
        }))
    })
}

fn list_bookies(inner: Arc<Inner>) -> EventToCome {
    Box::pin(async move {
        let answer = timeout(inner.config.read_timeout, inner.bookies.candidates()).await;
        let mut listed = answer.unwrap_or_else(|_| {
            Err(MetadataError::Unavailable {
                why: "no answer in time".to_owned(),
            })
        });
        if let Ok(candidates) = &mut listed {
            // The order of arrival must not matter, only the seed.
            candidates.sort_by(|a, b| a.member.bookie.cmp(&b.member.bookie));
            inner.with_rng(|rng| candidates.shuffle(rng));
        }
        RecoveryEvent::Listed(listed)
    })
}

fn ask_member(inner: &Arc<Inner>, position: usize, member: &Member, ask: BookieAsk) -> EventToCome {
    let limit = inner.config.read_timeout;
    let calls = inner.bookies.calls(member);
    match ask {
        BookieAsk::Fence(request) => {
            let call = calls.map(|bookie| bookie.fence(request));
            Box::pin(async move {
                let result = answered(limit, call).await;
                RecoveryEvent::Fenced { position, result }
            })
        }
        BookieAsk::Read(request) => {
            let entry = request.entry;
            let call = calls.map(|bookie| bookie.recovery_read(request));
            Box::pin(async move {
                let result = answered(limit, call).await;
                RecoveryEvent::Read {
                    position,
                    entry,
                    result,
                }
            })
        }
        BookieAsk::Add(request) => {
            let entry = request.entry.header().entry;
            let from = member.clone();
            let call = calls.map(|bookie| bookie.add(request));
            Box::pin(async move {
                let result = answered(limit, call).await;
                RecoveryEvent::Added {
                    position,
                    entry,
                    from,
                    result,
                }
            })
        }
    }
}

async fn answered<T>(limit: Duration, call: Option<Call<T>>) -> Result<T, BookieError> {
    let no_answer = |why: &str| BookieError::NoAnswer {
        why: why.to_owned(),
    };
    match call {
        Some(call) => timeout(limit, call)
            .await
            .unwrap_or_else(|_| Err(no_answer("no answer in time"))),
        None => Err(no_answer("bookie is not connected")),
    }
}
