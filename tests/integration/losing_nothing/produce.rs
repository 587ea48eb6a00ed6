//! Page "Losing nothing": a record is stored when its ticket says so.

use hulse_sdk::{Client, DeliveryMode, Error, Record};

pub async fn produce(client: &Client) -> Result<(), Error> {
    let producer = client
        .producer("orders")
        .delivery_mode(DeliveryMode::AtLeastOnce) // the default
        .build()
        .await?;
    let ticket = producer.send(Record::new("two pears").key("ann")).await?; // queued
    let receipt = ticket.await?; // on the disk: it may be forgotten here
    println!("partition {} {:?}", receipt.partition, receipt.offset);
    producer.close().await // sends what is queued, tells what failed
}
