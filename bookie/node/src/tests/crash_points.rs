//! One script, killed at every change of the disk and at every answer, with the named points of storage.md §10 counted:
//! 1 append, 2 sync, 3 answer, 4 fence, 5 first contact, 6 next file in advance, 7 footer of a full one, 8 first group of the next
//! file, 9 recovery itself, 12 dead watermark, 13 boot file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::bookie::{BookieError, FenceRequest, RecoveryReadAnswer, RecoveryReadRequest};
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::support::*;
use crate::NodeConfig;
use crate::core::{Ticket, Verdict};
use crate::disk::memory::{MemoryDisk, Survival};
use crate::step::{StepAnswer, StepNode, StepOutput};

/// The script's log files are small, so that it rolls several times.
fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: 64 << 10,
        queue_bytes_max: 32 << 10,
        tombstones_max: 2,
        ..config()
    }
}

/// What the script was told, and therefore must hold.
#[derive(Default)]
struct Promises {
    entries: BTreeSet<(u64, u64)>,
    fences: BTreeMap<u64, u64>,
    negatives: BTreeSet<(u64, u64)>,
    deleted: BTreeSet<u64>,
}

/// Where a run is killed: at a change of the disk, or before the answers of a step are delivered.
#[derive(Clone, Copy)]
enum Kill {
    Change(u64),
    Answers(u64),
}

struct Script {
    node: StepNode,
    disk: MemoryDisk,
    promises: Promises,
    tickets: BTreeMap<Ticket, (u64, u64)>,
    kill: Kill,
    deliveries: u64,
    /// What is under way; the point that a kill now hits.
    point: u8,
}

/// The run is over: killed at this point.
struct Killed(u8);

impl Script {
    fn deliver(&mut self, output: StepOutput) -> Result<(), Killed> {
        if self.disk.stopped() {
            return Err(Killed(self.point));
        }
        if output.answers.is_empty() && output.verify.is_empty() {
            return Ok(());
        }
        self.deliveries += 1;
        let point = if output.verify.is_empty() { 3 } else { 5 };
        if matches!(self.kill, Kill::Answers(at) if at == self.deliveries) {
            let named = matches!(self.point, 4 | 12);
            return Err(Killed(if named { self.point } else { point }));
        }
        for (ticket, answer) in output.answers {
            let (ledger, entry) = self.tickets[&ticket];
            match answer {
                StepAnswer::Add(Ok(())) => drop(self.promises.entries.insert((ledger, entry))),
                StepAnswer::Fence(Ok(answer)) => {
                    self.promises.fences.insert(ledger, answer.token.0);
                }
                StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Negative { .. })) => {
                    self.promises.negatives.insert((ledger, entry));
                }
                StepAnswer::Delete(Ok(())) => drop(self.promises.deleted.insert(ledger)),
                _ => {}
            }
        }
        for ledger in output.verify {
            let output = self.node.verified(ledger, Verdict::Open);
            self.deliver(output)?;
        }
        Ok(())
    }

    /// Lets the log do its work.
    fn store(&mut self, point: Option<u8>) -> Result<(), Killed> {
        while self.node.busy() {
            let file = self.node.log_file();
            let point = match self.node.core().raises_watermark() {
                true => Some(12),
                false => point,
            };
            self.point = point.unwrap_or(1);
            let output = self.node.write_group();
            if self.disk.stopped() && file != self.node.log_file() {
                self.point = 8;
            }
            self.deliver(output)?;
            self.point = point.unwrap_or(2);
            let output = self.node.sync_group();
            self.deliver(output)?;
            self.point = if self.node.wants_seal() { 7 } else { 6 };
            let output = self.node.idle();
            self.deliver(output)?;
        }
        Ok(())
    }

    fn add(&mut self, ledger: u64, number: u64, bytes: usize) -> Result<(), Killed> {
        let to = self.node.address(LedgerId(ledger));
        let (ticket, output) = self.node.add(add(to, entry(ledger, number, bytes)));
        self.tickets.insert(ticket, (ledger, number));
        self.deliver(output)
    }

    fn run(&mut self) -> Result<(), Killed> {
        for round in 0..6 {
            for number in 0..3 {
                self.add(1, round * 3 + number, 9000)?;
                self.add(2, round * 3 + number, 200)?;
            }
            self.store(None)?;
        }
        let to = self.node.address(LedgerId(1));
        self.add(1, 18, 100)?;
        let (ticket, output) = self.node.fence(FenceRequest {
            to,
            token: FenceToken(7),
        });
        self.tickets.insert(ticket, (1, 0));
        self.point = 4;
        self.deliver(output)?;
        self.store(Some(4))?;
        let ask = RecoveryReadRequest {
            to,
            token: FenceToken(7),
            entry: EntryId(19),
        };
        let (ticket, output) = self.node.recovery_read(ask);
        self.tickets.insert(ticket, (1, 19));
        self.deliver(output)?;
        self.store(Some(4))?;
        // The third folds the first two, the fifth the next.
        for ledger in [2, 3, 4, 5, 6] {
            let to = self.node.address(LedgerId(ledger));
            let (ticket, output) = self.node.delete(to);
            self.tickets.insert(ticket, (ledger, 0));
            self.deliver(output)?;
            self.store(None)?;
        }
        assert!(self.node.core().state().dead_below > LedgerId(3));
        Ok(())
    }
}

