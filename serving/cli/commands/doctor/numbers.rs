//! Judges what metrics and clocks say. Pure, so that each finding has a test.

use super::finding::{Ailment, Finding};
use super::metrics::Metrics;
use crate::output::bytes;

/// Clocks that differ by more are told: the header's date has whole seconds, and an answer takes its time.
const SKEW_MS_MAX: i64 = 5_000;
/// Syncs of which at least one in a hundred takes longer are told.
const SYNC_SECONDS_MAX: f64 = 0.1;
/// So many syncs must have been seen to say so.
const SYNCS_MIN: f64 = 100.0;

/// What the metrics of `server` say.
pub(super) fn of_metrics(metrics: &Metrics, server: &str, ours: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(version) = metrics.label("hulse_build_info", "version")
        && version != ours
    {
        found.push(
            Ailment::OtherVersion
                .found("client and server are of different versions", server)
                .why(format!("the server is {version}, this client {ours}"))
                .next("use the client of the server's version where something looks odd"),
        );
    }
    if let Some(sync) = metrics.label("hulse_build_info", "sync")
        && sync != "always"
    {
        found.push(
            Ailment::WeakSync
                .found(
                    "acknowledged records can be lost when the machine fails",
                    server,
                )
                .why(format!(
                    "bookie.sync is {sync}, which answers before the disk does"
                ))
                .next("set bookie.sync = \"always\" and start the server again"),
        );
    }
    found.extend(disk(metrics, server));
    let damage = metrics.value("hulse_bookie_damage_total").unwrap_or(0.0);
    if damage > 0.0 {
        found.push(
            Ailment::DamagedLog
                .found("bytes of the log were found damaged", server)
                .why(format!("{damage} entries or ranges since the start"))
                .next("hulse ledgers list; stop the server and run hulse verify DATA-DIR"),
        );
    }
    let limbo = metrics.value("hulse_bookie_limbo_ledgers").unwrap_or(0.0);
    if limbo > 0.0 {
        found.push(
            Ailment::Limbo
                .found("ledgers may lack what they once confirmed", server)
                .why(format!("{limbo} ledgers are in limbo: the log was cut, damaged or older than metadata remember"))
                .next("hulse ledgers list; hulse ledgers accept-loss LEDGER opens one again"),
        );
    }
    found.extend(idle_members(metrics));
    let outdated = metrics.value("hulse_metadata_outdated_endpoints");
    if let Some(outdated) = outdated.filter(|outdated| *outdated > 0.0) {
        found.push(
            Ailment::OutdatedEtcd
                .found("etcd may end leases that were renewed", server)
                .why(format!(
                    "{outdated} of its endpoints run a release before 3.4.31 or 3.5.13: a leader that was frozen ends leases when it wakes, \
                     and nodes register anew"
                ))
                .next("upgrade etcd, one member at a time; the server's log names the endpoints"),
        );
    }
    let panics = metrics.value("hulse_panics_total").unwrap_or(0.0);
    if panics > 0.0 {
        found.push(
            Ailment::Panics
                .found("something in the server panicked", server)
                .why(format!("{panics} sessions or reads ended so"))
                .next("this is a bug in hulse; please report it with the server's log"),
        );
    }
    found
}

/// Groups that would be no faster with more members.
fn idle_members(metrics: &Metrics) -> Vec<Finding> {
    let groups = metrics.by_label("hulse_group_idle_members", "group");
    let found = groups.into_iter().map(|(group, idle)| {
        Ailment::IdleMembers
            .found("members of a group have no partition", format!("group {group}"))
            .why(format!(
                "{idle} of its members wait: a partition is read by one member, and there are fewer partitions than members; a backlog shrinks no faster with more of them"
            ))
            .next("hulse topics copy TOPIC WIDER -p N makes a topic with more partitions; a subscription of type queue shares out each record")
    });
    found.collect()
}

/// What is free and what is to stay free; nothing where the server does not tell.
fn room(metrics: &Metrics) -> String {
    let bytes_of = |name| metrics.value(name).map(|value| bytes(value as u64));
    let free = bytes_of("hulse_bookie_disk_free_bytes");
    match free.zip(bytes_of("hulse_bookie_disk_reserve_bytes")) {
        Some((free, kept)) => format!(
            "{free} are free, {kept} are to stay free (bookie.disk_reserve, or two log files where that is more); "
        ),
        None => String::new(),
    }
}

