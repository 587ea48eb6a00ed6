//! Records out of a stream of bytes: cuts it at the format's end literal.

use bytes::{Buf as _, Bytes, BytesMut};
use hulse_proto::limits::RECORD_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::failure::{Code, Failure};
use crate::format::find;

/// Read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Longest text of one record: the largest value in hexadecimal, its key, its headers.
const TEXT_BYTES_MAX: usize = 2 * RECORD_BYTES_MAX + (64 << 10);

/// Cuts a stream into records.
pub(crate) struct Records<R> {
    from: R,
    name: String,
    end: Bytes,
    buffer: BytesMut,
    /// Bytes of the buffer that hold no end.
    searched: usize,
    /// Records so far.
    count: u64,
    finished: bool,
}

impl<R: AsyncRead + Unpin> Records<R> {
    /// Cuts `from`, which is called `name`, at each `end`.
    pub(crate) fn new(from: R, name: impl Into<String>, end: &[u8]) -> Self {
        Self {
            from,
            name: name.into(),
            end: Bytes::copy_from_slice(end),
            buffer: BytesMut::new(),
            searched: 0,
            count: 0,
            finished: false,
        }
    }

    /// The next record without its end; `None` after the last. What stands behind the last end is a record, unless it is empty.
    /// Cancel-safe: what was read stays.
    ///
    /// # Errors
    /// The stream fails, or a record is longer than any may be.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(at) = find(&self.buffer[self.searched..], &self.end) {
                let record = self.buffer.split_to(self.searched + at).freeze();
                self.buffer.advance(self.end.len());
                self.searched = 0;
                self.count += 1;
                return Ok(Some(record));
            }
            // An end may begin in the bytes that are here already.
            self.searched = self.buffer.len().saturating_sub(self.end.len() - 1);
            if self.finished {
                self.searched = 0;
                let rest = self.buffer.split().freeze();
                self.count += u64::from(!rest.is_empty());
                return Ok(Some(rest).filter(|rest| !rest.is_empty()));
            }
            if self.buffer.len() > TEXT_BYTES_MAX {
                let why = format!(
                    "no end {:?} within {TEXT_BYTES_MAX} bytes",
                    String::from_utf8_lossy(&self.end)
                );
                // The record that has no end was not counted yet.
                self.count += 1;
                return Err(self.wrong(&why, "a record holds at most 1 MiB; look at -f"));
            }
            self.buffer.reserve(CHUNK_BYTES);
            match self.from.read_buf(&mut self.buffer).await {
                Ok(0) => self.finished = true,
                Ok(_) => {}
                Err(error) => {
                    return Err(Failure::new(Code::File, "cannot read the input")
                        .why(error)
                        .object(&self.name)
                        .next("look at the file"));
                }
            }
        }
    }

    /// A failure that names the record being read.
    pub(crate) fn wrong(&self, why: &str, next: &str) -> Failure {
        Failure::new(Code::Input, "the input is not as the format says")
            .why(why)
            .object(self.place())
            .next(next)
    }

    /// How many were found so far, also one that was too long.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Names the record that was read last.
    pub(crate) fn place(&self) -> String {
        format!("record {} of {}", self.count, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn cut(input: &'static [u8], end: &[u8]) -> Vec<Bytes> {
        let mut records = Records::new(input, "test", end);
        let mut found = Vec::new();
        while let Some(record) = records.next().await.unwrap() {
            found.push(record);
        }
        found
    }

    #[tokio::test]
    async fn stream_is_cut_at_each_end() {
        assert_eq!(cut(b"a\nb\n", b"\n").await, ["a", "b"]);
        assert_eq!(cut(b"a\nb", b"\n").await, ["a", "b"]);
        assert_eq!(cut(b"a\n\nb\n\n", b"\n").await, ["a", "", "b", ""]);
        assert_eq!(cut(b"", b"\n").await, Vec::<Bytes>::new());
        assert_eq!(cut(b"a;;b;;;c", b";;").await, ["a", "b", ";c"]);
    }

    #[tokio::test]
    async fn end_that_is_split_between_two_reads_is_found() {
        let halves = tokio::io::AsyncReadExt::chain(&b"ab;"[..], &b";cd"[..]);
        let mut records = Records::new(halves, "test", b";;");
        assert_eq!(records.next().await.unwrap().unwrap(), "ab");
        assert_eq!(records.next().await.unwrap().unwrap(), "cd");
        assert_eq!(records.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn record_that_is_too_long_is_named_by_its_number() {
        let input = tokio::io::AsyncReadExt::chain(&b"a\nb\n"[..], tokio::io::repeat(b'x'));
        let mut records = Records::new(input, "test", b"\n");
        assert!(records.next().await.is_ok() && records.next().await.is_ok());
        let told = records.next().await.unwrap_err().to_string();
        assert!(told.contains("record 3 of test"), "{told}");
    }

    #[tokio::test]
    async fn record_without_an_end_is_refused_before_memory_runs_out() {
        let mut records = Records::new(tokio::io::repeat(b'x'), "test", b"\n");
        let told = records.next().await.unwrap_err().to_string();
        assert!(
            told.contains("record 1 of test") && told.contains("no end"),
            "{told}"
        );
    }
}
