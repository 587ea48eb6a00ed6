//! What of a cluster is not as it should be. Pure, so that each finding has a test; the doctor tells the same.

use hulse_sdk::{Blocked, Bookie, Cluster, Upkeep};

use super::status::{counts, lacking_for, writable};
use crate::commands::doctor::{Ailment, Finding, Weight};
use crate::commands::session::Session;
use crate::config::Period;
use crate::failure::{Code, Failure, Stop};
use crate::output::{bytes, grouped};

/// Blocked places that are named.
const NAMED_MAX: usize = 5;
/// A report that is older was not renewed: its planner is gone, and no other took over.
const REPORT_MS_MAX: i64 = 15 * 60 * 1_000;

/// Prints the findings.
///
/// # Errors
/// There are problems.
pub(super) fn run(session: Session<'_>, info: &Cluster) -> Result<(), Stop> {
    let found = findings(info);
    session.output.list(&found)?;
    let code = match found.iter().map(|finding| finding.weight).max() {
        None => {
            session.output.say("the cluster is healthy");
            return Ok(());
        }
        Some(Weight::Note) => return Ok(()),
        Some(Weight::Problem) => Code::Unwell,
        Some(Weight::Damage | Weight::Unreachable) => Code::Damaged,
    };
    Err(Failure::new(code, "the cluster is not healthy")
        .why("see above")
        .object(&session.globals.server)
        .next("run what stands behind `next` of each; hulse doctor looks at the rest")
        .into())
}

/// What metadata say of nodes and copies.
pub(crate) fn findings(info: &Cluster) -> Vec<Finding> {
    let mut found = counted(info);
    for bookie in info.bookies.iter().filter(|one| counts(one)) {
        let name = &bookie.name;
        if bookie.live.is_none() {
            found.push(
                Ailment::BookieDown
                    .found("a bookie does not run", name)
                    .why("its copies cannot be read, and new records have one copy fewer until it is back or replaced")
                    .next(format!(
                        "start it again; if its disk is gone for good: hulse bookies lost {name}"
                    )),
            );
        } else if bookie.state == "draining" {
            let left = bookie.holds.map_or_else(String::new, |(_, left)| {
                format!("; {} are left on it", bytes(left))
            });
            found.push(
                Ailment::Draining
                    .found("a bookie is being decommissioned", name)
                    .why(format!("its copies are made anew on others{left}"))
                    .next(format!(
                        "hulse bookies describe {name}; hulse bookies recommission {name} ends it"
                    )),
            );
        }
    }
    if let Some(upkeep) = &info.upkeep {
        found.extend(copies(info, upkeep));
    }
    found
}

/// Whether there are enough bookies, for the cell and for what its topics ask for.
fn counted(info: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    let (ensemble, _, ack) = info.quorums;
    let takes = info.bookies.iter().filter(|one| writable(one)).count();
    let full = info.bookies.iter().filter(|one| is_full(one)).count();
    if takes < ack as usize {
        found.push(too_few("the cluster", (takes, full), ack));
    } else if let Some((topic, ack)) = &info.largest_ack_quorum
        && takes < *ack as usize
    {
        found.push(too_few(topic, (takes, full), *ack));
    }
    let there = info.bookies.iter().filter(|one| counts(one)).count();
    if there < ensemble as usize {
        found.push(
            Ailment::TooFewBookies
                .found("fewer bookies than copies", "the cluster")
                .why(format!(
                    "{there} are registered, and each ledger needs {ensemble}"
                ))
                .next("hulse bookie format makes one more; then start it with hulse bookie"),
        );
    } else if let Some((topic, ensemble)) = &info.largest_ensemble
        && there < *ensemble as usize
    {
        found.push(
            Ailment::TooFewBookies
                .found("fewer bookies than a topic asks for", topic)
                .why(format!(
                    "{there} are registered, and each of its ledgers needs {ensemble}: no new one can be made (HULSE-1803)"
                ))
                .next(format!(
                    "hulse bookie format makes one more; or ask for fewer: hulse topics update {topic} -r {there}"
                )),
        );
    }
    found
}

