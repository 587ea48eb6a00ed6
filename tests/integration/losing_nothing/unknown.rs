//! Page "Losing nothing": a producer that was killed is continued, and finds out what it had stored.

use hulse_sdk::{Client, Error, ProducerIdentity, Record};

/// Sends `lines` to partition 0; `earlier` is what the run before kept.
pub async fn import(
    client: &Client,
    lines: &[String],
    earlier: Option<ProducerIdentity>,
    keep: impl FnOnce(ProducerIdentity),
) -> Result<(), Error> {
    let mut builder = client.producer("imported");
    if let Some(identity) = earlier {
        builder = builder.resume(identity);
    }
    let producer = builder.build().await?;
    let identity = producer.identity().await?;
    keep(identity.expect("a producer is idempotent unless told otherwise"));
    // Records of this producer are numbered from 0 in each partition.
    let stored = producer.last_sequence(0).await? + 1;
    for line in &lines[stored as usize..] {
        let record = Record::new(line.clone()).partition(0);
        drop(producer.send(record).await?); // flush() tells what becomes of it
    }
    producer.flush().await?;
    producer.close().await
}
