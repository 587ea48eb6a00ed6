//! SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::{Code, Failure};
use crate::output::Output;

/// Exit code after a second signal.
const ABORTED: i32 = 1;

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| {
        Failure::new(Code::File, "cannot listen for signals")
            .why(error)
            .object("the process")
            .next("look at the limits of the process")
    })
}

/// Cancels the token at the first signal. Must be called inside a runtime.
///
/// # Errors
/// The operating system refuses.
pub(crate) fn cancel_on_signal(shutdown: CancellationToken, output: Output) -> Result<(), Failure> {
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    tokio::spawn(async move {
        let mut signals = 0;
        loop {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            signals += 1;
            if signals > 1 {
                output.tell("second signal: ending at once");
                std::process::exit(ABORTED);
            }
            output.say("ending: confirming what was sent; a second signal ends at once");
            shutdown.cancel();
        }
    });
    Ok(())
}
