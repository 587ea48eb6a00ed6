//! All files of a directory, and what each says of the others: where a file before it ends, and which were taken away on purpose.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bookie_node::disk::DiskFile;
use bookie_node::log::format::{FileHeader, kind_and_number, side_name};
use bookie_node::log::{BLOCK_BYTES, FileKind};
use bookie_node::{DiskError, identity_faults};

use super::body::{self, Body};
use super::disk::ReadOnlyDisk;
use super::footer;
use crate::commands::verify::view::VerifyView;
use crate::failure::{Code, Failure};
use crate::output::{Output, Progress};

/// What a formatted bookie's directory holds.
const IDENTITY: &str = "identity";
/// The bookie's folder in a node's data directory.
const BOOKIE: &str = "bookie";

/// The directory of the log in what the user named: a node's data directory or the bookie's own. `None`: it is no directory.
pub(in crate::commands::verify) fn find(named: &Path) -> Option<PathBuf> {
    let inner = named.join(BOOKIE);
    match inner.join(IDENTITY).is_file() {
        true => Some(inner),
        false => named.is_dir().then(|| named.to_owned()),
    }
}

/// A file and what was read of it.
struct Surveyed {
    name: String,
    kind: FileKind,
    body: Option<Body>,
    /// Logical end by its own footer.
    end: Option<u64>,
}

/// Reads and judges everything.
///
/// # Errors
/// A node runs on it, it is no node's, or the directory cannot be read. What a file cannot give is a finding.
pub(in crate::commands::verify) fn verify(
    named: &str,
    folder: &Path,
    output: Output,
) -> Result<VerifyView, Failure> {
    if !folder.join(IDENTITY).is_file() {
        return Err(Failure::new(Code::NotADirectory, "this is no data directory of a node")
            .why(format!("there is no {BOOKIE}/{IDENTITY} in it"))
            .object(folder.display())
            .next("name the directory of node.data_dir; with --topic a topic of this name is meant"));
    }
    let disk = ReadOnlyDisk::open(folder)?;
    let mut view = VerifyView {
        target: named.to_owned(),
        kind: "directory".to_owned(),
        clean: true,
        ..VerifyView::default()
    };
    for fault in identity_faults(&|name| disk.file(name)) {
        view.found("damage", fault.name(), fault.to_string());
    }
    let mut files = BTreeMap::new();
    let names: Vec<(FileKind, u64, String)> = disk
        .list()?
        .into_iter()
        .filter_map(|name| kind_and_number(&name).map(|(kind, number)| (kind, number, name)))
        .collect();
    let mut progress = Progress::new(output, "reading files", Some(names.len() as u64));
    for (done, (kind, number, name)) in names.into_iter().enumerate() {
        progress.at(done as u64);
        let surveyed = survey(&disk, kind, number, &name, &mut view);
        let surveyed = surveyed.unwrap_or_else(|error| {
            view.found("damage", &name, error.to_string());
            None
        });
        let surveyed = surveyed.unwrap_or(Surveyed {
            name,
            kind,
            body: None,
            end: None,
        });
        files.insert(number, surveyed);
    }
    drop(progress);
    judge(&files, &mut view);
    let bodies = || files.values().filter_map(|file| file.body.as_ref());
    view.files = Some(files.len() as u64);
    view.groups = Some(bodies().map(|body| body.groups).sum());
    view.entries = Some(bodies().map(|body| body.entries).sum());
    let written = |file: &&Surveyed| {
        let body = file.body.as_ref();
        file.kind == FileKind::Log && body.is_some_and(|body| body.groups > 0)
    };
    if let Some(last) = files.values().rev().find(written) {
        view.last_file = Some(last.name.clone());
        view.last_byte = last.body.as_ref().map(|body| body.end);
    }
    view.bytes = bodies().map(|body| body.bytes).sum();
    Ok(view)
}

/// Reads one file; `None` when its header is not to be believed, which is told.
fn survey(
    disk: &ReadOnlyDisk,
    kind: FileKind,
    number: u64,
    name: &str,
    view: &mut VerifyView,
) -> Result<Option<Surveyed>, DiskError> {
    let file = disk.file(name)?;
    let header = match FileHeader::decode(&file.read_at(0, BLOCK_BYTES)?) {
        Ok(header) if header.file == number && header.kind == kind => header,
        Ok(header) => {
            let words = format!("its header is that of file {}", header.file);
            view.found("damage", name, words);
            return Ok(None);
        }
        Err(error) => {
            view.found("damage", name, error.to_string());
            return Ok(None);
        }
    };
    let end = sealed_end(disk, number, name, &file, view);
    let limit = end.unwrap_or(file.bytes()?);
    let body = body::read(&file, header.salt, limit)?;
    Ok(Some(Surveyed {
        name: name.to_owned(),
        kind,
        body: Some(body),
        end,
    }))
}

