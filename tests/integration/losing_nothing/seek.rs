//! Page "Losing nothing": what was acknowledged by mistake is still there.

use hulse_sdk::{Client, CursorSelection, Error, Start};

pub async fn again_from(client: &Client, ms_since_1970: i64) -> Result<(), Error> {
    let billing = CursorSelection::new("billing").topic("orders");
    let moved = client
        .admin()
        .seek_subscription(&billing, Start::Time(ms_since_1970), false)
        .await?;
    for cursor in moved {
        println!("{} to {}", cursor.old_base.0, cursor.new_base.0);
    }
    Ok(())
}
