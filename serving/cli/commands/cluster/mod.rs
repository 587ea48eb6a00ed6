//! `hulse cluster`, `hulse brokers`, `hulse bookies`: `status`, `brokers` and `bookies` show; `health` judges, for the doctor too; `check`
//! answers yes or no; `changing` is an operator's word on a bookie, `draining` one on a broker, `balance` one on all of them.

mod balance;
mod bookies;
mod brokers;
mod changing;
mod check;
mod draining;
mod health;
mod status;

use hulse_sdk::{Admin, Cluster};

use crate::arguments::{Bookies, Brokers, ClusterCommand};
use crate::commands::session::Session;
use crate::failure::{Failure, Stop};

pub(crate) use balance::MoveView;
pub(crate) use bookies::BookieView;
pub(crate) use brokers::BrokerView;
pub(crate) use draining::drain;
pub(crate) use health::findings;
pub(crate) use status::StatusView;

/// Asks for the cell.
///
/// # Errors
/// The server's.
pub(crate) async fn ask(admin: &Admin, partitions: bool) -> Result<Cluster, Failure> {
    let asked = admin.cluster(partitions).await;
    asked.map_err(|error| Failure::from_sdk("cannot describe the cluster", "the cluster", &error))
}

/// Runs `hulse cluster`.
///
/// # Errors
/// The server's; what is not as it should be.
pub(crate) async fn run(session: Session<'_>, command: &ClusterCommand) -> Result<(), Stop> {
    let admin = session.client()?.admin();
    match command {
        ClusterCommand::Status => {
            let info = ask(&admin, false).await?;
            session.output.one(&StatusView::of(&info))
        }
        ClusterCommand::Health => health::run(session, &ask(&admin, false).await?),
        ClusterCommand::Check(command) => check::run(session, &ask(&admin, false).await?, command),
    }
}

/// Runs `hulse brokers`.
///
/// # Errors
/// The server's; there is no such broker.
pub(crate) async fn run_brokers(session: Session<'_>, command: &Brokers) -> Result<(), Stop> {
    if let Brokers::Drain(command) = command {
        return drain(session, command).await;
    }
    let admin = session.client()?.admin();
    if matches!(command, Brokers::Balance) {
        return balance::run(session, &admin).await;
    }
    let info = ask(&admin, true).await?;
    let views: Vec<BrokerView> = info.brokers.iter().map(BrokerView::of).collect();
    match command {
        Brokers::List => session.output.list(&views),
        Brokers::Describe { name } => session.output.one(&brokers::find(views, name)?),
        Brokers::Undrain { name } => {
            brokers::find(views, name)?;
            draining::undrain(session, &admin, name).await
        }
        Brokers::Drain(_) => Ok(()),
        Brokers::Balance => Ok(()),
    }
}

/// Runs `hulse bookies`.
///
/// # Errors
/// The server's; there is no such bookie; what was not confirmed.
pub(crate) async fn run_bookies(session: Session<'_>, command: &Bookies) -> Result<(), Stop> {
    let admin = session.client()?.admin();
    match command {
        Bookies::List => {
            let info = ask(&admin, false).await?;
            session.output.list(&bookies::all(&info))
        }
        Bookies::Describe { name } => {
            let info = ask(&admin, false).await?;
            session.output.one(&bookies::find(&info, name)?)
        }
        change => changing::run(session, &admin, change).await,
    }
}
