//! User stories against the real binary, its real disk, real sockets and real signals.
//!
//! Each test has ports of its own below the ephemeral range, so that a redialling client can never meet itself. A test whose input
//! cannot be had reports NOT RUN, which makes `tests/run` fail with 3: it is never counted as passed.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on ends there, and says where"
)]

mod below;
mod cli;
mod cluster;
mod cursors;
mod delivery;
mod delivery_modes;
mod endurance;
mod flights;
mod flips;
mod full_disk;
mod journeys;
mod kafka;
mod kafka_producers;
mod losing_nothing;
mod misuse;
mod numbers;
mod old_disks;
mod pages;
mod proxy;
mod queue;
mod recreation;
mod refusals;
mod report;
mod retention;
mod server;
mod shared_work;
mod slow_full;
mod space;
mod stream_groups;
mod subscription_commands;
mod subscriptions;
mod torn;
mod volume;
