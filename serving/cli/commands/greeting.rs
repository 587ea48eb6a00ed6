//! Whether what listens at an address speaks gRPC: found out by the first bytes, before a client waits for it in vain.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What a client of HTTP/2 says first, and its settings, of which there are none.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Bytes of the head of a frame.
const HEAD_BYTES: usize = 9;
/// Where the kind of a frame stands in its head.
const KIND_AT: usize = 3;
/// Settings, which every server of HTTP/2 sends first.
const SETTINGS: u8 = 4;
/// Asks which versions there are, in Kafka's protocol: length, kind 18, version 0, number 7, no client id.
const VERSIONS: &[u8] = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff";
/// Asks whether there is anything, in HTTP/1.
const ASK: &[u8] = b"HEAD / HTTP/1.0\r\n\r\n";
/// Version and status of its answer.
const STATUS_BYTES: usize = 12;
/// Length and number of Kafka's answer.
const ANSWER_BYTES: usize = 8;

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Greeting {
    /// It speaks HTTP/2, as gRPC does.
    Grpc,
    /// It speaks something else; in words.
    Other(&'static str),
    /// Nothing in time.
    Silence,
}

/// Greets the one at the other end of a new connection, which is of no use afterwards.
pub(super) fn greet(stream: TcpStream, address: SocketAddr, wait: Duration) -> Greeting {
    match say(stream, PREFACE, HEAD_BYTES, wait) {
        Said::Bytes(head) if head[KIND_AT] == SETTINGS => Greeting::Grpc,
        Said::Bytes(head) if head.starts_with(b"HTTP/1") => HTTP,
        Said::Nothing if speaks_kafka(address, wait) => KAFKA,
        Said::Nothing => Greeting::Silence,
        Said::End if speaks_kafka(address, wait) => KAFKA,
        Said::Bytes(_) | Said::End if speaks_http(address, wait) => HTTP,
        Said::Bytes(_) | Said::End => Greeting::Other("it does not speak gRPC"),
    }
}

const HTTP: Greeting = Greeting::Other(
    "it speaks HTTP/1 and not Hulse's gRPC: perhaps this is the address of metrics (listen.http)",
);
const KAFKA: Greeting = Greeting::Other(
    "it speaks Kafka's protocol: this is the address for Kafka's clients (listen.kafka)",
);

fn speaks_kafka(address: SocketAddr, wait: Duration) -> bool {
    let Ok(stream) = TcpStream::connect_timeout(&address, wait) else {
        return false;
    };
    match say(stream, VERSIONS, ANSWER_BYTES, wait) {
        Said::Bytes(answer) => answer[4..] == VERSIONS[8..12],
        Said::Nothing | Said::End => false,
    }
}

/// A server of HTTP/1 that does not know the preface of HTTP/2 answers it with anything; what it knows it answers in kind.
fn speaks_http(address: SocketAddr, wait: Duration) -> bool {
    let Ok(stream) = TcpStream::connect_timeout(&address, wait) else {
        return false;
    };
    match say(stream, ASK, STATUS_BYTES, wait) {
        Said::Bytes(answer) => answer.starts_with(b"HTTP/1"),
        Said::Nothing | Said::End => false,
    }
}

/// What came back.
enum Said {
    /// As many bytes as were wanted.
    Bytes(Vec<u8>),
    /// Too few in time.
    Nothing,
    /// The connection ended.
    End,
}

fn say(mut stream: TcpStream, words: &[u8], wanted: usize, wait: Duration) -> Said {
    let mut answer = vec![0; wanted];
    // A time-out of zero would be none.
    let wait = Some(wait.max(Duration::from_millis(1)));
    let heard = stream
        .set_read_timeout(wait)
        .and_then(|()| stream.set_write_timeout(wait))
        .and_then(|()| stream.write_all(words))
        .and_then(|()| stream.read_exact(&mut answer));
    match heard {
        Ok(()) => Said::Bytes(answer),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Said::Nothing
        }
        Err(_) => Said::End,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What is heard of a server that answers each connection with these bytes; none: it closes.
    fn heard(answers: &'static [&'static [u8]]) -> Greeting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 14];
                stream.read_exact(&mut asked).unwrap();
                stream.write_all(answer).unwrap();
            }
        });
        let stream = TcpStream::connect(address).unwrap();
        greet(stream, address, Duration::from_secs(10))
    }

    #[test]
    fn peer_is_known_by_its_first_bytes() {
        assert_eq!(heard(&[b"\0\0\x06\x04\0\0\0\0\0......"]), Greeting::Grpc);
        assert_eq!(heard(&[b"", b"\0\0\0\x20\0\0\0\x07...."]), KAFKA);
        let other = heard(&[b"", b"\0\0\0\x20\0\0\0\x08...."]);
        assert_eq!(other, Greeting::Other("it does not speak gRPC"));
        let Greeting::Other(words) = heard(&[b"HTTP/1.1 400 Bad Request\r\n"]) else {
            panic!("it is no gRPC");
        };
        assert!(words.contains("metrics"), "{words}");
        const STATUS: &[u8] = b"HTTP/1.0 404 Not Found\r\n";
        assert_eq!(heard(&[b"<!DOCTYPE html>", STATUS]), HTTP);
    }

    #[test]
    fn peer_that_says_nothing_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        let heard = greet(stream, address, Duration::from_millis(20));
        assert_eq!(heard, Greeting::Silence);
    }
}
