//! Puts the trace of the moment on each record, and tells of those that come.

use std::fmt;
use std::sync::Arc;

use super::super::hooks::{Interceptor, Refusal};
use super::trace::{TRACE_PARENT_HEADER, Trace};
use crate::producer::Record;
use crate::reader::ReadRecord;

type Current = dyn Fn() -> Option<Trace> + Send + Sync;
type Receive = dyn Fn(&str, &ReadRecord, &Trace) + Send + Sync;

/// The interceptor of traces. Cheap to clone.
#[derive(Clone)]
pub struct TraceHeaders {
    current: Arc<Current>,
    receive: Option<Arc<Receive>>,
}

impl TraceHeaders {
    /// Records are sent in the trace of the [`Trace::scope`] that `send` is called in, or in none.
    pub fn new() -> Self {
        Self {
            current: Arc::new(Trace::current),
            receive: None,
        }
    }

    /// Where a record is sent in: the span of the program's own library of traces. Asked once per record.
    #[must_use]
    pub fn current(mut self, current: impl Fn() -> Option<Trace> + Send + Sync + 'static) -> Self {
        self.current = Arc::new(current);
        self
    }

    /// Hears of each record that has a trace, with the topic's name, before it is handed out. It must be quick.
    #[must_use]
    pub fn on_receive(
        mut self,
        receive: impl Fn(&str, &ReadRecord, &Trace) + Send + Sync + 'static,
    ) -> Self {
        self.receive = Some(Arc::new(receive));
        self
    }
}

impl Default for TraceHeaders {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TraceHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceHeaders").finish_non_exhaustive()
    }
}

impl Interceptor for TraceHeaders {
    fn on_send(&self, _: &str, record: Record) -> Result<Record, Refusal> {
        let mut headers = record.header_slice().iter();
        if headers.any(|header| header.key == TRACE_PARENT_HEADER.as_bytes()) {
            return Ok(record);
        }
        Ok(match (self.current)() {
            Some(trace) => record.headers(trace.headers()),
            None => record,
        })
    }

    fn before_deliver(&self, topic: &str, record: ReadRecord) -> Result<ReadRecord, Refusal> {
        if let Some(receive) = &self.receive
            && let Some(trace) = Trace::read(&record.headers)
        {
            receive(topic, &record, &trace);
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::TraceParent;
    use super::*;

    fn trace(number: u8) -> Trace {
        let parent = TraceParent::new([number; 16], [number; 8], true);
        Trace::new(parent.expect("a number above 0 is an id"))
    }

    fn of(record: &Record) -> Option<Trace> {
        Trace::read(record.header_slice())
    }

    #[tokio::test]
    async fn record_gets_the_trace_of_its_scope_and_keeps_the_one_that_it_has() {
        let context = TraceHeaders::new();
        let send = |record| context.on_send("t", record).unwrap();
        assert_eq!(of(&send(Record::new("x"))), None);
        let within = async {
            let sent = send(Record::new("x").header("a", "b"));
            assert_eq!(sent.header_slice().len(), 2);
            assert_eq!(of(&sent), Some(trace(1)));
            let copied = send(Record::new("x").headers(trace(2).headers()));
            assert_eq!(of(&copied), Some(trace(2)));
        };
        trace(1).scope(within).await;
        let own = TraceHeaders::new().current(|| Some(trace(3)));
        assert_eq!(
            of(&own.on_send("t", Record::new("x")).unwrap()),
            Some(trace(3))
        );
    }
}
