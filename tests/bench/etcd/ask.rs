//! What a cell never asks of its etcd, and an operator does (sizes, compaction, alarms): one POST to etcd's JSON gateway each.

use anyhow::Context as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Asks `path` at an etcd's address; the answer of a request that was not refused.
pub(crate) async fn ask(at: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(at).await?;
    let body = body.to_string();
    // HTTP/1.0: the answer comes whole, and ends with the connection.
    let request = format!(
        "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1);
    anyhow::ensure!(status == Some("200"), "{path}: {body}");
    Ok(serde_json::from_str(body)?)
}
