//! The live session of each broker; concurrent dials are one dial.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use super::run::{Session, open};
use crate::client::Core;
use crate::connect::{Broker, Purpose};
use crate::error::Error;

type Opening = Shared<BoxFuture<'static, Result<Arc<Session>, Error>>>;

/// One slot per broker; brokers are bounded by the cluster's size.
#[derive(Default)]
pub(crate) struct Sessions {
    slots: Mutex<BTreeMap<Broker, Opening>>,
}

impl Sessions {
    /// The session of `broker`: the live one, the one being opened, or a new one. One attempt; the caller waits and tries again.
    ///
    /// # Errors
    /// Why it could not be opened. Cancel-safe: an attempt goes on for those who still wait.
    pub(crate) async fn get(&self, core: &Core, broker: &Broker) -> Result<Arc<Session>, Error> {
        let opening = self.slot(core, broker)?;
        opening.await
    }

    fn slot(&self, core: &Core, broker: &Broker) -> Result<Opening, Error> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(broker) {
            let usable = match slot.peek() {
                None => true,
                Some(Ok(session)) => session.is_live(),
                Some(Err(_)) => false,
            };
            if usable {
                return Ok(slot.clone());
            }
        }
        let channel = core.pool.channel(broker, Purpose::Produce)?;
        let slot = open(channel, core.client_id.clone()).boxed().shared();
        slots.insert(broker.clone(), slot.clone());
        Ok(slot)
    }
}
