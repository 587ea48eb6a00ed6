//! Commands that come when the partition has ended.

use hulse_proto::error::Fault;

use super::task_side::CursorCommand;
use crate::partition::sharing::ShareCommand;

/// The answer to a command that comes too late.
pub(crate) fn refuse_late(command: CursorCommand, why: &Fault) {
    match command {
        CursorCommand::Make { answer, .. }
        | CursorCommand::Hold { answer, .. }
        | CursorCommand::Remove { answer, .. }
        | CursorCommand::Move(_, answer)
        | CursorCommand::Expire { answer, .. }
        | CursorCommand::Groups(_, answer)
        | CursorCommand::Ack(_, answer)
        | CursorCommand::Share(
            ShareCommand::Say(_, _, answer) | ShareCommand::Redrive { answer, .. },
        ) => {
            let _ = answer.send(Err(crate::partition::refusing::not_applied(why)));
        }
        CursorCommand::Attach { answer, .. } => {
            let _ = answer.send(Err(crate::partition::refusing::not_applied(why)));
        }
        CursorCommand::Share(ShareCommand::Attach { answer, .. }) => {
            let _ = answer.send(Err(crate::partition::refusing::not_applied(why)));
        }
        CursorCommand::Share(
            ShareCommand::Grant { .. } | ShareCommand::Leave(..) | ShareCommand::Pause { .. },
        )
        | CursorCommand::Skipped(..)
        | CursorCommand::Yielded(_)
        | CursorCommand::Detach(_)
        | CursorCommand::GroupsNow(_)
        | CursorCommand::Views { .. } => {}
    }
}
