//! Service Txn: producer identities.

use std::sync::Arc;

use hulse_proto::wire::v1;
use tonic::{Request, Response, Status};

use crate::authorise::{Action, Resource};
use crate::listener::front::Front;
use crate::listener::wire::check_client_id;

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
