//! Why an operation on a ledger did not succeed: one enum per operation.
//!
//! Each says what the caller does (`kind`); where it matters, `fate` says whether the operation may have taken effect.

mod reading;
mod shared;
mod writing;

pub use reading::{DeleteError, ReadError, RecoverError, SettleError};
pub use shared::{GuardFailed, MemberAnswer, MemberAnswers};
pub use writing::{AppendError, CloseError, CreateError, NotWritten, RollError, WriterEnd};
