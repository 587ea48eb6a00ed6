//! Limits of a request.

use std::sync::Arc;

use bytes::Bytes;

use super::steps::{commit, get, list, page, put, put_op, txn};
use crate::basis::check::{KEY_BYTES_MAX, TXN_BYTES_MAX};
use crate::store::{Compare, MetadataError, MetadataStore, Op, TXN_OPS_MAX, Txn, VALUE_BYTES_MAX};

type Store = Arc<dyn MetadataStore>;

fn many(count: usize) -> Txn {
    txn([], (0..count).map(|n| put_op(&format!("many/{n}"), "x")))
}

fn long_value(bytes: usize) -> Op {
    Op::put("long", Bytes::from(vec![7; bytes]))
}

pub(super) async fn requests_beyond_a_limit_are_invalid_and_change_nothing(store: Store) {
    let before = put(&*store, "k", "v").await;
    let mut compared = many(TXN_OPS_MAX);
    compared.compares.push(Compare::Exists("k".to_owned()));
    let heavy = (0..=TXN_BYTES_MAX / VALUE_BYTES_MAX)
        .map(|n| Op::put(format!("heavy/{n}"), Bytes::from(vec![7; VALUE_BYTES_MAX])));
    let delete = Op::Delete {
        key: "k".to_owned(),
    };
    for invalid in [
        many(TXN_OPS_MAX + 1),
        compared,
        txn([], [long_value(VALUE_BYTES_MAX + 1)]),
        txn([], heavy),
        txn([], [put_op("k", "1"), put_op("k", "2")]),
        txn([], [delete.clone(), put_op("k", "2")]),
        txn([], [put_op("", "x")]),
        txn([], [put_op("schlüssel", "x")]),
        txn([], [put_op(&"k".repeat(KEY_BYTES_MAX + 1), "x")]),
        txn([Compare::Absent(String::new())], []),
    ] {
        let error = store.txn(invalid).await.expect_err("invalid");
        assert!(matches!(error, MetadataError::Invalid { .. }), "{error}");
    }
    let empty = store.get("").await;
    assert!(matches!(empty, Err(MetadataError::Invalid { .. })));
    let nothing = store.list(page("", 0)).await;
    assert!(matches!(nothing, Err(MetadataError::Invalid { .. })));
    let eternal = store.grant_lease(std::time::Duration::ZERO).await;
    assert!(matches!(eternal, Err(MetadataError::Invalid { .. })));
    let all = list(&*store, page("", 10)).await;
    assert_eq!((all.items.len(), all.revision), (1, before));
}

pub(super) async fn requests_at_a_limit_are_served(store: Store) {
    commit(&*store, many(TXN_OPS_MAX)).await;
    assert_eq!(
        list(&*store, page("many/", 1000)).await.items.len(),
        TXN_OPS_MAX
    );
    commit(&*store, txn([], [long_value(VALUE_BYTES_MAX)])).await;
    let long = get(&*store, "long").await.expect("written");
    assert_eq!(long.value, vec![7; VALUE_BYTES_MAX]);
    let key = "k".repeat(KEY_BYTES_MAX);
    put(&*store, &key, "x").await;
    assert!(get(&*store, &key).await.is_some());
    put(&*store, "empty", "").await;
    assert_eq!(get(&*store, "empty").await.expect("written").value.len(), 0);
}
