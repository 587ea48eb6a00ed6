//! Runs the blocks against a real server.

use std::process::Command;
use std::sync::Mutex;

use hulse_sdk::{Client, Record, Start};
use tokio::runtime::{Builder, Runtime};

use super::super::pages::run_shell;
use super::super::report::report;
use super::super::server::Server;
use super::page::{PAGE, blocks};
use super::{consume, produce, prove, seek, unknown};

const PORT: u16 = 17_620;

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn client(server: &Server) -> Client {
    Client::builder(server.address()).build().unwrap()
}

/// How many records a topic has.
async fn count(client: &Client, topic: &str) -> usize {
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = reader.build().await.unwrap();
    let mut count = 0;
    while reader.next().await.unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn record_with_a_receipt_is_there_after_a_kill() {
    let mut server = Server::start(PORT);
    runtime()
        .block_on(produce::produce(&client(&server)))
        .unwrap();
    server.kill();
    server.restart();
    assert_eq!(runtime().block_on(count(&client(&server), "orders")), 1);
}

#[test]
fn import_that_was_cut_off_is_continued_without_a_loss_and_without_a_double() {
    let mut server = Server::start(PORT + 2);
    // More than a producer has under way, so that it cannot be through before it is cut off.
    let lines: Vec<String> = (0..40_000)
        .map(|number| format!("line {number:02000}"))
        .collect();
    let kept = Mutex::new(None);
    let first = runtime();
    first.block_on(async {
        let client = client(&server);
        let keep = |identity| *kept.lock().unwrap() = Some(identity);
        let import = unknown::import(&client, &lines, None, keep);
        tokio::pin!(import);
        // Cut off in the middle, as by a kill: nobody looks after what is under way.
        loop {
            tokio::select! {
                biased;
                ended = &mut import => panic!("it was too fast to be cut off: {ended:?}"),
                () = tokio::time::sleep(std::time::Duration::from_millis(2)) => {}
            }
            let stored = client.admin().offsets("imported", 0, None).await;
            if stored.is_ok_and(|stored| stored.end.0 > 0) {
                break;
            }
        }
    });
    first.shutdown_background();
    server.kill();
    server.restart();
    let earlier = *kept.lock().unwrap();
    assert!(earlier.is_some());
    runtime().block_on(async {
        let client = client(&server);
        unknown::import(&client, &lines, earlier, |_| {})
            .await
            .unwrap();
        let reader = client.reader("imported").start(Start::Earliest);
        let mut reader = reader.follow(false).build().await.unwrap();
        let mut seen = Vec::new();
        while let Some(record) = reader.next().await.unwrap() {
            seen.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
        }
        assert!(
            seen == lines,
            "{} lines came of {}",
            seen.len(),
            lines.len()
        );
    });
}

#[test]
fn consumer_that_acknowledges_after_its_work_repeats_nothing_that_has_a_receipt() {
    let mut server = Server::start(PORT + 4);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let began = now.unwrap().as_millis() as i64;
    let work = |server: &Server, count: usize| {
        let mut seen = Vec::new();
        let take = |record: &hulse_sdk::ReceivedRecord| seen.push(record.offset.0);
        let client = client(server);
        let consumed = consume::consume(&client, take, count);
        runtime().block_on(consumed).unwrap();
        seen
    };
    runtime().block_on(async {
        let producer = client(&server).producer("orders").build().await.unwrap();
        for number in 0..500 {
            drop(
                producer
                    .send(Record::new(format!("{number}")))
                    .await
                    .unwrap(),
            );
        }
        producer.close().await.unwrap();
    });
    assert_eq!(work(&server, 250), (0..250).collect::<Vec<_>>());
    server.kill();
    server.restart();
    assert_eq!(work(&server, 250), (250..500).collect::<Vec<_>>());
    runtime()
        .block_on(seek::again_from(&client(&server), began))
        .unwrap();
    assert_eq!(work(&server, 10), (0..10).collect::<Vec<_>>());
}

#[test]
fn numbers_prove_that_nothing_is_missing() {
    let server = Server::start(PORT + 6);
    runtime().block_on(prove::prove(&client(&server))).unwrap();
}

#[test]
fn shell_on_the_page_does_what_it_says() {
    let server = Server::start(PORT + 8);
    let run = run_shell(&server, PAGE);
    assert!(run >= 5, "{run} blocks");
}

#[test]
fn python_on_the_page_loses_nothing_and_repeats_nothing() {
    let Some(python) = std::env::var_os("HULSE_TEST_PYTHON") else {
        report("NOT RUN: the page's Python: HULSE_TEST_PYTHON is not set, tests/run sets it");
        return;
    };
    let kafka = format!("127.0.0.1:{}", PORT + 12);
    let _server = Server::start_with(PORT + 10, &[("HULSE_LISTEN__KAFKA", &kafka)]);
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks();
    let block = blocks.iter().find(|block| block.language == "python");
    let (program, shown) = block.unwrap().text.split_once("\n\nif __name__").unwrap();
    assert!(shown.contains("127.0.0.1:9092"), "{shown}");
    // Twice: what was done is not done again.
    let program = format!(
        "{program}\n\nstore = sqlite3.connect('billing.db')\n\
         for first in (0, 500):\n    \
             produce('{kafka}', [(f'k{{n % 7}}', f'{{n}}') for n in range(first, first + 500)])\n    \
             consume('{kafka}', store)\n\
         print([int(what) for (what,) in store.execute('select what from sold')] == list(range(1000)))\n"
    );
    let output = Command::new(python)
        .args(["-c", &program])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n", "{words}");
}
