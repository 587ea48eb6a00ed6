//! The codecs: which exist, the three that clients of ours send, and how all of them are decoded.

use std::fmt;
use std::io::{self, Read, Write};

use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::{BatchError, snappy};
use crate::limits::BATCH_DECOMPRESSED_BYTES_MAX;

/// Level 1 of zstd: two thirds of the work of the default level for a tenth more bytes (dependencies.md 4.5).
const ZSTD_LEVEL: i32 = 1;
/// Largest zstd window: what the format's own decoders take by default, so that batches of the highest levels open. The memory is
/// touched only as far as bytes come out.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// First bytes of an LZ4 frame. Legacy and skippable frames, which the decoder would take too, are not Kafka's.
const LZ4_MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
/// First growth step of a decompression buffer.
const OUTPUT_BYTES_MIN: usize = 4 << 10;

/// How the records of a batch are packed. The numbers are Kafka's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None = 0,
    /// One gzip member; made for measurements only.
    Gzip = 1,
    /// One block, or several in the frame of Java clients; made for measurements only.
    Snappy = 2,
    /// One LZ4 frame.
    Lz4 = 3,
    /// One zstd frame.
    Zstd = 4,
}

impl Compression {
    /// The codec of this number.
    pub(super) fn from_code(code: u8) -> Result<Self, BatchError> {
        [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd]
            .get(usize::from(code))
            .copied()
            .ok_or(BatchError::UnknownCompression(code))
    }

    /// True when clients of ours send it; all are decoded.
    pub fn is_supported(self) -> bool {
        matches!(self, Self::None | Self::Lz4 | Self::Zstd)
    }

    /// Most bytes that one compressed byte can become, by the format: deflate's longest match from two bits, snappy's 64 bytes from
    /// a copy of two, LZ4's 255 per length byte, zstd's run of 128 KiB in a block of four bytes.
    pub(super) fn expansion_max(self) -> u64 {
        match self {
            Self::None => 1,
            Self::Snappy => 64,
            Self::Lz4 => 255,
            Self::Gzip => 1032,
            Self::Zstd => 32 << 10,
        }
    }

    /// Most bytes that `bytes` become when they cannot be compressed.
    pub(super) fn packed_bytes_max(self, bytes: usize) -> usize {
        match self {
            Self::None => bytes,
            Self::Snappy => snap::raw::max_compress_len(bytes).max(bytes),
            _ => bytes + bytes / 256 + 128,
        }
    }

