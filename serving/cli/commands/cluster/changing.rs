//! An operator's word on a bookie, and the wait for what follows from it.

use std::time::Duration;

use hulse_sdk::{Admin, BookieState};

use super::ask;
use super::bookies::{self, BookieView};
use crate::arguments::Bookies;
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::config::Period;
use crate::failure::{Failure, Stop};
use crate::output::{bytes, grouped};

/// Between two looks at a bookie that is being decommissioned.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What stands in the way is told this often, and whenever it changes.
const SAY_EVERY: u32 = 10;

/// What is asked for: of which bookie, which state, in words.
fn meaning(command: &Bookies) -> Option<(&str, BookieState, String)> {
    match command {
        Bookies::Decommission { name, .. } => Some((
            name,
            BookieState::Draining,
            format!("move all copies off {name} and retire it: its disk never serves again"),
        )),
        Bookies::Recommission { name } => {
            let words = format!("let {name} take new ledgers again");
            Some((name, BookieState::Active, words))
        }
        Bookies::ReadOnly { name } => Some((
            name,
            BookieState::ReadOnly,
            format!("let {name} take no new ledgers; it keeps what it has"),
        )),
        Bookies::Lost { name } => Some((
            name,
            BookieState::Lost,
            format!(
                "give up the disk of {name} for good: its copies are made anew on others, and it never serves again"
            ),
        )),
        Bookies::List | Bookies::Describe { .. } => None,
    }
}

/// Runs it.
///
/// # Errors
/// The server's; it was not confirmed.
pub(super) async fn run(
    session: Session<'_>,
    admin: &Admin,
    command: &Bookies,
) -> Result<(), Stop> {
    let Some((name, state, words)) = meaning(command) else {
        return Ok(());
    };
    // Whoever errs in the name hears so before they say yes.
    bookies::find(&ask(admin, false).await?, name)?;
    let asks = matches!(command, Bookies::Decommission { .. } | Bookies::Lost { .. });
    if (asks || session.globals.dry_run) && !confirm(session, &words)? {
        return Ok(());
    }
    let changed = admin.change_bookie(name, state).await;
    changed.map_err(|error| Failure::from_sdk("cannot change the bookie", name, &error))?;
    if matches!(command, Bookies::Decommission { wait: true, .. }) {
        retired(session, admin, name).await?;
    }
    let info = ask(admin, false).await?;
    session.output.one(&bookies::find(&info, name)?)
}

/// Waits until no ledger names it.
async fn retired(session: Session<'_>, admin: &Admin, name: &str) -> Result<(), Failure> {
    let mut looks = 0;
    let mut said = String::new();
    loop {
        let info = ask(admin, false).await?;
        let bookie = bookies::find(&info, name)?;
        if bookie.state != "draining" {
            return Ok(());
        }
        let words = left(&bookie);
        if looks % SAY_EVERY == 0 || bookie.blocked.join("") != said {
            session.output.say(&words);
            said = bookie.blocked.join("");
        }
        looks += 1;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// "bookie-3: 12 ledgers, 38MiB are left; about 3m; blocked: …".
fn left(bookie: &BookieView) -> String {
    let Some((ledgers, left)) = bookie.ledgers.zip(bookie.bytes) else {
        return format!("{}: nobody has counted yet what it holds", bookie.bookie);
    };
    let time = bookie.seconds_left.map_or_else(String::new, |seconds| {
        format!("; about {}", Period(Duration::from_secs(seconds.max(1))))
    });
    let blocked = match bookie.blocked.is_empty() {
        true => String::new(),
        false => format!("; blocked: {}", bookie.blocked.join("; ")),
    };
    format!(
        "{}: {} ledgers, {} are left{time}{blocked}",
        bookie.bookie,
        grouped(ledgers),
        bytes(left)
    )
}
