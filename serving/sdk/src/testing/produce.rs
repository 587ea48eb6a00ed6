//! The fake's service Produce: one task per session, batches judged as they come.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1::{self, produce_down as down, produce_up as up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::server::{Answers, Service, State};

const CREDIT: u64 = 8 << 20;

/// The broker's side of one lane.
struct Lane {
    partition: v1::Partition,
    answers: bool,
    expected: u64,
    refusing: bool,
}

#[tonic::async_trait]
impl v1::produce_server::Produce for Service {
    type SessionStream = Answers<v1::ProduceDown>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ProduceUp>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (sender, receiver) = mpsc::channel(64);
        let session = Session {
            state: Arc::clone(&self.0),
            lanes: BTreeMap::new(),
            sender,
        };
        tokio::spawn(session.run(request.into_inner()));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

struct Session {
    state: Arc<State>,
    lanes: BTreeMap<u32, Lane>,
    sender: mpsc::Sender<Result<v1::ProduceDown, Status>>,
}

impl Session {
    async fn run(mut self, mut items: Streaming<v1::ProduceUp>) {
        while let Ok(Some(item)) = items.message().await {
            if self.on_item(item.item.unwrap()).await.is_none() {
                let _ = self.sender.send(Err(Status::unknown("cut"))).await;
                return;
            }
        }
    }

    async fn say(&self, item: down::Item) -> Option<()> {
        let item = v1::ProduceDown { item: Some(item) };
        self.sender.send(Ok(item)).await.ok()
    }

    /// `None`: the link breaks.
    async fn on_item(&mut self, item: up::Item) -> Option<()> {
        match item {
            up::Item::Hello(_) => {
                let welcome = v1::Welcome {
                    protocol_version: 1,
                    max_inflight_batches: 5,
                    ..Default::default()
                };
                self.say(down::Item::Welcome(welcome)).await?;
                let bytes = CREDIT;
                self.say(down::Item::Credit(v1::Credit {
                    bytes,
                    throttle_ms: 0,
                }))
                .await
            }
            up::Item::Open(open) => self.on_open(open).await,
            up::Item::Batch(batch) => {
                let bytes = batch.batch.len() as u64;
                self.on_batch(batch).await?;
                self.say(down::Item::Credit(v1::Credit {
                    bytes,
                    throttle_ms: 0,
                }))
                .await
            }
            up::Item::Resume(resume) => {
                let lane = self.lanes.get_mut(&resume.lane)?;
                lane.refusing = false;
                lane.expected = resume.from_seq;
                Some(())
            }
            up::Item::Flush(flush) => {
                let v1::FlushLane { lane, seq } = flush;
                self.say(down::Item::Flushed(v1::Flushed { lane, seq }))
                    .await
            }
            up::Item::Close(close) => {
                self.lanes.remove(&close.lane);
                Some(())
            }
            up::Item::Heartbeat(_) => Some(()),
        }
    }

    async fn on_open(&mut self, open: v1::OpenLane) -> Option<()> {
        let partition = open.partition?;
        let known = self.state.with_log(&partition, |log| {
            (
                log.partition.last(open.producer_id),
                log.partition.next_offset(),
            )
        });
        let lane = open.lane;
        match known {
            Err(fault) => {
                let fault = Some(fault.to_wire());
                self.say(down::Item::Closed(v1::LaneClosed { lane, fault }))
                    .await
            }
            Ok(((last_epoch, last_sequence), next_offset)) => {
                let answers = open.acks == v1::Acks::Quorum as i32;
                self.lanes.insert(
                    lane,
                    Lane {
                        partition,
                        answers,
                        expected: 0,
                        refusing: false,
                    },
                );
                let opened = v1::Opened {
                    lane,
                    leader_epoch: 1,
                    next_offset,
                    last_epoch,
                    last_sequence,
                };
                self.say(down::Item::Opened(opened)).await
            }
        }
    }

    async fn on_batch(&mut self, batch: v1::ProduceBatch) -> Option<()> {
        let v1::ProduceBatch {
            lane: number,
            seq,
            batch,
        } = batch;
        let state = Arc::clone(&self.state);
        let lane = self.lanes.get_mut(&number)?;
        let answer = if lane.refusing {
            Err(Fault::new(Reason::NackedBefore, "before"))
        } else {
            assert_eq!(seq, lane.expected);
            lane.expected += 1;
            if state.hit(|faults| faults.cut_before) {
                return None;
            }
            if state.hit(|faults| faults.refuse) {
                Err(Fault::new(Reason::Overloaded, "dice"))
            } else if state.hit(|faults| faults.refuse_finally) {
                Err(Fault::new(Reason::InvalidRecord, "dice"))
            } else {
                let answer = state.store(&lane.partition, &batch);
                if state.hit(|faults| faults.cut_after) {
                    return None;
                }
                answer
            }
        };
        lane.refusing = answer.is_err();
        if !lane.answers {
            return Some(());
        }
        let (lane, first_seq) = (number, seq);
        self.say(match answer {
            Ok(acked) => down::Item::Ack(v1::Ack {
                lane,
                first_seq,
                batches: vec![acked],
            }),
            Err(fault) => down::Item::Nack(v1::Nack {
                lane,
                seq,
                fault: Some(fault.to_wire()),
            }),
        })
        .await
    }
}
