//! In which form data are written.

/// How data are written to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    /// Columns for a person
    Table,
    /// More columns
    Wide,
    /// For a program; streams are one object a line
    Json,
    /// One JSON object a line
    Jsonl,
    /// For a program, and for a person who reads much
    Yaml,
    /// Names only, one a line, for the shell
    Name,
    /// Which fields a command answers with; nothing is run
    Help,
}

impl Shape {
    /// True when a program reads along: words about what was done then come as data.
    pub(crate) fn for_programs(self) -> bool {
        !self.for_people()
    }

    /// True when columns and sentences are wanted.
    pub(crate) fn for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide | Self::Help)
    }
}
