//! A naive model of a store, for property tests: every state is kept whole, every rule is written out once more.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use proptest::prelude::*;
use tokio::time::{Instant, sleep};

use crate::store::{
    Compare, LeaseId, ListRequest, MetadataError, MetadataStore, Op, Revision, Txn, TxnOutcome,
    Versioned, WatchEvent,
};

const TTL: Duration = Duration::from_millis(1000);
const KEYS: [&str; 6] = ["a", "a/", "a/1", "a/2", "b", "b/1"];
const PREFIXES: [&str; 5] = ["", "a", "a/", "b", "c"];

/// One thing that a test does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Compares (key, kind) and operations (key, value, lease).
    Txn(
        Vec<(usize, u8)>,
        BTreeMap<usize, (Option<u8>, Option<usize>)>,
    ),
    Get(usize),
    /// Prefix, after, limit, how many revisions back.
    List(usize, Option<usize>, usize, Option<u64>),
    Grant,
    Renew(usize),
    End(usize),
    Sleep(u64),
}

/// Any step.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS.len();
    let op = (any::<Option<u8>>(), prop::option::weighted(0.4, 0..4usize));
    let compares = prop::collection::vec((key(), 0..4u8), 0..3);
    prop_oneof![
        6 => (compares, prop::collection::btree_map(key(), op, 0..4)).prop_map(|(c, o)| Step::Txn(c, o)),
        2 => key().prop_map(Step::Get),
        3 => (0..PREFIXES.len(), prop::option::of(key()), 1..8usize, prop::option::of(0..9u64))
            .prop_map(|(p, a, l, at)| Step::List(p, a, l, at)),
        1 => Just(Step::Grant),
        1 => (0..4usize).prop_map(Step::Renew),
        1 => (0..4usize).prop_map(Step::End),
        2 => (1..700u64).prop_map(Step::Sleep),
    ]
}

/// A runtime whose clock only moves when nothing else can.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

type Rows = BTreeMap<String, Versioned>;

struct Model {
    /// The state at each revision.
    states: Vec<Rows>,
    /// Leases that live, with their deadlines.
    alive: BTreeMap<LeaseId, Instant>,
    /// All that were ever granted.
    granted: Vec<LeaseId>,
}

impl Model {
    fn rows(&self) -> &Rows {
        self.states.last().unwrap()
    }

    fn revision(&self) -> Revision {
        Revision(self.states.len() as u64 - 1)
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let mut due: Vec<_> = self.alive.iter().map(|(id, at)| (*at, *id)).collect();
        due.sort();
        for (_, id) in due.into_iter().filter(|(at, _)| *at <= now) {
            self.alive.remove(&id);
            let mut rows = self.rows().clone();
            rows.retain(|_, row| row.lease != Some(id));
            if rows.len() < self.rows().len() {
                self.states.push(rows);
            }
        }
    }

    fn lease(&self, n: usize) -> LeaseId {
        let newest = self.granted.len().checked_sub(1 + n);
        newest.map_or(LeaseId(7_777_777_777), |at| self.granted[at])
    }

    fn compare(&self, key: usize, kind: u8) -> Compare {
        let name = KEYS[key].to_owned();
        let version = self.rows().get(&name).map(|row| row.version);
        match kind {
            0 => Compare::Absent(name),
            1 => Compare::Exists(name),
            2 => Compare::Version(name, version.unwrap_or(Revision(1))),
            _ => Compare::Version(name, Revision(self.revision().0 / 2)),
        }
    }

    fn txn(&mut self, txn: &Txn) -> Result<TxnOutcome, MetadataError> {
        let mut rows = self.rows().clone();
        let holds = |compare: &Compare| match (compare, rows.get(compare.key())) {
            (Compare::Absent(_), row) => row.is_none(),
            (Compare::Exists(_), row) => row.is_some(),
            (Compare::Version(_, version), row) => row.is_some_and(|r| r.version == *version),
        };
        if !txn.compares.iter().all(holds) {
            let current = txn.compares.iter().map(|c| rows.get(c.key()).cloned());
            return Ok(TxnOutcome::Conflict {
                current: current.collect(),
            });
        }
        let revision = Revision(self.revision().0 + u64::from(!txn.ops.is_empty()));
        for op in &txn.ops {
            match op {
                Op::Put {
                    lease: Some(id), ..
                } if !self.alive.contains_key(id) => {
                    return Err(MetadataError::LeaseEnded(id.0));
                }
                Op::Put { key, value, lease } => {
                    let row = Versioned {
                        key: key.clone(),
                        value: value.clone(),
                        version: revision,
                        lease: *lease,
                    };
                    rows.insert(key.clone(), row);
                }
                Op::Delete { key } => {
                    rows.remove(key);
                }
            }
        }
        if revision > self.revision() {
            self.states.push(rows);
        }
        Ok(TxnOutcome::Committed { revision })
    }

