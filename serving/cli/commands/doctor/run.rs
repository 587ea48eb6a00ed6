//! The order of the examination, and how it ends.

use std::time::Duration;

use hulse_proto::time::WallClock as _;
use hulse_sdk::Admin;

use super::finding::{Ailment, Finding, Weight};
use super::looked::Looked;
use super::metrics::Metrics;
use super::{http, nodes, numbers, server};
use crate::arguments::Doctor;
use crate::commands::session::{FOREIGN, Session};
use crate::failure::{Code, Failure, Stop};
use crate::roles::SystemClock;

/// Longest wait for metrics and health.
const HTTP_WAIT_MAX: Duration = Duration::from_secs(5);
/// The port of metrics lies so far behind that of clients, unless the configuration says otherwise.
const HTTP_PORT_BEHIND: u16 = 80;

/// Runs it.
///
/// # Errors
/// Problems were found; the findings are printed then too.
pub(crate) async fn run(session: Session<'_>, doctor: &Doctor) -> Result<(), Stop> {
    let mut looked = Looked::default();
    let found = examine(session, doctor, &mut looked).await;
    let worst = found.iter().map(|finding| finding.weight).max();
    session.output.list(&found)?;
    let count = found
        .iter()
        .filter(|finding| finding.weight > Weight::Note)
        .count();
    let code = match worst {
        None | Some(Weight::Note) => {
            let only_unchecked = found.iter().all(|one| one.is(Ailment::NotScrubbed));
            let verdict = match (found.is_empty(), only_unchecked) {
                (true, _) => "all good",
                (false, true) => "all good, as far as anybody has looked",
                (false, false) => "nothing is wrong, but mind the notes",
            };
            session
                .output
                .say(&format!("{verdict}; {}", looked.words()));
            return Ok(());
        }
        Some(Weight::Problem) => Code::Unwell,
        Some(Weight::Damage) => Code::Damaged,
        Some(Weight::Unreachable) => Code::Unreachable,
    };
    let what = match count {
        1 => "the doctor found a problem".to_owned(),
        count => format!("the doctor found {count} problems"),
    };
    Err(Failure::new(code, what)
        .why("see above")
        .object(&session.globals.server)
        .next("run what stands behind `next` of each")
        .into())
}

async fn examine(session: Session<'_>, doctor: &Doctor, looked: &mut Looked) -> Vec<Finding> {
    let name = session.globals.server.as_str();
    let client = match session.client_that_answers() {
        Ok(client) => client,
        Err(failure) if failure.what() == FOREIGN => return vec![elsewhere(name, &failure)],
        Err(failure) => {
            return vec![
                Ailment::Unreachable
                    .found("no server answers", name)
                    .why(failure.reason())
                    .next("hulse standalone starts one here; --server HOST:PORT or a profile names another"),
            ];
        }
    };
    let mut found = over_http(session, doctor, looked);
    match server::examine(&client.admin(), looked).await {
        Ok(more) => {
            // What is named there is only counted in metrics.
            if more.iter().any(|one| one.is(Ailment::DamagedLog)) {
                found.retain(|one| !one.is(Ailment::DamagedLog));
            }
            found.extend(more);
            found.extend(of_nodes(session, doctor, &client.admin()).await);
        }
        Err(failure) if failure.is_code(Code::Unreachable) => {
            found = vec![elsewhere(name, &failure)]
        }
        Err(failure) => found.push(
            Ailment::NotReady
                .found("the server does not do what it is asked", name)
                .why(failure.reason())
                .next("look at the server's log and /readyz"),
        ),
    }
    found
}

/// What the other nodes say. A server that does not know the question has none.
async fn of_nodes(session: Session<'_>, doctor: &Doctor, admin: &Admin) -> Vec<Finding> {
    let Ok(info) = admin.cluster(false).await else {
        return Vec::new();
    };
    let own = doctor.http.clone();
    let own = own.or_else(|| beside(session.globals.server.as_str()));
    let wait = session.globals.timeout.0.min(HTTP_WAIT_MAX);
    let here = own.as_deref().is_some_and(nodes::loopback);
    nodes::examine(&info, own.as_deref(), here, wait)
}

/// Somebody answers who is no server of ours.
fn elsewhere(name: &str, failure: &Failure) -> Finding {
    Ailment::Unreachable
        .found(FOREIGN, name)
        .why(failure.reason())
        .next("--server HOST:PORT names what the server calls listen.grpc, port 7400 by default")
}

fn over_http(session: Session<'_>, doctor: &Doctor, looked: &mut Looked) -> Vec<Finding> {
    let name = session.globals.server.as_str();
    let Some(address) = doctor.http.clone().or_else(|| beside(name)) else {
        return Vec::new();
    };
    let wait = session.globals.timeout.0.min(HTTP_WAIT_MAX);
    let asked = SystemClock.now_ms();
    let answer = match http::get(&address, "/metrics", wait) {
        Ok(answer) => answer,
        Err(why) if doctor.http.is_some() => {
            return vec![
                Ailment::HttpUnreachable
                    .found("the address of metrics does not answer", &address)
                    .why(format!(
                        "{why}; disk, clock and sync mode were not looked at"
                    ))
                    .next("hulse doctor --http HOST:PORT takes what the server calls listen.http"),
            ];
        }
        Err(why) => {
            return vec![
                Ailment::NoMetrics
                    .found("disk, clock and sync mode were not looked at", &address)
                    .why(why)
                    .next(
                        "hulse doctor --http HOST:PORT names the address of metrics (listen.http)",
                    ),
            ];
        }
    };
    let answered = SystemClock.now_ms();
    looked.metrics = true;
    let metrics = Metrics::parse(&answer.body);
    let mut found = numbers::of_metrics(&metrics, name, env!("CARGO_PKG_VERSION"));
    let clocks = answer.date_ms;
    found.extend(clocks.and_then(|date| numbers::of_clocks(name, date, asked, answered)));
    if let Ok(ready) = http::get(&address, "/readyz", wait)
        && ready.status != 200
    {
        found.push(
            Ailment::NotReady
                .found("the server is not ready", name)
                .why(ready.body.trim())
                .next("wait a moment; then look at the server's log"),
        );
    }
    found
}

/// Where metrics are if nobody says otherwise: on the first server's host.
fn beside(server: &str) -> Option<String> {
    let first = server.split(',').next()?.trim();
    let authority = first.split_once("://").map_or(first, |(_, rest)| rest);
    let (host, port) = authority.trim_end_matches('/').rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    Some(format!("{host}:{}", port.checked_add(HTTP_PORT_BEHIND)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_looked_for_beside_the_first_server() {
        assert_eq!(beside("127.0.0.1:7400").as_deref(), Some("127.0.0.1:7480"));
        assert_eq!(
            beside("grpc://[::1]:7500/,b:1").as_deref(),
            Some("[::1]:7580")
        );
        assert_eq!(beside("nowhere"), None);
    }
}
