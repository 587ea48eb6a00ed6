//! What a verification answers with.

use serde::Serialize;

use crate::output::{Field, Table, View, bytes, grouped};

/// Findings that are listed at most; counts are exact.
pub(super) const FINDINGS_MAX: usize = 1_000;

/// What was looked at and what was found.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct VerifyView {
    pub(super) target: String,
    pub(super) kind: String,
    pub(super) clean: bool,
    pub(super) bytes: u64,
    /// Of a topic.
    pub(super) records: Option<u64>,
    pub(super) numbered: Option<u64>,
    pub(super) streams: Option<u64>,
    pub(super) missing: Option<u64>,
    pub(super) duplicates: Option<u64>,
    pub(super) out_of_order: Option<u64>,
    pub(super) trimmed: Vec<TrimmedView>,
    pub(super) read: Vec<ReadView>,
    /// Of a directory.
    pub(super) files: Option<u64>,
    pub(super) groups: Option<u64>,
    pub(super) entries: Option<u64>,
    pub(super) last_file: Option<String>,
    pub(super) last_byte: Option<u64>,
    pub(super) finding: Vec<FindingView>,
}

/// Numbers that went with the trimmed part of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct TrimmedView {
    pub(super) producer: String,
    pub(super) partition: u32,
    pub(super) first: u64,
    pub(super) end: u64,
}

/// What was read of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ReadView {
    pub(super) partition: u32,
    pub(super) first_offset: u64,
    pub(super) end_offset: u64,
}

/// One thing that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct FindingView {
    pub(super) kind: String,
    pub(super) object: String,
    pub(super) words: String,
}

impl VerifyView {
    /// Up to where it was looked, for the one who is told that nothing was found.
    pub(super) fn up_to(&self) -> String {
        if let (Some(file), Some(byte)) = (&self.last_file, self.last_byte) {
            return format!(
                "up to byte {} of {file}, where the log ends; the directory cannot tell whether more once stood behind it",
                grouped(byte)
            );
        }
        let read: Vec<&ReadView> = self.read.iter().filter(|read| !read.is_empty()).collect();
        match read.as_slice() {
            [] => "and nothing is there to be looked at".to_owned(),
            [only] => format!(
                "from offset {} up to {} of partition {}; what came later was not looked at",
                grouped(only.first_offset),
                grouped(only.end_offset - 1),
                only.partition
            ),
            more => format!(
                "in {} partitions, up to where each ended (--output wide lists that); what came later was not looked at",
                more.len()
            ),
        }
    }

    /// Adds a finding; it is not clean any more.
    pub(super) fn found(
        &mut self,
        kind: &str,
        object: impl Into<String>,
        words: impl Into<String>,
    ) {
        self.clean = false;
        if self.finding.len() < FINDINGS_MAX {
            self.finding.push(FindingView {
                kind: kind.to_owned(),
                object: object.into(),
                words: words.into(),
            });
        }
    }
}

impl ReadView {
    fn is_empty(&self) -> bool {
        self.first_offset >= self.end_offset
    }
}

impl View for VerifyView {
    const FIELDS: &'static [Field] = &[
        Field::text("target", "what was looked at"),
        Field::text("kind", "topic or directory"),
        Field::boolean("clean", "nothing is damaged or missing"),
        Field::integer("bytes", "read"),
        Field::integer("records", "of a topic: read").or_null(),
        Field::integer("numbered", "of a topic: records with a number").or_null(),
        Field::integer("streams", "of a topic: pairs of producer and partition").or_null(),
        Field::integer("missing", "of a topic: numbers that did not arrive").or_null(),
        Field::integer("duplicates", "of a topic: numbers at two places").or_null(),
        Field::integer("out_of_order", "of a topic: numbers behind a higher one").or_null(),
        Field::text(
            "trimmed[].producer",
            "of a topic: whose first numbers went with the trimmed part of the log, so that nobody can miss them",
        ),
        Field::integer("trimmed[].partition", "where it sent them"),
        Field::integer("trimmed[].first", "number that went"),
        Field::integer("trimmed[].end", "number that is there again"),
        Field::integer("read[].partition", "of a topic: from 0"),
        Field::integer("read[].first_offset", "that there was"),
        Field::integer(
            "read[].end_offset",
            "exclusive: what came from it on was not looked at",
        ),
        Field::integer("files", "of a directory: log files").or_null(),
        Field::integer(
            "groups",
            "of a directory: groups of records that were synced together",
        )
        .or_null(),
        Field::integer("entries", "of a directory: whose checksums hold").or_null(),
        Field::text(
            "last_file",
            "of a directory: the log file in which the log ends",
        )
        .or_null(),
        Field::integer("last_byte", "of that file, behind its last group").or_null(),
        Field::text(
            "finding[].kind",
            "missing, duplicate, order, damage, gap, lost or torn",
        ),
        Field::text("finding[].object", "where"),
        Field::text(
            "finding[].words",
            "producer, partition and neighbours, or what is damaged",
        ),
    ];

    fn name(&self) -> String {
        self.target.clone()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let mut text = String::new();
        for row in rows {
            text.push_str(&row.sums().render());
            let more = [
                (wide && !row.read.is_empty()).then(|| row.reads()),
                (!row.trimmed.is_empty()).then(|| row.gone()),
                (!row.finding.is_empty()).then(|| row.findings()),
            ];
            for table in more.into_iter().flatten() {
                text.push_str(&format!("\n{}", table.render()));
            }
        }
        text
    }
}

/// The tables of one answer.
impl VerifyView {
    fn sums(&self) -> Table {
        let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), grouped);
        if self.kind != "topic" {
            let mut table = Table::new(&["DIRECTORY", "FILES", "BYTES", "GROUPS", "ENTRIES"]);
            table.row(vec![
                self.target.clone(),
                number(self.files),
                bytes(self.bytes),
                number(self.groups),
                number(self.entries),
            ]);
            return table;
        }
        let mut table = Table::new(&[
            "TOPIC",
            "RECORDS",
            "BYTES",
            "NUMBERED",
            "STREAMS",
            "MISSING",
            "DOUBLED",
            "DISPLACED",
        ]);
        table.row(vec![
            self.target.clone(),
            number(self.records),
            bytes(self.bytes),
            number(self.numbered),
            number(self.streams),
            number(self.missing),
            number(self.duplicates),
            number(self.out_of_order),
        ]);
        table
    }

    fn reads(&self) -> Table {
        let mut table = Table::new(&["PARTITION", "FIRST OFFSET", "END OFFSET"]);
        for read in &self.read {
            table.row(vec![
                read.partition.to_string(),
                grouped(read.first_offset),
                grouped(read.end_offset),
            ]);
        }
        table
    }

    fn gone(&self) -> Table {
        let mut table = Table::new(&["TRIMMED AWAY OF PRODUCER", "PARTITION", "NUMBERS"]);
        for gone in &self.trimmed {
            table.row(vec![
                gone.producer.clone(),
                gone.partition.to_string(),
                format!("{} to {}", grouped(gone.first), grouped(gone.end - 1)),
            ]);
        }
        table
    }

    fn findings(&self) -> Table {
        let mut table = Table::new(&["FINDING", "OBJECT", "WHAT"]);
        for finding in &self.finding {
            table.row(vec![
                finding.kind.clone(),
                finding.object.clone(),
                finding.words.clone(),
            ]);
        }
        table
    }
}
