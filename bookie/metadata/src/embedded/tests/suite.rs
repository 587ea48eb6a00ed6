//! The suite on files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::disk::Disk;
use super::workload;
use crate::conformance;
use crate::embedded::{EmbeddedOptions, EmbeddedStore};
use crate::model::{self, Step};
use crate::store::MetadataStore;

#[tokio::test(start_paused = true)]
async fn embedded_store_keeps_every_promise() {
    let directory = tempfile::tempdir().unwrap();
    let next = AtomicU32::new(0);
    let make = || async {
        let name = format!("{}.redb", next.fetch_add(1, Ordering::Relaxed));
        let path = directory.path().join(name);
        let store = EmbeddedStore::open(path, EmbeddedOptions::default()).unwrap();
        Arc::new(store) as Arc<dyn MetadataStore>
    };
    let cases = conformance::run(make).await;
    println!("conformance of embedded: {cases} cases");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn embedded_store_keeps_its_promises_on_many_threads() {
    let directory = tempfile::tempdir().unwrap();
    // Those about leases wait for seconds when the clock is real.
    let quick = |case: &&conformance::Case| !case.sentence.contains("lease");
    let mut cases = 0;
    for case in conformance::CASES.iter().filter(quick) {
        let path = directory.path().join(case.sentence);
        let store = EmbeddedStore::open(path, EmbeddedOptions::default()).unwrap();
        (case.check)(Arc::new(store)).await;
        cases += 1;
    }
    println!("conformance of embedded on many threads: {cases} cases");
    assert!(cases > 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn embedded_store_agrees_with_the_model(steps in prop::collection::vec(model::step(), 1..60)) {
        check(steps);
    }
}

fn check(steps: Vec<Step>) {
    let store = workload::open(&Disk::with(workload::formatted())).unwrap();
    model::runtime().block_on(model::check(&store, steps));
}
