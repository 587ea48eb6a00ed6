//! The fake's service Log: one batch per message.

use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1::{self, read_response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::server::{Answers, Service, State};

#[tonic::async_trait]
impl v1::log_server::Log for Service {
    type ReadStream = Answers<v1::ReadResponse>;

    async fn read(
        &self,
        request: Request<v1::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        let state = Arc::clone(&self.0);
        let partition = request.partition.clone().unwrap();
        let end = state.with_log(&partition, |log| log.partition.next_offset())?;
        if request.start > end {
            return Err(Fault::new(Reason::OffsetOutOfRange, "above the end").into());
        }
        let (sender, receiver) = mpsc::channel(4);
        tokio::spawn(async move {
            if let Some(status) = read(state, request, partition, &sender).await {
                let _ = sender.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn offsets(
        &self,
        request: Request<v1::OffsetsRequest>,
    ) -> Result<Response<v1::OffsetsResponse>, Status> {
        let partition = request.into_inner().partition.unwrap();
        let high_watermark = self
            .0
            .with_log(&partition, |log| log.partition.next_offset())?;
        Ok(Response::new(v1::OffsetsResponse {
            high_watermark,
            leader_epoch: 1,
            ..Default::default()
        }))
    }
}

async fn read(
    state: Arc<State>,
    request: v1::ReadRequest,
    partition: v1::Partition,
    sender: &mpsc::Sender<Result<v1::ReadResponse, Status>>,
) -> Option<Status> {
    let mut stored = state.stored.subscribe();
    let mut at = request.start;
    loop {
        stored.borrow_and_update();
        let found = state.with_log(&partition, |log| {
            let next = log
                .batches
                .partition_point(|(base, _)| *base <= at)
                .saturating_sub(1);
            let end = log.partition.next_offset();
            (at < end).then(|| (log.batches[next].clone(), end))
        });
        let item = match found {
            Err(fault) => return Some(fault.into()),
            Ok(Some(((base, batch), high_watermark))) => {
                if state.hit(|faults| faults.cut_read) {
                    return Some(Status::unknown("cut"));
                }
                let header = hulse_proto::batch::BatchHeader::view(&batch).unwrap();
                at = header.end_offset().0;
                read_response::Item::Batches(v1::ReadBatches {
                    prev_end_offset: base,
                    batches: vec![batch],
                    append_times: vec![1],
                    high_watermark,
                    leader_epoch: 1,
                    ..Default::default()
                })
            }
            Ok(None) => read_response::Item::EndOfLog(v1::EndOfLog { offset: at }),
        };
        let at_end = matches!(item, read_response::Item::EndOfLog(_));
        sender
            .send(Ok(v1::ReadResponse { item: Some(item) }))
            .await
            .ok()?;
        if at_end && !request.follow {
            return None;
        }
        if at_end {
            stored.changed().await.ok()?;
        }
    }
}
