//! The suite on the store in memory, and a model.

use std::sync::Arc;

use super::MemoryStore;
use proptest::prelude::*;

use crate::conformance;
use crate::model::{self, Step};
use crate::store::MetadataStore;

#[tokio::test(start_paused = true)]
async fn memory_store_keeps_every_promise() {
    let make = || async { Arc::new(MemoryStore::new()) as Arc<dyn MetadataStore> };
    let cases = conformance::run(make).await;
    println!("conformance of memory: {cases} cases");
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
