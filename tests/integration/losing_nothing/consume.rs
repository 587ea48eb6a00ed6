//! Page "Losing nothing": acknowledge what is done, and wait for the receipt.

use hulse_sdk::{Client, Error, ReceivedRecord, Start};

pub async fn consume(
    client: &Client,
    mut work: impl FnMut(&ReceivedRecord),
    count: usize,
) -> Result<(), Error> {
    let consumer = client
        .consumer("orders")
        .subscription("billing")
        .start(Start::Earliest) // where it begins when it is made
        .build()
        .await?;
    for done in 1..=count {
        let Some(record) = consumer.receive().await? else {
            break;
        };
        work(&record); // first the work …
        let acknowledged = consumer.ack_cumulative(&record); // … then the ack
        if done % 100 == 0 || done == count {
            acknowledged.await?; // the receipt: up to here nothing comes again
        }
    }
    let left = consumer.close().await?;
    println!("without a receipt, so they come again: {left}");
    Ok(())
}
