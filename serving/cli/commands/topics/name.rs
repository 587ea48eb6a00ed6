//! A topic of which nothing but its name is told.

use serde::Serialize;

use crate::output::{Field, View};

/// A topic of which nothing but the name is left to tell.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NameView {
    topic: String,
}

impl NameView {
    /// Of this name.
    pub(crate) fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
        }
    }
}

impl View for NameView {
    const FIELDS: &'static [Field] = &[Field::text("topic", "as it was named")];

    fn name(&self) -> String {
        self.topic.clone()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        rows.iter().map(|row| format!("{}\n", row.topic)).collect()
    }
}
