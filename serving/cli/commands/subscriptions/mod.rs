//! `hulse subscriptions`: list, create, update, describe, pause, resume, redrive, seek, skip, clear, delete.

mod cursors;
mod keeping;
mod moved;
mod moving;
mod pace;
mod pausing;
mod redriving;
mod run;
mod view;

pub(crate) use cursors::SubscriptionView;
pub(crate) use moved::{MovedView, RedrivenView};
pub(crate) use moving::one_place;
pub(crate) use run::{of_topic, run};
pub(crate) use view::SubscriptionRow;
