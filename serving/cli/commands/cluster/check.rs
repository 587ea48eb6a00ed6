//! May something be done to the cluster now: yes, or no and why not.

use hulse_sdk::Cluster;

use super::bookies::{BookieView, all};
use crate::arguments::CheckCommand;
use crate::commands::doctor::http_get;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::grouped;

/// Answers.
///
/// # Errors
/// No; with `HULSE-9206`.
pub(super) fn run(
    session: Session<'_>,
    info: &Cluster,
    command: &CheckCommand,
) -> Result<(), Stop> {
    let safe = match command {
        CheckCommand::ScaleIn { bookies } => scale_in(&all(info), *bookies)?,
        CheckCommand::Restart { node } => restart(session, info, node)?,
    };
    session.output.say(&format!("safe: {safe}"));
    Ok(())
}

fn unsafe_because(object: &str, why: String, next: String) -> Failure {
    Failure::new(Code::NotSafe, "that is not safe now")
        .why(why)
        .object(object)
        .next(next)
}

/// The number at the end of a name: 3 of `bookie-3`.
fn number(name: &str) -> Option<u32> {
    name.rsplit('-').next()?.parse().ok()
}

/// The bookies with higher numbers hold nothing, and are to hold nothing.
fn scale_in(all: &[BookieView], stay: u32) -> Result<String, Failure> {
    let beyond = |bookie: &&BookieView| {
        number(&bookie.bookie).is_some_and(|number| number > stay) && bookie.state != "lost"
    };
    for bookie in all.iter().filter(beyond) {
        let name = &bookie.bookie;
        if bookie.state != "retired" {
            let holds = bookie.ledgers.map_or_else(
                || "and what it holds is not known yet".to_owned(),
                |ledgers| format!("and holds copies of {} ledgers", grouped(ledgers)),
            );
            return Err(unsafe_because(
                name,
                format!("{name} is {}, {holds}", bookie.state),
                format!("hulse bookies decommission {name} --wait"),
            ));
        }
    }
    Ok(format!("no ledger names a bookie beyond number {stay}"))
}

/// What the node itself says.
fn restart(session: Session<'_>, info: &Cluster, node: &str) -> Result<String, Failure> {
    let brokers = info
        .brokers
        .iter()
        .map(|one| (&one.name, one.http.as_str()));
    let bookies = info.bookies.iter().map(|one| {
        let live = one.live.as_ref();
        (&one.name, live.map_or("", |live| live.http.as_str()))
    });
    let mut named = brokers.chain(bookies).filter(|(name, _)| *name == node);
    let Some((_, http)) = named
        .clone()
        .find(|(_, http)| !http.is_empty())
        .or(named.next())
    else {
        return Err(Failure::new(Code::NodeMissing, "there is no such node")
            .why("neither a broker nor a bookie has this name")
            .object(node)
            .next("hulse brokers list; hulse bookies list"));
    };
    if http.is_empty() {
        return Err(unsafe_because(
            node,
            "it does not run, or does not tell where it could be asked".to_owned(),
            "hulse bookies list; hulse doctor".to_owned(),
        ));
    }
    let answer = http_get(http, "/readyz/stop", session.globals.timeout.0);
    let answer = answer.map_err(|why| {
        Failure::new(Code::Unreachable, "the node does not answer")
            .why(why)
            .object(node)
            .next("hulse doctor")
    })?;
    let words = answer.body.trim();
    match answer.status {
        200 => Ok(words.trim_start_matches("yes: ").to_owned()),
        _ => Err(unsafe_because(
            node,
            words.trim_start_matches("no: ").to_owned(),
            "hulse cluster health".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookie_that_is_not_retired_must_stay() {
        let bookie = |name: &str, state: &str| BookieView::told(name, state, Some(550));
        let all = [
            bookie("bookie-1", "active"),
            bookie("bookie-2", "retired"),
            bookie("bookie-3", "active"),
            bookie("bookie-4", "lost"),
        ];
        let told = scale_in(&all, 2).unwrap_err().to_string();
        assert!(
            told.contains("bookie-3 is active") && told.contains("550"),
            "{told}"
        );
        assert!(told.contains("decommission bookie-3"), "{told}");
        assert!(scale_in(&all, 3).is_ok());
    }
}
