//! Who this disk is: two small files of `name = value` lines with a checksum (storage.md C1, C4).
//!
//! `identity` is written once by the format (and when the sync mode changes), `boot` at each start and clean stop. Both are
//! replaced whole: tmp, sync, rename, sync of the directory.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::entry::crc32c;
use hulse_proto::id::{CellId, Incarnation, NodeName};
use uuid::Uuid;

use crate::config::SyncMode;
use crate::disk::{Disk, DiskError, DiskErrorKind, DiskFile};
use crate::log::DiskIdentity;

/// Name of the identity file.
pub const IDENTITY_NAME: &str = "identity";
const BOOT_NAME: &str = "boot";
/// Version of both files that is written and read.
const FORMAT_VERSION: u32 = 1;
/// No such file is longer.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// Content of `identity`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cell: CellId,
    /// The node.
    pub name: NodeName,
    /// This life of the disk.
    pub incarnation: Incarnation,
    /// The disk.
    pub disk: Uuid,
    /// How what is on it was confirmed.
    pub sync: SyncMode,
    /// Metadata knows it: the format is finished.
    pub registered: bool,
}

impl Identity {
    /// What stands in every log file's header.
    pub fn of_disk(&self) -> DiskIdentity {
        DiskIdentity {
            cell: self.cell,
            incarnation: self.incarnation,
            disk: self.disk,
        }
    }
}

/// Content of `boot`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Boot {
    /// Starts so far.
    pub counter: u64,
    /// Kernel that took the writes of this boot.
    pub kernel: String,
    /// Stopped after a last sync.
    pub clean: bool,
}

/// Why an identity or boot file is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Checksum or a field is wrong.
    #[error("file {name} is damaged: {why}")]
    Damaged {
        /// The file.
        name: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A newer version.
    #[error("file {name} has format version {found}; this build reads version {FORMAT_VERSION}")]
    Version {
        /// The file.
        name: &'static str,
        /// Its version.
        found: String,
    },
}

impl IdentityError {
    /// The file that is not believed.
    pub fn name(&self) -> &str {
        match self {
            Self::Disk(error) => &error.name,
            Self::Damaged { name, .. } | Self::Version { name, .. } => name,
        }
    }
}

type Fields = BTreeMap<String, String>;

/// Opens a file of a directory for reading.
type Open<'a> = &'a dyn Fn(&str) -> Result<Arc<dyn DiskFile>, DiskError>;

/// What is wrong with the identity and boot files of a directory that `open` looks into; a missing boot file is fine.
pub fn identity_faults(open: Open<'_>) -> Vec<IdentityError> {
    let faults = [identity(open).err(), boot(open).err()];
    faults.into_iter().flatten().collect()
}

/// Reads `identity`; `None` when there is none.
///
/// # Errors
/// [`IdentityError`].
pub fn read_identity(disk: &dyn Disk) -> Result<Option<Identity>, IdentityError> {
    identity(&|name| disk.open(name))
}

fn identity(open: Open<'_>) -> Result<Option<Identity>, IdentityError> {
    let Some(fields) = read(open, IDENTITY_NAME)? else {
        return Ok(None);
    };
    let field = |key| parse::<String>(&fields, IDENTITY_NAME, key);
    let name = NodeName::new(&field("name")?).map_err(|error| IdentityError::Damaged {
        name: IDENTITY_NAME,
        why: error.to_string(),
    })?;
    Ok(Some(Identity {
        cell: CellId(parse(&fields, IDENTITY_NAME, "cell")?),
        name,
        incarnation: Incarnation(parse(&fields, IDENTITY_NAME, "incarnation")?),
        disk: parse(&fields, IDENTITY_NAME, "disk")?,
        sync: parse_sync(&field("sync")?)?,
        registered: parse(&fields, IDENTITY_NAME, "registered")?,
    }))
}

/// Writes `identity`; durable on return.
///
/// # Errors
/// Of the disk.
pub fn write_identity(disk: &dyn Disk, identity: &Identity) -> Result<(), DiskError> {
    let sync = match identity.sync {
        SyncMode::Always => "always".to_owned(),
        SyncMode::Interval(every) => format!("interval:{}", every.as_millis()),
        SyncMode::Off => "off".to_owned(),
    };
    let fields = [
        ("cell", identity.cell.to_string()),
        ("name", identity.name.to_string()),
        ("incarnation", identity.incarnation.to_string()),
        ("disk", identity.disk.to_string()),
        ("sync", sync),
        ("registered", identity.registered.to_string()),
    ];
    write(disk, IDENTITY_NAME, &fields)
}

/// Reads `boot`; the default when there is none.
///
/// # Errors
/// [`IdentityError`].
pub fn read_boot(disk: &dyn Disk) -> Result<Boot, IdentityError> {
    boot(&|name| disk.open(name))
}

