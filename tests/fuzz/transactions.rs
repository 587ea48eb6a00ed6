//! What coordinators, partitions, groups and staging stores remember of transactions. Their forms are kept byte by byte in the crate;
//! the same values stand in the corpus.

use bytes::BytesMut;
use serving_transactions::coordinator::{Delta, TransactionsShard};
use serving_transactions::group::{OffsetStages, StageChange};
use serving_transactions::partition::{LogTransactions, StateChange, StateTransactions};
use serving_transactions::staging::{self, StagingState};

use crate::seeds::Seeds;

/// The corpus has what the crate's own tests keep; nothing is made anew.
pub fn kept() -> Seeds {
    Vec::new()
}

pub fn coordinator_delta(input: &[u8]) -> bool {
    let Ok(delta) = Delta::decode(input) else {
        return false;
    };
    assert_eq!(Delta::decode(&delta.encode()).as_ref(), Ok(&delta));
    TransactionsShard::default().apply(&delta);
    true
}

pub fn coordinator_shard(input: &[u8]) -> bool {
    let Ok(state) = TransactionsShard::decode(input) else {
        return false;
    };
    assert_eq!(TransactionsShard::decode(&state.encode()), Ok(state));
    true
}

pub fn partition_log(input: &[u8]) -> bool {
    let Ok(log) = LogTransactions::decode_from(&mut &input[..]) else {
        return false;
    };
    assert!(log.stable() <= log.end);
    let again = LogTransactions::decode_from(&mut &log.encode()[..]);
    assert_eq!(again, Ok(log));
    true
}

pub fn partition_state(input: &[u8]) -> bool {
    let Ok(state) = StateTransactions::decode(input) else {
        return false;
    };
    assert_eq!(StateTransactions::decode(&state.encode()), Ok(state));
    true
}

pub fn partition_change(input: &[u8]) -> bool {
    let Ok(change) = StateChange::decode_from(&mut &input[..]) else {
        return false;
    };
    let mut out = BytesMut::new();
    change.encode_into(&mut out);
    assert_eq!(
        StateChange::decode_from(&mut &out[..]).as_ref(),
        Ok(&change)
    );
    StateTransactions::default().apply(&change);
    true
}

pub fn group_stages(input: &[u8]) -> bool {
    let Ok(stages) = OffsetStages::decode(input) else {
        return false;
    };
    assert_eq!(OffsetStages::decode(&stages.encode()), Ok(stages));
    true
}

pub fn group_change(input: &[u8]) -> bool {
    let Ok(change) = StageChange::decode_from(&mut &input[..]) else {
        return false;
    };
    let mut out = BytesMut::new();
    change.encode_into(&mut out);
    assert_eq!(
        StageChange::decode_from(&mut &out[..]).as_ref(),
        Ok(&change)
    );
    OffsetStages::default().apply(&change);
    true
}

pub fn staging_delta(input: &[u8]) -> bool {
    let Ok(delta) = staging::Delta::decode(input) else {
        return false;
    };
    assert_eq!(staging::Delta::decode(&delta.encode()).as_ref(), Ok(&delta));
    StagingState::default().apply(&delta);
    true
}

pub fn staging_state(input: &[u8]) -> bool {
    let Ok(state) = StagingState::decode(input) else {
        return false;
    };
    assert_eq!(StagingState::decode(&state.encode()), Ok(state));
    true
}