/// Runs until the kill; where it struck, if it did, and what was promised.
fn run(disk: &MemoryDisk, kill: Kill) -> (Option<u8>, Promises) {
    if let Kill::Change(at) = kill {
        disk.stop_after(at);
    }
    let node = match StepNode::open(small(), Arc::new(disk.clone()), 1, &[]) {
        Ok(node) => node,
        Err(_) => return (Some(13), Promises::default()),
    };
    let mut script = Script {
        node,
        disk: disk.clone(),
        promises: Promises::default(),
        tickets: BTreeMap::new(),
        kill,
        deliveries: 0,
        point: 1,
    };
    let ended = script.run();
    (ended.err().map(|Killed(point)| point), script.promises)
}

fn check(disk: &MemoryDisk, promises: &Promises, case: &str) {
    let mut rig = Rig::on(disk.clone(), small(), &[]);
    assert!(
        rig.node.damage().is_empty(),
        "{case}: {:?}",
        rig.node.damage()
    );
    for &(ledger, number) in &promises.entries {
        let found = rig.node.read(&read(rig.to(ledger), number, number + 1));
        match found {
            Ok(found) => {
                let right = entry(
                    ledger,
                    number,
                    if ledger == 2 {
                        200
                    } else if number == 18 {
                        100
                    } else {
                        9000
                    },
                );
                assert_eq!(found[0].entry.header(), right.header(), "{case}");
            }
            // A deletion that was asked for may have become durable without an answer.
            Err(BookieError::Deleted { .. }) if ledger == 2 => {}
            Err(BookieError::NotHere { .. }) if rig.is_dead(ledger) => {}
            Err(error) => panic!("{case}: confirmed entry {number} of ledger {ledger}: {error}"),
        }
    }
    for (&ledger, &token) in &promises.fences {
        let state = &rig.node.core().state().ledgers[&LedgerId(ledger)];
        assert_eq!(state.fence, FenceToken(token), "{case}: fence forgotten");
    }
    for &(ledger, number) in &promises.negatives {
        let late = add(rig.to(ledger), entry(ledger, number, 9));
        let (_, output) = rig.node.add(late);
        let answer = rig.answer(output);
        assert!(
            matches!(answer, StepAnswer::Add(Err(BookieError::Fenced { .. }))),
            "{case}: {answer:?}"
        );
    }
    for &ledger in &promises.deleted {
        assert!(rig.is_dead(ledger), "{case}: ledger {ledger} is undeleted");
    }
    // And the node goes on.
    rig.store(50, 0..2, 100);
}

#[test]
fn nothing_promised_is_lost_at_any_crash_point() {
    let mut hits: BTreeMap<u8, u32> = BTreeMap::new();
    let mut case = 0;
    let kinds: [fn(u64) -> Kill; 2] = [Kill::Change, Kill::Answers];
    for kind in kinds {
        // Until the script ends by itself.
        for at in 1.. {
            let disk = MemoryDisk::default();
            let (point, promises) = run(&disk, kind(at - 1));
            if point.is_none() && at > 1 {
                assert!(promises.entries.len() > 30 && !promises.negatives.is_empty());
                break;
            }
            *hits.entry(point.unwrap_or(0)).or_default() += 1;
            case += 1;
            survive(&disk, &promises, case, &mut hits);
        }
    }
    println!("crash points: {case} kills");
    for point in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13] {
        let count = hits.get(&point).copied().unwrap_or(0);
        report(&format!("crash point {point}: {count} hits"));
        assert!(count > 0, "crash point {point} was never hit");
    }
}

/// Crashes the disk, kills the recovery itself at a few places, and judges what is left.
fn survive(disk: &MemoryDisk, promises: &Promises, case: u64, hits: &mut BTreeMap<u8, u32>) {
    let mut rng = ChaCha12Rng::seed_from_u64(case);
    disk.crash(Survival::Random(&mut rng));
    for stop in [case % 5, case % 11, 3 + case % 17] {
        disk.stop_after(stop);
        if StepNode::open(small(), Arc::new(disk.clone()), 1, &[]).is_err() {
            *hits.entry(9).or_default() += 1;
        }
        disk.crash(Survival::Random(&mut rng));
    }
    check(disk, promises, &format!("case {case}"));
}
