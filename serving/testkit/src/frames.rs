//! Where the frames of an HTTP/2 connection end (RFC 9113 §4.1): 9 bytes of header, of which the first three are the payload's length.
//! No I/O.

/// Bytes of a frame's header.
const HEADER_BYTES: usize = 9;
/// What a client sends before its first frame (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the broker.
    Up,
    /// From the broker to the client.
    Down,
}

/// Counts the frames that have passed in one direction.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Before the next frame's header.
    skip: usize,
    header: [u8; HEADER_BYTES],
    filled: usize,
    passed: u64,
}

impl Frames {
    /// A connection that has just begun.
    pub(crate) fn new(way: Way) -> Self {
        Self {
            skip: match way {
                Way::Up => PREFACE_BYTES,
                Way::Down => 0,
            },
            header: [0; HEADER_BYTES],
            filled: 0,
            passed: 0,
        }
    }

    /// How many of these bytes belong to the first `limit` frames, and whether those end there. Takes as many into account.
    pub(crate) fn take(&mut self, bytes: &[u8], limit: u64) -> (usize, bool) {
        let mut at = 0;
        loop {
            if self.skip > 0 {
                let step = self.skip.min(bytes.len() - at);
                (self.skip, at) = (self.skip - step, at + step);
            }
            // The preface is behind, and so is the payload of a whole header.
            if self.skip == 0 && self.filled == HEADER_BYTES {
                (self.filled, self.passed) = (0, self.passed + 1);
            }
            if self.skip == 0 && self.filled == 0 && self.passed >= limit {
                return (at, true);
            }
            if at == bytes.len() {
                return (at, false);
            }
            self.header[self.filled] = bytes[at];
            (self.filled, at) = (self.filled + 1, at + 1);
            if self.filled == HEADER_BYTES {
                let [high, middle, low, ..] = self.header;
                self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: usize) -> Vec<u8> {
        let length = (payload as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], 0, 0, 0, 0, 0, 1];
        frame.resize(HEADER_BYTES + payload, 7);
        frame
    }

    #[test]
    fn frames_end_where_their_lengths_say_however_the_bytes_come() {
        let sizes = [0, 5, 300, 0, 70_000, 1];
        let mut bytes = vec![b'P'; PREFACE_BYTES];
        let mut ends = vec![bytes.len()];
        for size in sizes {
            bytes.extend(frame(size));
            ends.push(bytes.len());
        }
        for step in [1, 3, 9, 1_000, bytes.len()] {
            for (limit, end) in ends.iter().enumerate().skip(1) {
                let mut frames = Frames::new(Way::Up);
                let mut taken = 0;
                for piece in bytes.chunks(step) {
                    let (these, over) = frames.take(piece, limit as u64);
                    taken += these;
                    assert!(over || these == piece.len());
                    if over {
                        break;
                    }
                }
                assert_eq!(taken, *end, "{limit} frames in pieces of {step}");
            }
        }
    }

    #[test]
    fn broker_sends_no_preface() {
        let mut frames = Frames::new(Way::Down);
        assert_eq!(frames.take(&frame(4), u64::MAX), (13, false));
        let bytes = [frame(4), frame(2)].concat();
        assert_eq!(Frames::new(Way::Down).take(&bytes, 1), (13, true));
    }
}
