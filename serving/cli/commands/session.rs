//! What every client command needs: a light runtime, a client of the server, a way to end.

use std::future::Future;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use hulse_sdk::Client;
use tokio::runtime::Builder;

use super::greeting::{Greeting, greet};
use crate::arguments::Globals;
use crate::failure::{Code, Failure, Stop};
use crate::output::Output;

/// Longest wait for a server to take a connection at all.
const DIAL_MAX: Duration = Duration::from_secs(5);
/// Longest wait for its first bytes; one that says nothing may be busy.
const GREETING_MAX: Duration = Duration::from_secs(2);

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
        let (client, silent) = self.dial()?;
        if let Some(address) = silent {
            tracing::info!(address, "the server takes connections and says nothing yet");
        }
        Ok(client)
    }

    /// As [`Session::client`], of a server that answers soon.
    ///
    /// # Errors
    /// As of it, and a server that says nothing.
    pub(crate) fn client_that_answers(&self) -> Result<Client, Failure> {
        match self.dial()? {
            (client, None) => Ok(client),
            (_, Some(address)) => {
                let why = format!(
                    "{address} takes connections and says nothing within {} s",
                    GREETING_MAX.as_secs()
                );
                Err(self.unreachable(&why))
            }
        }
    }

    /// A client; and the address, where nothing was heard.
    fn dial(&self) -> Result<(Client, Option<String>), Failure> {
        let server = self.globals.server.as_str();
        // First, because it judges the address; it dials nobody yet.
        let client = Client::builder(server)
            .client_id(format!("hulse-cli/{}", env!("CARGO_PKG_VERSION")))
            .request_timeout(self.globals.timeout.0)
            .build()
            .map_err(|error| {
                self.naming_profile(
                    Failure::from_sdk("cannot talk to the server", server, &error).next(
                        "--server HOST:PORT, or HULSE_SERVER; the port of clients is 7400 by default",
                    ),
                )
            })?;
        let silent = self.knock()?;
        Ok((client, silent))
    }

    /// Connects to the servers until one greets, and hangs up. Answers the address of one that says nothing, if none greets.
    fn knock(&self) -> Result<Option<String>, Failure> {
        let server = self.globals.server.as_str();
        let wait = self.globals.timeout.0.min(DIAL_MAX);
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
                            Ok(stream) => match greet(stream, address, wait.min(GREETING_MAX)) {
                                Greeting::Grpc => return Ok(None),
                                Greeting::Silence => silent = Some(address.to_string()),
                                Greeting::Other(words) => why = format!("{address}: {words}"),
                            },
                        }
                    }
                }
            }
        }
        match silent {
            Some(address) => Ok(Some(address)),
            None => Err(self.unreachable(&why)),
        }
    }

    fn unreachable(&self, why: &str) -> Failure {
        self.naming_profile(
            Failure::new(Code::Unreachable, "cannot reach the server")
                .why(why)
                .object(&self.globals.server)
                .next(
                    "hulse standalone starts a server here; --server HOST:PORT names another one (listen.grpc, port 7400 by default)",
                ),
        )
    }

    /// Says where a server's name comes from that stands on no command line, and how to leave it.
    fn naming_profile(&self, failure: Failure) -> Failure {
        let Some(name) = &self.globals.server_of else {
            return failure;
        };
        let server = self.globals.server.as_str();
        failure
            .object(format!("{server}, of profile {name}"))
            .next(format!(
                "is a server running there? Else `hulse profile use -` leaves the profile, `hulse profile edit` corrects it, `--server HOST:PORT` goes before it, and `hulse profile delete {name}` forgets it"
            ))
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
