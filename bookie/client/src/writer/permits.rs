//! In-flight limits (storage.md W2): DATA has its permits, META and CONTROL have theirs.

use hulse_proto::entry::EntryClass;

/// Which permits an entry takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermitClass {
    /// Records.
    Data,
    /// META and CONTROL.
    Rest,
}

impl From<EntryClass> for PermitClass {
    fn from(class: EntryClass) -> Self {
        match class {
            EntryClass::Data => Self::Data,
            EntryClass::Control | EntryClass::Meta => Self::Rest,
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Used {
    entries: usize,
    bytes: usize,
}

/// What is in flight. Given back entry by entry, in order of completion.
#[derive(Debug)]
pub(super) struct Permits {
    entries_max: usize,
    bytes_max: usize,
    data: Used,
    rest: Used,
}

impl Permits {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self {
            entries_max: entries_max.max(1),
            bytes_max: bytes_max.max(1),
            data: Used::default(),
            rest: Used::default(),
        }
    }

    /// True when one more entry, of any size, may begin: the limit is passed by one entry at most.
    pub(super) fn has_room(&self, class: PermitClass) -> bool {
        let used = match class {
            PermitClass::Data => self.data,
            PermitClass::Rest => self.rest,
        };
        used.entries < self.entries_max && used.bytes < self.bytes_max
    }

    pub(super) fn take(&mut self, class: PermitClass, bytes: usize) {
        let used = self.used(class);
        used.entries += 1;
        used.bytes += bytes;
    }

    pub(super) fn give_back(&mut self, class: PermitClass, bytes: usize) {
        let used = self.used(class);
        used.entries -= 1;
        used.bytes -= bytes;
    }

    fn used(&mut self, class: PermitClass) -> &mut Used {
        match class {
            PermitClass::Data => &mut self.data,
            PermitClass::Rest => &mut self.rest,
        }
    }
}
