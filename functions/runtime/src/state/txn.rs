//! The overlay of one epoch.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::table::{ROW_OVERHEAD, State, weight};
use crate::failure::OperatorError;
use crate::limits::Limits;

/// Changed rows of one table: new values, or none for deleted ones.
pub type TableDelta = BTreeMap<Bytes, Option<Bytes>>;

/// What an epoch changes, by table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateDelta {
    /// By number of the table.
    pub tables: Vec<TableDelta>,
}

impl StateDelta {
    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        self.tables.iter().all(BTreeMap::is_empty)
    }
}

/// State as an epoch sees it: the base below, its own changes above. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct StateTxn<'a> {
    base: &'a State,
    delta: StateDelta,
    overlay_bytes: usize,
    overlay_bytes_max: usize,
    /// What the state will weigh after the fold.
    state_bytes: usize,
    state_bytes_max: usize,
}

impl<'a> StateTxn<'a> {
    /// Opens an overlay.
    pub fn new(base: &'a State, limits: &Limits) -> Self {
        Self {
            base,
            delta: StateDelta {
                tables: vec![BTreeMap::new(); base.tables()],
            },
            overlay_bytes: 0,
            overlay_bytes_max: limits.epoch_overlay_bytes_max,
            state_bytes: base.bytes(),
            state_bytes_max: limits.state_bytes_max,
        }
    }

    /// The row of a key.
    pub fn get(&self, table: usize, key: &[u8]) -> Option<&Bytes> {
        match self
            .delta
            .tables
            .get(table)
            .and_then(|changes| changes.get(key))
        {
            Some(change) => change.as_ref(),
            None => self.base.table(table).get(key),
        }
    }

    /// Sets a row.
    ///
    /// # Errors
    /// `OverLimit` if the overlay or the state would grow past its limit; nothing changed. `Failed` if there is no such table.
    pub fn put(&mut self, table: usize, key: Bytes, value: Bytes) -> Result<(), OperatorError> {
        self.change(table, key, Some(value))
    }

    /// Deletes a row; one that is not there is no error.
    ///
    /// # Errors
    /// As [`StateTxn::put`]: a deletion has to be remembered until the commit.
    pub fn delete(&mut self, table: usize, key: Bytes) -> Result<(), OperatorError> {
        match self.get(table, &key) {
            Some(_) => self.change(table, key, None),
            None => Ok(()),
        }
    }

    /// Rows from `from` on (inclusive) up to `end` (exclusive; none: all), in the order of their keys, with the epoch's changes.
    pub fn range<'b>(
        &'b self,
        table: usize,
        from: &'b [u8],
        end: Option<&'b [u8]>,
    ) -> impl Iterator<Item = (&'b Bytes, &'b Bytes)> {
        let bounds = (
            Bound::Included(from),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        );
        // An empty range must not be asked of a tree whose bounds are the wrong way round.
        let sound = end.is_none_or(|end| from < end);
        let empty = (Bound::Included(from), Bound::Excluded(from));
        let bounds = if sound { bounds } else { empty };
        let base = self.base.table(table).range::<[u8], _>(bounds);
        let changes = self.delta.tables.get(table);
        let above = changes
            .into_iter()
            .flat_map(move |changes| changes.range::<[u8], _>(bounds));
        Merge {
            base: base.peekable(),
            above: above.peekable(),
        }
    }

    /// The last key of a table.
    pub fn last_key(&self, table: usize) -> Option<&Bytes> {
        let base = self.base.table(table).keys().rev();
        let changes = self.delta.tables.get(table)?;
        let kept = base
            .filter(|key| !matches!(changes.get(*key), Some(None)))
            .take(1);
        let new = changes
            .iter()
            .rev()
            .filter(|(_, value)| value.is_some())
            .take(1);
        kept.chain(new.map(|(key, _)| key)).max()
    }

    /// What the epoch changed.
    pub fn into_delta(self) -> StateDelta {
        self.delta
    }

    fn change(
        &mut self,
        table: usize,
        key: Bytes,
        value: Option<Bytes>,
    ) -> Result<(), OperatorError> {
        let Some(changes) = self.delta.tables.get(table) else {
            let message = format!("state table {table} does not exist");
            return Err(OperatorError::Failed { message });
        };
        let of_change = |change: &Option<Bytes>| {
            ROW_OVERHEAD + key.len() + change.as_ref().map_or(0, Bytes::len)
        };
        let replaced = changes.get(&key).map_or(0, of_change);
        let overlay_bytes = self.overlay_bytes + of_change(&value) - replaced;
        let before = self
            .get(table, &key)
            .map_or(0, |before| weight(&key, before));
        let after = value.as_ref().map_or(0, |value| weight(&key, value));
        let state_bytes = self.state_bytes + after - before;
        within(
            "epoch_overlay_bytes_max",
            overlay_bytes,
            self.overlay_bytes_max,
        )?;
        if after > before {
            within("state_bytes_max", state_bytes, self.state_bytes_max)?;
        }
        (self.overlay_bytes, self.state_bytes) = (overlay_bytes, state_bytes);
        if let Some(changes) = self.delta.tables.get_mut(table) {
            changes.insert(key, value);
        }
        Ok(())
    }
}

/// Refuses what is more than a limit.
pub(crate) fn within(limit: &'static str, needed: usize, max: usize) -> Result<(), OperatorError> {
    match needed <= max {
        true => Ok(()),
        false => Err(OperatorError::OverLimit { limit, max, needed }),
    }
}

/// Two ordered runs of rows, the second of which overrules the first.
struct Merge<A: Iterator, B: Iterator> {
    base: std::iter::Peekable<A>,
    above: std::iter::Peekable<B>,
}

impl<'a, A, B> Iterator for Merge<A, B>
where
    A: Iterator<Item = (&'a Bytes, &'a Bytes)>,
    B: Iterator<Item = (&'a Bytes, &'a Option<Bytes>)>,
{
    type Item = (&'a Bytes, &'a Bytes);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let base = self.base.peek().map(|(key, _)| *key);
            let above = self.above.peek().map(|(key, _)| *key);
            match (base, above) {
                (Some(base), Some(above)) if base < above => return self.base.next(),
                (Some(_), None) => return self.base.next(),
                (None, None) => return None,
                (base, above) => {
                    if base == above {
                        self.base.next();
                    }
                    // A deleted row is passed over.
                    if let Some((key, Some(value))) = self.above.next() {
                        return Some((key, value));
                    }
                }
            }
        }
    }
}
