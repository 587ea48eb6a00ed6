//! Page "Losing nothing": numbers at one end, a count at the other.

use hulse_sdk::numbers::{NumberChecker, NumberStamper};
use hulse_sdk::{Client, Error, Record, Start};

pub async fn prove(client: &Client) -> Result<(), Error> {
    let producer = client
        .producer("proven")
        .interceptor(NumberStamper::new()) // a number on each record
        .build()
        .await?;
    for number in 0..1_000 {
        drop(producer.send(Record::new(format!("{number}"))).await?);
    }
    producer.close().await?;

    let checker = NumberChecker::new();
    let mut reader = client
        .reader("proven")
        .start(Start::Earliest)
        .follow(false)
        .interceptor(checker.clone()) // missing, doubled, displaced?
        .build()
        .await?;
    while reader.next().await?.is_some() {}
    let report = checker.report();
    assert!(report.records == 1_000 && report.is_clean(), "{report:?}");
    Ok(())
}
