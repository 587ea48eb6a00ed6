//! What every client command needs: a light runtime, a client of the server, a way to end.

use std::future::Future;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Connect, TcpConnect};
use tokio::runtime::Builder;

use super::greeting::{Greeting, greet};
use super::link::Link;
use crate::arguments::{Globals, ServerFrom};
use crate::failure::{Code, Failure, Stop};
use crate::output::Output;

/// Longest wait for a server to take a connection at all.
const DIAL_MAX: Duration = Duration::from_secs(5);
/// Longest wait for its first bytes; one that says nothing may be busy.
const GREETING_MAX: Duration = Duration::from_secs(2);

/// Nobody answers.
const UNREACHED: &str = "cannot reach the server";
/// Somebody else answers.
pub(crate) const FOREIGN: &str = "something else than a Hulse server answers";

/// The globals and the output, for all commands that talk to a server.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) globals: &'a Globals,
    pub(crate) output: Output,
}

impl Session<'_> {
    /// A client. A server that refuses connections, or speaks something else, is told at once rather than after the time-out.
    ///
    /// # Errors
    /// The address is wrong, or no server of ours listens there.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let (client, silent) = self.dial(TcpConnect)?;
        if let Some(address) = silent {
            tracing::info!(address, "the server takes connections and says nothing yet");
        }
        Ok(client)
    }

    /// As [`Session::client`], for work that goes on while a server is gone: the link tells that.
    ///
    /// # Errors
    /// As of it.
    pub(crate) fn client_over(&self, link: &Link) -> Result<Client, Failure> {
        self.dial(link.clone()).map(|(client, _)| client)
    }

    /// As [`Session::client`], of a server that answers soon.
    ///
    /// # Errors
    /// As of it, and a server that says nothing.
    pub(crate) fn client_that_answers(&self) -> Result<Client, Failure> {
        match self.dial(TcpConnect)? {
            (client, None) => Ok(client),
            (_, Some(address)) => {
                let why = format!(
                    "{address} takes connections and says nothing within {:?}",
                    self.greeting_wait()
                );
                Err(self.unreachable(&why))
            }
        }
    }

    /// A client; and the address, where nothing was heard.
    fn dial(&self, connect: impl Connect) -> Result<(Client, Option<String>), Failure> {
        let began = Instant::now();
        let silent = self.knock()?;
        let (server, timeout) = (self.globals.server.as_str(), self.globals.timeout.0);
        // What the knock took is a part of the time; the knock leaves some of it.
        let left = timeout.saturating_sub(began.elapsed()).max(timeout / 4);
        let client = Client::builder(server)
            .client_id(format!("hulse-cli/{}", env!("CARGO_PKG_VERSION")))
            .request_timeout(left)
            .connector(connect)
            .build()
            .map_err(|error| no_address(self.globals, &error))?;
        Ok((client, silent))
    }

    /// How long a greeting is waited for; there may be two, and there must be time left for what is asked then.
    fn greeting_wait(&self) -> Duration {
        GREETING_MAX.min(self.globals.timeout.0 / 4)
    }

    /// Connects to the servers until one greets, and hangs up. Answers the address of one that says nothing, if none greets.
    fn knock(&self) -> Result<Option<String>, Failure> {
        let server = self.globals.server.as_str();
        let wait = self.globals.timeout.0.min(DIAL_MAX);
        let mut what = UNREACHED;
        let mut why = String::from("no address");
        let mut silent = None;
        for authority in server.split(',') {
            let authority = authority.trim();
            let authority = authority
                .split_once("://")
                .map_or(authority, |(_, rest)| rest)
                .trim_end_matches('/');
            match authority.to_socket_addrs() {
                Err(error) => why = format!("{authority}: {error}"),
                Ok(addresses) => {
                    for address in addresses {
                        match TcpStream::connect_timeout(&address, wait) {
                            Err(error) => why = format!("{address}: {error}"),
                            Ok(stream) => match greet(stream, address, self.greeting_wait()) {
                                Greeting::Grpc => return Ok(None),
                                Greeting::Silence => silent = Some(address.to_string()),
                                Greeting::Other(words) => {
                                    (what, why) = (FOREIGN, format!("{address}: {words}"));
                                }
                            },
                        }
                    }
                }
            }
        }
        match silent {
            Some(address) => Ok(Some(address)),
            None => Err(self.not_reached(what, &why)),
        }
    }

    fn unreachable(&self, why: &str) -> Failure {
        self.not_reached(UNREACHED, why)
    }

    fn not_reached(&self, what: &str, why: &str) -> Failure {
        let failure = Failure::new(Code::Unreachable, what).why(why).next(
            "hulse standalone starts a server here; --server HOST:PORT names another one (listen.grpc, port 7400 by default)",
        );
        naming(self.globals, failure)
    }
}

/// Refuses an address that no command could talk to; whether somebody listens there does not matter yet.
///
/// # Errors
/// It is not HOST:PORT.
pub(crate) fn check_address(globals: &Globals) -> Result<(), Failure> {
    let client = Client::builder(&globals.server).build();
    client
        .map(drop)
        .map_err(|error| no_address(globals, &error))
}

fn no_address(globals: &Globals, error: &hulse_sdk::Error) -> Failure {
    let failure = Failure::from_sdk("this is no address of a server", "", error);
    let next = "write --server HOST:PORT, or HULSE_SERVER; the port of clients is 7400 by default";
    naming(globals, failure.next(next))
}

/// Says where a server's name comes from, and how to leave one that a profile or the environment names.
fn naming(globals: &Globals, failure: Failure) -> Failure {
    let (server, from) = (&globals.server, &globals.server_from);
    let failure = failure.object(format!("{server}, {from}"));
    match from {
        ServerFrom::Default | ServerFrom::Flag => failure,
        ServerFrom::Variable => failure.next(
            "is a server running there? Else `unset HULSE_SERVER` forgets it, and `--server HOST:PORT` goes before it",
        ),
        ServerFrom::Profile(name) => failure.next(format!(
            "is a server running there? Else `hulse profile use -` leaves the profile, `hulse profile edit` corrects it, `--server HOST:PORT` goes before it, and `hulse profile delete {name}` forgets it"
        )),
    }
}

/// Runs a command on this thread. Commands answer within milliseconds, so no worker is started for them.
///
/// # Errors
/// The command's.
pub(crate) fn run(command: impl Future<Output = Result<(), Stop>>) -> Result<(), Stop> {
    run_on(Builder::new_current_thread(), command)
}

/// Runs a command with a worker per processor, for measurements.
///
/// # Errors
/// The command's.
pub(crate) fn run_wide(command: impl Future<Output = Result<(), Stop>>) -> Result<(), Stop> {
    run_on(Builder::new_multi_thread(), command)
}

fn run_on(
    mut builder: Builder,
    command: impl Future<Output = Result<(), Stop>>,
) -> Result<(), Stop> {
    let runtime = builder.enable_all().build().map_err(no_runtime)?;
    let result = runtime.block_on(command);
    // A thread that waits for standard input must not keep the process.
    runtime.shutdown_background();
    result
}

fn no_runtime(error: std::io::Error) -> Failure {
    Failure::new(Code::File, "cannot start a runtime")
        .why(error)
        .object("the process")
        .next("look at the limits of the process")
}
