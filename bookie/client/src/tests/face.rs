//! The async face over memory bookies.

use std::time::Duration;

use bookie_metadata::Txn;
use bookie_metadata::testing::{Fate, Late};
use hulse_proto::bookie::{BookieError, ReadClass};
use hulse_proto::entry::EntryClass;
use hulse_proto::error::Fate as Outcome;
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{LedgerState, LossKind};

use super::{Cluster, data, new_log};
use crate::testing::{Fault, Limbo};
use crate::{
    AppendError, CreateError, DeleteError, LedgerClient, LedgerWriter, NotWritten, ReadError,
    RecoverError, RollError, WriterEnd,
};

pub(super) async fn open(client: &LedgerClient, base: u64) -> LedgerWriter {
    client
        .create(new_log(base), |_| Txn::default())
        .await
        .unwrap()
}

pub(super) async fn fill(writer: &LedgerWriter, base: u64, count: u64) {
    let begin = writer.appended_end().0;
    let appends: Vec<_> = (0..count)
        .map(|index| writer.append(data(base + begin + index, (begin + index) as u8)))
        .collect();
    for (index, append) in appends.into_iter().enumerate() {
        let appended = append.await.unwrap();
        assert_eq!(appended.entry, EntryId(begin + index as u64));
        assert!(appended.confirmed_end > appended.entry);
    }
}