fn boot(open: Open<'_>) -> Result<Boot, IdentityError> {
    let Some(fields) = read(open, BOOT_NAME)? else {
        return Ok(Boot::default());
    };
    Ok(Boot {
        counter: parse(&fields, BOOT_NAME, "counter")?,
        kernel: parse(&fields, BOOT_NAME, "kernel")?,
        clean: parse(&fields, BOOT_NAME, "clean")?,
    })
}

/// Writes `boot`; durable on return.
///
/// # Errors
/// Of the disk.
pub fn write_boot(disk: &dyn Disk, boot: &Boot) -> Result<(), DiskError> {
    let fields = [
        ("counter", boot.counter.to_string()),
        ("kernel", boot.kernel.clone()),
        ("clean", boot.clean.to_string()),
    ];
    write(disk, BOOT_NAME, &fields)
}

/// After a failed sync the page cache shows bytes that the disk may never get (fsyncgate). So that this kernel still runs proves
/// nothing to the next start any more (amended B5). As good as a failing disk can do it: an error changes nothing.
pub fn forget_kernel(disk: &dyn Disk) {
    if let Ok(mut boot) = read_boot(disk) {
        boot.kernel.clear();
        let _ = write_boot(disk, &boot);
    }
}

fn write(disk: &dyn Disk, name: &str, fields: &[(&str, String)]) -> Result<(), DiskError> {
    let mut text =
        format!("# Hulse bookie {name}. Not to be edited.\nformat_version = {FORMAT_VERSION}\n");
    for (key, value) in fields {
        text.push_str(&format!("{key} = {value}\n"));
    }
    text.push_str(&format!("crc32c = {:08x}\n", crc32c(text.as_bytes())));
    match replace(disk, name, &text) {
        Err(error) if error.kind == DiskErrorKind::Full && name == BOOT_NAME => {
            overwrite(disk, name, &text).map_err(|_| error)
        }
        other => other,
    }
}

fn replace(disk: &dyn Disk, name: &str, text: &str) -> Result<(), DiskError> {
    let tmp = format!("{name}.tmp");
    disk.remove(&tmp)?;
    let file = disk.create(&tmp, 0)?;
    if let Err(error) = file.write_at(0, text.as_bytes()) {
        if error.kind == DiskErrorKind::Full {
            disk.remove(&tmp)?;
        }
        return Err(error);
    }
    file.sync()?;
    disk.rename(&tmp, name)?;
    disk.sync_dir()
}

/// On a disk without any room (storage.md E5): over the old text, whose block is there. If the machine dies meanwhile the file may be
/// damaged, which only says that nothing speaks for a clean stop; the counter is in metadata, too.
fn overwrite(disk: &dyn Disk, name: &str, text: &str) -> Result<(), DiskError> {
    let file = disk.open(name)?;
    file.write_at(0, text.as_bytes())?;
    file.truncate(text.len() as u64)?;
    file.sync()
}

fn read(open: Open<'_>, name: &'static str) -> Result<Option<Fields>, IdentityError> {
    let damaged = |why: &str| IdentityError::Damaged {
        name,
        why: why.to_owned(),
    };
    let file = match open(name) {
        Err(error) if error.kind == DiskErrorKind::Missing => return Ok(None),
        other => other?,
    };
    let bytes = file.bytes()?;
    if bytes > FILE_BYTES_MAX {
        return Err(damaged("it is too long"));
    }
    let text = String::from_utf8(file.read_at(0, bytes as usize)?)
        .map_err(|_| damaged("it is not text"))?;
    let (body, crc) = text
        .rsplit_once("crc32c = ")
        .ok_or_else(|| damaged("it has no checksum"))?;
    if u32::from_str_radix(crc.trim_end(), 16) != Ok(crc32c(body.as_bytes())) {
        return Err(damaged("its checksum is wrong"));
    }
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    let fields: Fields = lines
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let found = fields.get("format_version").map_or("none", String::as_str);
    match found == FORMAT_VERSION.to_string() {
        true => Ok(Some(fields)),
        false => Err(IdentityError::Version {
            name,
            found: found.to_owned(),
        }),
    }
}

fn parse<T: FromStr>(fields: &Fields, name: &'static str, key: &str) -> Result<T, IdentityError> {
    let value = fields.get(key).and_then(|value| value.parse().ok());
    value.ok_or_else(|| IdentityError::Damaged {
        name,
        why: format!("{key} is missing or malformed"),
    })
}

fn parse_sync(text: &str) -> Result<SyncMode, IdentityError> {
    let interval = text
        .strip_prefix("interval:")
        .and_then(|ms| ms.parse().ok());
    match (text, interval) {
        ("always", _) => Ok(SyncMode::Always),
        ("off", _) => Ok(SyncMode::Off),
        (_, Some(ms)) => Ok(SyncMode::Interval(Duration::from_millis(ms))),
        _ => Err(IdentityError::Damaged {
            name: IDENTITY_NAME,
            why: format!("sync is {text:?}"),
        }),
    }
}
