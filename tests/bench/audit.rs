//! One pass of the audit over all ledgers of a cell, in a process of its own, so that its memory is nobody else's.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bookie_client::{
    BookieDirectory, LiveBookie, RegisteredBookies, Registration, RegistrationState,
    list_registrations,
};
use bookie_metadata::{MetadataStore, cell::read_cell};
use bookie_transport::{RemoteBookie, RemoteConfig, TcpConnect};
use bookie_upkeep::audit::{Auditor, Fleet};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::{CellId, NodeName};
use serde_json::{Value, json};
use uuid::Uuid;

use super::etcd::store_at;
use super::server::memory;
use super::sink::{Bookies, Sink, member};

/// The first word of the child's command line.
pub(crate) const CHILD: &str = "audit-child";

/// Whom the audit asks what is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The bookies that are registered, over the network.
    Registered,
    /// As many that say at once that they hold everything: what is measured is the auditor and etcd.
    Assumed(usize),
}

/// What a pass took.
pub(crate) struct Pass {
    pub(crate) ledgers: u64,
    /// Places that are not as they should be.
    pub(crate) findings: u64,
    pub(crate) took: Duration,
    /// Resident memory before it, MB.
    pub(crate) before: f64,
    /// The most of it until its end, MB.
    pub(crate) peak: f64,
}

/// Runs one over the etcd at `url`.
pub(crate) fn one_pass(url: &str, asked: Asked) -> anyhow::Result<Pass> {
    let bookies = match asked {
        Asked::Registered => 0,
        Asked::Assumed(count) => count,
    };
    let output = Command::new(std::env::current_exe()?)
        .args([CHILD, url, &bookies.to_string()])
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "the audit failed: {told}");
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| told[name].as_f64().context("no such figure");
    Ok(Pass {
        ledgers: number("ledgers")? as u64,
        findings: number("findings")? as u64,
        took: Duration::from_secs_f64(number("seconds")?),
        before: number("before")?,
        peak: number("peak")?,
    })
}

/// The child: etcd's URL, and how many bookies are assumed; 0: the registered ones.
pub(crate) fn child(words: &[String]) -> anyhow::Result<()> {
    let [url, bookies] = words else {
        anyhow::bail!("{CHILD} takes a URL and a number");
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(pass(url, bookies.parse()?))
}

async fn pass(url: &str, assumed: usize) -> anyhow::Result<()> {
    let metadata: Arc<dyn MetadataStore> = Arc::new(store_at(url)?);
    let (cell, registered, bookies) = match assumed {
        0 => real(&metadata).await?,
        count => assume(count),
    };
    let mut fleet = Fleet::new(Duration::from_secs(600));
    fleet.update(registered, Duration::ZERO);
    let auditor = Auditor {
        cell,
        metadata,
        bookies,
        answer_timeout: Duration::from_secs(5),
    };
    let before = memory("self", "VmRSS:")?;
    let began = Instant::now();
    let audited = auditor.pass(&fleet, Duration::ZERO).await?;
    let told = json!({
        "ledgers": audited.ledgers,
        "findings": audited.findings.len(),
        "seconds": began.elapsed().as_secs_f64(),
        "before": before,
        "peak": memory("self", "VmHWM:")?,
    });
    println!("{told}");
    Ok(())
}

type Cell = (CellId, Vec<Registration>, Arc<dyn BookieDirectory>);

async fn real(metadata: &Arc<dyn MetadataStore>) -> anyhow::Result<Cell> {
    let record = read_cell(&**metadata).await?.context("no cell is there")?;
    let dial = |name: &NodeName, endpoint: &str| {
        let (config, connect) = (RemoteConfig::default(), Arc::new(TcpConnect));
        let remote = RemoteBookie::new(name.clone(), endpoint, config, connect);
        Arc::new(remote) as Arc<dyn BookieCalls>
    };
    let bookies = RegisteredBookies::start(Arc::clone(metadata), Box::new(dial)).await?;
    let registered = list_registrations(&**metadata).await?;
    Ok((record.cell, registered, Arc::new(bookies)))
}

fn assume(count: usize) -> Cell {
    let members: Vec<_> = (0..count).map(member).collect();
    let registered = members.iter().map(|member| Registration {
        member: member.clone(),
        state: RegistrationState::Active,
        zone: String::new(),
        live: Some(LiveBookie {
            mode: "normal".to_owned(),
            endpoint: "nowhere:1".to_owned(),
            http: String::new(),
        }),
    });
    let registered = registered.collect();
    let calls = members.into_iter().map(|member| {
        let calls: Arc<dyn BookieCalls> = Arc::new(Sink);
        (member, calls)
    });
    let bookies = Bookies(calls.collect());
    (CellId(Uuid::from_u128(1)), registered, Arc::new(bookies))
}
