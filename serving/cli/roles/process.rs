//! What every server process does around its parts: a log, a runtime, an end that is asked for.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{logging, signals};
use crate::arguments::Globals;
use crate::config::Config;
use crate::failure::{Code, Failure, Stop};
use crate::output::Output;

/// Runs a server on a runtime of its own. It is given its configuration, the token that asks for its end, and when it began.
///
/// # Errors
/// The server's.
pub(super) fn run(
    config: Config,
    globals: &Globals,
    output: Output,
    server: impl AsyncFnOnce(Config, CancellationToken, Instant) -> Result<(), Failure>,
) -> Result<(), Stop> {
    let began = Instant::now();
    logging::of_server(&config, globals.verbose, output);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Code::File, "cannot start a runtime")
            .why(error)
            .object("the process")
            .next("look at the limits of the process")
    })?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        signals::cancel_on_signal(shutdown.clone(), output)?;
        server(config, shutdown, began).await?;
        Ok(())
    })
}

/// Says what a person reads when a server starts.
pub(super) fn tell(output: Output, lines: Vec<String>) {
    if !output.quiet {
        for line in lines {
            output.tell(&line);
        }
    }
}
