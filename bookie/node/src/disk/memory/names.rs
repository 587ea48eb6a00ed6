//! Changes of the directory since its last sync, and which of them a crash leaves.

use std::collections::BTreeMap;

/// A change of one name; the file system makes it whole or not at all.
#[derive(Clone)]
pub(super) enum NameChange {
    Made { name: String, id: u64 },
    Moved { from: String, to: String, id: u64 },
    Removed { name: String },
}

impl NameChange {
    /// Makes it, whether or not those before it were made: nothing orders them before a sync of the directory.
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Made { name, id } => drop(names.insert(name.clone(), *id)),
            Self::Moved { from, to, id } => {
                names.remove(from);
                names.insert(to.clone(), *id);
            }
            Self::Removed { name } => drop(names.remove(name)),
        }
    }
}

/// What a draw of a power failure makes of the directory: all changes, none, or (one draw of four) any subset.
pub(super) fn survivors(
    durable: &BTreeMap<String, u64>,
    changes: &[NameChange],
    draw: u32,
) -> BTreeMap<String, u64> {
    let survives = |index: usize| match draw >> 1 & 3 {
        3 => draw >> (3 + index % 29) & 1 == 0,
        _ => draw & 1 == 0,
    };
    let mut names = durable.clone();
    for (index, change) in changes.iter().enumerate() {
        if survives(index) {
            change.apply(&mut names);
        }
    }
    names
}
