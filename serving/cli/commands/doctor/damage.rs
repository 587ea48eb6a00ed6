//! What the storage node knows of damage, and what nobody knows yet because nobody has looked.

use hulse_sdk::{Admin, Damage, DamagedRecords};

use super::finding::{Ailment, Finding};
use crate::config::Period;
use crate::failure::Failure;
use crate::format::date_and_time;
use crate::output::grouped;

/// Asks for it.
///
/// # Errors
/// The server's.
pub(super) async fn examine(admin: &Admin) -> Result<Vec<Finding>, Failure> {
    let damage = admin.damage("").await;
    let damage =
        damage.map_err(|error| Failure::from_sdk("cannot ask for damage", "all topics", &error))?;
    Ok(of(&damage))
}

fn of(damage: &Damage) -> Vec<Finding> {
    let mut found: Vec<Finding> = damage.records.iter().map(records).collect();
    if damage.more > 0 {
        found.push(
            Ailment::DamagedLog
                .found("more records are damaged", "the storage node")
                .why(format!("{} further places are not listed", damage.more))
                .next("stop the server and run hulse verify DATA-DIR: it lists all"),
        );
    }
    for (file, range) in &damage.bytes {
        let bytes = match range.end {
            u64::MAX => format!("from byte {} on", grouped(range.start)),
            end => format!("bytes {} to {}", grouped(range.start), grouped(end - 1)),
        };
        found.push(
            Ailment::DamagedLog
                .found("bytes of the log were found damaged", format!("log file {file}, {bytes}"))
                .why("what they held is not known: ledgers that may have lost records by it are in limbo. This is told until every ledger of this bookie is proved whole, by copies or by an accepted loss, or the file is gone")
                .next("hulse ledgers list; stop the server and run hulse verify DATA-DIR"),
        );
    }
    if damage.unchecked_files > 0 {
        found.push(
            Ailment::NotScrubbed
                .found("not every sealed file was checked since the start", "the storage node")
                .why(format!(
                    "{} of {} are not checked yet; each is once in {} (bookie.scrub_interval). Damage that nobody has read since is not known",
                    damage.unchecked_files, damage.sealed_files, Period(damage.scrub_interval)
                ))
                .next("wait, or stop the server and run hulse verify DATA-DIR: it checks all at once"),
        );
    }
    found
}

fn records(damage: &DamagedRecords) -> Finding {
    let entries = match damage.entries.end - damage.entries.start {
        1 => format!("entry {}", damage.entries.start),
        _ => format!(
            "entries {} to {}",
            damage.entries.start,
            damage.entries.end - 1
        ),
    };
    let place = format!(
        "{entries} of ledger {}, in log file {}",
        damage.ledger.0, damage.file
    );
    let topic = match damage.topic.as_str() {
        "" => "a topic that is gone",
        topic => topic,
    };
    let offsets = match (damage.first_offset, damage.end_offset) {
        (Some(first), Some(end)) if end > first => {
            format!(", offsets {} to {}", grouped(first), grouped(end - 1))
        }
        (Some(first), _) => format!(", offsets from {} on", grouped(first)),
        _ => String::new(),
    };
    let next = match (damage.end_offset, damage.topic.as_str()) {
        _ if damage.loss_from.is_some() => format!(
            "hulse ledgers list {}; compare with what was given up then: hulse consume leaves these out, too",
            damage.topic
        ),
        (Some(end), topic) if !topic.is_empty() => format!(
            "hulse consume {topic} -p {} -o {end} reads on behind it; with one copy these records cannot be had again",
            damage.partition
        ),
        _ => format!(
            "hulse ledgers accept-loss {} --dry-run; look at the server's log",
            damage.ledger.0
        ),
    };
    Ailment::DamagedLog
        .found(
            "stored records are damaged",
            format!("{topic}, partition {}{offsets}", damage.partition),
        )
        .why(format!("{place}, cannot be read any more; {}", met(damage)))
        .next(next)
}

/// What somebody hears who reads there.
fn met(damage: &DamagedRecords) -> String {
    match damage.loss_from {
        None => "nobody is given them, and nothing is passed over in silence".to_owned(),
        Some(from) => format!(
            "a loss of this ledger from entry {from} on was accepted on {}, and readers pass over what no bookie has, also over what was damaged since",
            date_and_time(damage.loss_at_ms)
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn files_that_nobody_has_checked_since_the_start_are_told() {
        let mut damage = Damage::default();
        assert_eq!(of(&damage), []);
        damage.sealed_files = 9;
        damage.unchecked_files = 4;
        damage.scrub_interval = Duration::from_secs(7 * 86_400);
        damage.bytes.push((3, 4_096..u64::MAX));
        let found = of(&damage);
        let codes: Vec<&str> = found.iter().map(Finding::code).collect();
        assert_eq!(codes, ["DOCTOR-10", "DOCTOR-17"]);
    }
}
