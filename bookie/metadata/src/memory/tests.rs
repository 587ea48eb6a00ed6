//! The suite on the store in memory, and a model.

use std::sync::Arc;

use super::MemoryStore;
use futures::StreamExt;
use proptest::prelude::*;

use crate::basis::history::CHANGES_MAX;
use crate::conformance;
use crate::model::{self, Step};
use crate::store::{MetadataError, MetadataStore, Op, Revision, Txn};

#[tokio::test(start_paused = true)]
async fn memory_store_keeps_every_promise() {
    let make = || async { Arc::new(MemoryStore::new()) as Arc<dyn MetadataStore> };
    let cases = conformance::run(make).await;
    println!("conformance of memory: {cases} cases");
}

/// Watches here pull: one that nobody reads holds no event, so after the history went on it has none to show.
#[tokio::test]
async fn watch_that_fell_behind_holds_nothing() {
    let store = MemoryStore::new();
    let mut slow = store.watch("", Revision(0));
    for n in 0..=CHANGES_MAX {
        let ops = vec![Op::put("k", n.to_string())];
        let compares = Vec::new();
        store.txn(Txn { compares, ops }).await.unwrap();
    }
    let first = slow.next().await;
    let compacted = matches!(first, Some(Err(MetadataError::Compacted { .. })));
    assert!(compacted, "{first:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn memory_store_agrees_with_the_model(steps in prop::collection::vec(model::step(), 1..60)) {
        check(steps);
    }
}

fn check(steps: Vec<Step>) {
    model::runtime().block_on(model::check(&MemoryStore::new(), steps));
}
