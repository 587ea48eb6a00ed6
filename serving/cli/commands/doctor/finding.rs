//! What the doctor says.

use serde::Serialize;

use crate::output::{Field, Table, View};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Weight {
    /// Good to know.
    Note,
    /// Something does not work, or soon will not.
    Problem,
    /// Data are damaged or lost.
    Damage,
    /// Nobody answers.
    Unreachable,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    code: &'static str,
    pub(crate) weight: Weight,
    what: String,
    why: String,
    object: String,
    next: String,
}

/// What the doctor knows to look for. The codes are stable for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ailment {
    /// No server at the address.
    Unreachable,
    /// The address of metrics does not answer.
    NoMetrics,
    /// The server says that it is not ready.
    NotReady,
    /// Client and server are of different versions.
    OtherVersion,
    /// What is confirmed may be lost when the machine fails.
    WeakSync,
    /// Little room is left on the disk.
    DiskLow,
    /// No records are taken any more.
    DiskFull,
    /// A sync takes long.
    SlowDisk,
    /// The clocks disagree.
    ClockSkew,
    /// Records, or bytes of the log, were found damaged.
    DamagedLog,
    /// Ledgers may lack what they confirmed.
    Limbo,
    /// A ledger has lost something.
    LostLedger,
    /// A partition does not open.
    ClosedPartition,
    /// Something panicked.
    Panics,
    /// A subscription keeps more than its topic allows.
    BacklogQuota,
    /// The address of metrics that was named does not answer.
    HttpUnreachable,
    /// Nobody has looked yet whether sealed files are damaged.
    NotScrubbed,
    /// A subscription has lost records to its topic's quota.
    Evicted,
    /// A subscription has outlived its topics.
    Outlived,
    /// A backlog grows since more is sent.
    FasterSenders,
    /// A backlog grows since less is processed.
    SlowerReaders,
    /// A record is delivered again and again.
    TriedAgain,
    /// One consumer sits on the records of all.
    Holding,
    /// A group has more members than there are partitions.
    IdleMembers,
    /// A bookie's lease has ended.
    BookieDown,
    /// Records wait for bookies.
    TooFewBookies,
    /// Ledgers lack copies.
    FewerCopies,
    /// Records that nobody has.
    NoCopyLeft,
    /// A bookie is being decommissioned, or a broker drained.
    Draining,
    /// Nobody repairs.
    NoUpkeep,
    /// A node does not answer where it says that it does.
    SilentNode,
    /// A release of etcd that may end leases wrongly.
    OutdatedEtcd,
}

impl Ailment {
    fn parts(self) -> (&'static str, Weight) {
        match self {
            Self::Unreachable => ("DOCTOR-01", Weight::Unreachable),
            Self::NoMetrics => ("DOCTOR-02", Weight::Note),
            Self::NotReady => ("DOCTOR-03", Weight::Problem),
            Self::OtherVersion => ("DOCTOR-04", Weight::Note),
            Self::WeakSync => ("DOCTOR-05", Weight::Note),
            Self::DiskLow => ("DOCTOR-06", Weight::Problem),
            Self::DiskFull => ("DOCTOR-07", Weight::Problem),
            Self::SlowDisk => ("DOCTOR-08", Weight::Problem),
            Self::ClockSkew => ("DOCTOR-09", Weight::Problem),
            Self::DamagedLog => ("DOCTOR-10", Weight::Damage),
            Self::Limbo => ("DOCTOR-11", Weight::Problem),
            Self::LostLedger => ("DOCTOR-12", Weight::Damage),
            Self::ClosedPartition => ("DOCTOR-13", Weight::Problem),
            Self::Panics => ("DOCTOR-14", Weight::Problem),
            Self::BacklogQuota => ("DOCTOR-15", Weight::Problem),
            Self::HttpUnreachable => ("DOCTOR-16", Weight::Unreachable),
            Self::NotScrubbed => ("DOCTOR-17", Weight::Note),
            Self::Evicted => ("DOCTOR-18", Weight::Note),
            Self::Outlived => ("DOCTOR-19", Weight::Note),
            Self::FasterSenders => ("DOCTOR-20", Weight::Problem),
            Self::SlowerReaders => ("DOCTOR-21", Weight::Problem),
            Self::TriedAgain => ("DOCTOR-22", Weight::Problem),
            Self::Holding => ("DOCTOR-23", Weight::Problem),
            Self::IdleMembers => ("DOCTOR-24", Weight::Note),
            Self::BookieDown => ("DOCTOR-30", Weight::Problem),
            Self::TooFewBookies => ("DOCTOR-31", Weight::Problem),
            Self::FewerCopies => ("DOCTOR-32", Weight::Problem),
            Self::NoCopyLeft => ("DOCTOR-33", Weight::Damage),
            Self::Draining => ("DOCTOR-34", Weight::Note),
            Self::NoUpkeep => ("DOCTOR-35", Weight::Problem),
            Self::SilentNode => ("DOCTOR-36", Weight::Problem),
            Self::OutdatedEtcd => ("DOCTOR-38", Weight::Note),
        }
    }

    /// A finding of this kind.
    pub(crate) fn found(self, what: impl Into<String>, object: impl Into<String>) -> Finding {
        let (code, weight) = self.parts();
        Finding {
            code,
            weight,
            what: what.into(),
            why: String::new(),
            object: object.into(),
            next: String::new(),
        }
    }
}

impl Finding {
    /// Why it is so, and what follows.
    #[must_use]
    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// What to run or change next.
    #[must_use]
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// True for this kind.
    pub(super) fn is(&self, ailment: Ailment) -> bool {
        self.code == ailment.parts().0
    }

    /// Its code, for tests.
    #[cfg(test)]
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }
}

impl View for Finding {
    const FIELDS: &'static [Field] = &[
        Field::text("code", "DOCTOR-nn, stable"),
        Field::text("weight", "note, problem, damage or unreachable"),
        Field::text("what", "is found"),
        Field::text("why", "it is so, and what follows"),
        Field::text("object", "it is about"),
        Field::text("next", "to run or change"),
    ];

    fn name(&self) -> String {
        self.code.to_owned()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        if wide {
            let mut table = Table::new(&["CODE", "WEIGHT", "OBJECT", "WHAT", "WHY", "NEXT"]);
            for row in rows {
                let weight = format!("{:?}", row.weight).to_lowercase();
                table.row(vec![
                    row.code.to_owned(),
                    weight,
                    row.object.clone(),
                    row.what.clone(),
                    row.why.clone(),
                    row.next.clone(),
                ]);
            }
            return table.render();
        }
        let mut text = String::new();
        for row in rows {
            let weight = format!("{:?}", row.weight).to_lowercase();
            text.push_str(&format!("{weight}: {} [{}]\n", row.what, row.code));
            for (name, words) in [
                ("why", &row.why),
                ("object", &row.object),
                ("next", &row.next),
            ] {
                if !words.is_empty() {
                    text.push_str(&format!("  {:<8}{words}\n", format!("{name}:")));
                }
            }
        }
        text
    }
}
