//! Names of subscriptions.

use std::fmt;
use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NameError, TopicName};

/// So much of a name that is refused is told.
const SHOWN_CHARS_MAX: usize = 64;

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
            Err(error) => Err(Fault::new(Reason::InvalidName, refusal(name, &error))),
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

/// What is wrong with a name, and the whole rule, in the words of a subscription.
fn refusal(name: &str, error: &NameError) -> String {
    let wrong = match error {
        NameError::Parts { parts, .. } => format!("it has {parts} parts"),
        NameError::Empty { what: "topic" } => "it is empty".to_owned(),
        NameError::Empty { what } => format!("its {what} is empty"),
        NameError::Character { found, .. } => format!("it has {found:?} in it"),
        NameError::TooLong { bytes, max } => {
            format!("with its namespace it is {bytes} bytes long, of {max} that are allowed")
        }
        NameError::Dots { .. } => "`.` and `..` are no names".to_owned(),
    };
    let name: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    format!(
        "subscription {name:?}: {wrong}; a subscription is called by 1 or more of [A-Za-z0-9._-], or by tenant/namespace/name"
    )
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
