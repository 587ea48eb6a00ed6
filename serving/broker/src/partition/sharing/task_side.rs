//! The part of a partition's task that drives its dispatchers.

use futures::FutureExt;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::mutant::{Mutant, Mutation};
use hulse_proto::time::TimestampMs;
use serving_dispatch::{Effect, Kind, Policy, Skip, Written};
use tokio::sync::oneshot;

use super::changes::changes_of;
use super::door::{NewSharer, ShareCommand, ShareDoor, SharePlan};
use super::letters::{Address, send};
use super::reading::read;
use super::share::{Share, ShareEnd};
use crate::partition::cursors::{CursorTicket, MoveCommand};
use crate::partition::task::Task;
use crate::state::OffsetRange;

impl Task {
    /// Handles one command.
    pub(crate) fn share_command(&mut self, command: ShareCommand) {
        let now = self.clock.now_ms();
        let shares = &mut self.cursors.shares;
        match command {
            ShareCommand::Attach { new, answer } => self.attach_sharer(&new, answer, now),
            ShareCommand::Say(sharer, said, ticket) => match shares.get(sharer.subscription) {
                Some(share) => share.say(sharer.session, said, ticket, now),
                // Who asked may have gone.
                None => drop(ticket.send(Err(super::door::not_attached()))),
            },
            ShareCommand::Grant {
                sharer,
                records,
                bytes,
            } => {
                if let Some(share) = shares.get(sharer.subscription) {
                    share.grant(sharer.session, records, bytes);
                }
            }
            ShareCommand::Leave(sharer, how) => {
                if let Some(share) = shares.get(sharer.subscription) {
                    share.leave(sharer.session, how, now);
                }
            }
            ShareCommand::Pause {
                subscription,
                until,
            } => {
                if let Some(share) = shares.get(subscription) {
                    share.pause(until, now);
                }
            }
            ShareCommand::Redrive {
                plan,
                dry_run,
                answer,
            } => match self.share_of(&plan, now) {
                Ok(share) => share.redrive(dry_run, answer, now),
                // Who asked may have gone.
                Err(fault) => drop(answer.send(Err(fault))),
            },
        }
    }

    /// The dispatcher of a cursor; begun where there is none.
    fn share_of(&mut self, plan: &SharePlan, now: TimestampMs) -> Result<&mut Share, Fault> {
        let id = plan.subscription;
        let readable = self.shown.offsets().high_watermark;
        let Some(cursor) = self.cursors.core.durable(id) else {
            let why = "the subscription has no cursor on this partition; attach again to make it";
            return Err(Fault::new(Reason::SubscriptionNotFound, why));
        };
        let (state, name) = (cursor.queue_state(), cursor.name.clone());
        self.cursors.core.shared(id);
        let mutation = self.with.mutation;
        let begin = || {
            let address = plan.dead_letters.clone().map(|to| Address {
                subscription: id,
                name,
                partition: self.partition,
                of: self.name.clone(),
                to,
            });
            let policy = mutated(plan.policy.clone(), mutation);
            let mut share = Share::open(id, (policy, address), state, readable);
            share.pause(plan.paused_until, now);
            share
        };
        Ok(self.cursors.shares.all.entry(id).or_insert_with(begin))
    }

    fn attach_sharer(
        &mut self,
        new: &NewSharer,
        answer: oneshot::Sender<Result<ShareDoor, Fault>>,
        now: TimestampMs,
    ) {
        let readable = self.shown.offsets().high_watermark;
        let share = match self.share_of(&new.plan, now) {
            Ok(share) => share,
            // Who asked may have gone.
            Err(fault) => return drop(answer.send(Err(fault))),
        };
        let new = NewSharer {
            handed: new.handed.min(readable),
            ..new.clone()
        };
        let door = share.attach(&new, now);
        if let Err(Ok(door)) = answer.send(door) {
            // Who asked has gone.
            let session = door.sharer.session;
            share.leave(session, serving_dispatch::Leave::Closed, now);
        }
    }

    /// Moves the cursor of a dispatcher. Answers who waits where there is none.
    pub(crate) fn move_share(
        &mut self,
        command: MoveCommand,
        answer: CursorTicket,
        now: TimestampMs,
    ) -> Option<CursorTicket> {
        let core = &mut self.cursors.core;
        let Some(share) = self.cursors.shares.get(command.subscription) else {
            return Some(answer);
        };
        let to = command.goal.to.max(core.kept_from());
        match (command.goal.keep_acked, command.evicts) {
            (false, _) => share.seek(to, answer, now),
            (true, false) => share.skip(to, Skip::Admin, answer, now),
            (true, true) => {
                core.evicted(command.subscription, to, now);
                share.skip(to, Skip::Evicted, answer, now);
            }
        }
        None
    }

