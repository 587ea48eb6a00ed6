//! Sends what was made up, or prints it.

use std::io::Write as _;

use hulse_sdk::{ErrorKind, Record};
use serde::Serialize;

use super::orders::Orders;
use crate::arguments::{Demo, Generate};
use crate::commands::produce::Pace;
use crate::commands::session::Session;
use crate::commands::tickets::Tickets;
use crate::failure::{Failure, Stop};
use crate::output::{Field, Progress, Table, View, grouped};

/// What was sent.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DemoView {
    topic: String,
    records: u64,
    seed: u64,
}

impl View for DemoView {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "tenant/namespace/topic"),
        Field::integer("records", "stored"),
        Field::integer("seed", "that makes the same records again"),
    ];

    fn name(&self) -> String {
        self.topic.clone()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let mut table = Table::new(&["TOPIC", "RECORDS", "SEED"]);
        for row in rows {
            table.row(vec![
                row.topic.clone(),
                grouped(row.records),
                row.seed.to_string(),
            ]);
        }
        table.render()
    }
}

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(crate) async fn run(session: Session<'_>, command: &Generate) -> Result<(), Stop> {
    let Generate::DemoData(demo) = command;
    if session.globals.dry_run {
        let mut out = std::io::stdout().lock();
        for order in Orders::new(demo.seed, demo.start).zip(0..demo.records) {
            writeln!(out, "{}", order.0.json)?;
        }
        return Ok(());
    }
    send(session, demo).await
}

async fn send(session: Session<'_>, demo: &Demo) -> Result<(), Stop> {
    let failed =
        |error: hulse_sdk::Error| Failure::from_sdk("cannot send the records", &demo.topic, &error);
    let client = session.client()?;
    match client
        .admin()
        .create_topic(&demo.topic, demo.partitions)
        .await
    {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Exists => {}
        Err(error) => return Err(failed(error).into()),
    }
    let producer = client
        .producer(&demo.topic)
        .compression(demo.compression.into())
        .delivery_timeout(session.globals.timeout.0)
        .build()
        .await
        .map_err(failed)?;
    let mut progress = Progress::new(session.output, "sending", Some(demo.records));
    let mut pace = demo.rate.map(Pace::new);
    let mut tickets = Tickets::default();
    for (order, number) in Orders::new(demo.seed, demo.start).zip(0..demo.records) {
        if let Some(pace) = &mut pace {
            pace.next().await;
        }
        while tickets.are_many() {
            tickets.next().await.map_err(failed)?;
        }
        let record = Record::new(order.json)
            .key(order.customer)
            .timestamp(order.event_time_ms);
        tickets.push(producer.send(record).await.map_err(failed)?);
        progress.at(number);
    }
    let closed = producer.close().await;
    tickets.finish().and(closed).map_err(failed)?;
    drop(progress);
    let view = DemoView {
        topic: producer.topic().to_owned(),
        records: demo.records,
        seed: demo.seed,
    };
    let words = format!("{} records stored in {}", grouped(view.records), view.topic);
    session.output.done(&view, &words)
}
