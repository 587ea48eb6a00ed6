//! What brokers ask each other for about their load.

use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::peers_client::PeersClient;
use tonic::transport::Channel;

use super::front::Front;

/// How long a peer may take to say how much it has to do, beside other things that people asked for.
const LOAD_MAX: Duration = Duration::from_secs(1);
/// The same, of each of its partitions.
const EACH_MAX: Duration = Duration::from_secs(2);
/// How long the balancer may take to look, and to make moves as far as an operator waits for them.
const BALANCE_MAX: Duration = Duration::from_secs(20);

impl Front {
    /// Asks a broker what it has to do, once; `each`: also of each partition.
    pub(crate) async fn ask_load(
        &self,
        endpoint: &str,
        each: bool,
    ) -> Result<v1::DescribeLoadResponse, Fault> {
        let request = v1::DescribeLoadRequest { partitions: each };
        let call = async |mut peer: PeersClient<Channel>| peer.describe_load(request).await;
        let patience = if each { EACH_MAX } else { LOAD_MAX };
        self.peers.ask(endpoint, patience, call).await
    }

    /// Passes an operator's word to the balancer.
    pub(crate) async fn ask_balance(
        &self,
        endpoint: &str,
        dry_run: bool,
    ) -> Result<v1::BalanceReport, Fault> {
        let request = v1::BalanceBrokersRequest { dry_run };
        let call = async |mut peer: PeersClient<Channel>| peer.balance(request).await;
        let answer = self.peers.ask(endpoint, BALANCE_MAX, call).await?;
        Ok(answer.report.unwrap_or_default())
    }
}