#[tokio::test(start_paused = true)]
async fn one_bookie_creates_appends_reads_recovers_and_deletes() {
    let cluster = Cluster::new(1, 1, 1, 1);
    let client = cluster.client(1);
    let writer = open(&client, 50).await;
    fill(&writer, 50, 100).await;
    assert_eq!(writer.confirmed_end(), EntryId(100));
    let reader = writer.reader();
    let read = reader
        .read(EntryId(10), EntryId(1000), u32::MAX, ReadClass::Tail)
        .await
        .unwrap();
    assert_eq!(read.len(), 90);
    assert_eq!(read[0].header().first_offset.0, 60);
    let heads = reader
        .read_heads(EntryId(99), EntryId(100), 1, ReadClass::CatchUp)
        .await
        .unwrap();
    assert_eq!(heads.len(), 1);
    let past = reader
        .read(EntryId(100), EntryId(101), 1, ReadClass::Tail)
        .await;
    assert!(matches!(past, Err(ReadError::NotConfirmed { .. })));

    let other = cluster.client(2);
    let closed = other
        .recover(writer.ledger(), Txn::default())
        .await
        .unwrap();
    let totals = closed.closed.unwrap();
    assert_eq!((totals.end, totals.offset_span), (EntryId(100), 100));
    assert_eq!(totals.record_count, 100);
    assert_eq!(totals.bytes, writer.appended_bytes());
    assert_eq!(closed.state, LedgerState::Closed);
    assert_eq!(closed.loss, None);

    // The old owner learns of it with its next append, and never again confirms anything.
    let late = writer.append(data(150, 1)).await;
    assert!(matches!(late, Err(AppendError::Fenced { .. })), "{late:?}");
    assert!(matches!(
        *writer.ended().borrow(),
        Some(WriterEnd::Fenced { .. })
    ));
    let later = writer.append(data(151, 1)).await.unwrap_err();
    assert_eq!(later.fate(), Outcome::NotApplied);

    let again = other.recover(writer.ledger(), Txn::default()).await;
    assert_eq!(again.unwrap(), closed);
    other.delete(writer.ledger(), Txn::default()).await.unwrap();
    assert!(cluster.bookies[0].ledgers().is_deleted(writer.ledger()));
    assert_eq!(other.describe(writer.ledger()).await.unwrap(), None);
    other.delete(writer.ledger(), Txn::default()).await.unwrap();
    let gone = other
        .reader(writer.ledger(), closed)
        .read(EntryId(0), EntryId(1), 1, ReadClass::CatchUp)
        .await;
    assert!(matches!(gone, Err(ReadError::Deleted { .. })), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn close_and_roll_chain_the_totals() {
    let cluster = Cluster::new(3, 3, 3, 2);
    let client = cluster.client(1);
    let first = open(&client, 0).await;
    fill(&first, 0, 10).await;
    let mut told = None;
    let second = client
        .roll(&first, new_log(0), |ledger, totals| {
            told = Some((ledger, *totals));
            Txn::default()
        })
        .await
        .unwrap();
    let (ledger, totals) = told.unwrap();
    assert_eq!(ledger, second.ledger());
    assert_eq!(totals.end, EntryId(10));
    assert_eq!(second.metadata().base_offset.0, 10);
    let (stored, _) = client.describe(first.ledger()).await.unwrap().unwrap();
    assert_eq!(stored.closed, Some(totals));
    assert!(stored.degraded.is_empty(), "{:?}", stored.degraded);
    let refused = first.append(data(10, 0)).await.unwrap_err();
    assert_eq!(refused.fate(), Outcome::NotApplied);
    fill(&second, 10, 3).await;
    let closed = second.close(Txn::default()).await.unwrap();
    assert_eq!((closed.end, closed.offset_span), (EntryId(3), 3));
    let again = second.close(Txn::default()).await;
    assert!(again.is_err());
    assert!(matches!(
        *second.ended().borrow(),
        Some(WriterEnd::Closed { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn roll_while_metadata_is_silent_is_not_started() {
    let cluster = Cluster::new(1, 1, 1, 1);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    cluster.store.silence();
    let roll = client
        .roll(&writer, new_log(0), |_, _| Txn::default())
        .await;
    assert!(matches!(roll, Err(RollError::NotStarted(_))));
    cluster.store.speak();
    fill(&writer, 0, 5).await;
}

#[tokio::test(start_paused = true)]
async fn close_whose_answer_is_lost_waits_and_succeeds() {
    for fate in [
        Fate::UnknownCommitted,
        Fate::UnknownNever,
        Fate::UnknownLater(Late::AfterReads(1)),
        Fate::UnknownLater(Late::AfterReads(2)),
    ] {
        let cluster = Cluster::new(1, 1, 1, 1);
        let client = cluster.client(1);
        let writer = open(&client, 0).await;
        fill(&writer, 0, 4).await;
        cluster.store.plan_txns([fate]);
        let totals = writer.close(Txn::default()).await.unwrap();
        let (stored, _) = client.describe(writer.ledger()).await.unwrap().unwrap();
        assert_eq!(stored.closed, Some(totals), "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn create_whose_answer_is_lost_is_created_once() {
    for fate in [
        Fate::UnknownCommitted,
        Fate::UnknownNever,
        Fate::UnknownLater(Late::AfterReads(1)),
    ] {
        let cluster = Cluster::new(1, 1, 1, 1);
        let client = cluster.client(1);
        open(&client, 0).await;
        cluster.store.plan_txns([fate]);
        let writer = open(&client, 0).await;
        fill(&writer, 0, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn create_with_too_few_bookies_is_refused() {
    let cluster = Cluster::new(1, 3, 3, 2);
    let client = cluster.client(1);
    let refused = client.create(new_log(0), |_| Txn::default()).await;
    assert!(matches!(refused, Err(CreateError::NotEnoughBookies { .. })));
}

#[tokio::test(start_paused = true)]
async fn busy_and_lost_answers_are_retried_until_confirmed() {
    let cluster = Cluster::new(1, 1, 1, 1);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    let busy = Fault::Refuse(BookieError::Busy { queued_bytes: 1 });
    cluster.bookies[0].plan([
        Some(busy.clone()),
        Some(Fault::AnswerLost),
        Some(Fault::RequestLost),
        Some(busy),
        Some(Fault::AnswerSilent),
        Some(Fault::RequestSilent),
        Some(Fault::Refuse(BookieError::MetadataUnavailable)),
    ]);
    fill(&writer, 0, 20).await;
    assert_eq!(writer.confirmed_end(), EntryId(20));
}

#[tokio::test(start_paused = true)]
async fn a_silent_only_member_ends_the_writer_with_unknown_outcome() {
    let cluster = Cluster::new(1, 1, 1, 1);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    fill(&writer, 0, 1).await;
    cluster.bookies[0].always(Some(Fault::RequestSilent));
    let sent = writer.append(data(1, 1));
    let error = sent.await.unwrap_err();
    assert!(
        matches!(error, AppendError::OutcomeUnknown { .. }),
        "{error:?}"
    );
    let ended = writer.ended();
    assert!(matches!(
        *ended.borrow(),
        Some(WriterEnd::OutcomeUnknown { .. })
    ));
    cluster.bookies[0].always(None);
    let closed = client
        .recover(writer.ledger(), Txn::default())
        .await
        .unwrap();
    assert_eq!(closed.closed.unwrap().end, EntryId(1));
}

#[tokio::test(start_paused = true)]
async fn one_dead_member_of_three_is_noted_as_lacking() {
    let cluster = Cluster::new(3, 3, 3, 2);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    cluster.bookies[1].always(Some(Fault::RequestLost));
    fill(&writer, 0, 30).await;
    let totals = writer.close(Txn::default()).await.unwrap();
    assert_eq!(totals.end, EntryId(30));
    let (stored, _) = client.describe(writer.ledger()).await.unwrap().unwrap();
    assert_eq!(stored.degraded.len(), 1);
    assert_eq!(
        stored.degraded[0].bookies,
        vec![cluster.bookies[1].member().bookie.clone()]
    );
    assert_eq!(stored.degraded[0].end, EntryId(30));
}

#[tokio::test(start_paused = true)]
async fn room_is_given_back_as_entries_complete_and_meta_has_its_own() {
    let mut cluster = Cluster::new(1, 1, 1, 1);
    cluster.config.inflight_entries_max = 2;
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    cluster.bookies[0].always(Some(Fault::Slow(Duration::from_millis(10))));
    let first = writer.append(data(0, 0));
    let second = writer.append(data(1, 0));
    assert!(!writer.has_room(EntryClass::Data));
    assert!(writer.has_room(EntryClass::Control));
    let refused = writer.append(data(2, 0)).await.unwrap_err();
    let why = NotWritten::NoRoom;
    assert_eq!(refused, AppendError::NotWritten { why });
    writer.room(EntryClass::Data).await;
    assert!(writer.has_room(EntryClass::Data));
    first.await.unwrap();
    second.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn offsets_that_do_not_follow_are_refused() {
    let cluster = Cluster::new(1, 1, 1, 1);
    let client = cluster.client(1);
    let writer = open(&client, 5).await;
    let gap = writer.append(data(6, 0)).await.unwrap_err();
    assert_eq!(gap.fate(), Outcome::NotApplied);
    assert!(matches!(
        gap,
        AppendError::NotWritten {
            why: NotWritten::OffsetGap { .. }
        }
    ));
    fill(&writer, 5, 1).await;
}

#[tokio::test(start_paused = true)]
async fn reader_goes_to_the_next_member_when_one_is_damaged() {
    let cluster = Cluster::new(3, 3, 3, 2);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    fill(&writer, 0, 5).await;
    writer.close(Txn::default()).await.unwrap();
    let ledger = writer.ledger();
    let metadata = writer.metadata();
    for bookie in &cluster.bookies[..2] {
        bookie.ledgers().damage(ledger, EntryId(2));
    }
    let reader = client.reader(ledger, metadata);
    let read = |first, end| reader.read(EntryId(first), EntryId(end), u32::MAX, ReadClass::CatchUp);
    assert_eq!(read(2, 5).await.unwrap().len(), 3);
    cluster.bookies[2].ledgers().damage(ledger, EntryId(2));
    let damaged = read(2, 5).await;
    let Err(ReadError::Damaged { members, .. }) = damaged else {
        panic!("{damaged:?}");
    };
    assert_eq!(members.0.len(), 3);
    cluster.bookies[1].always(Some(Fault::RequestLost));
    assert!(matches!(
        read(2, 5).await,
        Err(ReadError::Unavailable { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn recovery_of_a_damaged_only_copy_needs_an_operators_word() {
    let cluster = Cluster::new(1, 1, 1, 1);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    fill(&writer, 0, 10).await;
    let ledger = writer.ledger();
    cluster.bookies[0].ledgers().damage(ledger, EntryId(8));
    cluster.bookies[0].ledgers().damage(ledger, EntryId(9));
    let refused = client.recover(ledger, Txn::default()).await;
    assert!(
        matches!(refused, Err(RecoverError::Damaged { .. })),
        "{refused:?}"
    );
    let accepted = client.accept_loss(ledger, None).await.unwrap();
    assert_eq!(accepted.closed.unwrap().end, EntryId(8));
    let loss = accepted.loss.unwrap();
    assert_eq!(
        (loss.kind, loss.from, loss.at),
        (LossKind::Accepted, EntryId(8), 1_000)
    );
}

#[tokio::test(start_paused = true)]
async fn accepting_loss_up_to_an_entry_keeps_what_lies_above_a_hole() {
    let cluster = Cluster::new(1, 1, 1, 1);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    fill(&writer, 0, 10).await;
    let ledger = writer.ledger();
    cluster.bookies[0]
        .ledgers()
        .lose_from(ledger, EntryId(10), Limbo::Lost);
    cluster.bookies[0].ledgers().damage(ledger, EntryId(4));
    let accepted = client.accept_loss(ledger, Some(EntryId(10))).await.unwrap();
    let totals = accepted.closed.unwrap();
    assert_eq!((totals.end, totals.offset_span), (EntryId(10), 10));
    assert_eq!(totals.bytes, writer.appended_bytes());
}

#[tokio::test(start_paused = true)]
async fn unsynced_limbo_seals_at_the_last_entry_found_and_records_it() {
    let cluster = Cluster::new(1, 1, 1, 1);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    fill(&writer, 0, 10).await;
    let ledger = writer.ledger();
    cluster.bookies[0]
        .ledgers()
        .lose_from(ledger, EntryId(6), Limbo::Unsynced);
    let sealed = client.recover(ledger, Txn::default()).await.unwrap();
    assert_eq!(sealed.closed.unwrap().end, EntryId(6));
    assert_eq!(sealed.loss.unwrap().kind, LossKind::TailLost);
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_open_ledger_is_refused_and_a_stuck_one_resumes() {
    let mut cluster = Cluster::new(3, 3, 3, 2);
    cluster.config.delete_deadline = Duration::from_secs(2);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    fill(&writer, 0, 2).await;
    let ledger = writer.ledger();
    let open = client.delete(ledger, Txn::default()).await;
    assert!(matches!(open, Err(DeleteError::NotClosed { .. })));
    writer.close(Txn::default()).await.unwrap();
    cluster.bookies[2].always(Some(Fault::RequestLost));
    let stuck = client.delete(ledger, Txn::default()).await;
    assert!(matches!(stuck, Err(DeleteError::Unavailable { .. })));
    cluster.bookies[2].always(None);
    cluster.store.plan_txns([Fate::UnknownCommitted]);
    client.delete(ledger, Txn::default()).await.unwrap();
    assert!(
        cluster
            .bookies
            .iter()
            .all(|bookie| bookie.ledgers().is_deleted(ledger))
    );
}

#[tokio::test(start_paused = true)]
async fn two_recoverers_agree() {
    let cluster = Cluster::new(3, 3, 3, 2);
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    fill(&writer, 0, 20).await;
    let (a, b) = (cluster.client(2), cluster.client(3));
    let ledger = writer.ledger();
    let (first, second) = tokio::join!(
        a.recover(ledger, Txn::default()),
        b.recover(ledger, Txn::default())
    );
    assert_eq!(first.unwrap(), second.unwrap());
}
