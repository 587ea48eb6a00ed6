//! What operators say of this bookie, in its registration (storage.md C7): looked at by a watch, and now and then.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bookie_metadata::{MetadataError, MetadataStore, Revision};
use futures::StreamExt as _;
use hulse_proto::ledger::Member;
use hulse_proto::wire::metadata as wire;
use prost::Message as _;
use tokio::time::{sleep, timeout};

use super::shared::Shared;
use crate::core::{Event, Withdrawn};

/// A watch is a hint (storage.md Z4): the key is read again after this, whatever came of it.
const LOOK: Duration = Duration::from_secs(30);
/// After metadata did not answer, or a watch ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Runs until the node is gone.
pub(super) async fn run(shared: Weak<Shared>, metadata: Arc<dyn MetadataStore>, me: Member) {
    let key = format!("bookie/{}", me.bookie);
    let mut known = Withdrawn::No;
    loop {
        let looked = look(&*metadata, &key, &me).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let seen = match looked {
            Ok((withdrawn, revision)) => {
                if std::mem::replace(&mut known, withdrawn) != withdrawn {
                    match withdrawn.refusal() {
                        Some(why) => tracing::warn!(why, "no more records are taken"),
                        None => tracing::info!("records are taken again"),
                    }
                    shared.feed(Event::Withdrawn(withdrawn));
                }
                Some(revision)
            }
            // Silence changes nothing.
            Err(error) => {
                tracing::debug!(%error, "the bookie's registration cannot be looked at");
                None
            }
        };
        // Not kept alive for the time of a wait.
        drop(shared);
        let Some(revision) = seen else {
            sleep(LOOK_AGAIN).await;
            continue;
        };
        let mut changes = metadata.watch(&key, revision);
        if let Ok(None | Some(Err(_))) = timeout(LOOK, changes.next()).await {
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// The operator's word, and the version in which it stands. A registration of another life withdraws this one for good.
async fn look(
    metadata: &dyn MetadataStore,
    key: &str,
    me: &Member,
) -> Result<(Withdrawn, Revision), MetadataError> {
    use wire::bookie::State;
    let Some(found) = metadata.get(key).await? else {
        return Ok((Withdrawn::Leaving, Revision(0)));
    };
    let value = wire::Bookie::decode(&found.value[..]).map_err(|error| MetadataError::Corrupt {
        why: format!("{key}: {error}"),
    })?;
    let withdrawn = match value.state() {
        _ if value.incarnation != me.incarnation.to_bytes() => Withdrawn::Leaving,
        State::Active | State::Unspecified => Withdrawn::No,
        State::ReadOnly => Withdrawn::ReadOnly,
        State::Draining | State::Retired | State::Lost => Withdrawn::Leaving,
    };
    Ok((withdrawn, found.version))
}
