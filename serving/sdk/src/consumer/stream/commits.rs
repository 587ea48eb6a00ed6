//! Commits of one partition: what is wanted, what is under way, and who waits for it. No I/O.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use hulse_proto::error::{Fault, Reason};
use tokio::sync::oneshot;

use crate::error::Error;

/// A commit: resolves when it is durable. Dropped, it goes on.
#[derive(Debug)]
#[must_use = "the commit is under way; await it to know that it is durable, or drop it"]
pub struct Commit(pub(super) oneshot::Receiver<Result<(), Error>>);

impl Commit {
    /// One that is refused at once.
    pub(super) fn refused(error: Error) -> Self {
        let (answer, receipt) = oneshot::channel();
        let _ = answer.send(Err(error));
        Self(receipt)
    }
}

impl Future for Commit {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx).map(|answer| match answer {
            Ok(answer) => answer,
            Err(_) => Err(gone().with_possibly_written(true)),
        })
    }
}

/// Why a commit of a partition that is not this member's is refused.
pub(super) fn gone() -> Error {
    let words = "the partition is not, or no more, this member's; what was processed of it may be processed again by another one";
    Fault::new(Reason::NotOwned, words).into()
}

type Waits = (u64, oneshot::Sender<Result<(), Error>>);

/// The commits of one partition.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// Everything below is durable.
    pub(super) durable: u64,
    wanted: u64,
    under_way: Option<u64>,
    waits: Vec<Waits>,
}

impl Commits {
    pub(super) fn new(durable: u64) -> Self {
        Self {
            durable,
            wanted: durable,
            ..Self::default()
        }
    }

    /// Everything below `end` is processed.
    pub(super) fn want(&mut self, end: u64) -> Commit {
        let (answer, receipt) = oneshot::channel();
        if end <= self.durable {
            let _ = answer.send(Ok(()));
        } else {
            self.wanted = self.wanted.max(end);
            self.waits.push((end, answer));
        }
        Commit(receipt)
    }

    /// What is to be sent now, if anything.
    pub(super) fn take(&mut self) -> Option<u64> {
        if self.under_way.is_some() || self.wanted <= self.durable {
            return None;
        }
        self.under_way = Some(self.wanted);
        self.under_way
    }

    /// The answer to what was sent.
    pub(super) fn answered(&mut self, result: Result<(), Error>) {
        let Some(end) = self.under_way.take() else {
            return;
        };
        if result.is_ok() {
            self.durable = self.durable.max(end);
        } else {
            // Refused for good: only a later commit tries again.
            self.wanted = match self.wanted > end {
                true => self.wanted,
                false => self.durable,
            };
        }
        let waits = std::mem::take(&mut self.waits);
        for (wanted, answer) in waits {
            match wanted <= end {
                // Who dropped it does not wait.
                true => drop(answer.send(result.clone())),
                false => self.waits.push((wanted, answer)),
            }
        }
    }

    /// The answer will not come: it is sent again.
    pub(super) fn unanswered(&mut self) {
        self.under_way = None;
    }

    /// Nothing is wanted that is not durable.
    pub(super) fn is_settled(&self) -> bool {
        self.under_way.is_none() && self.wanted <= self.durable
    }

    /// The partition goes with all that was not answered; what was under way may have been applied.
    pub(super) fn end(self) {
        for (end, answer) in self.waits {
            let unknown = self.under_way.is_some_and(|sent| end <= sent);
            let _ = answer.send(Err(gone().with_possibly_written(unknown)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(commit: Commit) -> Option<Result<(), Error>> {
        commit.now_or_never()
    }

    #[test]
    fn commits_are_sent_one_at_a_time_and_the_newest_stands_for_all_before() {
        let mut commits = Commits::new(10);
        assert!(
            now(commits.want(10)).unwrap().is_ok(),
            "it is durable already"
        );
        let first = commits.want(12);
        assert_eq!(commits.take(), Some(12));
        let (second, third) = (commits.want(15), commits.want(14));
        assert_eq!(commits.take(), None, "one is under way");
        commits.answered(Ok(()));
        assert!(now(first).unwrap().is_ok());
        assert_eq!(commits.take(), Some(15));
        // The stream broke: the same again.
        commits.unanswered();
        assert_eq!(commits.take(), Some(15));
        commits.answered(Ok(()));
        assert!(now(second).unwrap().is_ok() && now(third).unwrap().is_ok());
        assert!(commits.is_settled());
    }

    #[test]
    fn refused_commit_is_told_and_not_sent_again_by_itself() {
        let mut commits = Commits::new(0);
        let refused = commits.want(3);
        commits.take();
        commits.answered(Err(gone()));
        assert!(now(refused).unwrap().is_err());
        assert!(commits.is_settled() && commits.take().is_none());
        let later = commits.want(3);
        assert_eq!(commits.take(), Some(3));
        commits.end();
        let error = now(later).unwrap().unwrap_err();
        assert!(error.possibly_written(), "it was under way");
    }
}
