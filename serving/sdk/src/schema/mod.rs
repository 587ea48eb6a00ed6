//! Typed payloads (serving.md E5.5): values instead of bytes, for producers, readers and both kinds of consumers.
//!
//! [`Schema`] says how a value becomes bytes and back; ready ones: [`Json`] (feature `json`), [`Protobuf`] (feature `protobuf`), [`Raw`],
//! [`Text`]. `typed(schema)` of a handle makes a typed one around it; everything that has nothing to do with values is reached through it.
//!
//! ```no_run
//! # #[cfg(feature = "json")]
//! # async fn example(client: hulse_sdk::Client) -> Result<(), hulse_sdk::Error> {
//! use hulse_sdk::schema::{Json, TypedRecord};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order {
//!     number: u64,
//! }
//!
//! let orders = client.producer("orders").build().await?.typed(Json::<Order>::new());
//! orders.send(TypedRecord::new(Order { number: 7 }).key("customer")).await?.await?;
//!
//! let jobs = client.queue_consumer("orders").subscription("billing").build().await?;
//! let jobs = jobs.typed(Json::<Order>::new());
//! while let Some(message) = jobs.next().await? {
//!     match message.value() {
//!         Ok(order) => println!("bill for order {}", order.number),
//!         // Poison: this record alone.
//!         Err(error) => {
//!             eprintln!("{error}");
//!             jobs.reject(&message).await?;
//!             continue;
//!         }
//!     }
//!     jobs.ack(&message).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! 1. Bytes are decoded when the value is asked for, never before: a payload that is none fails that one call and breaks nothing.
//! 2. A value that cannot be encoded is refused before anything is queued.

mod codec;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "protobuf")]
mod protobuf;
mod typed;
mod typed_consumers;
mod typed_producer;

pub use codec::{Raw, Schema, SchemaDescriptor, SchemaError, SchemaFormat, Text};
#[cfg(feature = "json")]
pub use json::Json;
#[cfg(feature = "protobuf")]
pub use protobuf::Protobuf;
pub use typed::{Payload, TypedMessage};
pub use typed_consumers::{TypedConsumer, TypedQueueConsumer, TypedReader};
pub use typed_producer::{TypedProducer, TypedRecord};
