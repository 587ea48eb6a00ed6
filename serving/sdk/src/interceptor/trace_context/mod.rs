//! Traces across records: the W3C Trace Context (level 1) in headers `traceparent` and `tracestate`, as OpenTelemetry's propagators write
//! and read it.
//!
//! [`TraceHeaders`] is the interceptor. Sending puts the trace of the moment on a record; what was received is continued by
//! [`Trace::scope`]:
//!
//! ```no_run
//! # async fn example(client: hulse_sdk::ClientBuilder, work: impl AsyncFn()) -> Result<(), hulse_sdk::Error> {
//! use hulse_sdk::trace_context::{Trace, TraceHeaders};
//!
//! let client = client.interceptor(TraceHeaders::new()).build()?;
//! let jobs = client.queue_consumer("orders").subscription("billing").build().await?;
//! while let Some(message) = jobs.next().await? {
//!     // What this sends belongs to the trace of the record.
//!     match Trace::read(&message.headers) {
//!         Some(trace) => trace.scope(work()).await,
//!         None => work().await,
//!     }
//!     jobs.ack(&message).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program that has OpenTelemetry says where its span is with [`TraceHeaders::current`], and starts its spans from what
//! [`TraceHeaders::on_receive`] tells; this crate makes no spans and depends on no library of traces.
//!
//! # Invariants
//! 1. A record that has a `traceparent` keeps it: a copy of a record belongs to the trace of the first one.
//! 2. What is no trace by the standard's rules is passed over, never an error: headers come from anybody.

mod interceptor;
mod trace;

pub use interceptor::TraceHeaders;
pub use trace::{NoTraceParent, TRACE_PARENT_HEADER, TRACE_STATE_HEADER, Trace, TraceParent};
