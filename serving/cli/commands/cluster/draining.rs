//! `hulse drain`: a broker gives its partitions away, and the wait until it has none.
//!
//! The broker does it by itself once it was told: this command may end, and be run again to see how far it is.

use std::time::Duration;

use hulse_sdk::{Admin, BrokerOrder, Draining};
use tokio::time::{Instant, sleep};

use super::ask;
use super::brokers::{self, BrokerView};
use crate::arguments::Drain;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::grouped;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The others hear of an order within a moment, or metadata are away.
const HEARD_WITHIN: Duration = Duration::from_secs(5);
/// How far it is is told when it has changed, at most so often.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Runs `hulse drain`.
///
/// # Errors
/// There is no such broker, or no other; the server's; it was not done in time.
pub(crate) async fn drain(session: Session<'_>, command: &Drain) -> Result<(), Stop> {
    let admin = session.client()?.admin();
    let info = ask(&admin, false).await?;
    let name = command.name.as_ref().unwrap_or(&info.answered_by);
    brokers::find(info.brokers.iter().map(BrokerView::of).collect(), name)?;
    if session.globals.dry_run {
        let found = admin.draining(name).await;
        let words = plan(&found.map_err(|error| failed(name, &error))?);
        session.output.say(&format!(
            "would have {name} give away {words} (dry run, nothing was changed)"
        ));
        return Ok(());
    }
    let told = admin.order_broker(name, BrokerOrder::Drain).await;
    told.map_err(|error| failed(name, &error))?;
    heard(&admin, name, true).await?;
    wait(session, &admin, name, command.within.map(|within| within.0)).await?;
    session.output.say(&format!(
        "{name} has no partitions, and gets none until it starts again or `hulse brokers undrain {name}`"
    ));
    show(session, &admin, name).await
}

/// Runs `hulse brokers undrain`.
///
/// # Errors
/// There is no such broker; the server's.
pub(super) async fn undrain(session: Session<'_>, admin: &Admin, name: &str) -> Result<(), Stop> {
    let told = admin.order_broker(name, BrokerOrder::Serve).await;
    told.map_err(|error| failed(name, &error))?;
    heard(admin, name, false).await?;
    show(session, admin, name).await
}

/// Waits until the others have heard of the order, or for a while.
async fn heard(admin: &Admin, name: &str, draining: bool) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let info = ask(admin, false).await?;
        let mut brokers = info.brokers.iter();
        let heard = brokers.any(|one| one.name == name && one.draining == draining);
        if heard || began.elapsed() >= HEARD_WITHIN {
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn show(session: Session<'_>, admin: &Admin, name: &str) -> Result<(), Stop> {
    let info = ask(admin, true).await?;
    let views = info.brokers.iter().map(BrokerView::of).collect();
    session.output.one(&brokers::find(views, name)?)
}

fn failed(name: &str, error: &hulse_sdk::Error) -> Failure {
    Failure::from_sdk("the broker cannot be drained", name, error)
}

/// Waits until it has nothing left.
async fn wait(
    session: Session<'_>,
    admin: &Admin,
    name: &str,
    within: Option<Duration>,
) -> Result<(), Failure> {
    let began = Instant::now();
    let mut said: Option<(Instant, u64)> = None;
    loop {
        let found = admin.draining(name).await;
        let found = found.map_err(|error| failed(name, &error))?;
        let left = found.left();
        match found.ordered {
            false => return Err(taken_back(name)),
            true if left == 0 => return Ok(()),
            true => {}
        }
        if said.is_none_or(|(at, before)| at.elapsed() >= SAY_EVERY && before != left) {
            said = Some((Instant::now(), left));
            session
                .output
                .say(&format!("{name}: {} left", plan(&found)));
        }
        if within.is_some_and(|within| began.elapsed() >= within) {
            return Err(late(name, &found));
        }
        sleep(LOOK_EVERY).await;
    }
}

fn taken_back(name: &str) -> Failure {
    Failure::new(Code::Conflict, "the broker is not drained any more")
        .why("somebody ended its drain, or it started again: then it takes partitions")
        .object(name)
        .next(format!("hulse drain {name}"))
}

fn late(name: &str, found: &Draining) -> Failure {
    let failure = Failure::new(Code::Timeout, "the broker has partitions left")
        .why(plan(found))
        .object(name)
        .next(format!(
            "it goes on; hulse drain {name} tells how far it is, hulse brokers undrain {name} ends it"
        ));
    match &found.fault {
        Some(fault) => failure.also(fault),
        None => failure,
    }
}

/// "12 partitions (7 to broker-2, 5 to broker-3)".
fn plan(found: &Draining) -> String {
    let heirs: Vec<String> = found
        .heirs
        .iter()
        .map(|(heir, partitions)| {
            let heir = if heir.is_empty() { "nobody" } else { heir };
            format!("{} to {heir}", grouped(*partitions))
        })
        .collect();
    let left = found.left();
    let noun = if left == 1 { "partition" } else { "partitions" };
    match heirs.is_empty() {
        true => format!("{left} {noun}"),
        false => format!("{} {noun} ({})", grouped(left), heirs.join(", ")),
    }
}
