//! etcd, bookies and brokers, in a folder that goes with them.

use std::path::Path;

use hulse_sdk::Client;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::super::etcd::{Etcd, QUOTA_BYTES};
use super::process::Process;

/// The brokers' ports for clients and HTTP, two for each.
const BROKERS: u16 = 19_100;
/// The bookies' ports for calls and HTTP, two for each.
const BOOKIES: u16 = 19_140;
/// etcd's, for clients and for peers.
const ETCD: u16 = 19_190;

/// A running cluster: bookies `b1`, `b2`, .., brokers `broker-1`, ..
pub(crate) struct Cell {
    pub(crate) bookies: Vec<Process>,
    pub(crate) brokers: Vec<Process>,
    pub(crate) etcd: Etcd,
    settings: Vec<(String, String)>,
    folder: TempDir,
}

impl Cell {
    /// Starts so many bookies and brokers, with these settings of all of them, as the environment has them.
    pub(crate) fn start(
        folder: &Path,
        runtime: &Runtime,
        (bookies, brokers): (usize, usize),
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("cell-")
            .tempdir_in(folder)?;
        let etcd = Etcd::start(folder.path().join("etcd"), ETCD, QUOTA_BYTES);
        let mut cell = Self {
            bookies: Vec::new(),
            brokers: Vec::new(),
            etcd: runtime.block_on(etcd)?,
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            folder,
        };
        for _ in 0..bookies {
            cell.add_bookie()?;
        }
        for _ in 0..brokers {
            cell.add_broker()?;
        }
        Ok(cell)
    }

    /// Formats and starts one more bookie.
    pub(crate) fn add_bookie(&mut self) -> anyhow::Result<()> {
        let number = self.bookies.len();
        let (name, port) = (format!("b{}", number + 1), BOOKIES + 2 * number as u16);
        let http = format!("127.0.0.1:{}", port + 1);
        let data = self.folder.path().join(&name).display().to_string();
        let flags = [
            ("--name", name.clone()),
            ("--data", data),
            ("--metadata", self.etcd.url()),
            ("--listen", format!("127.0.0.1:{port}")),
            ("--http", http.clone()),
        ];
        let mut bookie = self.process("bookie", &name, &flags, http);
        let mut format = bookie.arguments().to_vec();
        format.insert(1, "format".to_owned());
        bookie.run(&format)?;
        bookie.start()?;
        self.bookies.push(bookie);
        Ok(())
    }

    /// Starts one more broker.
    pub(crate) fn add_broker(&mut self) -> anyhow::Result<()> {
        let number = self.brokers.len();
        let name = format!("broker-{}", number + 1);
        let http = format!("127.0.0.1:{}", BROKERS + 2 * number as u16 + 1);
        let flags = [
            ("--name", name.clone()),
            ("--metadata", self.etcd.url()),
            ("--grpc", broker_address(number)),
            ("--http", http.clone()),
            ("--kafka", "off".to_owned()),
        ];
        let mut broker = self.process("broker", &name, &flags, http);
        broker.start()?;
        self.brokers.push(broker);
        Ok(())
    }

    fn process(&self, role: &str, name: &str, flags: &[(&str, String)], http: String) -> Process {
        let words = flags
            .iter()
            .flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]);
        let arguments = [role.to_owned()].into_iter().chain(words).collect();
        let log = self.folder.path().join(format!("{name}.log"));
        Process::new(arguments, &self.settings, log, http)
    }

    /// The folder whose disk all of them write to.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client that is told of all brokers.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let all: Vec<String> = (0..self.brokers.len()).map(broker_address).collect();
        Ok(Client::builder(all.join(",")).build()?)
    }

    /// The number of the broker that serves a partition.
    pub(crate) async fn owner(
        &self,
        client: &Client,
        topic: &str,
        partition: u32,
    ) -> anyhow::Result<usize> {
        let described = client.admin().describe_topic(topic).await?;
        let found = described.partition.get(partition as usize);
        let owner = found.and_then(|found| found.owner.as_deref());
        let number = (0..self.brokers.len()).find(|of| owner == Some(&broker_address(*of)));
        number.ok_or_else(|| anyhow::anyhow!("partition {partition} has the owner {owner:?}"))
    }
}

/// Where clients reach a broker.
fn broker_address(number: usize) -> String {
    format!("127.0.0.1:{}", BROKERS + 2 * number as u16)
}
