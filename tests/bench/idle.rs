//! Start, idle memory, client commands.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tokio::runtime::Runtime;

use super::server::Server;
use super::table::{Table, median};

const ROUNDS: usize = 7;

pub(crate) fn measure(folder: &Path, table: &mut Table, _runtime: &Runtime) -> anyhow::Result<()> {
    let mut ready = Vec::new();
    for _ in 0..ROUNDS {
        ready.push(Server::start(folder, "always")?.ready_after);
    }
    let ready = median(&mut ready);
    table.row(
        "ready on an empty directory",
        &format!("{ready:.0?}"),
        "-",
        "-",
        "at most 500 ms",
    );
    let server = Server::start(folder, "always")?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    table.row(
        "idle memory",
        &format!("{:.1} MB", server.resident()?),
        "-",
        "-",
        "at most 60 MB",
    );
    let mut plain = Vec::new();
    let mut command = Vec::new();
    for _ in 0..ROUNDS * 3 {
        let began = Instant::now();
        Command::new("/bin/true").status()?;
        plain.push(began.elapsed());
        let began = Instant::now();
        let status = Command::new(env!("CARGO_BIN_EXE_hulse"))
            .args(["--server", &Server::address(), "topics", "list"])
            .stdout(std::process::Stdio::null())
            .status()?;
        anyhow::ensure!(status.success(), "`hulse topics list` failed");
        command.push(began.elapsed());
    }
    let (plain, command) = (median(&mut plain), median(&mut command));
    table.row(
        "`hulse topics list`",
        &format!("{command:.1?}"),
        &format!("/bin/true {plain:.1?}"),
        "-",
        "at most 50 ms",
    );
    Ok(())
}
