//! What a session sends: the opening, then the lane's calls in their order.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use hulse_proto::wire::bookie as wire;

use super::lane::{Lane, Next};
use crate::wire::{encode_call, encode_open};

/// The requests of one session. Ends with it.
pub(super) struct Outbound {
    lane: Arc<Lane>,
    session: u64,
    /// Not sent yet: whom is meant.
    opening: Option<String>,
}

impl Outbound {
    pub(super) fn new(lane: Arc<Lane>, session: u64, bookie: &str) -> Self {
        Self {
            lane,
            session,
            opening: Some(bookie.to_owned()),
        }
    }
}

impl Stream for Outbound {
    type Item = wire::Request;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<wire::Request>> {
        if let Some(bookie) = self.opening.take() {
            return Poll::Ready(Some(encode_open(&bookie)));
        }
        match self.lane.next(self.session, cx.waker()) {
            Next::Call(number, call) => Poll::Ready(Some(encode_call(number, &call))),
            Next::Wait => Poll::Pending,
            Next::Ended => Poll::Ready(None),
        }
    }
}
