//! Which of the four ways.

use super::{read, shared, streamed, subscribed};
use crate::arguments::{Consume, Type};
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};

/// Runs it.
///
/// # Errors
/// The server's, a damaged batch, or the output's.
pub(crate) async fn run(session: Session<'_>, consume: &Consume) -> Result<(), Stop> {
    if !consume.slots.is_empty() && consume.kind != Type::Keyed {
        let what = "--slots does not go with this type";
        return Err(Failure::new(Code::Usage, what)
            .why("slots are of the keys of a keyed subscription")
            .object(consume.topics.join(", "))
            .next("say --type keyed, or leave --slots out")
            .into());
    }
    match &consume.subscription {
        None => read::run(session, consume).await,
        Some(subscription) if matches!(consume.kind, Type::Queue | Type::Keyed) => {
            shared::run(session, consume, subscription).await
        }
        Some(group) if consume.kind == Type::Stream => streamed::run(session, consume, group).await,
        Some(subscription) => subscribed::run(session, consume, subscription).await,
    }
}
