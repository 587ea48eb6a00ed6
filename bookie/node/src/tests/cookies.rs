//! Storage.md §12 test 18, the cookie matrix: which disk may serve under which metadata, and what the others are told.

use std::sync::Arc;

use hulse_proto::bookie::{Address, BookieCalls, BookieError};
use hulse_proto::id::{CellId, Incarnation, LedgerId, NodeName};
use hulse_proto::ledger::LedgerState;
use uuid::Uuid;

use super::support::*;
use crate::disk::memory::{MemoryDisk, Survival};
use crate::{BookieNode, NodeConfig, StartError};

struct Cell {
    disk: MemoryDisk,
    store: Arc<MapStore>,
}

async fn start(
    config: NodeConfig,
    disk: &MemoryDisk,
    cell: &Cell,
) -> Result<Arc<BookieNode>, StartError> {
    let seams = seams(Arc::new(disk.clone()), cell.store.clone(), 1);
    BookieNode::start(config, seams).await
}

/// A bookie that stored entry 0 of ledger 1, which is open, and stopped.
async fn stored() -> Cell {
    let cell = Cell {
        disk: MemoryDisk::default(),
        store: Arc::new(MapStore::default()),
    };
    let node = start(inline(), &cell.disk, &cell).await.unwrap();
    cell.store.ledger(1, LedgerState::Open, node.member());
    node.add(add(to(&node), entry(1, 0, 10))).await.unwrap();
    node.shutdown().await.unwrap();
    cell
}

fn to(node: &BookieNode) -> Address {
    Address {
        cell: CELL,
        incarnation: node.member().incarnation,
        ledger: LedgerId(1),
    }
}

