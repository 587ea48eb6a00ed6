//! etcd's JSON gateway: POST over kept connections, HTTP/1.1, just enough of it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// The gateway at one address. Connections are made as they are needed and kept.
pub(crate) struct Gateway {
    address: String,
    idle: Mutex<Vec<BufReader<TcpStream>>>,
    requests: AtomicU64,
    transactions: Mutex<Vec<Duration>>,
}

impl Gateway {
    /// Connects at the first request.
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            idle: Mutex::default(),
            requests: AtomicU64::new(0),
            transactions: Mutex::default(),
        }
    }

    /// Sends one request; the status and the answer, which is JSON in any case.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> io::Result<(u16, Value)> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let kept = self.lock(&self.idle).pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let began = Instant::now();
        connection.get_mut().write_all(request.as_bytes()).await?;
        let (status, answer) = answer(&mut connection).await?;
        if path.ends_with("/txn") {
            self.lock(&self.transactions).push(began.elapsed());
        }
        self.lock(&self.idle).push(connection);
        Ok((status, serde_json::from_slice(&answer)?))
    }

    /// Requests since the last call, and the times of the transactions among them, sorted.
    pub(crate) fn take_counts(&self) -> (u64, Vec<Duration>) {
        let mut times = std::mem::take(&mut *self.lock(&self.transactions));
        times.sort_unstable();
        (self.requests.swap(0, Ordering::Relaxed), times)
    }

    fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> std::sync::MutexGuard<'a, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(connection: &mut BufReader<TcpStream>) -> io::Result<(u16, Vec<u8>)> {
    let status = line(connection).await?;
    let status = status
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no HTTP status"))?;
    let (mut length, mut chunked) = (0, false);
    loop {
        let header = line(connection).await?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        chunked |= header == "transfer-encoding: chunked";
    }
    let mut body = Vec::new();
    if !chunked {
        body.resize(length, 0);
        connection.read_exact(&mut body).await?;
        return Ok((status, body));
    }
    loop {
        let size = line(connection).await?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
        if size == 0 {
            // Trailers, which come with refusals.
            while !line(connection).await?.is_empty() {}
            return Ok((status, body));
        }
        let begin = body.len();
        body.resize(begin + size, 0);
        connection.read_exact(&mut body[begin..]).await?;
        line(connection).await?;
    }
}

async fn line(connection: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if connection.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}
