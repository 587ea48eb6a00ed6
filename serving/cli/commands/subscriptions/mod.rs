//! `hulse subscriptions`: list, create, describe, seek, skip, clear, delete.

mod moving;
mod run;
mod view;

pub(crate) use moving::one_place;
pub(crate) use run::run;
pub(crate) use view::{MovedView, SubscriptionRow, SubscriptionView};
