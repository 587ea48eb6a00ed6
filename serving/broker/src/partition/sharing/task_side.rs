//! The part of a partition's task that drives its dispatchers.

use futures::FutureExt;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;
use serving_dispatch::{Effect, Kind, Skip, Written};
use tokio::sync::oneshot;

use super::changes::changes_of;
use super::door::{NewSharer, ShareCommand, ShareDoor};
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
        }
    }

    fn attach_sharer(
        &mut self,
        new: &NewSharer,
        answer: oneshot::Sender<Result<ShareDoor, Fault>>,
        now: TimestampMs,
    ) {
        let id = new.subscription;
        let readable = self.shown.offsets().high_watermark;
        let Some(cursor) = self.cursors.core.durable(id) else {
            let why = "the subscription has no cursor on this partition";
            let _ = answer.send(Err(Fault::new(Reason::SubscriptionNotFound, why)));
            return;
        };
        let state = cursor.queue_state();
        let address = new.dead_letters.clone().map(|to| Address {
            subscription: id,
            name: cursor.name.clone(),
            partition: self.partition,
            of: self.name.clone(),
            to,
        });
        let all = &mut self.cursors.shares.all;
        let mut policy = new.policy.clone();
        if self.with.mutation.is(Mutant::KeysIgnored) {
            policy.kind = Kind::Queue;
        }
        if self.with.mutation.is(Mutant::LockTooShort) {
            policy.lock_ms /= 2;
        }
        let share = all
            .entry(id)
            .or_insert_with(|| Share::open(id, (policy, address), state, readable));
        self.cursors.core.shared(id);
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
