//! Codes of the command line itself, HULSE-9xxx.

/// Exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Something failed.
    Error = 1,
    /// The command line, configuration or input cannot be meant.
    Usage = 2,
    /// The object does not exist.
    NotFound = 3,
    /// Not allowed.
    Denied = 4,
    /// The state forbids it.
    Conflict = 5,
    /// Not reached, or not in time.
    Unavailable = 6,
    /// Stored data are not what they must be.
    Verification = 7,
}

macro_rules! codes {
    ($(#[doc = $meaning:literal] $variant:ident = $number:literal, $exit:ident, $next:literal;)*) => {
        /// Failures of the command line itself. Those of the server have their numbers in the table of reasons.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// All of them, in table order.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number of HULSE-9xxx, stable for ever; the exit code; what it means; what to do.
            pub(super) fn parts(self) -> (u16, Exit, &'static str, &'static str) {
                match self {
                    $(Self::$variant => ($number, Exit::$exit, $meaning.trim_ascii(), $next),)*
                }
            }
        }
    };
}

codes! {
    /// An argument cannot be meant.
    Usage = 9001, Usage, "the command with --help shows what can be written";
    /// The configuration has faults.
    Config = 9002, Usage, "correct them; hulse config default prints every key with its meaning";
    /// A file or stream cannot be read or written.
    File = 9003, Error, "look at the file, its permissions, and the space on its disk";
    /// Input is not what the format says.
    Input = 9004, Usage, "look at the input, or say with -f how a record stands in it";
    /// What would be changed was not confirmed.
    Unconfirmed = 9005, Usage, "look at it with --dry-run, then run it again with --yes";
    /// There is no profile of this name.
    ProfileMissing = 9006, NotFound, "hulse profile list; hulse profile create NAME --server HOST:PORT";
    /// There is a profile of this name already.
    ProfileExists = 9007, Conflict, "hulse profile edit changes it, hulse profile delete removes it";
    /// What is there stands against it.
    Conflict = 9008, Conflict, "look at what is there: hulse topics describe TOPIC";
    /// The listening address is taken, or is none of this machine.
    Address = 9101, Conflict, "choose other addresses: hulse standalone --help";
    /// The data directory is held by another process.
    DataDirLocked = 9102, Conflict, "stop the other process, or name another directory with --data";
    /// The data directory cannot be written.
    DataDirReadOnly = 9103, Denied, "look at its permissions and at how its disk is mounted, or name another one with --data";
    /// The data directory holds something else, or data of another cell or version.
    DataDirForeign = 9104, Conflict, "name the directory of this node, or an empty one, with --data";
    /// The cell's record disagrees with the configuration.
    CellDisagrees = 9105, Conflict, "hulse config show --origin says where each value comes from";
    /// The metadata store cannot be opened, or does not answer.
    Metadata = 9106, Error, "look at the disk and the system log, then start again";
    /// The bookie's log failed while the server ran, or at its start.
    StorageFailed = 9107, Error, "look at the disk and the system log, then start again";
    /// The directory is no node's, or not there.
    NotADirectory = 9108, NotFound, "name the directory of node.data_dir; hulse config show --origin says which it is";
    /// No server answers at this address.
    Unreachable = 9201, Unavailable, "hulse standalone starts a server here; --server HOST:PORT names another one";
    /// No answer came in time.
    Timeout = 9202, Unavailable, "run the command again; --timeout gives it more time";
    /// What was read is not what must be there.
    Damaged = 9203, Verification, "hulse ledgers list; look at the server's log";
    /// Something that must be there is not.
    Incomplete = 9204, Verification, "hulse verify TOPIC names what is missing; hulse doctor looks for the cause";
    /// Something does not work as it should.
    Unwell = 9205, Error, "hulse doctor says what is wrong, why, and what to run next";
    /// No broker or bookie of this name runs.
    NodeMissing = 9211, NotFound, "hulse brokers list; hulse bookies list";
    /// It would make something unavailable now.
    NotSafe = 9212, Conflict, "hulse cluster health says what is not as it should be";
}
