//! The list of cases and how they are run.

use std::sync::Arc;

use super::{leases, limits, lists, txns, unknown, watches};
use crate::store::{BoxFuture, MetadataStore};

/// A case: a promise and its check, which panics when it is broken.
pub struct Case {
    /// The promise.
    pub sentence: &'static str,
    /// Checks it on a fresh store.
    pub check: fn(Arc<dyn MetadataStore>) -> BoxFuture<'static, ()>,
}

macro_rules! cases {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// Every promise.
        pub const CASES: &[Case] = &[$(Case {
            sentence: stringify!($name),
            check: |store| Box::pin($module::$name(store)),
        }),*];
    };
}

cases![
    txns::written_key_is_read_with_the_revision_that_wrote_it,
    txns::transaction_of_many_keys_applies_whole_or_not_at_all,
    txns::absent_exists_and_version_compare_what_is_there,
    txns::conflict_returns_each_compared_key_in_order,
    txns::revisions_grow_with_every_commit,
    txns::transaction_without_operations_only_compares,
    txns::concurrent_compare_and_set_loses_no_update,
    txns::reads_see_what_was_answered_and_never_go_back,
    txns::dropped_transaction_is_whole_or_absent,
    limits::requests_beyond_a_limit_are_invalid_and_change_nothing,
    limits::requests_at_a_limit_are_served,
    lists::keys_sort_bytewise_and_only_the_prefix_is_listed,
    lists::pages_join_without_gap_or_double,
    lists::pinned_pages_show_one_revision_under_writes,
    lists::pinned_page_before_any_write_is_empty,
    lists::revision_too_old_is_compacted_for_lists_and_watches,
    watches::watch_replays_from_an_old_revision_then_goes_live,
    watches::watch_of_a_prefix_sees_only_that_prefix,
    watches::watch_keeps_order_across_concurrent_writers,
    watches::watch_sees_a_lease_expire_without_other_calls,
    leases::lease_not_renewed_takes_its_keys_along,
    leases::renewed_lease_lives_on,
    leases::ended_lease_takes_all_keys_in_one_revision,
    leases::ended_lease_can_neither_be_renewed_nor_bound,
    leases::key_bound_anew_survives_its_former_lease,
    unknown::transaction_that_commits_after_a_later_read_is_resolved_by_its_nonce,
    unknown::transaction_that_never_commits_is_resolved_by_resending,
    unknown::late_transaction_never_undoes_a_newer_one,
    unknown::every_update_counts_once_under_seeded_unknown_outcomes,
];

/// Runs every case on a store of its own and tells how many there were.
///
/// # Panics
/// When a promise is broken; the last printed line names it.
pub async fn run<M, F>(make: M) -> usize
where
    M: Fn() -> F,
    F: Future<Output = Arc<dyn MetadataStore>>,
{
    for case in CASES {
        println!("conformance: {}", case.sentence);
        (case.check)(make().await).await;
    }
    CASES.len()
}
