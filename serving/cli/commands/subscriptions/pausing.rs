//! Pause and resume.

use hulse_proto::time::WallClock as _;
use hulse_sdk::{Admin, SubscriptionChange};

use super::run::{described, failed};
use super::view::SubscriptionRow;
use crate::arguments::OfTopic;
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::config::Period;
use crate::failure::Stop;
use crate::format::date_and_time;
use crate::roles::SystemClock;

/// `hulse subs pause`
pub(super) async fn pause(
    session: Session<'_>,
    admin: &Admin,
    of: &OfTopic,
    time: Option<Period>,
) -> Result<(), Stop> {
    let until = time.map_or(i64::MAX, |time| {
        let ms = i64::try_from(time.0.as_millis()).unwrap_or(i64::MAX);
        SystemClock.now_ms().saturating_add(ms)
    });
    let when = match until {
        i64::MAX => format!("until `hulse subs resume {} {}`", of.topic, of.subscription),
        until => format!("until {}", date_and_time(until)),
    };
    let (subscription, _) = described(admin, of).await?;
    let what = format!("deliver nothing of {} {when}", subscription.name);
    if session.globals.dry_run && !confirm(session, &what)? {
        return Ok(());
    }
    let row = change(admin, of, until).await?;
    let words = format!("{} is paused {when}", subscription.name);
    session.output.done(&row, &words)
}

/// `hulse subs resume`
pub(super) async fn resume(session: Session<'_>, admin: &Admin, of: &OfTopic) -> Result<(), Stop> {
    // Long past, whatever the clocks say.
    let row = change(admin, of, 1).await?;
    let words = format!("{} goes on", row.subscription);
    session.output.done(&row, &words)
}

async fn change(admin: &Admin, of: &OfTopic, until: i64) -> Result<SubscriptionRow, Stop> {
    let change = SubscriptionChange {
        paused_until_ms: Some(until),
        ..SubscriptionChange::default()
    };
    let updated = admin.update_subscription(&of.subscription, &of.topic, change);
    updated
        .await
        .map_err(|error| failed("cannot pause or resume the subscription", of, &error))?;
    let (subscription, cursors) = described(admin, of).await?;
    Ok(SubscriptionRow::new(&subscription, &cursors))
}
