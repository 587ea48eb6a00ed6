//! Which of the three ways.

use super::{read, shared, subscribed};
use crate::arguments::{Consume, Type};
use crate::commands::session::Session;
use crate::failure::Stop;

/// Runs it.
///
/// # Errors
/// The server's, a damaged batch, or the output's.
pub(crate) async fn run(session: Session<'_>, consume: &Consume) -> Result<(), Stop> {
    match &consume.subscription {
        None => read::run(session, consume).await,
        Some(subscription) if matches!(consume.kind, Type::Queue | Type::Keyed) => {
            shared::run(session, consume, subscription).await
        }
        Some(subscription) => subscribed::run(session, consume, subscription).await,
    }
}
