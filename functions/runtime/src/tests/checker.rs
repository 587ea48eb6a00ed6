//! What must hold of the topics after any run, whatever went wrong in it (compute.md D2).

use std::collections::BTreeMap;

use super::income::{cents, income, minute_end};
use super::world::{World, partition};
use crate::record::{Destination, InputRecord};

/// Says what does not hold. Reads the topics as anybody would: read_committed.
pub fn check(world: &World) -> Result<(), String> {
    let cluster = world.cluster.lock().unwrap();
    if !cluster.is_settled() {
        return Err("a transaction is open".to_owned());
    }
    let rows = cluster.committed(Destination::Output(0));
    let mut left: BTreeMap<(u32, u64), &InputRecord> = BTreeMap::new();
    for at in 0..world.plan.partitions {
        left.extend(
            cluster
                .input(partition(at))
                .iter()
                .map(|record| ((at, record.offset), record)),
        );
    }
    // Late records and dead letters: each was read, once, and says where.
    for (destination, kind) in [
        (Destination::Late, "late"),
        (Destination::DeadLetter, "decode"),
    ] {
        for letter in cluster.committed(destination) {
            let header = |name: &str| {
                let found = letter.headers.iter().find(|(header, _)| header == name);
                let value = found
                    .and_then(|(_, value)| value.clone())
                    .unwrap_or_default();
                String::from_utf8(value.to_vec()).unwrap_or_default()
            };
            if header("x-error-kind") != kind {
                return Err(format!(
                    "a letter of {destination:?} says {}",
                    header("x-error-kind")
                ));
            }
            let at = (
                header("x-error-partition").parse().unwrap(),
                header("x-error-offset").parse().unwrap(),
            );
            match left.remove(&at) {
                Some(record) if record.value == letter.value => {}
                Some(_) => return Err(format!("{kind} {at:?} has another value")),
                None => return Err(format!("{kind} {at:?} comes twice, or is nobody's")),
            }
        }
    }
    let poison = left
        .values()
        .filter(|record| cents(record).is_none())
        .count();
    if poison > 0 {
        return Err(format!("{poison} poison records have no letter"));
    }
    // A record of the future is in no row.
    let future = |record: &&InputRecord| record.timestamp > record.append_time + 3_600_000;
    let stray = left.values().filter(|record| future(record)).count() as u64;
    let counted = world
        .current
        .task()
        .meta()
        .map_or(0, |meta| meta.counters.future);
    if counted != stray {
        return Err(format!("{stray} records of the future, {counted} counted"));
    }
    let mut expected: BTreeMap<i64, (i64, u64)> = BTreeMap::new();
    for record in left.values().filter(|record| !future(record)) {
        let minute = expected.entry(minute_end(record.timestamp)).or_default();
        minute.0 += cents(record).unwrap_or(0);
        minute.1 += 1;
    }
    rows_equal(&rows, expected)?;
    offsets_agree(world, &cluster)
}

/// One row per minute, the right one.
fn rows_equal(rows: &[InputRecord], mut expected: BTreeMap<i64, (i64, u64)>) -> Result<(), String> {
    for (end, revenue, orders) in rows.iter().map(income) {
        match expected.remove(&end) {
            Some(right) if right == (revenue, orders) => {}
            Some(right) => {
                return Err(format!(
                    "minute {end}: {revenue} of {orders} orders, not {right:?}"
                ));
            }
            None => return Err(format!("minute {end} comes twice, or has no orders")),
        }
    }
    match expected.first_key_value() {
        None => Ok(()),
        Some((end, right)) => Err(format!("minute {end} is missing: {right:?}")),
    }
}

/// What the group says is consumed is what the task says, and the end of the topic.
fn offsets_agree(world: &World, cluster: &crate::testing::Cluster) -> Result<(), String> {
    for at in 0..world.plan.partitions {
        let at = partition(at);
        let end = cluster.input(at).len() as u64;
        let group = cluster.group().get(&at).copied();
        let meta = world
            .current
            .task()
            .meta()
            .and_then(|meta| meta.offsets.get(&at).copied());
        if group != Some(end) || meta != Some(end) {
            return Err(format!(
                "partition {at}: group {group:?}, task {meta:?}, end {end}"
            ));
        }
    }
    Ok(())
}

/// Rows that were late although they were within the bound: nothing in these runs may make one so.
pub fn late_within_bound(world: &World) -> usize {
    let cluster = world.cluster.lock().unwrap();
    let late = cluster.committed(Destination::Late);
    let within = late.iter().filter(|record| {
        let at = |name: &str| {
            let found = record.headers.iter().find(|(header, _)| header == name);
            let value = found.and_then(|(_, value)| value.clone()).unwrap();
            String::from_utf8(value.to_vec())
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let read = &cluster.input(partition(at("x-error-partition") as u32))
            [at("x-error-offset") as usize];
        read.timestamp >= read.append_time - super::world::DELAY_MS
    });
    within.count()
}
