//! Faults that a test orders: calls that fail, once or for ever, and a disk that is full from some allocation on.

use super::super::DiskErrorKind;

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Writes, syncs, creates, renames, removes, cuts and syncs of the directory. A failing write leaves half of its bytes, a failing
    /// sync marks pages clean that the medium never got.
    Changes,
    /// Reads.
    Reads,
}

/// Some calls of a kind fail with an I/O error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which.
    pub calls: Calls,
    /// So many go well before.
    pub after: u64,
    /// So many fail then; `u64::MAX`: for ever.
    pub times: u64,
}

/// What is ordered, and what came of it.
#[derive(Default)]
pub(super) struct Faults {
    fault: Option<Fault>,
    /// Allocations until the disk is full.
    pub(super) fills_after: Option<u64>,
    /// The first call that met a fault or a dead machine: operation and file.
    pub(super) struck: Option<(&'static str, String)>,
}

impl Faults {
    /// Orders a fault, or none.
    pub(super) fn order(&mut self, fault: Option<Fault>) {
        self.fault = fault;
        self.struck = None;
    }

    /// Notes the first call that failed.
    pub(super) fn strike(&mut self, operation: &'static str, name: &str) {
        self.struck
            .get_or_insert_with(|| (operation, name.to_owned()));
    }

    /// True when the call that just failed met an ordered fault: the machine lives, and something of it was done.
    pub(super) fn half_done(&self) -> bool {
        let changes = |fault: Fault| fault.calls == Calls::Changes && fault.after == 0;
        self.fault.is_some_and(changes)
    }

    /// Counts a call; `Some`: it fails.
    pub(super) fn meets(
        &mut self,
        calls: Calls,
        operation: &'static str,
        name: &str,
    ) -> Option<DiskErrorKind> {
        let fault = self.fault.as_mut().filter(|fault| fault.calls == calls)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times = fault.times.checked_sub(1)?;
        self.strike(operation, name);
        Some(DiskErrorKind::Io)
    }

    /// Counts an allocation; true: from this one on the disk is full.
    pub(super) fn fills(&mut self, operation: &'static str, name: &str) -> bool {
        match &mut self.fills_after {
            Some(0) => {
                self.fills_after = None;
                self.strike(operation, name);
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}
