//! What needs no etcd: addresses, prefixes.

use crate::etcd::keyspace::Keyspace;
use crate::etcd::{EtcdOptions, EtcdStore};
use crate::store::{ListRequest, MetadataError};
use hulse_proto::wire::etcd::KeyValue;

#[tokio::test]
async fn address_that_is_none_is_refused_with_an_example() {
    for bad in [
        "",
        "10.0.0.1:2379",
        "https://10.0.0.1:2379",
        "http://",
        "a b",
    ] {
        let options = EtcdOptions::new([bad.to_owned()], "cell/");
        let Err(MetadataError::Invalid { why }) = EtcdStore::new(options).map(drop) else {
            panic!("{bad:?} is taken");
        };
        assert!(why.contains("http://10.0.0.1:2379"), "{why}");
    }
    let none = EtcdStore::new(EtcdOptions::new([], "cell/"));
    assert!(matches!(none.map(drop), Err(MetadataError::Invalid { .. })));
    let odd = EtcdOptions::new(["http://10.0.0.1:2379".to_owned()], "schlüssel/");
    let odd = EtcdStore::new(odd);
    assert!(matches!(odd.map(drop), Err(MetadataError::Invalid { .. })));
}

#[test]
fn keys_of_another_cell_are_outside_of_every_range() {
    let keys = Keyspace::new("a/".to_owned());
    let request = |after: Option<&str>| ListRequest {
        prefix: "t/".to_owned(),
        after: after.map(str::to_owned),
        limit: 1,
        at: None,
    };
    let range = keys.range(&request(None));
    assert_eq!(range, (b"a/t/".to_vec(), b"a/t0".to_vec()));
    let range = keys.range(&request(Some("t/x")));
    assert_eq!(range, (b"a/t/x\0".to_vec(), b"a/t0".to_vec()));
    let range = keys.range(&request(Some("s")));
    assert_eq!(range, (b"a/t/".to_vec(), b"a/t0".to_vec()));
    let stray = KeyValue {
        key: "b/t/x".into(),
        ..KeyValue::default()
    };
    let error = keys.row(stray).unwrap_err();
    assert!(matches!(error, MetadataError::Corrupt { .. }), "{error}");
}
