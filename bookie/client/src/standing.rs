//! What an owner asks about a ledger that it did not write to for a while, or could not (storage.md W15, amended D1).
//!
//! No safety rests on these looks: fences, incarnations and the bookies' own first contact (B0, B2, B3) keep a writer that has lost its
//! ledger from confirming anything. They save the first entries after a rest from an unknown fate, which is what sending them to
//! members that are gone, or that another owner fenced long ago, would give them.

use bookie_metadata::MetadataError;
use hulse_proto::ledger::{Member, Quorums};
use tokio::time::timeout;

use crate::directory::Candidate;
use crate::ledger_client::Inner;
use crate::metadata::read_ledger;
use crate::placement::Room;
use crate::writer::LedgerWriter;

/// What a look at a resting ledger found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Metadata show it open, this writer's, and all its members are registered in the lives that it names.
    Good,
    /// Metadata did not answer in time: nothing is known, and the ledger is as good as before (ARCHITECTURE D6).
    Unknown,
    /// It is no longer this writer's; the writer has ended.
    Lost,
    /// These members are gone for good, their disks with them: it should be rolled (Pulsar #26074).
    Gone(Vec<Member>),
}

pub(crate) async fn verify(inner: &Inner, writer: &LedgerWriter) -> Standing {
    let look = async {
        let found = read_ledger(&*inner.metadata, writer.ledger()).await?;
        let candidates = inner.bookies.candidates().await?;
        Ok::<_, MetadataError>((found, candidates))
    };
    let Ok(Ok((found, candidates))) = timeout(inner.config.metadata_fresh, look).await else {
        return Standing::Unknown;
    };
    let found = found.map(|(metadata, _)| metadata);
    let ensemble = found
        .as_ref()
        .map(|found| found.last_fragment().ensemble.clone());
    if !writer.recognises(found).await {
        return Standing::Lost;
    }
    let known = |member: &Member| candidates.iter().any(|found| found.member == *member);
    let gone: Vec<Member> = ensemble
        .into_iter()
        .flatten()
        .filter(|member| !known(member))
        .collect();
    match gone.is_empty() {
        true => Standing::Good,
        false => Standing::Gone(gone),
    }
}

pub(crate) async fn takes_data(
    inner: &Inner,
    of_new: Quorums,
    writer: Option<&LedgerWriter>,
) -> Result<bool, MetadataError> {
    let candidates = inner.bookies.candidates().await?;
    let metadata = writer.map(LedgerWriter::metadata);
    let quorums = metadata.as_ref().map_or(of_new, |found| found.quorums);
    let ensemble = metadata.map(|metadata| metadata.last_fragment().ensemble.clone());
    let eligible = |candidate: &&Candidate| {
        let mut members = ensemble.iter().flatten();
        ensemble.is_none() || members.any(|member| *member == candidate.member)
    };
    let registered = candidates.iter().filter(eligible).count();
    let writable = candidates
        .iter()
        .filter(eligible)
        .filter(|candidate| Room::ForData.suffices(candidate))
        .count();
    let enough = ensemble.is_some() || registered >= quorums.ensemble as usize;
    Ok(enough && writable >= quorums.ack as usize)
}
