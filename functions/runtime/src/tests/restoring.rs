//! What a restore refuses, and what it falls back on.

use super::world::{Plan, World, partition};
use crate::TaskFailure;
use crate::seam::{SnapshotStore, Transactions};
use crate::task::{Producer, is_orphan};
use crate::testing::{Doors, Faults, ready};

fn quiet(seed: u64) -> World {
    let plan = Plan {
        seed,
        partitions: 2,
        orders: 300,
        faults: Faults::default(),
        crash: 0,
        odd: false,
        mutant: None,
    };
    World::new(plan)
}

fn doors(world: &World) -> Doors {
    let chance = rand::SeedableRng::seed_from_u64(1);
    Doors::new(
        world.cluster.clone(),
        std::sync::Arc::new(std::sync::Mutex::new(chance)),
        Faults::default(),
    )
}

/// Objects, newest last.
fn snapshots(world: &World) -> Vec<String> {
    let mut names: Vec<_> = world.cluster.lock().unwrap().objects().cloned().collect();
    let epoch = |name: &String| {
        name.rsplit('-')
            .next()
            .and_then(|end| end.split('.').next()?.parse::<u64>().ok())
    };
    names.sort_by_key(epoch);
    names
}

#[test]
fn damaged_snapshot_is_passed_over_and_without_any_nothing_runs() {
    let mut world = quiet(3);
    world.run().unwrap();
    let names = snapshots(&world);
    // Two are kept; a third may wait for an epoch that publishes it, and nobody reads that one.
    assert!((2..=3).contains(&names.len()), "{names:?}");
    assert!(world.cluster.lock().unwrap().changelog_start() > 0);
    let mut store = doors(&world);
    for name in &names[1..] {
        let mut object = ready(store.get(name)).unwrap().unwrap().to_vec();
        let middle = object.len() / 2;
        object[middle] ^= 1;
        ready(store.put(name, object.into())).unwrap();
    }
    world.crash();
    world.calm().unwrap();
    super::checker::check(&world).unwrap();
    // The older one is gone too: the changelog does not reach back to the beginning.
    for name in snapshots(&world) {
        ready(store.delete(&name)).unwrap();
    }
    world.crash();
    let failure = world.calm().unwrap_err();
    assert!(
        matches!(failure, TaskFailure::Incomplete { .. }),
        "{failure}"
    );
}

#[test]
fn offsets_that_disagree_fail_with_both_values() {
    let mut world = quiet(4);
    world.run().unwrap();
    let mut outside = doors(&world);
    ready(outside.fence()).unwrap();
    ready(outside.begin()).unwrap();
    ready(outside.commit_offsets([(partition(1), 3)].into())).unwrap();
    ready(outside.commit()).unwrap();
    world.crash();
    let failure = world.calm().unwrap_err();
    let end = world.cluster.lock().unwrap().input(partition(1)).len() as u64;
    let expected = TaskFailure::OffsetsDisagree {
        partition: partition(1),
        changelog: Some(end),
        group: Some(3),
    };
    assert_eq!(failure, expected);
}

#[test]
fn state_of_another_function_is_refused() {
    let mut world = quiet(5);
    world.run().unwrap();
    let mut outside = doors(&world);
    ready(outside.fence()).unwrap();
    ready(outside.begin()).unwrap();
    let meta = crate::codec::changelog::Meta::start(Default::default());
    let record = crate::codec::changelog::ChangelogRecord::Meta(meta);
    let other = crate::Fingerprint::of("income v2");
    ready(outside.append(vec![record.encode(other).unwrap()])).unwrap();
    ready(outside.commit()).unwrap();
    world.crash();
    let failure = world.calm().unwrap_err();
    assert!(
        matches!(failure, TaskFailure::OtherFunction { stored, .. } if stored == other),
        "{failure}"
    );
}

#[test]
fn fenced_task_ends_and_says_so() {
    let mut world = quiet(6);
    for _ in 0..20 {
        world.step().unwrap();
    }
    ready(doors(&world).fence()).unwrap();
    let mut last = true;
    for _ in 0..20 {
        last = ready(world.current.step());
        world.cluster.lock().unwrap().append_input(
            partition(0),
            1_000_000,
            None,
            super::income::order(1, 1),
        );
    }
    assert!(!last);
    let failure = world.current.task().failure().unwrap();
    assert_eq!(
        failure.to_string(),
        "another worker took over fn/income_per_minute/1/0/0"
    );
}

#[test]
fn only_what_an_older_producer_left_is_an_orphan() {
    let by = Producer { id: 7, epoch: 3 };
    let keep = ["fn/a/7-1-9.snapshot".to_owned()];
    for (path, expected) in [
        ("fn/a/7-2-9.snapshot", true),
        ("fn/a/6-9-9.snapshot", true),
        ("fn/a/7-3-9.snapshot", false),
        ("fn/a/7-4-9.snapshot", false),
        ("fn/a/8-0-9.snapshot", false),
        ("fn/a/7-1-9.snapshot", false),
        ("fn/a/notes.txt", false),
        ("fn/b/7-2-9.snapshot", false),
    ] {
        assert_eq!(is_orphan(path, "fn/a/", by, &keep), expected, "{path}");
    }
}
