//! The contract over HTTP: an S3 server in this process, whose buckets are folders.
//!
//! The server looks whether a condition holds and writes afterwards, without a lock: requests with a condition pass one at a time here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hulse_proto::id::{LedgerId, Offset};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::TokioIo;
use object_store::aws::AmazonS3Builder;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::contract::{self, Scene};
use crate::protocol::{ObjectError, UploadError};
use crate::store::{Bucket, BucketConfig, verify};
use crate::testing::closed_ledger;

/// Answers that are errors before the server works again.
#[derive(Default)]
struct Trouble {
    left: AtomicU32,
}

impl Trouble {
    fn take(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        let before = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        before.is_ok()
    }
}

async fn answer(
    request: Request<Incoming>,
    (service, lock, trouble): (S3Service, Arc<Mutex<()>>, Arc<Trouble>),
) -> Result<Response<s3s::Body>, s3s::HttpError> {
    if trouble.take() {
        let mut busy = Response::new(s3s::Body::empty());
        *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return Ok(busy);
    }
    let headers = request.headers();
    let conditional = headers.contains_key("if-match") || headers.contains_key("if-none-match");
    let _alone = match conditional {
        true => Some(lock.lock().await),
        false => None,
    };
    service.call(request.map(s3s::Body::from)).await
}

/// A server over a folder, until the runtime ends; its URL.
async fn serve(root: &std::path::Path, trouble: &Arc<Trouble>) -> String {
    let files = s3s_fs::FileSystem::new(root).unwrap();
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single("key", "secret"));
    let parts = (
        builder.build(),
        Arc::new(Mutex::new(())),
        Arc::clone(trouble),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let parts = parts.clone();
            let service = service_fn(move |request| answer(request, parts.clone()));
            let socket = TokioIo::new(socket);
            tokio::spawn(http1::Builder::new().serve_connection(socket, service));
        }
    });
    url
}

fn client(url: &str, retries: usize) -> Arc<dyn ObjectStore> {
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(5),
            max_backoff: Duration::from_millis(20),
            base: 2.0,
        },
        max_retries: retries,
        retry_timeout: Duration::from_secs(30),
    };
    let builder = AmazonS3Builder::new()
        .with_bucket_name("segments")
        .with_endpoint(url)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .with_retry(retry);
    Arc::new(builder.build().unwrap())
}

fn with_server<F: Future<Output = ()>>(test: impl FnOnce(String, Arc<Trouble>) -> F) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("segments")).unwrap();
    super::runtime().block_on(async {
        let trouble = Arc::new(Trouble::default());
        let url = serve(root.path(), &trouble).await;
        test(url, trouble).await;
    });
}

#[test]
fn s3_keeps_the_contract() {
    with_server(async |url, _| {
        contract::all(client(&url, 3)).await;
        // And any other server that is named, whose bucket `segments` the key `key` with the secret `secret` may use.
        if let Ok(named) = std::env::var("HULSE_TEST_S3_ENDPOINT") {
            contract::all(client(&named, 3)).await;
        }
    });
}

#[test]
fn upload_outlives_a_store_that_is_busy_for_a_while() {
    with_server(async |url, trouble| {
        let ledger = closed_ledger(LedgerId(3), Offset(0), &[300_000; 40]);
        let mut scene = Scene::new(client(&url, 10), vec![ledger]);
        let order = scene.order();
        trouble.left.store(4, Ordering::SeqCst);
        let uploaded = scene.upload(&order).await.unwrap();
        trouble.left.store(4, Ordering::SeqCst);
        verify(&scene.fetcher, &order.attempt, &uploaded)
            .await
            .unwrap();
    });
}

#[test]
fn store_that_stays_busy_is_unavailable_and_proves_nothing() {
    with_server(async |url, trouble| {
        let ledger = closed_ledger(LedgerId(3), Offset(0), &[1000; 4]);
        let mut scene = Scene::new(client(&url, 1), vec![ledger]);
        let order = scene.order();
        let uploaded = scene.upload(&order).await.unwrap();
        trouble.left.store(u32::MAX, Ordering::SeqCst);
        let again = scene.order();
        let failed = scene.upload(&again).await.unwrap_err();
        let unavailable = |error: &ObjectError| matches!(error, ObjectError::Unavailable { .. });
        assert!(matches!(failed, UploadError::Object(error) if unavailable(&error)));
        let looked = verify(&scene.fetcher, &order.attempt, &uploaded).await;
        let error = looked.unwrap_err();
        assert!(unavailable(&error) && !error.is_proof(), "{error}");
    });
}

#[test]
fn bucket_that_config_names_is_listed_page_by_page() {
    with_server(async |endpoint, _| {
        let config = BucketConfig::S3 {
            bucket: "segments".to_owned(),
            endpoint,
            region: "us-east-1".to_owned(),
            access_key: "key".to_owned(),
            secret_key: "secret".to_owned(),
        };
        let bucket = Bucket::open("main", "hulse/test", &config).unwrap();
        contract::listing_goes_on_where_it_stopped(&bucket).await;
    });
}
