//! Subscriptions from the command line, and what making them answers a program.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, NewSubscription, Reason};

use super::server::{HULSE, Server};

const PORT: u16 = 17_538;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; its data.
fn hulse(server: &Server, arguments: &[&str], input: &str) -> String {
    let output = server.hulse(arguments, input);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn command_line_makes_subscriptions_and_consumes_by_them() {
    let server = Server::start(PORT);
    let hulse = |arguments: &[&str], input: &str| hulse(&server, arguments, input);
    hulse(&["topics", "create", "orders"], "");
    hulse(
        &["subs", "create", "orders", "billing", "--from", "start"],
        "",
    );
    hulse(&["produce", "orders"], "a\nb\nc\nd\n");
    let listed = hulse(&["subs", "list", "orders", "-j"], "");
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["subscription"], "public/default/billing");
    assert_eq!(listed[0]["backlog_records"], 4, "{listed}");
    assert_eq!(
        hulse(
            &["consume", "orders", "-s", "billing", "-n", "1", "--no-ack"],
            ""
        ),
        "a\n"
    );
    assert_eq!(
        hulse(&["consume", "orders", "-s", "billing", "-n", "2"], ""),
        "a\nb\n"
    );
    assert_eq!(
        hulse(&["consume", "orders", "-s", "billing", "-e"], ""),
        "c\nd\n"
    );
    assert_eq!(hulse(&["consume", "orders", "-s", "billing", "-e"], ""), "");
}

#[test]
fn command_line_moves_and_deletes_subscriptions() {
    let server = Server::start(PORT + 2);
    let hulse = |arguments: &[&str], input: &str| hulse(&server, arguments, input);
    hulse(&["topics", "create", "orders"], "");
    hulse(
        &["subs", "create", "orders", "billing", "--from", "start"],
        "",
    );
    hulse(&["produce", "orders"], "a\nb\nc\nd\n");
    hulse(&["consume", "orders", "-s", "billing", "-e"], "");
    let dry = hulse(
        &[
            "subs",
            "seek",
            "orders",
            "billing",
            "--to",
            "-3",
            "--dry-run",
            "-j",
        ],
        "",
    );
    let dry: serde_json::Value = serde_json::from_str(&dry).unwrap();
    assert_eq!(
        (&dry[0]["old_base"], &dry[0]["new_base"]),
        (&4.into(), &1.into()),
        "{dry}"
    );
    assert_eq!(
        hulse(&["consume", "orders", "-s", "billing", "-e"], ""),
        "",
        "a dry run moves nothing"
    );
    let refused = server.hulse(&["subs", "seek", "orders", "billing", "--to", "start"], "");
    assert_eq!(
        refused.status.code(),
        Some(2),
        "nobody confirmed: {}",
        text(&refused.stderr)
    );
    hulse(
        &["subs", "seek", "orders", "billing", "--to", "-3", "--yes"],
        "",
    );
    hulse(
        &["subs", "skip", "orders", "billing", "-n", "1", "--yes"],
        "",
    );
    let mode = [
        "consume",
        "orders",
        "-s",
        "billing",
        "-n",
        "1",
        "--delivery",
        "at_most_once",
    ];
    assert_eq!(hulse(&mode, ""), "c\n");
    hulse(&["produce", "orders"], "e\n");
    hulse(&["subs", "clear", "orders", "billing", "--yes"], "");
    let described = hulse(&["subs", "describe", "orders", "billing", "-j"], "");
    let described: serde_json::Value = serde_json::from_str(&described).unwrap();
    assert_eq!(described["cursor"][0]["base"], 5, "{described}");
    hulse(&["subs", "delete", "orders", "billing", "--yes"], "");
    let gone = server.hulse(&["subs", "describe", "orders", "billing"], "");
    assert_eq!(gone.status.code(), Some(3), "{}", text(&gone.stderr));
}

/// `hulse consume` of subscription w, into a file of this name.
fn consuming(server: &Server, name: &str) -> (Child, impl Fn(&str)) {
    let path = server.data().with_extension(name);
    let child = Command::new(HULSE)
        .args([
            "--server",
            &server.address(),
            "consume",
            "orders",
            "-s",
            "w",
        ])
        .stdin(Stdio::null())
        .stdout(File::create(&path).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let holds = move |wanted: &str| {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let found = std::fs::read_to_string(&path).unwrap();
            if found == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?} and not {wanted:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    (child, holds)
}

#[test]
fn topic_that_is_deleted_and_made_again_is_consumed_whole_by_its_subscriptions() {
    let server = Server::start(PORT + 4);
    let hulse = |arguments: &[&str], input: &str| hulse(&server, arguments, input);
    hulse(&["topics", "create", "orders"], "");
    hulse(&["subs", "create", "orders", "w"], "");
    let (mut first, holds) = consuming(&server, "first");
    hulse(&["produce", "orders"], "a\n");
    holds("a\n");
    let anew = |input: &str| {
        hulse(&["topics", "delete", "orders", "--yes"], "");
        hulse(&["topics", "create", "orders"], "");
        hulse(&["produce", "orders"], input);
    };
    anew("b\nc\n");
    holds("a\nb\nc\n");
    first.kill().unwrap();
    first.wait().unwrap();
    // Nobody consumes while it is made again.
    anew("d\ne\n");
    let (mut second, holds) = consuming(&server, "second");
    holds("d\ne\n");
    second.kill().unwrap();
    second.wait().unwrap();
}

/// What is said of a subscription that is there and does otherwise is an answer, not silence; unsaid, it stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_that_insists_on_holding_or_not_is_told_when_it_is_otherwise() {
    let server = Server::start(19_300);
    let client = Client::builder(server.address()).build().unwrap();
    let admin = client.admin();
    for topic in ["a", "b"] {
        admin.create_topic(topic, 1).await.unwrap();
    }
    let make = async |topic: &str, name: &str, hold: Option<bool>| {
        let mut new = NewSubscription::new(name, topic);
        new.hold = hold;
        admin.create_subscription(new).await
    };
    for (name, does) in [("keeps", true), ("loose", false)] {
        let (made, created) = make("a", name, Some(does)).await.unwrap();
        assert!(created && made.hold == does);
        for topic in ["a", "b"] {
            let refused = make(topic, name, Some(!does)).await.unwrap_err();
            assert_eq!(refused.reason(), Some(Reason::SubscriptionExists));
            assert!(refused.to_string().contains("hold"), "{refused}");
        }
        for (hold, created) in [(Some(does), true), (None, false)] {
            let (found, new) = make("b", name, hold).await.unwrap();
            assert_eq!((found.hold, new), (does, created));
        }
    }
    assert!(make("a", "unsaid", None).await.unwrap().0.hold);
}
