//! What would be given up of a ledger, as far as anybody knows before it is read, in words for prompts and dry runs.

use hulse_proto::error::{Fault, Reason};
use hulse_sdk::{Admin, DamagedRecords, Ledger, LedgerId};

use crate::failure::Failure;
use crate::output::grouped;

/// Ranges of damaged entries that are named.
const NAMED_MAX: usize = 8;

const CANNOT: &str = "cannot accept the loss";

/// Looks at a ledger that is to be sealed at `up_to`, or where reading fails.
///
/// # Errors
/// The server's; the reason why nothing of it would be given up.
pub(super) async fn find(
    admin: &Admin,
    ledger: LedgerId,
    up_to: Option<u64>,
) -> Result<String, Failure> {
    let object = format!("ledger {ledger}");
    let failed = |error: hulse_sdk::Error| Failure::from_sdk(CANNOT, &object, &error);
    let listed = admin.list_ledgers("").await.map_err(failed)?;
    let Some(found) = listed.into_iter().find(|one| one.id == ledger) else {
        let why = format!(
            "no topic has ledger {ledger}; `hulse ledgers list` shows those that there are"
        );
        return Err(refused(Reason::LedgerNotFound, &object, why));
    };
    if let Some(why) = intact(&found.state, ledger, up_to) {
        return Err(refused(Reason::PreconditionFailed, &object, why));
    }
    let damage = admin.damage(&found.topic).await.map_err(failed)?.records;
    let mut damage: Vec<DamagedRecords> = damage
        .into_iter()
        .filter(|damaged| damaged.ledger == ledger)
        .collect();
    damage.sort_by_key(|damaged| damaged.entries.start);
    let known: Vec<Lost> = damage.iter().map(Lost::of).collect();
    Ok(format!(
        "give up {} of ledger {ledger} ({} of {}, partition {}; {}): {}",
        match up_to {
            Some(entry) => format!("everything from entry {} on", grouped(entry)),
            None => "what cannot be read".to_owned(),
        },
        found.kind,
        found.topic,
        found.partition,
        extent(&found),
        words(&found.state, found.loss.as_deref(), &known)
    ))
}

fn refused(reason: Reason, object: &str, why: String) -> Failure {
    Failure::from_fault(CANNOT, &Fault::new(reason, why)).object(object)
}

/// Why nothing of a ledger can be given up, whatever there is on disks.
fn intact(state: &str, ledger: LedgerId, up_to: Option<u64>) -> Option<String> {
    match (state, up_to) {
        ("open" | "deleting", _) => Some(format!(
            "ledger {ledger} is {state}, only one that is closed or whose recovery is stuck can lose records"
        )),
        ("closed", Some(_)) => Some(format!(
            "ledger {ledger} is closed, its end is decided; without `--up-to` what cannot be read is given up"
        )),
        _ => None,
    }
}

/// "closed with 2,000 records, offsets 1,000 to 2,999".
fn extent(ledger: &Ledger) -> String {
    let base = ledger.base_offset.0;
    let state = ledger.state.replace('_', " ");
    match (&*ledger.kind, ledger.record_count) {
        ("log", Some(records)) if records > 0 => format!(
            "{state} with {} records, offsets {} to {}",
            grouped(records),
            grouped(base),
            grouped(base.saturating_add(records - 1))
        ),
        ("log", _) => format!("{state}, offsets from {} on", grouped(base)),
        _ => state,
    }
}

/// Entries that are known to be damaged.
struct Lost {
    entries: std::ops::Range<u64>,
    offsets: (Option<u64>, Option<u64>),
}

impl Lost {
    fn of(damage: &DamagedRecords) -> Self {
        Self {
            entries: damage.entries.clone(),
            offsets: (damage.first_offset, damage.end_offset),
        }
    }

    fn words(&self) -> String {
        let offsets = match self.offsets {
            (Some(first), Some(end)) if end > first => {
                format!(
                    " (within offsets {} to {})",
                    grouped(first),
                    grouped(end - 1)
                )
            }
            (Some(first), _) => format!(" (offsets from {} on)", grouped(first)),
            _ => String::new(),
        };
        let (first, last) = (self.entries.start, self.entries.end.saturating_sub(1));
        match last > first {
            true => format!("{} to {}{offsets}", grouped(first), grouped(last)),
            false => format!("{}{offsets}", grouped(first)),
        }
    }
}

/// What is known of the damage, and what is not.
fn words(state: &str, loss: Option<&str>, known: &[Lost]) -> String {
    let recorded = loss.map_or_else(String::new, |loss| {
        format!("; a loss of it is recorded already: {loss}")
    });
    if known.is_empty() {
        let intact = match state {
            "closed" => ", and when all of it can be read nothing is changed (HULSE-1406)",
            _ => "",
        };
        return format!(
            "how many records and which is unknown until it is read{intact}; no damage of it is known so far{recorded}"
        );
    }
    let entries: u64 = known
        .iter()
        .map(|lost| lost.entries.end.saturating_sub(lost.entries.start))
        .sum();
    let mut named: Vec<String> = known.iter().take(NAMED_MAX).map(Lost::words).collect();
    if let Some(more) = known.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        named.push(format!("{more} further ranges"));
    }
    let (noun, verb) = match entries {
        1 => ("entry", "is"),
        _ => ("entries", "are"),
    };
    format!(
        "{} {noun} {verb} known to be damaged, {}; whether another copy has them, and whether more is, is unknown until it is read{recorded}",
        grouped(entries),
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_that_has_nothing_to_give_up_is_refused_as_the_server_would() {
        let why = |state: &str, up_to| intact(state, LedgerId(7), up_to);
        for state in ["open", "deleting"] {
            assert!(why(state, None).unwrap().contains(state));
        }
        assert!(why("closed", Some(1)).unwrap().contains("--up-to"));
        assert_eq!(why("closed", None), None);
        assert_eq!(why("in_recovery", Some(1)), None);
    }

    #[test]
    fn damage_is_told_by_entries_and_offsets_and_what_nobody_knows_too() {
        let lost = |entries: std::ops::Range<u64>, offsets| Lost { entries, offsets };
        let unknown = words("in_recovery", None, &[]);
        assert!(unknown.contains("unknown until it is read") && !unknown.contains("1406"));
        assert!(words("closed", None, &[]).contains("HULSE-1406"));
        let some = [
            lost(1_003..1_006, (Some(2_000), Some(3_000))),
            lost(2_000..2_001, (Some(9_000), None)),
        ];
        let told = words("closed", Some("accepted"), &some);
        for part in [
            "4 entries are known",
            "1,003 to 1,005 (within offsets 2,000 to 2,999)",
            "2,000 (offsets from 9,000 on)",
            "recorded already: accepted",
        ] {
            assert!(told.contains(part), "{told}");
        }
        let many: Vec<Lost> = (0..11).map(|at| lost(at..at + 1, (None, None))).collect();
        assert!(words("closed", None, &many).contains("3 further ranges"));
    }
}