    /// Appends `records`, packed, to `out`.
    pub(super) fn pack(self, records: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::None => out.extend_from_slice(records),
            Self::Lz4 => pack_lz4(records, out),
            Self::Zstd => {
                let start = out.len();
                out.resize(start + self.packed_bytes_max(records.len()), 0);
                let length = zstd::bulk::compress_to_buffer(records, &mut out[start..], ZSTD_LEVEL)
                    .expect("the buffer is as long as incompressible bytes need");
                out.truncate(start + length);
            }
            Self::Gzip => {
                let mut encoder = GzEncoder::new(out, flate2::Compression::default());
                encoder
                    .write_all(records)
                    .expect("a Vec takes what is written to it");
                encoder.finish().expect("a Vec takes what is written to it");
            }
            Self::Snappy => {
                let packed = snap::raw::Encoder::new().compress_vec(records);
                out.extend(packed.expect("a batch is far below the 4 GiB of a block"));
            }
        }
    }

    /// Unpacks what follows a header; at most [`BATCH_DECOMPRESSED_BYTES_MAX`], and memory grows only with what really comes out.
    /// Not for [`Compression::None`], which needs no copy.
    pub(super) fn unpack(self, packed: &[u8]) -> Result<Vec<u8>, BatchError> {
        let (out, left) = match self {
            Self::Lz4 if packed.starts_with(&LZ4_MAGIC) => {
                let mut decoder = FrameDecoder::new(packed);
                let out = self.drain(&mut decoder, packed.len())?;
                if !lz4_frame_is_whole(packed) {
                    return Err(self.damaged("the frame is cut off before its end mark"));
                }
                (out, decoder.get_ref().len())
            }
            Self::Lz4 => return Err(self.damaged("it does not begin with an LZ4 frame")),
            Self::Zstd => {
                let mut rest = packed;
                let mut decoder = zstd::stream::read::Decoder::with_buffer(&mut rest)
                    .map_err(|error| self.damaged(error))?
                    .single_frame();
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(|error| self.damaged(error))?;
                let out = self.drain(&mut decoder, packed.len())?;
                drop(decoder);
                (out, rest.len())
            }
            Self::Gzip => {
                let mut decoder = flate2::bufread::GzDecoder::new(packed);
                let out = self.drain(&mut decoder, packed.len())?;
                (out, decoder.get_ref().len())
            }
            Self::Snappy => (snappy::unpack(packed)?, 0),
            Self::None => unreachable!("bytes that are not compressed need no copy"),
        };
        if left != 0 {
            return Err(self.damaged("bytes are left behind the frame"));
        }
        Ok(out)
    }

    fn drain(self, from: &mut impl Read, packed_bytes: usize) -> Result<Vec<u8>, BatchError> {
        let max = BATCH_DECOMPRESSED_BYTES_MAX;
        let mut out = Vec::new();
        let mut filled = 0;
        loop {
            if filled == out.len() && filled < max {
                let step = filled.max(2 * packed_bytes).max(OUTPUT_BYTES_MIN);
                let length = (filled + step).min(max);
                out.reserve_exact(length - filled);
                out.resize(length, 0);
            }
            // At the limit one byte more tells a batch that just fits from one that does not.
            let mut probe = [0];
            let full = filled == max;
            let room = if full {
                &mut probe[..]
            } else {
                &mut out[filled..]
            };
            match from.read(room) {
                Ok(0) => break,
                Ok(_) if full => return Err(BatchError::DecodedTooLarge { max }),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.damaged(error)),
            }
        }
        // What stays allocated counts against the batch (`decode`), so no slack is kept.
        out.truncate(filled);
        out.shrink_to_fit();
        Ok(out)
    }

    pub(super) fn damaged(self, why: impl fmt::Display) -> BatchError {
        BatchError::Decompress {
            compression: self,
            why: why.to_string(),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

/// Whether the frame's last block is followed by its end mark and nothing else. The decoder takes a frame that stops right behind a
/// block for a whole one, so it does not see a cut there.
fn lz4_frame_is_whole(packed: &[u8]) -> bool {
    const BLOCK_CHECKSUMS: u8 = 0x10;
    const CONTENT_SIZE: u8 = 0x08;
    const CONTENT_CHECKSUM: u8 = 0x04;
    const DICTIONARY: u8 = 0x01;
    let Some(flags) = packed.get(LZ4_MAGIC.len()) else {
        return false;
    };
    let has = |flag: u8, bytes: usize| if flags & flag != 0 { bytes } else { 0 };
    // Magic, flags, block size, then what the flags name, then the header's checksum.
    let mut at = LZ4_MAGIC.len() + 2 + has(CONTENT_SIZE, 8) + has(DICTIONARY, 4) + 1;
    loop {
        let Some(size) = packed.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
            return false;
        };
        at += size.len();
        // The highest bit tells a block that is not compressed.
        match u32::from_le_bytes(*size) & 0x7fff_ffff {
            0 => return at + has(CONTENT_CHECKSUM, 4) == packed.len(),
            block => at += block as usize + has(BLOCK_CHECKSUMS, 4),
        }
    }
}

fn pack_lz4(records: &[u8], out: &mut Vec<u8>) {
    let small = records.len() <= 64 << 10;
    // Kafka's Java decoder takes independent blocks only.
    let frame = FrameInfo::new()
        .block_mode(BlockMode::Independent)
        .block_size(if small {
            BlockSize::Max64KB
        } else {
            BlockSize::Max256KB
        });
    let mut encoder = FrameEncoder::with_frame_info(frame, out);
    encoder
        .write_all(records)
        .expect("a Vec takes what is written to it");
    encoder
        .finish()
        .expect("a frame without a declared size always ends well");
}
