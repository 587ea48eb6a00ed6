//! A partition under fire: two brokers that take it from each other, producers that resend, readers that follow; and, in suites of
//! their own, consumers that ack, and consumers that share.

mod consumers;
mod plan;
mod successions;

pub use consumers::Consumers;
pub use plan::{
    end, finish, finish_with, judge_log, run, run_consumed, run_consumed_with, run_shared,
    run_shared_with, run_with, show, sizes, start_producers, wait_for,
};
