//! Asks before something is destroyed.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use super::session::Session;
use crate::failure::{Code, Failure};

/// True when the user agrees: by `--yes`, or by typing `yes` at a terminal. False for a dry run, which is told so: then nothing may be
/// changed. A command that asks here says in `shapes` that it knows `--dry-run`.
///
/// # Errors
/// They do not agree, or there is nobody to ask.
pub(crate) fn confirm(session: Session<'_>, what: &str) -> Result<bool, Failure> {
    if session.globals.dry_run {
        session
            .output
            .say(&format!("would {what} (dry run, nothing was changed)"));
        return Ok(false);
    }
    let next = "run it again with --yes; with --dry-run it only says what would be done";
    ask(session, what, next).map(|()| true)
}

/// As [`confirm`], for a command that has no dry run.
///
/// # Errors
/// Likewise.
pub(crate) fn agreed(session: Session<'_>, what: &str) -> Result<(), Failure> {
    ask(session, what, "run it again with --yes")
}

fn ask(session: Session<'_>, what: &str, next: &str) -> Result<(), Failure> {
    if session.globals.yes {
        return Ok(());
    }
    let refused = |why: &str| {
        Failure::new(Code::Unconfirmed, "nothing was changed")
            .why(why)
            .object(what)
            .next(next)
    };
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(refused(
            "it must be confirmed, and nobody is at a terminal to do so",
        ));
    }
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "{what}? Type yes: ");
    let _ = stderr.flush();
    let mut answer = String::new();
    match stdin.lock().read_line(&mut answer) {
        Ok(_) if answer.trim() == "yes" => Ok(()),
        _ => Err(refused("it was not confirmed")),
    }
}
