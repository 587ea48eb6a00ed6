//! Passes over what is there of a cell: very many ledgers, ledgers in very many pieces, and what an operator gave up.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::list_registrations;
use bookie_metadata::{MetadataStore as _, Op, Txn};
use hulse_proto::id::{EntryId, LedgerId, NodeName};
use hulse_proto::ledger::{ClosedTotals, Loss, LossKind, Quorums, ledger_key};

use super::{Audited, Auditor, Fleet, Want};
use crate::repair::{RepairEnd, RepairTask, repair};
use crate::tests::{CELL, Cell};

async fn pass(cell: &Cell) -> Audited {
    let registered = list_registrations(&cell.store).await.unwrap();
    let mut fleet = Fleet::new(Duration::from_secs(600));
    fleet.update(registered, Duration::ZERO);
    let auditor = Auditor {
        cell: CELL,
        metadata: Arc::new(cell.store.clone()),
        bookies: cell.directory(),
        answer_timeout: Duration::from_secs(1),
    };
    auditor.pass(&fleet, Duration::ZERO).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn very_many_ledgers_are_counted_and_the_findings_stay_bounded() {
    const LEDGERS: u64 = 40_000;
    let cell = Cell::new(4).await;
    let model = cell.closed(1).await;
    let mut metadata = cell.metadata(model).await;
    // On three bookies that nobody knows any more: three findings each.
    for (index, member) in metadata.fragments[0].ensemble.iter_mut().enumerate() {
        member.bookie = NodeName::new(&format!("gone-{index}")).unwrap();
    }
    let totals = metadata.closed.unwrap();
    metadata.closed = Some(ClosedTotals {
        bytes: 1_000,
        ..totals
    });
    let value = metadata.encode();
    for first in (0..LEDGERS).step_by(50) {
        let put = |number| Op::put(ledger_key(LedgerId(1_000 + number)), value.clone());
        let txn = Txn {
            compares: Vec::new(),
            ops: (first..first + 50).map(put).collect(),
        };
        cell.store.txn(txn).await.unwrap();
    }
    let began = std::time::Instant::now();
    let audited = pass(&cell).await;
    println!("{} ledgers took {:?}", audited.ledgers, began.elapsed());
    assert_eq!(audited.ledgers, LEDGERS + 1);
    assert_eq!(audited.lacking, LEDGERS);
    assert_eq!(audited.bytes_to_copy, 3 * LEDGERS * 1_000);
    assert_eq!(audited.findings.len(), 100_000);
    assert_eq!(audited.members.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn ledger_in_more_pieces_than_one_answer_holds_is_looked_at_whole_and_repaired() {
    const ENTRIES: u64 = 15_000;
    let striped = Quorums {
        ensemble: 3,
        write: 2,
        ack: 2,
    };
    let cell = Cell::new(4).await;
    let client = cell.client().with_quorums(striped);
    let ledgers = [
        cell.closed_by(&client, ENTRIES).await,
        cell.closed_by(&client, ENTRIES).await,
    ];
    let audited = pass(&cell).await;
    assert_eq!((audited.lacking, &audited.findings[..]), (0, &[][..]));

    // Another member gets every second entry or so, each a run of its own.
    let metadata = cell.metadata(ledgers[0]).await;
    let ensemble = &metadata.fragments[0].ensemble;
    let spare = (0..4).map(|index| cell.member(index));
    let task = RepairTask {
        ledger: ledgers[0],
        first: EntryId(0),
        position: 1,
        old: ensemble[1].clone(),
        new: spare.clone().find(|one| !ensemble.contains(one)).unwrap(),
        lacking: Vec::new(),
    };
    let end = repair(&cell.hands(), task).await;
    assert!(matches!(end, RepairEnd::Done { .. }), "{end:?}");
    assert_eq!(pass(&cell).await.lacking, 0);
}

#[tokio::test(start_paused = true)]
async fn entries_that_were_given_up_are_lacking_only_while_somebody_may_have_them() {
    let cell = Cell::new(3).await;
    let ledger = cell.closed(10).await;
    for bookie in &cell.bookies {
        bookie.ledgers().damage(ledger, EntryId(6));
    }
    let lacking = async || pass(&cell).await;
    let found = lacking().await;
    assert_eq!(found.lacking, 1, "nobody gave them up");
    let mut metadata = cell.metadata(ledger).await;
    metadata.loss = Some(Loss {
        kind: LossKind::Accepted,
        from: EntryId(6),
        at: 1,
    });
    cell.put(Op::put(ledger_key(ledger), metadata.encode()))
        .await;
    assert_eq!(lacking().await.lacking, 0);
    // What only one lacks is copied to it all the same, before and behind.
    for entry in [2, 8] {
        cell.bookies[0].ledgers().damage(ledger, EntryId(entry));
    }
    let found = lacking().await;
    assert_eq!(found.lacking, 1);
    assert_eq!(found.findings[0].want, Want::Entries(vec![2..3, 8..9]));
    // Who does not run may have them.
    cell.live(1, false).await;
    let found = lacking().await;
    let wants: Vec<&Want> = found.findings.iter().map(|finding| &finding.want).collect();
    assert!(wants.contains(&&Want::Waiting), "{wants:?}");
    let others = Want::Entries(std::iter::once(6..7).collect());
    assert!(wants.contains(&&others), "{wants:?}");
}
