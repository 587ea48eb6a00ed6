//! `hulse ledgers`: what a topic is stored in, and the operator's word on a damaged one.

use hulse_sdk::{Admin, DamagedRecords, EntryId, Ledger, LedgerId};
use serde::Serialize;

use super::stake;
use crate::arguments::Ledgers;
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::failure::{Failure, Stop};
use crate::output::{Field, Table, View, bytes, grouped};

/// A ledger as it is shown.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LedgerView {
    ledger: u64,
    topic: String,
    partition: u32,
    kind: String,
    state: String,
    base_offset: u64,
    end_entry: Option<u64>,
    records: Option<u64>,
    bytes: Option<u64>,
    bookies: Vec<String>,
    /// What was lost, if anything.
    loss: Option<String>,
    /// With it: from this entry on something may be missing.
    loss_from: Option<u64>,
    /// Entries that were found damaged at the bookie of the server that was asked.
    damaged: Vec<String>,
    /// Entries with fewer copies than there should be.
    lacking: Vec<String>,
}

impl From<Ledger> for LedgerView {
    fn from(ledger: Ledger) -> Self {
        Self {
            ledger: ledger.id.0,
            topic: ledger.topic,
            partition: ledger.partition,
            kind: ledger.kind,
            state: ledger.state,
            base_offset: ledger.base_offset.0,
            end_entry: ledger.end_entry,
            records: ledger.record_count,
            bytes: ledger.bytes,
            bookies: ledger.bookies,
            loss: ledger.loss,
            loss_from: ledger.loss_from,
            damaged: Vec::new(),
            lacking: ledger.lacking.into_iter().map(lacking).collect(),
        }
    }
}

fn lacking((entries, bookies): (std::ops::Range<u64>, Vec<String>)) -> String {
    let (first, last) = (entries.start, entries.end.saturating_sub(1));
    format!("entries {first} to {last} on {}", bookies.join(", "))
}

/// "entries 5 to 7 (passed over)".
fn damaged(damage: &DamagedRecords) -> String {
    let (first, last) = (damage.entries.start, damage.entries.end.saturating_sub(1));
    let which = match last > first {
        true => format!("entries {first} to {last}"),
        false => format!("entry {first}"),
    };
    match damage.loss_from {
        Some(_) => format!("{which} (passed over)"),
        None => which,
    }
}

impl LedgerView {
    fn loss_words(&self) -> String {
        match (&self.loss, self.loss_from) {
            (Some(loss), Some(from)) => format!("{loss} from entry {}", grouped(from)),
            (Some(loss), None) => loss.clone(),
            (None, _) => "-".to_owned(),
        }
    }
}

/// The ledgers of a topic, or of all when it is empty, with what is known of damage to each.
async fn listed(admin: &Admin, topic: &str) -> Result<Vec<LedgerView>, hulse_sdk::Error> {
    let listed = admin.list_ledgers(topic).await?;
    let damage = admin.damage(topic).await?.records;
    let view = |ledger: Ledger| {
        let of_it = damage.iter().filter(|damage| damage.ledger == ledger.id);
        let damaged = of_it.map(damaged).collect();
        LedgerView {
            damaged,
            ..LedgerView::from(ledger)
        }
    };
    Ok(listed.into_iter().map(view).collect())
}

impl View for LedgerView {
    const FIELDS: &'static [Field] = &[
        Field::integer("ledger", "its number, never given twice"),
        Field::text("topic", "tenant/namespace/topic"),
        Field::integer("partition", "from 0"),
        Field::text("kind", "log or state"),
        Field::text("state", "open, in_recovery, closed or deleting"),
        Field::integer("base_offset", "of its first record"),
        Field::integer(
            "end_entry",
            "exclusive; known when closed, as are the next two",
        )
        .or_null(),
        Field::integer("records", "how many").or_null(),
        Field::integer("bytes", "stored").or_null(),
        Field::text("bookies[]", "that store it"),
        Field::text("loss", "what was lost, if anything").or_null(),
        Field::integer(
            "loss_from",
            "entry from which on something may be missing by it",
        )
        .or_null(),
        Field::text(
            "damaged[]",
            "entries found damaged at the bookie of the server that was asked; at or behind loss_from readers pass over them",
        ),
        Field::text(
            "lacking[]",
            "entries with fewer copies than there should be, and who lacks them",
        ),
    ];

    fn name(&self) -> String {
        self.ledger.to_string()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let narrow = [
            "LEDGER",
            "TOPIC",
            "PARTITION",
            "KIND",
            "STATE",
            "BASE",
            "RECORDS",
            "LOSS",
        ];
        let broad = [
            "LEDGER",
            "TOPIC",
            "PARTITION",
            "KIND",
            "STATE",
            "BASE",
            "RECORDS",
            "ENTRIES",
            "BYTES",
            "BOOKIES",
            "LACKING",
            "LOSS",
        ];
        // Hardly ever is there anything to say in it.
        let any_damaged = rows.iter().any(|ledger| !ledger.damaged.is_empty());
        let titles = if wide { &broad[..] } else { &narrow[..] };
        let titles = titles.iter().chain(any_damaged.then_some(&"DAMAGED"));
        let mut table = Table::new(&titles.copied().collect::<Vec<_>>());
        let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), grouped);
        for ledger in rows {
            let mut cells = vec![
                ledger.ledger.to_string(),
                ledger.topic.clone(),
                ledger.partition.to_string(),
                ledger.kind.clone(),
                ledger.state.clone(),
                grouped(ledger.base_offset),
                number(ledger.records),
            ];
            if wide {
                cells.push(number(ledger.end_entry));
                cells.push(ledger.bytes.map_or_else(|| "-".to_owned(), bytes));
                cells.push(ledger.bookies.join(","));
                cells.push(match ledger.lacking.is_empty() {
                    true => "-".to_owned(),
                    false => ledger.lacking.join("; "),
                });
            }
            cells.push(ledger.loss_words());
            if any_damaged {
                cells.push(match ledger.damaged.is_empty() {
                    true => "-".to_owned(),
                    false => ledger.damaged.join("; "),
                });
            }
            table.row(cells);
        }
        table.render()
    }
}

/// Runs it.
///
/// # Errors
/// The server's; a loss that was not confirmed.
pub(crate) async fn run(session: Session<'_>, command: &Ledgers) -> Result<(), Stop> {
    let admin = session.client()?.admin();
    match command {
        Ledgers::List { topic } => {
            let listed = listed(&admin, topic.as_deref().unwrap_or("")).await;
            let views = listed.map_err(|error| {
                let object = topic.as_deref().unwrap_or("all topics");
                Failure::from_sdk("cannot list ledgers", object, &error)
            })?;
            session.output.list(&views)
        }
        Ledgers::AcceptLoss { ledger, up_to } => {
            // Who says yes already is not held up by a look.
            if session.globals.dry_run || !session.globals.yes {
                let what = stake::find(&admin, LedgerId(*ledger), *up_to).await?;
                if !confirm(session, &what)? {
                    return Ok(());
                }
            }
            let object = format!("ledger {ledger}");
            let sealed = admin
                .accept_loss(LedgerId(*ledger), up_to.map(EntryId))
                .await;
            let sealed = sealed
                .map_err(|error| Failure::from_sdk("cannot accept the loss", &object, &error))?;
            session.output.one(&LedgerView::from(sealed))
        }
    }
}
