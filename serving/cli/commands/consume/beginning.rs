//! Where a subscription begins that may not be there yet: looked up before the consumer attaches, and told, because one that is made
//! by a slip of the pen keeps records for ever.

use hulse_sdk::{Admin, Start};

use super::read::default_position;
use crate::arguments::Consume;
use crate::commands::subscriptions::{of_topic, one_place};
use crate::failure::Failure;
use crate::output::Output;

/// What is known before the consumer attaches.
pub(super) struct Beginning {
    /// `None`: as the server knows best.
    pub(super) start: Option<Start>,
    /// The subscription has the topic already and goes on where it is.
    there: bool,
    /// It has other topics, or had this one before that was made anew.
    known: bool,
    /// A position was named.
    named: bool,
}

impl Beginning {
    /// Looks the subscription up.
    ///
    /// # Errors
    /// The server's; a position that is another one in each partition.
    pub(super) async fn find(
        admin: &Admin,
        topic: &str,
        subscription: &str,
        consume: &Consume,
    ) -> Result<Self, Failure> {
        let name = of_topic(topic, subscription);
        let failed = |error| {
            let object = format!("{subscription} of {topic}");
            Failure::from_sdk("cannot consume", object, &error)
        };
        let there = admin.find_subscription(&name, topic).await;
        let there = there.map_err(failed)?.is_some();
        let known = there
            || admin
                .find_subscription(&name, "")
                .await
                .map_err(failed)?
                .is_some();
        // What nobody asks for the server knows best: a topic that was made again meanwhile is consumed whole.
        let start = match consume.offset {
            None if !(consume.count.is_some() || consume.exit) => None,
            said => {
                let position = said.unwrap_or_else(|| default_position(consume));
                Some(one_place(admin, topic, position).await?)
            }
        };
        Ok(Self {
            start,
            there,
            known,
            named: consume.offset.is_some(),
        })
    }

    /// Says that it was made, or that its position was not heeded.
    pub(super) fn tell(&self, output: Output, topic: &str, subscription: &str) {
        if self.there {
            if self.named {
                output.tell(&format!(
                    "-o is not heeded: {subscription} has {topic} already and goes on where it is; hulse subs seek {topic} {subscription} --to POSITION moves it"
                ));
            }
            return;
        }
        let from = match (self.start, self.known) {
            (Some(Start::Earliest), _) | (None, true) => "at the start".to_owned(),
            (Some(Start::Latest), _) | (None, false) => "at the end".to_owned(),
            (Some(Start::Offset(offset)), _) => format!("at offset {offset}"),
            (Some(Start::Time(_)), _) => "at the first record of that time".to_owned(),
        };
        let done = match self.known {
            true => format!("subscription {subscription} has {topic} from now on"),
            false => format!("subscription {subscription} of {topic} is created"),
        };
        output.say(&format!(
            "{done}; it begins {from} and keeps records from there until they are acknowledged or it is deleted (hulse subs delete {topic} {subscription})"
        ));
    }
}