    /// Passes over what lived for too long.
    pub(crate) fn expire(
        &mut self,
        id: SubscriptionId,
        to: Offset,
        answer: CursorTicket,
        now: TimestampMs,
    ) {
        let (core, cursors) = (&mut self.cursors.core, &mut self.cursors.histories);
        let records = core.unprocessed(id, to);
        cursors.expired(id, records);
        match self.cursors.shares.get(id) {
            Some(share) => share.expire(to, records, answer, now),
            None => core.expire(id, to, answer, now),
        }
    }

    /// The log begins later: nothing below is delivered any more.
    pub(crate) fn trim_shares(&mut self, log_start: Offset, now: TimestampMs) {
        for share in self.cursors.shares.all.values_mut() {
            if share.dispatcher.stands().0 < log_start {
                let gone = OffsetRange {
                    first: Offset(0),
                    end: log_start,
                };
                share.dispatcher.skip(gone, Skip::Trimmed, now);
                share.touched = true;
            }
        }
    }

    /// The records of a cursor that is removed are nobody's.
    pub(crate) fn end_share(&mut self, id: SubscriptionId, why: &Fault) {
        if let Some(share) = self.cursors.shares.all.remove(&id) {
            share.end(why, true);
        }
    }

    /// Something that a dispatcher asked for is done.
    pub(crate) fn share_work_ended(&mut self, end: ShareEnd) {
        let now = self.clock.now_ms();
        self.cursors.touched = true;
        let shares = &mut self.cursors.shares;
        match end {
            ShareEnd::Read(end) => {
                if let Some(share) = shares.get(end.subscription) {
                    share.read_ended(end, now);
                }
            }
            ShareEnd::Letter(id, end) => {
                if let Some(share) = shares.get(id) {
                    share.letter_ended(end, now);
                }
            }
        }
    }

    /// Their changes are durable.
    pub(crate) fn shares_written(&mut self, written: Vec<(SubscriptionId, u64)>) {
        let now = self.clock.now_ms();
        for (id, seq) in written {
            if let Some(share) = self.cursors.shares.get(id) {
                share.dispatcher.written(seq, Written::Done, now);
                share.touched = true;
            }
        }
        self.pump_shares();
    }

    /// Each does what can be done now.
    pub(crate) fn pump_shares(&mut self) {
        let now = self.clock.now_ms();
        let readable = self.shown.offsets().high_watermark;
        let news = self.cursors.shares.readable < readable;
        self.cursors.shares.readable = readable;
        let (shares, core) = (&mut self.cursors.shares, &mut self.cursors.core);
        for (id, share) in &mut shares.all {
            if news {
                share.dispatcher.readable(readable);
                share.touched |= share.sharers() > 0;
            }
            if !share.touched && share.due.is_none_or(|due| due > now) {
                continue;
            }
            share.touched = false;
            share.dispatcher.pump(now);
            for effect in share.dispatcher.take_effects() {
                match share.effect(effect) {
                    Some(Effect::Read(wanted)) => {
                        let reading = read(self.log.clone(), *id, wanted);
                        shares.work.push(reading.map(ShareEnd::Read).boxed());
                    }
                    Some(Effect::Write { seq, mut delta }) => {
                        let urgent = delta.moved.is_some();
                        if self.with.mutation.is(Mutant::FailedAttemptsForgotten) {
                            delta.marks.clear();
                        }
                        core.take_shared(*id, seq, changes_of(delta, now), (now, urgent));
                        if self.with.mutation.is(Mutant::SharedReceiptBeforeDelta) {
                            share.dispatcher.written(seq, Written::Done, now);
                            share.touched = true;
                        }
                    }
                    _ => {}
                }
            }
            if let Some((address, letter)) = share.next_letter() {
                let id = *id;
                let sending = send(self.log.clone(), self.with.clone(), address, letter);
                let sending = sending.map(move |end| ShareEnd::Letter(id, end));
                shares.work.push(sending.boxed());
            }
            share.due = share.dispatcher.next_deadline();
        }
    }

    /// True when the log has grown since they were pumped.
    pub(crate) fn shares_are_behind(&self) -> bool {
        let shares = &self.cursors.shares;
        !shares.all.is_empty() && shares.readable < self.shown.offsets().high_watermark
    }

    /// The partition ends here.
    pub(crate) fn fail_shares(&mut self, why: &Fault) {
        for share in std::mem::take(&mut self.cursors.shares.all).into_values() {
            share.end(why, false);
        }
    }
}

/// As the policy is where all rules hold.
fn mutated(mut policy: Policy, mutation: Mutation) -> Policy {
    if mutation.is(Mutant::KeysIgnored) {
        policy.kind = Kind::Queue;
    }
    if mutation.is(Mutant::LockTooShort) {
        policy.lock_ms /= 2;
    }
    policy
}
