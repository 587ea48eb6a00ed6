//! Which of the two it is, and how it ends.

use std::path::Path;

use super::view::VerifyView;
use super::{directory, topic};
use crate::arguments::Verify;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};

/// Runs it.
///
/// # Errors
/// Something is damaged or missing (the answer is printed then too), or it could not be looked at.
pub(crate) async fn run(session: Session<'_>, verify: &Verify) -> Result<(), Stop> {
    let named = Path::new(&verify.target);
    let folder = directory::find(named).filter(|_| !verify.topic);
    let view = match folder {
        Some(folder) => directory::verify(&verify.target, &folder, session.output)?,
        None => topic::verify(session, &verify.target).await?,
    };
    session.output.one(&view)?;
    ended(session, &view)
}

fn ended(session: Session<'_>, view: &VerifyView) -> Result<(), Stop> {
    if view.clean {
        if view.kind == "topic" && view.numbered == Some(0) && view.records > Some(0) {
            session.output.say(
                "every offset is there; records carry no numbers, so nothing is known of what never arrived \
                 (hulse produce --number)",
            );
        } else {
            session.output.say("nothing is damaged or missing");
        }
        return Ok(());
    }
    let next = match view.kind.as_str() {
        "topic" => "hulse ledgers list TOPIC tells what was lost; hulse doctor looks for the cause",
        _ => "keep the directory as it is; a start reports the damage and serves what is whole",
    };
    Err(Failure::new(Code::Incomplete, "not everything is there")
        .why("see above")
        .object(&view.target)
        .next(next)
        .into())
}
