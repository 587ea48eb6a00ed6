//! The HTTP listener: metrics and probes, for machines that watch this one.
//!
//! `/livez`: the process answers. `/startupz`: the listeners serve. `/readyz`: they serve and metadata answer; asked at most once a
//! second, whoever asks. A full disk does not make it unready, for what is stored is served and what frees space is taken; it is said.
//! `/readyz/stop` and `/readyz/restart`: see [`crate::restart`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bookie_metadata::MetadataStore;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::listener::HttpDoor;
use crate::restart::{RestartChecks, RestartRole};

/// A key whose reading shows that metadata answer; it need not exist.
const PROBE_KEY: &str = "cell";
/// Metadata that take longer are not ready.
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// So long a check of restarts asks.
const CHECK_WAIT: Duration = Duration::from_secs(5);
/// An answer is good for this long.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Says how full the disk is of the bookie in the same process: `normal`, `low`, or what takes no records.
pub type StorageMode = Arc<dyn Fn() -> &'static str + Send + Sync>;

/// What the probes look at. Shared with whoever starts and stops the listeners.
pub struct Probes {
    registry: Arc<Registry>,
    metadata: Arc<dyn MetadataStore>,
    storage: Option<StorageMode>,
    serving: AtomicBool,
    started: AtomicBool,
    last: Mutex<Option<(Instant, Result<(), String>)>>,
    restart: OnceLock<RestartChecks>,
}

impl Probes {
    /// Not serving yet. `storage`: of the bookie in this process, if there is one.
    pub fn new(
        registry: Arc<Registry>,
        metadata: Arc<dyn MetadataStore>,
        storage: Option<StorageMode>,
    ) -> Arc<Self> {
        Arc::new(Self {
            registry,
            metadata,
            storage,
            serving: AtomicBool::new(false),
            started: AtomicBool::new(false),
            last: Mutex::new(None),
            restart: OnceLock::new(),
        })
    }

    /// What `/readyz/stop` and `/readyz/restart` answer for. Said once; until then they are not there.
    pub fn set_role(&self, role: RestartRole) {
        let checks = RestartChecks::new(role, self.metadata.clone());
        // A second word changes nothing.
        let _ = self.restart.set(checks);
    }

    /// A check of a node that is ready.
    async fn checked(
        &self,
        check: impl AsyncFnOnce(&RestartChecks) -> Result<String, String>,
    ) -> Response {
        let Some(checks) = self.restart.get() else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let asked = async {
            self.ready().await?;
            let checked = tokio::time::timeout(CHECK_WAIT, check(checks)).await;
            checked.unwrap_or_else(|_| Err("metadata store does not answer".to_owned()))
        };
        match asked.await {
            Ok(words) => format!("yes: {words}\n").into_response(),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("no: {why}\n")).into_response(),
        }
    }

    /// The listeners serve, or no longer do.
    pub fn set_serving(&self, serving: bool) {
        self.serving.store(serving, Ordering::Release);
        if serving {
            self.started.store(true, Ordering::Release);
        }
    }

    /// What a ready server answers.
    fn words(&self) -> String {
        let mode = self.storage.as_ref().map_or("normal", |mode| mode());
        match mode {
            "normal" | "low" => "ready\n".to_owned(),
            full => format!("ready; no records are taken: the bookie's disk is {full}\n"),
        }
    }

    async fn ready(&self) -> Result<(), String> {
        if !self.serving.load(Ordering::Acquire) {
            return Err("listeners do not serve".to_owned());
        }
        let last = self
            .last
            .lock()
            .expect("no code panics while it holds this lock")
            .clone();
        if let Some((at, answer)) = last
            && at.elapsed() < PROBE_EVERY
        {
            return answer;
        }
        let answer = match tokio::time::timeout(PROBE_WAIT, self.metadata.get(PROBE_KEY)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("metadata store does not answer".to_owned()),
        };
        let mut last = self
            .last
            .lock()
            .expect("no code panics while it holds this lock");
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// Serves metrics and probes until `stop`: all of a node's HTTP, whatever its role. At most an eighth of `connections_max` connections
/// at once.
///
/// # Errors
/// The listener failed.
pub async fn serve_probes(
    listener: TcpListener,
    probes: Arc<Probes>,
    connections_max: usize,
    stop: CancellationToken,
) -> std::io::Result<()> {
    axum::serve(HttpDoor::new(listener, connections_max), router(probes))
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// The routes.
fn router(probes: Arc<Probes>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/readyz/stop", get(stopz))
        .route("/readyz/restart", get(restartz))
        .route("/startupz", get(startupz))
        .with_state(probes)
}

async fn metrics(State(probes): State<Arc<Probes>>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &probes.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "metrics cannot be written\n",
        )
            .into_response(),
    }
}

async fn readyz(State(probes): State<Arc<Probes>>) -> Response {
    match probes.ready().await {
        Ok(()) => probes.words().into_response(),
        Err(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {why}\n"),
        )
            .into_response(),
    }
}

async fn stopz(State(probes): State<Arc<Probes>>) -> Response {
    probes.checked(RestartChecks::may_stop).await
}

async fn restartz(State(probes): State<Arc<Probes>>) -> Response {
    probes.checked(RestartChecks::caught_up).await
}

async fn startupz(State(probes): State<Arc<Probes>>) -> Response {
    if probes.started.load(Ordering::Acquire) {
        return "started\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response()
}

#[cfg(test)]
mod tests {
    use bookie_metadata::MemoryStore;
    use bookie_metadata::testing::FaultyStore;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn readiness_follows_the_listeners_and_metadata() {
        let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let probes = Probes::new(Arc::default(), store.clone(), None);
        assert!(probes.ready().await.unwrap_err().contains("listeners"));
        probes.set_serving(true);
        assert_eq!(probes.ready().await, Ok(()));
        store.silence();
        assert_eq!(
            probes.ready().await,
            Ok(()),
            "the last answer is still good"
        );
        tokio::time::advance(PROBE_EVERY).await;
        assert!(
            probes
                .ready()
                .await
                .unwrap_err()
                .contains("does not answer")
        );
        store.speak();
        tokio::time::advance(PROBE_EVERY).await;
        assert_eq!(probes.ready().await, Ok(()));
        probes.set_serving(false);
        assert!(probes.ready().await.is_err());
        assert!(
            probes.started.load(Ordering::Acquire),
            "it was started, and stays so"
        );
    }

    #[test]
    fn full_disk_is_said_by_a_server_that_is_ready() {
        let words = |mode: &'static str| {
            let storage: StorageMode = Arc::new(move || mode);
            let store = Arc::new(MemoryStore::new());
            Probes::new(Arc::default(), store, Some(storage)).words()
        };
        assert_eq!(words("normal"), "ready\n");
        assert_eq!(words("low"), "ready\n");
        assert!(words("reserve").contains("disk is reserve"));
    }
}
