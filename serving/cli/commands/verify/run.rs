//! Which of the two it is, and how it ends.

use std::path::Path;

use super::view::VerifyView;
use super::{directory, topic};
use crate::arguments::Verify;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::grouped;

/// Runs it.
///
/// # Errors
/// Something is damaged or missing (the answer is printed then too), or it could not be looked at.
pub(crate) async fn run(session: Session<'_>, verify: &Verify) -> Result<(), Stop> {
    let named = Path::new(&verify.target);
    if !verify.topic && is_path(&verify.target) && !named.exists() {
        return Err(Failure::new(Code::NotADirectory, "there is no such directory")
            .why("the name is a path, so a data directory is meant, and nothing is there")
            .object(named.display())
            .next("name the directory of node.data_dir (hulse config show), or a topic: hulse verify TOPIC")
            .into());
    }
    let folder = directory::find(named).filter(|_| !verify.topic);
    let view = match folder {
        Some(folder) => directory::verify(&verify.target, &folder, session.output)?,
        None => topic::verify(session, &verify.target).await?,
    };
    session.output.one(&view)?;
    ended(session, &view)
}

/// True of what cannot be the name of a topic, but of a directory.
fn is_path(target: &str) -> bool {
    let begins = ["/", "./", "../", "~"]
        .iter()
        .any(|head| target.starts_with(head));
    begins || target.ends_with('/') || target == "." || target == ".."
}

fn ended(session: Session<'_>, view: &VerifyView) -> Result<(), Stop> {
    if view.clean {
        let up_to = view.up_to();
        let unnumbered = view.records.zip(view.numbered);
        let unnumbered = unnumbered.map_or(0, |(records, numbered)| records - numbered);
        session.output.say(&match (unnumbered, view.numbered) {
            (0, _) => format!("nothing is damaged or missing, {up_to}"),
            (_, Some(0)) => format!(
                "every offset is there, {up_to}; records carry no numbers, so nothing is known of what never arrived (hulse produce --number)"
            ),
            (count, _) => format!(
                "nothing is damaged or missing, {up_to}; {} records carry no numbers, so nothing is known of what never arrived beside them",
                grouped(count)
            ),
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_told_from_a_topic() {
        for path in ["./nodir", "../x", "/srv/hulse", "nodir/", ".", "~/data"] {
            assert!(is_path(path), "{path}");
        }
        for topic in ["orders", "acme/shop/orders", "hulse-data", "a.b"] {
            assert!(!is_path(topic), "{topic}");
        }
    }
}