    fn list(&self, request: &ListRequest) -> (Vec<Versioned>, bool) {
        let at = request.at.unwrap_or(self.revision());
        let rows = self.states[usize::try_from(at.0).unwrap()].values();
        let after = request.after.as_deref();
        let mut rows: Vec<_> = rows
            .filter(|row| row.key.starts_with(&request.prefix))
            .filter(|row| after.is_none_or(|after| row.key.as_str() > after))
            .cloned()
            .collect();
        let more = rows.len() > request.limit;
        rows.truncate(request.limit);
        (rows, more)
    }
}

/// Does the steps on both and compares each answer, then every old state and the whole watch.
pub(crate) async fn check(store: &dyn MetadataStore, steps: Vec<Step>) {
    let mut model = Model {
        states: vec![Rows::new()],
        alive: BTreeMap::new(),
        granted: Vec::new(),
    };
    for step in steps {
        model.expire();
        take(store, &mut model, step).await;
    }
    model.expire();
    check_history(store, &model).await;
}

async fn take(store: &dyn MetadataStore, model: &mut Model, step: Step) {
    match step {
        Step::Txn(compares, ops) => {
            let compares = compares
                .iter()
                .map(|(key, kind)| model.compare(*key, *kind));
            let ops = ops.into_iter().map(|(key, (value, lease))| {
                let key = KEYS[key].to_owned();
                match value {
                    Some(value) => Op::Put {
                        key,
                        value: Bytes::from(vec![value; usize::from(value)]),
                        lease: lease.map(|n| model.lease(n)),
                    },
                    None => Op::Delete { key },
                }
            });
            let (compares, ops) = (compares.collect(), ops.collect());
            let txn = Txn { compares, ops };
            assert_eq!(store.txn(txn.clone()).await, model.txn(&txn), "{txn:?}");
        }
        Step::Get(key) => {
            let found = store.get(KEYS[key]).await.unwrap();
            assert_eq!(found.as_ref(), model.rows().get(KEYS[key]));
        }
        Step::List(prefix, after, limit, back) => {
            let request = ListRequest {
                prefix: PREFIXES[prefix].to_owned(),
                after: after.map(|key| KEYS[key].to_owned()),
                limit,
                at: back.map(|back| Revision(model.revision().0.saturating_sub(back))),
            };
            let page = store.list(request.clone()).await.unwrap();
            assert_eq!(page.revision, request.at.unwrap_or(model.revision()));
            assert_eq!((page.items, page.more), model.list(&request), "{request:?}");
        }
        Step::Grant => {
            let lease = store.grant_lease(TTL).await.unwrap();
            assert!(!model.granted.contains(&lease));
            model.granted.push(lease);
            model.alive.insert(lease, Instant::now() + TTL);
        }
        Step::Renew(n) => {
            let lease = model.lease(n);
            let expected = match model.alive.get_mut(&lease) {
                Some(deadline) => {
                    *deadline = Instant::now() + TTL;
                    Ok(())
                }
                None => Err(MetadataError::LeaseEnded(lease.0)),
            };
            assert_eq!(store.renew_lease(lease).await, expected);
        }
        Step::End(n) => {
            let lease = model.lease(n);
            store.end_lease(lease).await.unwrap();
            if let Some(deadline) = model.alive.get_mut(&lease) {
                *deadline = Instant::now();
            }
            model.expire();
        }
        Step::Sleep(ms) => sleep(Duration::from_millis(ms)).await,
    }
}

async fn check_history(store: &dyn MetadataStore, model: &Model) {
    for at in 0..=model.revision().0 {
        let request = ListRequest {
            prefix: String::new(),
            after: None,
            limit: KEYS.len(),
            at: Some(Revision(at)),
        };
        let page = store.list(request.clone()).await.unwrap();
        assert_eq!((page.items, page.more), model.list(&request), "at {at}");
    }
    let mut rows = Rows::new();
    let mut last = Revision(0);
    let mut watch = store.watch("", Revision(0));
    while let Some(event) = watch.next().now_or_never() {
        let event = event.unwrap().unwrap();
        let revision = match event {
            WatchEvent::Put(row) => {
                let version = row.version;
                rows.insert(row.key.clone(), row);
                version
            }
            WatchEvent::Deleted { key, revision } => {
                assert!(rows.remove(&key).is_some(), "{key} was deleted unseen");
                revision
            }
        };
        assert!(revision >= last, "{revision:?} after {last:?}");
        last = revision;
    }
    assert_eq!(&rows, model.rows());
}
