//! Which of the two ways.

use super::{read, subscribed};
use crate::arguments::Consume;
use crate::commands::session::Session;
use crate::failure::Stop;

/// Runs it.
///
/// # Errors
/// The server's, a damaged batch, or the output's.
pub(crate) async fn run(session: Session<'_>, consume: &Consume) -> Result<(), Stop> {
    match &consume.subscription {
        None => read::run(session, consume).await,
        Some(subscription) => subscribed::run(session, consume, subscription).await,
    }
}
