//! One page of a listing: the newest rows with later changes undone.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::store::{ListRequest, Page, Revision, Versioned};

/// Most rows in a page, whatever was asked for.
pub const PAGE_ROWS_MAX: usize = 1000;

/// Where the page's keys begin.
pub(crate) fn start(request: &ListRequest) -> Bound<&str> {
    match &request.after {
        Some(after) if after.as_str() >= request.prefix.as_str() => Bound::Excluded(after),
        _ => Bound::Included(&request.prefix),
    }
}

/// Merges `rows`, which start at [`start`] and may go on past the prefix, with what is undone.
pub(crate) fn fill<E>(
    request: &ListRequest,
    rows: impl Iterator<Item = Result<Versioned, E>>,
    undo: BTreeMap<String, Option<Versioned>>,
    revision: Revision,
) -> Result<Page, E> {
    let limit = request.limit.min(PAGE_ROWS_MAX);
    let mut rows = rows;
    let mut next_row = || {
        let row = rows.next().transpose()?;
        Ok(row.filter(|row| row.key.starts_with(&request.prefix)))
    };
    let mut undo = undo
        .into_iter()
        .skip_while(|(key, _)| request.after.as_ref().is_some_and(|after| key <= after));
    let mut row = next_row()?;
    let mut undone = undo.next();
    let mut items = Vec::new();
    while items.len() <= limit {
        match (row.take(), undone.take()) {
            (None, None) => break,
            (Some(newest), None) => {
                items.push(newest);
                row = next_row()?;
            }
            (None, Some((_, before))) => {
                items.extend(before);
                undone = undo.next();
            }
            (Some(newest), Some((key, before))) if newest.key < key => {
                items.push(newest);
                row = next_row()?;
                undone = Some((key, before));
            }
            (Some(newest), Some((key, before))) => {
                items.extend(before);
                undone = undo.next();
                row = if newest.key == key {
                    next_row()?
                } else {
                    Some(newest)
                };
            }
        }
    }
    let more = items.len() > limit;
    items.truncate(limit);
    Ok(Page {
        items,
        revision,
        more,
    })
}
