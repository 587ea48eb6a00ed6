//! One plain GET of what the server tells machines: metrics and health.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// Longest answer that is read: the metrics of a large server.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// 200, say.
    pub(crate) status: u16,
    /// The server's date, ms since 1970, if it tells it; whole seconds.
    pub(super) date_ms: Option<i64>,
    /// What follows the head.
    pub(crate) body: String,
}

/// Asks once.
///
/// # Errors
/// Nobody answers in time, or not in HTTP.
pub(crate) fn get(address: &str, path: &str, wait: Duration) -> Result<Answer, String> {
    let words = |error: std::io::Error| format!("{address}: {error}");
    let mut last = format!("{address} has no address");
    for at in address.to_socket_addrs().map_err(words)? {
        match TcpStream::connect_timeout(&at, wait) {
            Err(error) => last = format!("{at}: {error}"),
            Ok(mut stream) => {
                stream.set_read_timeout(Some(wait)).map_err(words)?;
                stream.set_write_timeout(Some(wait)).map_err(words)?;
                let ask =
                    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
                stream.write_all(ask.as_bytes()).map_err(words)?;
                let mut text = Vec::new();
                let mut limited = stream.take(ANSWER_BYTES_MAX);
                limited.read_to_end(&mut text).map_err(words)?;
                return parse(&String::from_utf8_lossy(&text))
                    .ok_or_else(|| format!("{address} does not answer in HTTP"))
                    .and_then(|answer| match answer.status {
                        404 => Err(format!("{address} does not know {path}")),
                        _ => Ok(answer),
                    });
            }
        }
    }
    Err(last)
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines
        .next()?
        .strip_prefix("HTTP/1.")?
        .get(2..5)?
        .parse()
        .ok()?;
    let headers: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .collect();
    let value = |wanted: &str| {
        headers
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| *value)
    };
    let body = match value("transfer-encoding") {
        Some("chunked") => unchunk(body)?,
        _ => body.to_owned(),
    };
    Some(Answer {
        status,
        date_ms: value("date").and_then(date),
        body,
    })
}

fn unchunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, after) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length.split(';').next()?.trim(), 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.push_str(after.get(..length)?);
        rest = after.get(length..)?.strip_prefix("\r\n")?;
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
fn date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut words = text.split(' ').skip(1);
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    crate::format::parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_taken_apart() {
        let text = "HTTP/1.1 503 Service Unavailable\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nnot ready\n";
        let answer = parse(text).unwrap();
        assert_eq!(
            (answer.status, answer.date_ms),
            (503, Some(784_111_777_000))
        );
        assert_eq!(answer.body, "not ready\n");
        let text =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        assert_eq!(parse(text).unwrap().body, "abcd");
        assert_eq!(parse("SSH-2.0\r\n\r\n"), None);
    }
}