fn disk(metrics: &Metrics, server: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let level = metrics.value("hulse_bookie_level").unwrap_or(0.0) as u32;
    let next = "df -h DATA-DIR; enlarge the disk, or delete topics or shorten their retention";
    match level {
        0 => {}
        1 => found.push(
            Ailment::DiskLow
                .found("little room is left on the disk", server)
                .why(format!(
                    "{}records are still taken; below that limit they are refused",
                    room(metrics)
                ))
                .next(next),
        ),
        _ => found.push(
            Ailment::DiskFull
                .found("the disk is full: no records are taken", server)
                .why(format!(
                    "{}reading goes on; records are taken again by themselves when there is room (HULSE-1806)",
                    room(metrics)
                ))
                .next(format!("{next}; bookie.disk_reserve says how much stays free")),
        ),
    }
    if let Some(slow) = metrics.quantile("hulse_bookie_sync_seconds", 0.99, SYNCS_MIN)
        && slow > SYNC_SECONDS_MAX
    {
        let bound = match slow.is_finite() {
            true => format!("up to {:.0} ms", slow * 1e3),
            false => "longer than can be told apart".to_owned(),
        };
        found.push(
            Ailment::SlowDisk
                .found("the disk is slow", server)
                .why(format!(
                    "one sync in a hundred takes {bound}; a record waits for at least one"
                ))
                .next("hulse bench latency --rate 100; look at what else uses the disk"),
        );
    }
    found
}

/// What the clocks say: the server's date, and ours before and after it was asked.
pub(super) fn of_clocks(
    server: &str,
    date_ms: i64,
    asked_ms: i64,
    answered_ms: i64,
) -> Option<Finding> {
    // The date is cut to its second.
    let ahead = date_ms - answered_ms;
    let behind = asked_ms - (date_ms + 999);
    let off = ahead.max(behind);
    (off > SKEW_MS_MAX).then(|| {
        let way = if ahead > 0 { "ahead of" } else { "behind" };
        Ailment::ClockSkew
            .found("the clocks disagree", server)
            .why(format!(
                "the server's is {:.0} s {way} ours; positions by time and retention go by it",
                off as f64 / 1e3
            ))
            .next("timedatectl on both machines; let them keep time by NTP")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str) -> Vec<&'static str> {
        let metrics = Metrics::parse(text);
        let found = of_metrics(&metrics, "s", "0.1.0");
        found.iter().map(Finding::code).collect()
    }

    #[test]
    fn healthy_metrics_say_nothing() {
        let text = "hulse_build_info{version=\"0.1.0\",sync=\"always\"} 1\nhulse_bookie_level 0\n\
                    hulse_bookie_damage_total 0\nhulse_bookie_limbo_ledgers 0\nhulse_panics_total 0\n\
                    hulse_metadata_outdated_endpoints 0\n\
                    hulse_bookie_sync_seconds_count 1000\nhulse_bookie_sync_seconds_bucket{le=\"0.01\"} 1000\n";
        assert_eq!(codes(text), Vec::<&str>::new());
        assert_eq!(codes(""), Vec::<&str>::new());
    }

    #[test]
    fn each_ailment_is_told_by_its_code() {
        for (text, code) in [
            ("hulse_build_info{version=\"0.2.0\"} 1", "DOCTOR-04"),
            ("hulse_build_info{sync=\"interval:1s\"} 1", "DOCTOR-05"),
            ("hulse_bookie_level 1", "DOCTOR-06"),
            ("hulse_bookie_level 2", "DOCTOR-07"),
            ("hulse_bookie_level 3", "DOCTOR-07"),
            (
                "hulse_bookie_sync_seconds_count 200\nhulse_bookie_sync_seconds_bucket{le=\"0.05\"} 150\nhulse_bookie_sync_seconds_bucket{le=\"0.4\"} 200",
                "DOCTOR-08",
            ),
            ("hulse_bookie_damage_total 1", "DOCTOR-10"),
            ("hulse_bookie_limbo_ledgers 2", "DOCTOR-11"),
            ("hulse_panics_total 1", "DOCTOR-14"),
            ("hulse_group_idle_members{group=\"g\"} 2", "DOCTOR-24"),
            ("hulse_metadata_outdated_endpoints 2", "DOCTOR-38"),
        ] {
            assert_eq!(codes(text), [code], "{text}");
        }
    }

    #[test]
    fn full_disk_is_told_with_what_is_free_and_what_is_to_stay_free() {
        let text = "hulse_bookie_level 2\nhulse_bookie_disk_free_bytes 25769803776\nhulse_bookie_disk_reserve_bytes 214748364800";
        let found = of_metrics(&Metrics::parse(text), "s", "0.1.0");
        let told = <Finding as View>::text(&found, false);
        for words in [
            "24GiB are free",
            "200GiB are to stay free",
            "bookie.disk_reserve",
        ] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn clocks_may_differ_by_what_the_question_takes() {
        assert_eq!(of_clocks("s", 10_000, 10_300, 10_900), None);
        assert_eq!(of_clocks("s", 10_000, 12_000, 16_000), None);
        for (date, words) in [(30_000, "ahead"), (1_000, "behind")] {
            let finding = of_clocks("s", date, 15_000, 15_100).unwrap();
            assert_eq!(finding.code(), "DOCTOR-09");
            assert!(View::name(&finding) == "DOCTOR-09", "{words}");
        }
    }

    use crate::output::View;
}
