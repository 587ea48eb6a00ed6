//! Who is meant and who listens; peers that make no sense.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::iter;
use hulse_proto::bookie::{BookieCalls as _, BookieError};
use hulse_proto::id::NodeName;
use hulse_proto::wire::bookie as wire;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Node, add, address, bookie};
use crate::remote::{RemoteBookie, RemoteConfig};
use crate::serve::{Answers, ServeLimits, Served};
use crate::testing::Loopback;
use crate::wire::{Answer, Call, Refusal, decode_answer, encode_call, encode_open};

#[tokio::test(start_paused = true)]
async fn another_bookie_at_the_address_is_named_and_hears_no_call() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    let other = NodeName::new("bookie-2").unwrap();
    let connect = Arc::new(loopback.wire.clone());
    let remote = RemoteBookie::new(other, "bookie:7410", RemoteConfig::default(), connect);
    let Err(BookieError::NoAnswer { why }) = remote.add(add(0, 10)).await else {
        panic!("it is answered");
    };
    assert!(
        why.contains("bookie-2 at bookie:7410") && why.contains("\"bookie-1\""),
        "{why}"
    );
    assert_eq!(node.count(), 0);
}

/// What a stream of these requests is answered.
async fn answers(
    node: &Arc<Node>,
    requests: Vec<Result<wire::Request, Status>>,
) -> Vec<Result<(u64, Answer), String>> {
    let served = Served {
        name: bookie(),
        calls: node.clone(),
        limits: ServeLimits::default(),
        leaving: CancellationToken::new(),
    };
    let answers = Answers::new(Arc::new(served), iter(requests));
    let read = |answer: Result<_, Status>| match answer {
        Ok(answer) => Ok(decode_answer(answer).unwrap()),
        Err(status) => Err(status.message().to_owned()),
    };
    answers.map(read).collect().await
}

#[tokio::test]
async fn caller_of_another_version_is_told_ours() {
    let node = Node::new();
    let mut open = encode_open("bookie-1");
    if let Some(wire::request::What::Open(open)) = &mut open.what {
        open.protocol_version += 1;
    }
    let answers = answers(
        &node,
        vec![Ok(open), Ok(encode_call(1, &Call::Delete(address())))],
    )
    .await;
    let [Ok((0, Answer::Refused(Refusal::Version { found })))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(*found, hulse_proto::limits::PROTOCOL_VERSION);
    assert_eq!(node.count(), 0);
}

#[tokio::test]
async fn stream_that_makes_no_sense_is_ended_and_its_content_refused() {
    let node = Node::new();
    let delete = |number| Ok(encode_call(number, &Call::Delete(address())));
    let open = || Ok(encode_open("bookie-1"));
    let ended = |answers: &[Result<(u64, Answer), String>], words: &str| {
        let last = answers.last().unwrap().as_ref().unwrap_err();
        assert!(last.contains(words), "{last}");
    };
    ended(&answers(&node, vec![delete(1)]).await, "begins with Open");
    ended(
        &answers(&node, vec![open(), open()]).await,
        "begins with Open",
    );
    ended(
        &answers(&node, vec![open(), delete(0)]).await,
        "without a number",
    );
    let twice = answers(&node, vec![open(), delete(5), delete(5)]).await;
    ended(&twice, "call 5 came after call 5");
    // A call that cannot be understood is answered, and the next one is carried out.
    let mut strange = encode_call(2, &Call::Add(add(0, 10)));
    strange.pieces.pop();
    let mut unknown = encode_call(3, &Call::Delete(address()));
    unknown.what = None;
    let before = node.count();
    let found = answers(&node, vec![open(), Ok(strange), Ok(unknown), delete(4)]).await;
    let mut refused = Vec::new();
    for answer in &found[1..] {
        match answer {
            Ok((number, Answer::Fault(BookieError::Invalid { .. }))) => refused.push(*number),
            Ok((4, Answer::Done)) => {}
            other => panic!("{other:?}"),
        }
    }
    refused.sort_unstable();
    assert_eq!(refused, [2, 3]);
    assert_eq!(node.count(), before + 1);
}

/// Serves one stream of answers that were written beforehand.
fn scripted(script: Vec<wire::Answer>) -> RemoteBookie {
    let connect = Arc::new(super::script::Scripted(script));
    RemoteBookie::new(bookie(), "bookie:7410", RemoteConfig::default(), connect)
}

#[tokio::test(start_paused = true)]
async fn bookie_that_answers_nonsense_is_given_up_and_its_answer_is_unknown() {
    let opened = || crate::wire::encode_answer(0, Answer::Opened);
    let done = |number| crate::wire::encode_answer(number, Answer::Done);
    let scripts = [
        vec![done(1)],
        vec![opened(), done(9)],
        vec![opened(), opened()],
        vec![
            opened(),
            crate::wire::encode_answer(
                1,
                Answer::Negative {
                    unsynced_limbo: false,
                },
            ),
        ],
        vec![
            opened(),
            wire::Answer {
                call: 1,
                ..wire::Answer::default()
            },
        ],
        vec![],
    ];
    for script in scripts {
        let remote = scripted(script.clone());
        let answer = tokio::time::timeout(Duration::from_secs(10), remote.add(add(0, 10))).await;
        let unknown = matches!(answer, Ok(Err(BookieError::NoAnswer { .. })));
        assert!(unknown, "{script:?}: {answer:?}");
    }
    let remote = scripted(vec![opened(), done(1)]);
    assert_eq!(remote.add(add(0, 10)).await, Ok(()));
}
