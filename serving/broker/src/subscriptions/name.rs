//! Names of subscriptions.

use std::fmt;
use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NameError, TopicName};

/// "tenant/namespace/name": the same rules as for topics.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionName(Arc<str>);

impl SubscriptionName {
    /// Reads "tenant/namespace/name", or a short name of this namespace ("tenant/namespace").
    ///
    /// # Errors
    /// `INVALID_NAME`, with the rule that it breaks.
    pub fn parse(name: &str, namespace: &str) -> Result<Self, Fault> {
        let full = match name.contains('/') {
            true => name.to_owned(),
            false => format!("{namespace}/{name}"),
        };
        let checked: Result<TopicName, NameError> = full.parse();
        match checked {
            Ok(checked) => Ok(Self(checked.as_str().into())),
            Err(error) => {
                let words = format!("subscription {name:?}: {error}");
                Err(Fault::new(Reason::InvalidName, words))
            }
        }
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole name, shared.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// "tenant/namespace".
    pub fn namespace(&self) -> &str {
        self.0
            .rsplit_once('/')
            .map_or("", |(namespace, _)| namespace)
    }
}

/// "tenant/namespace" of a topic.
pub(crate) fn namespace_of(topic: &TopicName) -> &str {
    topic
        .as_str()
        .rsplit_once('/')
        .map_or("", |(namespace, _)| namespace)
}

impl fmt::Display for SubscriptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
