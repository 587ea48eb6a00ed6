//! When a ledger's ensemble has changed too often (storage.md W15).

use std::time::Duration;

use super::scene::{Scene, limbo};
use crate::tests::member;

/// Confirms one entry and replaces the member at position 2.
fn change(scene: &mut Scene, spare: usize) {
    scene.bench.append(1);
    let entry = scene.bench.core.appended_end().0 - 1;
    scene.bench.ack(entry, 0);
    scene.bench.ack(entry, 1);
    scene.bench.answer(entry, 2, Err(limbo()));
    scene.survey(&[spare]);
    let txn = scene.sent().unwrap();
    scene.commit(txn);
    assert_eq!(
        scene.metadata().last_fragment().ensemble[2],
        member(spare),
        "{spare}"
    );
}

#[test]
fn sixteen_fragments_wear_a_ledger() {
    let mut scene = Scene::new(2, None);
    for round in 0..15 {
        assert!(!scene.bench.core.is_worn(), "after {round} changes");
        change(&mut scene, 3 + round);
        scene.bench.pass(Duration::from_secs(20));
    }
    assert_eq!(scene.metadata().fragments.len(), 16);
    assert!(scene.bench.core.is_worn());
}

#[test]
fn many_changes_within_a_minute_wear_a_ledger_and_spread_ones_do_not() {
    for (pause, worn) in [(5, true), (9, false)] {
        let mut scene = Scene::new(2, None);
        for round in 0..8 {
            assert!(!scene.bench.core.is_worn());
            change(&mut scene, 3 + round);
            scene.bench.pass(Duration::from_secs(pause));
        }
        assert_eq!(scene.bench.core.is_worn(), worn);
    }
}

/// W10 takes nobody twice, so a ledger that outlived all spares would stay degraded for as long as it lives.
#[test]
fn ledger_whose_only_spares_failed_in_it_is_worn() {
    let mut scene = Scene::new(2, None);
    change(&mut scene, 3);
    scene.bench.append(1);
    scene.bench.answer(1, 2, Err(limbo()));
    // Member 2 is back, but it failed here; and then there is really nobody.
    scene.survey(&[]);
    assert!(scene.sent().is_none());
    assert!(scene.bench.core.is_worn());
}

#[test]
fn ledger_without_any_spare_is_not_worn() {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    scene.bench.answer(0, 2, Err(limbo()));
    scene.survey(&[]);
    assert!(!scene.bench.core.is_worn());
}
