//! What a cluster in memory is made from.

use std::io;
use std::sync::Arc;

use hulse_proto::time::TimestampMs;
use serving_broker::BrokerConfig;

use crate::broker::TestBroker;

/// 2026-01-01, 00:00 UTC.
const DATE: TimestampMs = 1_767_225_600_000;
/// More brokers tell a test nothing new.
const BROKERS_MAX: u8 = 16;

/// Changes a broker's configuration before it starts.
pub(crate) type Change = Arc<dyn Fn(&mut BrokerConfig) + Send + Sync>;

/// Why no cluster was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option is out of its bounds.
    #[error("{asked} brokers were asked for; 1 to {BROKERS_MAX} are allowed")]
    Brokers {
        /// As asked.
        asked: u8,
    },
    /// This machine has no loopback address, or no port is free.
    #[error("no port of the loopback address can be had: {0}")]
    Listen(#[from] io::Error),
    /// The brokers did not find each other, which is a bug.
    #[error("the brokers did not find each other in time")]
    NotReady,
}

/// Makes a [`TestBroker`].
#[must_use = "a builder does nothing until start()"]
pub struct TestBrokerBuilder {
    pub(crate) brokers: u8,
    pub(crate) date: TimestampMs,
    pub(crate) change: Change,
}

impl TestBrokerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            brokers: 1,
            date: DATE,
            change: Arc::new(|_| {}),
        }
    }

    /// How many brokers, named `broker-1`, `broker-2`, and so on. Default 1; at most 16. Moves need two.
    pub fn brokers(mut self, brokers: u8) -> Self {
        self.brokers = brokers;
        self
    }

    /// The date at the start, ms since 1970. Default: the beginning of 2026, UTC.
    pub fn date(mut self, date: TimestampMs) -> Self {
        self.date = date;
        self
    }

    /// Changes the configuration of each broker; its name and address are set.
    pub fn config(mut self, change: impl Fn(&mut BrokerConfig) + Send + Sync + 'static) -> Self {
        self.change = Arc::new(change);
        self
    }

    /// Starts it; answers when it serves.
    ///
    /// # Errors
    /// [`StartError`]. Cancel-safe: what was started ends.
    pub async fn start(self) -> Result<TestBroker, StartError> {
        if !(1..=BROKERS_MAX).contains(&self.brokers) {
            let asked = self.brokers;
            return Err(StartError::Brokers { asked });
        }
        TestBroker::begin(self).await
    }
}
