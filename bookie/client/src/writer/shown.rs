//! Something that a handle shows and that can be watched: nearly nobody does, and a watched value takes much more room than another.

use tokio::sync::watch;

/// A value, or none yet.
#[derive(Debug)]
pub(super) struct Shown<T> {
    value: Option<T>,
    /// Since somebody watches.
    watched: Option<watch::Sender<Option<T>>>,
}

impl<T> Default for Shown<T> {
    fn default() -> Self {
        Self {
            value: None,
            watched: None,
        }
    }
}

impl<T: Clone> Shown<T> {
    pub(super) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    pub(super) fn set(&mut self, value: Option<T>) {
        self.value = value;
        if let Some(watched) = &self.watched {
            watched.send_replace(self.value.clone());
        }
    }

    /// Sees the value of now and those to come.
    pub(super) fn watch(&mut self) -> watch::Receiver<Option<T>> {
        let value = &self.value;
        let watched = self
            .watched
            .get_or_insert_with(|| watch::Sender::new(value.clone()));
        watched.subscribe()
    }
}
