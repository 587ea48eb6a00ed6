//! `hulse brokers balance`: the moves that even out brokers, made or only told.

use hulse_sdk::{Admin, BalanceMove};
use serde::Serialize;

use super::brokers::rate;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::{Field, Table, View};

/// A partition that goes to another broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MoveView {
    topic: String,
    partition: u32,
    from: String,
    to: String,
    bytes_per_s: u64,
    state: String,
    why: Option<String>,
}

impl MoveView {
    fn of(moved: BalanceMove) -> Self {
        Self {
            topic: moved.topic,
            partition: moved.partition,
            from: moved.from,
            to: moved.to,
            bytes_per_s: moved.bytes_per_second,
            state: moved.state,
            why: moved.why,
        }
    }
}

/// Has brokers evened out, or tells how they would be.
///
/// # Errors
/// The server's; moves failed.
pub(super) async fn run(session: Session<'_>, admin: &Admin) -> Result<(), Stop> {
    let dry_run = session.globals.dry_run;
    let asked = admin.balance_brokers(dry_run).await;
    let report = asked
        .map_err(|error| Failure::from_sdk("cannot balance the brokers", "the brokers", &error))?;
    let count = |state| report.moves.iter().filter(|of| of.state == state).count();
    let (planned, failed) = (count("planned"), count("failed"));
    let dry = match dry_run {
        true => " (dry run, nothing was moved)",
        false => "",
    };
    session.output.say(&format!("{}{dry}", report.verdict));
    if !dry_run && planned > 0 {
        session.output.say(&format!(
            "{planned} moves go on by themselves; hulse cluster status tells how far they are"
        ));
    }
    let moves: Vec<_> = report.moves.into_iter().map(MoveView::of).collect();
    session.output.list(&moves)?;
    if failed > 0 && !dry_run {
        return Err(Failure::new(Code::Unwell, "not all moves were made")
            .why(format!("{failed} failed; why stands beside each"))
            .object("the brokers")
            .next("hulse brokers list; run it again once that is over")
            .into());
    }
    Ok(())
}

impl View for MoveView {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "its full name"),
        Field::integer("partition", "that goes"),
        Field::text("from", "the broker that has it"),
        Field::text("to", "the broker that is to have it"),
        Field::integer("bytes_per_s", "in and out"),
        Field::text("state", "planned, done or failed"),
        Field::text("why", "of one that failed").or_null(),
    ];

    fn name(&self) -> String {
        format!("{}/{}", self.topic, self.partition)
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let mut table = Table::new(&["TOPIC", "PARTITION", "FROM", "TO", "LOAD", "STATE"]);
        for row in rows {
            let state = match &row.why {
                Some(why) => format!("{}: {why}", row.state),
                None => row.state.clone(),
            };
            table.row(vec![
                row.topic.clone(),
                row.partition.to_string(),
                row.from.clone(),
                row.to.clone(),
                rate(row.bytes_per_s),
                state,
            ]);
        }
        table.render()
    }
}