/// Records wait for bookies: those of the cluster, or of one topic and perhaps of others.
fn too_few(object: &str, (takes, full): (usize, usize), ack: u32) -> Finding {
    let (full, next) = match full {
        0 => (
            String::new(),
            "hulse bookies list; start those that do not run",
        ),
        full => (
            format!(", {full} are full"),
            "hulse bookies list; enlarge the disks of those that are full, add bookies, or let records go: hulse topics update TOPIC --retention TIME; producing goes on by itself",
        ),
    };
    Ailment::TooFewBookies
        .found("too few bookies take records", object)
        .why(format!(
            "{takes} do{full}, and each record needs {ack} before it is answered; new ledgers wait (HULSE-1803, HULSE-1806)"
        ))
        .next(next)
}

/// It runs, and has no room for records.
fn is_full(bookie: &Bookie) -> bool {
    let mode = bookie.live.as_ref().map(|live| live.mode.as_str());
    bookie.state == "active" && matches!(mode, Some("readonly" | "reserve"))
}

/// What upkeep found.
fn copies(info: &Cluster, upkeep: &Upkeep) -> Vec<Finding> {
    let mut found = Vec::new();
    let age = info.now_ms.saturating_sub(upkeep.at_ms);
    if age > REPORT_MS_MAX {
        found.push(
            Ailment::NoUpkeep
                .found("nobody looks after the copies", "the cluster")
                .why(format!(
                    "{} planned last, {} ago, and no bookie took over",
                    upkeep.planner,
                    Period(std::time::Duration::from_secs(
                        u64::try_from(age / 1_000).unwrap_or(0)
                    ))
                ))
                .next("look at the logs of the bookies"),
        );
    }
    let unreadable: Vec<&Blocked> = upkeep
        .blocked
        .iter()
        .filter(|blocked| blocked.kind == "unreadable")
        .collect();
    for blocked in unreadable.iter().take(NAMED_MAX) {
        found.push(
            Ailment::NoCopyLeft
                .found(
                    "no bookie has a good copy",
                    format!(
                        "ledger {}, from entry {} on",
                        blocked.ledger, blocked.first_entry
                    ),
                )
                .why(&blocked.why)
                .next("bring back the bookies that had one; hulse ledgers list tells its topic"),
        );
    }
    if upkeep.lacking_ledgers > 0 {
        found.push(fewer(info, upkeep));
    }
    found
}

/// How long something has been blocked; `None`: an older planner does not say.
fn blocked_for(info: &Cluster, blocked: &Blocked) -> Option<Period> {
    let ms = info.now_ms.saturating_sub(blocked.since_ms);
    let seconds = u64::try_from(ms / 1_000).unwrap_or(0);
    (blocked.since_ms > 0).then(|| Period(std::time::Duration::from_secs(seconds)))
}

/// Ledgers that lack copies: since when, and what is done about it.
fn fewer(info: &Cluster, upkeep: &Upkeep) -> Finding {
    let time = lacking_for(info).map_or_else(String::new, |time| format!(" for {}", Period(time)));
    let speed = match upkeep.bytes_per_second {
        0 => String::new(),
        speed => format!(", {} a second", bytes(speed)),
    };
    let others: Vec<String> = upkeep
        .blocked
        .iter()
        .filter(|blocked| blocked.kind != "unreadable")
        .take(NAMED_MAX)
        .map(|blocked| {
            let time =
                blocked_for(info, blocked).map_or_else(String::new, |time| format!(" for {time}"));
            format!(
                "ledger {} ({}{time}): {}",
                blocked.ledger, blocked.kind, blocked.why
            )
        })
        .collect();
    let blocked = match others.is_empty() {
        true => String::new(),
        false => format!("; blocked: {}", others.join("; ")),
    };

    Ailment::FewerCopies
        .found("records have fewer copies than they should", "the cluster")
        .why(format!(
            "{} of {} ledgers{time}; {} to be copied{speed}{blocked}",
            grouped(upkeep.lacking_ledgers),
            grouped(upkeep.ledgers),
            bytes(upkeep.bytes_to_copy)
        ))
        .next("hulse bookies list; start those that do not run, or wait: it is repaired by itself")
}
