//! `hulse subscriptions`: list, create, update, describe, seek, skip, clear, delete.

mod keeping;
mod moving;
mod run;
mod view;

pub(crate) use moving::one_place;
pub(crate) use run::{of_topic, run};
pub(crate) use view::{MovedView, SubscriptionRow, SubscriptionView};
