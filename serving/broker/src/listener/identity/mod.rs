//! Numbers that are given once and to one: `producer_ids` to producers (`txn` is the service that hands them out), `node_id` to the
//! broker itself.

mod node_id;
mod producer_ids;
mod txn;

pub(crate) use node_id::node_id;
pub(crate) use producer_ids::ProducerIds;
pub(crate) use txn::TxnService;
