//! The page "Shared work": everything that it says to run is run, and prints what it shows.

use super::super::pages::run_shell;
use super::super::server::Server;

const PORT: u16 = 20_092;
const PAGE: &str = include_str!("../../../serving/shared-work.md");

#[test]
fn shell_on_the_page_of_shared_work_does_what_it_says() {
    let server = Server::start(PORT);
    assert_eq!(run_shell(&server, PAGE), 5);
}
