//! Barriers: has the broker worked off what an acks-none lane handed over?

use hulse_proto::wire::v1;
use hulse_proto::wire::v1::produce_up::Item;
use tokio::sync::oneshot;

use crate::session::{Attachment, Up};

/// Those who wait for Flushed on the link of now. Cleared with the link: their senders are dropped, which they take as an answer.
#[derive(Default)]
pub(super) struct Barriers {
    last_sent: Option<u64>,
    waiting: Vec<(u64, oneshot::Sender<()>)>,
}

impl Barriers {
    pub(super) fn sent(&mut self, seq: u64) {
        self.last_sent = Some(seq);
    }

    /// Without a link, or before the first batch, there is nothing to wait for: `answer` is dropped.
    pub(super) fn ask(&mut self, answer: oneshot::Sender<()>, link: Option<&Attachment>) {
        if let (Some(link), Some(seq)) = (link, self.last_sent) {
            let lane = link.lane;
            link.submit(Up::Control(Item::Flush(v1::FlushLane { lane, seq })));
            self.waiting.push((seq, answer));
        }
    }

    pub(super) fn passed(&mut self, seq: u64) {
        for (_, answer) in self.waiting.extract_if(.., |(asked, _)| *asked <= seq) {
            let _ = answer.send(());
        }
    }

    pub(super) fn clear(&mut self) {
        self.last_sent = None;
        self.waiting.clear();
    }
}
