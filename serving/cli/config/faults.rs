//! Everything that is wrong with a configuration, each with its place.

use std::fmt;
use std::path::PathBuf;

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a file, at this line where it could be found.
    File(PathBuf, Option<usize>),
    /// In an environment variable.
    Variable(String),
    /// In a flag.
    Flag(String),
    /// Nowhere: it is built in, for nodes of a cluster.
    Cluster,
    /// Nowhere: it is built in.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, Some(line)) => write!(f, "{}:{line}", path.display()),
            Self::File(path, None) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Cluster => f.write_str("default of a cluster"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigFault {
    /// Where.
    pub(crate) place: Place,
    /// Key or variable; empty when the whole file is meant.
    pub(crate) name: String,
    /// What is wrong.
    pub(crate) why: String,
    /// The nearest right name, for an unknown one.
    pub(crate) nearest: Option<String>,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.name.is_empty() {
            write!(f, "{}: ", self.name)?;
        }
        f.write_str(&self.why)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => Ok(()),
        }
    }
}

/// All faults of a configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigFaults(pub(crate) Vec<ConfigFault>);

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}
