//! etcd as a [`MetadataStore`], through the gateway; without watches and leases, which partitions and ledgers do not use.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bookie_metadata::{
    BoxFuture, Compare, LeaseId, ListRequest, MetadataError, MetadataStore, Op, Page, Revision,
    Txn, TxnOutcome, Versioned, WatchStream,
};
use bytes::Bytes;
use serde_json::{Value, json};

use super::http::Gateway;

/// The store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EtcdStore(pub(crate) Arc<Gateway>);

impl EtcdStore {
    /// Reads keys `from..end` at a revision (0: now).
    async fn range(&self, body: Value) -> Result<Value, MetadataError> {
        let answered = self.0.post("/v3/kv/range", &body).await;
        let (status, answer) = answered.map_err(|error| unavailable(&error.to_string()))?;
        match status {
            200 => Ok(answer),
            _ => Err(refused(&answer, false)),
        }
    }
}

impl MetadataStore for EtcdStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        let body = json!({ "key": encode(key.as_bytes()) });
        Box::pin(async move { Ok(rows(&self.range(body).await?)?.pop()) })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            let answered = self.0.post("/v3/kv/txn", &transaction(&txn)).await;
            let (status, answer) = answered.map_err(|error| MetadataError::OutcomeUnknown {
                why: error.to_string(),
            })?;
            if status != 200 {
                return Err(refused(&answer, true));
            }
            if answer["succeeded"] == true {
                let revision = number(&answer["header"]["revision"])?;
                return Ok(TxnOutcome::Committed {
                    revision: Revision(revision),
                });
            }
            let none = Vec::new();
            let found = answer["responses"].as_array().unwrap_or(&none);
            let current = found
                .iter()
                .map(|found| Ok(rows(&found["response_range"])?.pop()))
                .collect::<Result<_, MetadataError>>()?;
            Ok(TxnOutcome::Conflict { current })
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        Box::pin(async move {
            let mut first = request
                .after
                .clone()
                .unwrap_or_else(|| request.prefix.clone())
                .into_bytes();
            if request.after.is_some() {
                first.push(0);
            }
            let mut end = request.prefix.into_bytes();
            // Prefixes of ours end in `/`, so there is a next byte.
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            let answer = self
                .range(json!({
                    "key": encode(&first),
                    "range_end": encode(&end),
                    "limit": request.limit,
                    "revision": request.at.map_or(0, |at| at.0),
                }))
                .await?;
            let now = Revision(number(&answer["header"]["revision"])?);
            Ok(Page {
                items: rows(&answer)?,
                revision: request.at.unwrap_or(now),
                more: answer["more"] == true,
            })
        })
    }

    fn watch(&self, _: &str, _: Revision) -> WatchStream {
        Box::pin(futures::stream::once(async {
            Err(unavailable("not through the gateway"))
        }))
    }

    fn grant_lease(&self, _: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        Box::pin(async { Err(unavailable("not through the gateway")) })
    }

    fn renew_lease(&self, _: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(async { Err(unavailable("not through the gateway")) })
    }

    fn end_lease(&self, _: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(async { Err(unavailable("not through the gateway")) })
    }
}

/// Compares, and for a conflict a look at each compared key.
pub(crate) fn transaction(txn: &Txn) -> Value {
    let compares = txn.compares.iter().map(|compare| {
        let key = encode(compare.key().as_bytes());
        match compare {
            Compare::Absent(_) => {
                json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" })
            }
            Compare::Exists(_) => {
                json!({ "key": key, "target": "CREATE", "result": "GREATER", "create_revision": "0" })
            }
            Compare::Version(_, version) => {
                json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": version.0.to_string() })
            }
        }
    });
    let ops = txn.ops.iter().map(|op| match op {
        Op::Put { key, value, .. } => {
            json!({ "request_put": { "key": encode(key.as_bytes()), "value": encode(value) } })
        }
        Op::Delete { key } => {
            json!({ "request_delete_range": { "key": encode(key.as_bytes()) } })
        }
    });
    let looks = txn
        .compares
        .iter()
        .map(|compare| json!({ "request_range": { "key": encode(compare.key().as_bytes()) } }));
    json!({
        "compare": compares.collect::<Vec<_>>(),
        "success": ops.collect::<Vec<_>>(),
        "failure": looks.collect::<Vec<_>>(),
    })
}

fn rows(answer: &Value) -> Result<Vec<Versioned>, MetadataError> {
    let none = Vec::new();
    let found = answer["kvs"].as_array().unwrap_or(&none);
    found
        .iter()
        .map(|row| {
            let key = String::from_utf8(decode(&row["key"])?).map_err(|_| strange("a key"))?;
            Ok(Versioned {
                key,
                value: Bytes::from(decode(&row["value"])?),
                version: Revision(number(&row["mod_revision"])?),
                lease: None,
            })
        })
        .collect()
}

/// A refusal in etcd's words.
fn refused(answer: &Value, transaction: bool) -> MetadataError {
    let why = answer["message"].as_str().unwrap_or("no words").to_owned();
    match why.as_str() {
        why if why.contains("compacted") => MetadataError::Compacted {
            asked: 0,
            oldest: 0,
        },
        text if text.contains("too large") || text.contains("too many") => {
            MetadataError::Invalid { why }
        }
        // Its quota is used up: nothing was changed.
        text if text.contains("space exceeded") => MetadataError::Unavailable { why },
        // A time-out or a change of leader after the proposal.
        _ if transaction => MetadataError::OutcomeUnknown { why },
        _ => MetadataError::Unavailable { why },
    }
}

fn unavailable(why: &str) -> MetadataError {
    MetadataError::Unavailable {
        why: why.to_owned(),
    }
}

fn strange(what: &str) -> MetadataError {
    MetadataError::Corrupt {
        why: format!("{what} in the gateway's answer"),
    }
}

fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes; a missing field is empty.
fn decode(value: &Value) -> Result<Vec<u8>, MetadataError> {
    let text = value.as_str().unwrap_or_default();
    STANDARD.decode(text).map_err(|_| strange("base64"))
}

/// A 64-bit number, which the gateway writes as text.
fn number(value: &Value) -> Result<u64, MetadataError> {
    let text = value.as_str().unwrap_or("0");
    text.parse().map_err(|_| strange("a number"))
}
