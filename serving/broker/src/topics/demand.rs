//! What all topics together ask of bookies, for a process that keeps none of them in mind.

use bookie_metadata::{ListRequest, MetadataStore};
use hulse_proto::error::Fault;

use super::change::read;
use super::topic::{PREFIX, Topic};

/// Topics that are held at once.
const PAGE: usize = 1_000;

/// The largest ack quorum that any topic asks for by itself; 0: none does.
///
/// # Errors
/// `METADATA_UNAVAILABLE`. A record that cannot be read asks for nothing.
pub(crate) async fn most_acknowledge(store: &dyn MetadataStore) -> Result<u32, Fault> {
    let mut most = 0;
    let mut request = ListRequest {
        prefix: PREFIX.to_owned(),
        after: None,
        limit: PAGE,
        at: None,
    };
    loop {
        let page = read(store.list(request.clone())).await?;
        let topics = page.items.iter().filter_map(|row| Topic::decode(row).ok());
        let asked = topics.filter_map(|topic| topic.quorums);
        most = asked.map(|quorums| quorums.ack).fold(most, u32::max);
        request.after = page.items.last().map(|row| row.key.clone());
        if !page.more || request.after.is_none() {
            return Ok(most);
        }
    }
}
