//! Service Txn: producer identities.

use std::sync::Arc;

use hulse_proto::wire::v1;
use tonic::{Request, Response, Status};

use crate::authorise::{Action, Resource};
use crate::listener::front::Front;
use crate::listener::wire::invalid;

/// Longest client id that is taken, bytes.
const CLIENT_ID_BYTES_MAX: usize = 256;

/// Service Txn.
pub(crate) struct TxnService(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl v1::txn_server::Txn for TxnService {
    async fn init_producer(
        &self,
        request: Request<v1::InitProducerRequest>,
    ) -> Result<Response<v1::InitProducerResponse>, Status> {
        let work = async {
            check_client_id(&request.get_ref().client_id)?;
            self.0.allow(Action::Produce, Resource::Cell)?;
            let id = self.0.producer_ids.next().await?;
            Ok(v1::InitProducerResponse {
                producer_id: id.0,
                producer_epoch: 0,
            })
        };
        self.0.answer("Txn.InitProducer", work).await
    }
}

/// A client id is for people: any words, but not without end.
pub(crate) fn check_client_id(client_id: &str) -> Result<(), hulse_proto::error::Fault> {
    if client_id.len() <= CLIENT_ID_BYTES_MAX {
        return Ok(());
    }
    let bytes = client_id.len();
    Err(invalid(format!(
        "client_id of {bytes} bytes is longer than {CLIENT_ID_BYTES_MAX}"
    )))
}
