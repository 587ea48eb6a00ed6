//! The fake's service Consume: EXCLUSIVE cursors in memory, one batch per delivery.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hulse_proto::batch::BatchHeader;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1::{self, consume_down as down, consume_up as up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::server::{Answers, Service, State};

/// Subscription, topic and partition.
pub(super) type CursorKey = (String, Bytes, u32);

#[derive(Debug, Default, Clone)]
pub(super) struct Cursor {
    base: u64,
    acked: BTreeSet<u64>,
    state_epoch: u32,
    /// Session and name of the consumer that is attached.
    holder: Option<(i64, String)>,
}

impl Cursor {
    fn ack(&mut self, range: Range<u64>) {
        self.acked.extend(range.start.max(self.base)..range.end);
        while self.acked.remove(&self.base) {
            self.base += 1;
        }
    }
}

struct Lane {
    key: CursorKey,
    partition: v1::Partition,
    next: u64,
    tell_end: bool,
    told: Option<u64>,
}

struct Session {
    id: i64,
    state: Arc<State>,
    lanes: BTreeMap<u32, Lane>,
    credit: (i64, i64),
    seq: u64,
    sender: mpsc::Sender<Result<v1::ConsumeDown, Status>>,
}

#[tonic::async_trait]
impl v1::consume_server::Consume for Service {
    type SessionStream = Answers<v1::ConsumeDown>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ConsumeUp>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (sender, receiver) = mpsc::channel(64);
        let session = Session {
            id: self.0.next_session.fetch_add(1, Ordering::Relaxed),
            state: Arc::clone(&self.0),
            lanes: BTreeMap::new(),
            credit: (0, 0),
            seq: 0,
            sender,
        };
        tokio::spawn(session.run(request.into_inner()));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl Session {
    async fn run(mut self, mut items: Streaming<v1::ConsumeUp>) {
        let mut stored = self.state.stored.subscribe();
        loop {
            stored.borrow_and_update();
            let alive = tokio::select! {
                biased;
                item = items.message() => match item {
                    Ok(Some(item)) => self.on_item(item.item.unwrap()).await,
                    _ => break,
                },
                _ = stored.changed() => Some(()),
            };
            let alive = match alive {
                Some(()) => self.deliver().await,
                None => None,
            };
            if alive.is_none() {
                let _ = self.sender.send(Err(Status::unknown("cut"))).await;
                break;
            }
        }
        for lane in std::mem::take(&mut self.lanes).into_values() {
            self.leave(&lane.key);
        }
    }

    async fn say(&self, item: down::Item) -> Option<()> {
        let item = v1::ConsumeDown { item: Some(item) };
        self.sender.send(Ok(item)).await.ok()
    }

    fn leave(&self, key: &CursorKey) {
        let mut cursors = self.state.cursors.lock().unwrap();
        if let Some(cursor) = cursors.get_mut(key)
            && cursor.holder.as_ref().is_some_and(|(id, _)| *id == self.id)
        {
            cursor.holder = None;
        }
    }

    /// `None`: the link breaks.
    async fn on_item(&mut self, item: up::Item) -> Option<()> {
        match item {
            up::Item::Hello(_) => {
                let welcome = v1::ConsumeWelcome {
                    credit_epoch: self.id as u64,
                    ..Default::default()
                };
                self.say(down::Item::Welcome(welcome)).await
            }
            up::Item::Credit(credit) => {
                assert_eq!(credit.credit_epoch, self.id as u64);
                self.credit.0 += credit.records as i64;
                self.credit.1 += credit.bytes as i64;
                Some(())
            }
            up::Item::Attach(attach) => self.on_attach(attach).await,
            up::Item::Ack(ack) => self.on_ack(ack).await,
            up::Item::Seek(seek) => self.on_seek(seek).await,
            up::Item::Detach(detach) => {
                if let Some(lane) = self.lanes.remove(&detach.lane) {
                    self.leave(&lane.key);
                }
                let lane = detach.lane;
                self.say(down::Item::Detached(v1::Detached { lane, fault: None }))
                    .await
            }
            up::Item::Yielded(_) | up::Item::Heartbeat(_) => Some(()),
        }
    }

    async fn detached(&self, lane: u32, fault: Fault) -> Option<()> {
        let fault = Some(fault.to_wire());
        self.say(down::Item::Detached(v1::Detached { lane, fault }))
            .await
    }

    async fn on_attach(&mut self, attach: v1::Attach) -> Option<()> {
        let partition = attach.partition.clone()?;
        let end = match self
            .state
            .with_log(&partition, |log| log.partition.next_offset())
        {
            Ok(end) => end,
            Err(fault) => return self.detached(attach.lane, fault).await,
        };
        let key = (
            attach.subscription,
            partition.topic_uuid.clone(),
            partition.index,
        );
        let attached = {
            let mut cursors = self.state.cursors.lock().unwrap();
            let earliest = matches!(
                attach.start.and_then(|start| start.at),
                Some(v1::start_at::At::Earliest(_))
            );
            let cursor = cursors.entry(key.clone()).or_insert_with(|| Cursor {
                base: if earliest { 0 } else { end },
                state_epoch: 1,
                ..Cursor::default()
            });
            match &cursor.holder {
                Some((_, name)) if !attach.takeover => Err(Fault::new(
                    Reason::ConsumerExists,
                    "another consumer is attached",
                )
                .with("consumer", name)),
                _ => {
                    cursor.holder = Some((self.id, attach.consumer_name));
                    Ok(cursor.clone())
                }
            }
        };
        // Whoever lost its place looks.
        self.state.stored.send_modify(|count| *count += 1);
        let cursor = match attached {
            Ok(cursor) => cursor,
            Err(fault) => return self.detached(attach.lane, fault).await,
        };
        self.lanes.insert(
            attach.lane,
            Lane {
                key,
                partition,
                next: cursor.base,
                tell_end: attach.tell_end,
                told: None,
            },
        );
        let acked = cursor.acked.iter().map(|offset| v1::OffsetRange {
            first: *offset,
            end: offset + 1,
        });
        self.say(down::Item::Attached(v1::Attached {
            lane: attach.lane,
            leader_epoch: 1,
            base: cursor.base,
            acked: acked.collect(),
            high_watermark: end,
            state_epoch: cursor.state_epoch,
            active: true,
            ..Default::default()
        }))
        .await
    }

    fn with_cursor<T>(&self, key: &CursorKey, work: impl FnOnce(&mut Cursor) -> T) -> T {
        let mut cursors = self.state.cursors.lock().unwrap();
        work(cursors.get_mut(key).unwrap())
    }

    async fn on_ack(&mut self, ack: v1::AckRecords) -> Option<()> {
        let lane = self.lanes.get(&ack.lane)?;
        if self.state.hit(|faults| faults.cut_before) {
            return None;
        }
        let ranges = ack.ranges.iter().map(|range| match ack.kind() {
            v1::AckKind::Cumulative => 0..range.end,
            _ => range.first..range.end,
        });
        let next = lane.next;
        let statuses = self.with_cursor(&lane.key, |cursor| {
            let judged = ranges.map(|range| match () {
                () if cursor.holder.as_ref().is_none_or(|(id, _)| *id != self.id) => {
                    v1::AckStatus::NotOwned
                }
                () if cursor.state_epoch != ack.state_epoch => v1::AckStatus::Stale,
                () if range.end > next => v1::AckStatus::Invalid,
                () => {
                    cursor.ack(range);
                    v1::AckStatus::Ok
                }
            });
            judged.map(|status| status as i32).collect()
        });
        if self.state.hit(|faults| faults.cut_after) {
            return None;
        }
        self.say(down::Item::Receipt(v1::AckReceipt {
            ack_id: ack.ack_id,
            lane: ack.lane,
            statuses,
            fault: None,
        }))
        .await
    }

    async fn on_seek(&mut self, seek: v1::SeekLane) -> Option<()> {
        let lane = self.lanes.get_mut(&seek.lane)?;
        let end = self
            .state
            .with_log(&lane.partition, |log| log.partition.next_offset())
            .ok()?;
        let base = match seek.to?.at? {
            v1::start_at::At::Earliest(_) => 0,
            v1::start_at::At::Offset(offset) if offset <= end => offset,
            v1::start_at::At::Latest(_) => end,
            _ => {
                let fault = Fault::new(Reason::OffsetOutOfRange, "above the end").to_wire();
                let done = v1::SeekDone {
                    lane: seek.lane,
                    seek_id: seek.seek_id,
                    fault: Some(fault),
                    ..Default::default()
                };
                return self.say(down::Item::SeekDone(done)).await;
            }
        };
        lane.next = base;
        lane.told = None;
        let key = lane.key.clone();
        let state_epoch = self.with_cursor(&key, |cursor| {
            cursor.base = base;
            cursor.acked.clear();
            cursor.state_epoch += 1;
            cursor.state_epoch
        });
        self.say(down::Item::SeekDone(v1::SeekDone {
            lane: seek.lane,
            seek_id: seek.seek_id,
            state_epoch,
            base,
            fault: None,
            evicted: false,
        }))
        .await
    }

    async fn deliver(&mut self) -> Option<()> {
        let fenced: Vec<u32> = self
            .lanes
            .iter()
            .filter(|(_, lane)| {
                self.with_cursor(&lane.key, |cursor| {
                    cursor.holder.as_ref().is_none_or(|(id, _)| *id != self.id)
                })
            })
            .map(|(number, _)| *number)
            .collect();
        for number in fenced {
            self.lanes.remove(&number);
            self.detached(number, Fault::new(Reason::ConsumerFenced, "taken over"))
                .await?;
        }
        for number in self.lanes.keys().copied().collect::<Vec<_>>() {
            while let Some(delivery) = self.next_delivery(number) {
                if self.state.hit(|faults| faults.cut_read) {
                    return None;
                }
                self.say(down::Item::Delivery(delivery)).await?;
            }
            self.tell_end(number).await?;
        }
        Some(())
    }

    async fn tell_end(&mut self, number: u32) -> Option<()> {
        let lane = self.lanes.get_mut(&number)?;
        let end = self
            .state
            .with_log(&lane.partition, |log| log.partition.next_offset())
            .ok()?;
        if !lane.tell_end || lane.next < end || lane.told == Some(end) {
            return Some(());
        }
        lane.told = Some(end);
        let end = v1::EndOfLane {
            lane: number,
            offset: end,
        };
        self.say(down::Item::EndOfLane(end)).await
    }

    fn next_delivery(&mut self, number: u32) -> Option<v1::Delivery> {
        if self.credit.0 <= 0 || self.credit.1 <= 0 {
            return None;
        }
        let lane = self.lanes.get(&number)?;
        let at = lane.next;
        let found = self.state.with_log(&lane.partition, |log| {
            let next = log
                .batches
                .partition_point(|(base, _)| *base <= at)
                .saturating_sub(1);
            (at < log.partition.next_offset()).then(|| log.batches[next].1.clone())
        });
        let batch = found.ok().flatten()?;
        let end = BatchHeader::view(&batch).unwrap().end_offset().0;
        let (acked, state_epoch) = self.with_cursor(&lane.key, |cursor| {
            (cursor.acked.clone(), cursor.state_epoch)
        });
        let mut delivery = v1::Delivery {
            lane: number,
            delivery_seq: self.seq + 1,
            prev_end_offset: at,
            end_offset: end,
            high_watermark: end,
            state_epoch,
            append_time: 1,
            ..Default::default()
        };
        for offset in at..end {
            if acked.contains(&offset) {
                delivery.skipped.push(v1::SkippedRange {
                    first: offset,
                    end: offset + 1,
                    reason: v1::SkipReason::Acked as i32,
                });
            } else {
                delivery.acquired.push(v1::AcquiredRange {
                    first: offset,
                    end: offset + 1,
                    delivery_count: 0,
                });
            }
        }
        if !delivery.acquired.is_empty() {
            delivery.batch = batch;
        }
        self.seq += 1;
        self.credit.0 -= delivery.acquired.len() as i64;
        self.credit.1 -= delivery.batch.len() as i64;
        self.lanes.get_mut(&number)?.next = end;
        Some(delivery)
    }
}
