//! A group with more members than its topic has partitions.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tokio::time::Instant;

use super::super::cli::done;
use super::super::server::Server;
use super::PORT;

/// ConsumerGroupHeartbeat of Kafka's protocol (KIP-848), version 1.
const HEARTBEAT: (i16, i16) = (68, 1);

fn compact(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8 + 1);
    out.extend(text.as_bytes());
}

/// One member.
struct Member {
    socket: TcpStream,
    id: String,
    epoch: i32,
}

impl Member {
    fn new(address: &str, number: u32) -> Self {
        Self {
            socket: TcpStream::connect(address).unwrap(),
            id: format!("member-{number}"),
            epoch: 0,
        }
    }

    /// Says that it lives and owns nothing yet; answers its epoch from now on.
    fn beat(&mut self) -> i32 {
        let mut body = Vec::new();
        body.extend(HEARTBEAT.0.to_be_bytes());
        body.extend(HEARTBEAT.1.to_be_bytes());
        body.extend(7_i32.to_be_bytes());
        body.extend([0, 1, b't', 0]);
        compact(&mut body, "crowd");
        compact(&mut body, &self.id);
        body.extend(self.epoch.to_be_bytes());
        // Neither instance nor rack.
        body.extend([0, 0]);
        body.extend(30_000_i32.to_be_bytes());
        body.push(2);
        compact(&mut body, "narrow");
        // No pattern, no assignor, owned: none, no tags.
        body.extend([0, 0, 1, 0]);
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend(body);
        self.socket.write_all(&frame).unwrap();
        let mut size = [0; 4];
        self.socket.read_exact(&mut size).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        self.socket.read_exact(&mut answer).unwrap();
        // Correlation, tags, throttle; then error, message, member, epoch.
        let error = i16::from_be_bytes([answer[9], answer[10]]);
        assert_eq!(error, 0, "{answer:?}");
        let skip = |at: usize| at + usize::from(answer[at]).max(1);
        let at = skip(skip(11));
        self.epoch = i32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
        self.epoch
    }
}

#[test]
fn doctor_names_the_group_whose_members_have_no_partition() {
    let kafka = format!("127.0.0.1:{}", PORT + 49);
    let server = Server::start_with(PORT + 44, &[("HULSE_LISTEN__KAFKA", &kafka)]);
    done(&server, &["topics", "create", "narrow", "-p", "2"], "");
    let mut members: Vec<Member> = (0..4).map(|number| Member::new(&kafka, number)).collect();
    let began = Instant::now();
    let told = loop {
        for member in &mut members {
            member.beat();
        }
        let found = server.findings();
        let idle = found.iter().find(|one| one["code"] == "DOCTOR-24");
        if let Some(idle) = idle {
            break idle.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{found:?}");
        std::thread::sleep(Duration::from_millis(300));
    };
    assert_eq!(told["object"], "group crowd");
    let why = told["why"].as_str().unwrap();
    assert!(why.starts_with("2 of its members wait"), "{told}");
    assert_eq!(told["weight"], "note");
}