/// Where the body ends by the footer, behind it or in a file of its own.
fn sealed_end(
    disk: &ReadOnlyDisk,
    number: u64,
    name: &str,
    file: &Arc<dyn DiskFile>,
    view: &mut VerifyView,
) -> Option<u64> {
    let side = side_name(number);
    let own = footer::read(number, file.as_ref());
    let found = match own {
        Ok(None) => disk
            .file(&side)
            .ok()
            .map(|file| (side.as_str(), footer::read(number, file.as_ref()))),
        own => Some((name, own)),
    };
    match found {
        Some((_, Ok(Some(sealed)))) => Some(sealed.footer.end),
        Some((name, Err(why))) => {
            view.found("damage", name, format!("the footer: {why}"));
            None
        }
        _ => None,
    }
}

/// What the files say together.
fn judge(files: &BTreeMap<u64, Surveyed>, view: &mut VerifyView) {
    let mut seals = BTreeMap::new();
    let mut removed = Vec::new();
    // The newest statement counts.
    for file in files.values() {
        if let Some(body) = &file.body {
            seals.extend(body.seals.iter().map(|(file, end)| (*file, *end)));
            removed.extend(body.removed.iter().copied());
        }
    }
    let last = files.keys().next_back().copied().unwrap_or(0);
    // Behind the file that is being written may stand one that is made ready and holds nothing yet.
    let is_written = |file: &Surveyed| {
        let body = file.body.as_ref();
        file.kind == FileKind::Log && body.is_none_or(|body| body.groups > 0)
    };
    let last_log = files.iter().rev().find(|(_, file)| is_written(file));
    let last_log = last_log.map_or(0, |(number, _)| *number);
    for number in 0..=last {
        let gone = removed
            .iter()
            .any(|(first, end)| (*first..*end).contains(&number));
        match files.get(&number) {
            // A file that never counted.
            Some(_) if seals.get(&number) == Some(&0) => {}
            Some(file) => judge_file(file, seals.get(&number).copied(), number >= last_log, view),
            None if gone || seals.get(&number) == Some(&0) || files.is_empty() => {}
            None => view.found(
                "damage",
                format!("file {number}"),
                "it is not there, and nothing says that it was removed on purpose",
            ),
        }
    }
}

fn judge_file(file: &Surveyed, seal: Option<u64>, is_last: bool, view: &mut VerifyView) {
    let Some(body) = &file.body else {
        return;
    };
    let end = file.end.or(seal);
    for (at, words) in &body.damage {
        if end.is_none_or(|end| *at < end) {
            view.found("damage", &file.name, words.clone());
        }
    }
    let stopped = match &body.stopped {
        Some((at, why)) => (*at, why.clone()),
        None => (body.end, "the file ends".to_owned()),
    };
    match end {
        Some(end) if stopped.0 < end => view.found(
            "damage",
            &file.name,
            format!(
                "groups end at {} and not at {end}: {}",
                stopped.0, stopped.1
            ),
        ),
        Some(_) => {}
        // Its name was given when all of it, with its footer, was durable.
        None if file.kind == FileKind::Compacted => view.found(
            "damage",
            &file.name,
            format!(
                "nothing says where it ends; its groups end at {}",
                stopped.0
            ),
        ),
        // The last one has no end yet; any other was left behind by a crash, and the next start says where it ended.
        None if is_last => {}
        None => view.found(
            "damage",
            &file.name,
            format!(
                "no later file says where it ends; its groups end at {}",
                stopped.0
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacted_file_that_was_cut_off_is_damaged() {
        let cut = Surveyed {
            name: "00000007.cmp".to_owned(),
            kind: FileKind::Compacted,
            body: Some(Body::default()),
            end: None,
        };
        for (seal, findings) in [(None, 1), (Some(0), 0)] {
            let mut view = VerifyView::default();
            judge_file(&cut, seal, true, &mut view);
            assert_eq!(view.finding.len(), findings);
        }
    }
}