/// What a start on this disk comes to: limbo, normal, or the words of a refusal.
async fn outcome(config: NodeConfig, disk: &MemoryDisk, cell: &Cell) -> String {
    let node = match start(config, disk, cell).await {
        Ok(node) => node,
        Err(error) => return error.to_string(),
    };
    let stored = node.add(add(to(&node), entry(1, 2, 10))).await;
    match (node.status().limbo_ledgers, stored) {
        (1, Err(BookieError::Limbo { .. })) => "limbo".to_owned(),
        (0, Ok(())) => "normal".to_owned(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn each_disk_of_the_matrix_serves_starts_in_limbo_or_is_refused_with_words() {
    let named = |name: &str| NodeConfig {
        name: NodeName::new(name).unwrap(),
        ..inline()
    };
    let of_cell = |cell: u128| NodeConfig {
        cell: CellId(Uuid::from_u128(cell)),
        ..inline()
    };

    let cell = stored().await;
    assert_eq!(outcome(inline(), &cell.disk, &cell).await, "normal");

    // Lost, or not mounted.
    let cell = stored().await;
    let told = outcome(inline(), &MemoryDisk::default(), &cell).await;
    assert!(told.contains("the disk is lost or not mounted"), "{told}");

    // Another bookie's disk in this slot: by its name, and by its incarnation where the name is the same.
    let told = outcome(named("bookie-2"), &cell.disk, &cell).await;
    assert!(told.contains("check the directory and the name"), "{told}");
    let other = stored().await;
    let reformatted = MemoryDisk::default();
    let seams = seams(
        Arc::new(reformatted.clone()),
        Arc::new(MapStore::default()),
        77,
    );
    let node = BookieNode::start(inline(), seams).await.unwrap();
    node.shutdown().await.unwrap();
    let told = outcome(inline(), &reformatted, &other).await;
    assert!(
        told.contains("a swapped, copied or older disk must not serve"),
        "{told}"
    );

    // Another cluster's.
    let told = outcome(of_cell(9), &cell.disk, &cell).await;
    assert!(
        told.contains("check the directory and the metadata store"),
        "{told}"
    );

    // Metadata of nowhere.
    let nowhere = Cell {
        disk: MemoryDisk::default(),
        store: Arc::new(MapStore::default()),
    };
    let told = outcome(inline(), &cell.disk, &nowhere).await;
    assert!(told.contains("metadata does not know it"), "{told}");
}

/// An older copy is put back; a copy is taken while the bookie runs, and both live on: whichever starts behind the other's boots knows
/// that it may lack what was confirmed, and does not serve the writer.
#[tokio::test]
async fn older_and_cloned_disks_start_in_limbo() {
    let cell = stored().await;
    let snapshot = cell.disk.fork();
    assert_eq!(outcome(inline(), &cell.disk, &cell).await, "normal");
    snapshot.crash(Survival::Nothing);
    assert_eq!(outcome(inline(), &snapshot, &cell).await, "limbo");

    let cell = stored().await;
    let node = start(inline(), &cell.disk, &cell).await.unwrap();
    let clone = cell.disk.fork();
    clone.crash(Survival::Everything);
    node.add(add(to(&node), entry(1, 1, 10))).await.unwrap();
    drop(node);
    // The clone is as new as metadata remember; the disk it was taken of is behind from then on.
    let started = start(inline(), &clone, &cell).await.unwrap();
    assert_eq!(started.status().boot_counter, 3);
    drop(started);
    cell.disk.crash(Survival::Nothing);
    assert_eq!(outcome(inline(), &cell.disk, &cell).await, "limbo");
    // And that start, which is counted, puts the clone behind.
    clone.crash(Survival::Nothing);
    assert_eq!(outcome(inline(), &clone, &cell).await, "limbo");
}

/// The same address, another incarnation: the writer of the old one is refused by name, and what it left is not taken for its own.
#[tokio::test]
async fn writer_of_an_earlier_incarnation_is_refused_at_the_same_address() {
    let cell = stored().await;
    let node = start(inline(), &cell.disk, &cell).await.unwrap();
    let old = Address {
        incarnation: Incarnation(Uuid::from_u128(5)),
        ..to(&node)
    };
    let refused = node.add(add(old, entry(1, 1, 10))).await;
    assert!(
        matches!(refused, Err(BookieError::WrongIncarnation { .. })),
        "{refused:?}"
    );
    let other_cell = Address {
        cell: CellId(Uuid::from_u128(5)),
        ..to(&node)
    };
    let refused = node.add(add(other_cell, entry(1, 1, 10))).await;
    assert!(
        matches!(refused, Err(BookieError::WrongCell { .. })),
        "{refused:?}"
    );
    assert_eq!(node.read(read(to(&node), 0, 2)).await.unwrap().len(), 1);
}

/// C3: a name gets a new disk, and the old one never serves again.
#[tokio::test]
async fn lost_disk_is_replaced_under_its_name_and_never_returns() {
    use hulse_proto::wire::{Message as _, metadata as wire};
    use rand::SeedableRng as _;
    let cell = stored().await;
    let config = inline();
    let key = format!("bookie/{}", config.name);
    let live = format!("node/bookie/{}", config.name);
    let before = wire::Bookie::decode(cell.store.value(&key).unwrap()).unwrap();
    let fresh = MemoryDisk::default();
    let mut rng = rand_chacha::ChaCha12Rng::seed_from_u64(77);
    let mut replaced = async |disk: &MemoryDisk| {
        let made = crate::replace(&config, disk, &*cell.store, &mut rng).await;
        made.map(|identity| identity.incarnation)
            .map_err(|error| error.to_string())
    };
    // Something runs under the name; something lies in the directory.
    cell.store
        .put(&live, wire::Node::default().encode_to_vec().into());
    assert!(
        replaced(&fresh)
            .await
            .unwrap_err()
            .contains("only a bookie that does not run")
    );
    cell.store.remove(&live);
    assert!(
        replaced(&cell.disk)
            .await
            .unwrap_err()
            .contains("not a bookie's")
    );

    let life = replaced(&fresh).await.unwrap();
    assert_ne!(life.to_bytes(), before.incarnation);
    let node = start(config.clone(), &fresh, &cell).await.unwrap();
    assert_eq!(node.member().incarnation, life);
    node.shutdown().await.unwrap();
    drop(node);
    let old = outcome(config.clone(), &cell.disk, &cell).await;
    assert!(
        old.contains("a swapped, copied or older disk must not serve"),
        "{old}"
    );

    // Retired for good, and again a new disk.
    let mut value = wire::Bookie::decode(cell.store.value(&key).unwrap()).unwrap();
    value.set_state(wire::bookie::State::Retired);
    cell.store.put(&key, value.encode_to_vec().into());
    let retired = outcome(config.clone(), &fresh, &cell).await;
    assert!(retired.contains("hulse bookie replace"), "{retired}");
    let third = MemoryDisk::default();
    replaced(&third).await.unwrap();
    let node = start(config.clone(), &third, &cell).await.unwrap();
    let value = wire::Bookie::decode(cell.store.value(&key).unwrap()).unwrap();
    assert_eq!(value.state(), wire::bookie::State::Active);
    drop(node);
    let unknown = NodeConfig {
        name: NodeName::new("nobody").unwrap(),
        ..inline()
    };
    let mut rng = rand_chacha::ChaCha12Rng::seed_from_u64(78);
    let made = crate::replace(&unknown, &MemoryDisk::default(), &*cell.store, &mut rng).await;
    assert!(
        matches!(made, Err(StartError::NeverRegistered { .. })),
        "{made:?}"
    );
}
