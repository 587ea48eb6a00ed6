//! Finds the one bit that flipped, from a CRC32C over bytes that hold it: for one changed bit, the stored and the computed checksum
//! differ by a value that no other bit gives. Pure functions over bytes; nothing is changed on a disk.
//!
//! A checksum alone would take a few of many arbitrary changes for one flipped bit, the more the longer the bytes are. So what is put
//! right counts only where something else agrees: a header is where it says it is, and each record has a checksum of its own.

use hulse_proto::entry::crc32c;

use super::format::{GROUP_HEADER_BYTES, GroupHeader};

/// The polynomial of CRC32C, its lowest bit for the highest power.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The bit of `bytes` bytes, from the first one's lowest on, whose change changes their checksum by `difference`. Takes time in
/// proportion to the length.
fn flipped_bit(bytes: usize, difference: u32) -> Option<usize> {
    let bits = bytes.checked_mul(8)?;
    let mut change = 1;
    for behind in 1..=bits {
        change = (change >> 1) ^ (POLYNOMIAL & (change & 1_u32).wrapping_neg());
        if change == difference {
            return Some(bits - behind);
        }
    }
    None
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// The header of a group in which one bit is wrong; `None` when it is right, or more is wrong.
pub fn mended_header(bytes: &[u8], salt: u64, offset: u64) -> Option<GroupHeader> {
    let mut bytes: [u8; GROUP_HEADER_BYTES] = bytes.get(..GROUP_HEADER_BYTES)?.try_into().ok()?;
    let (content, stored) = bytes.split_last_chunk::<4>()?;
    let difference = crc32c(content) ^ u32::from_le_bytes(*stored);
    let bit = match difference.count_ones() {
        // The checksum itself.
        1 => content.len() * 8 + difference.trailing_zeros() as usize,
        _ => flipped_bit(content.len(), difference)?,
    };
    flip(&mut bytes, bit);
    GroupHeader::decode(&bytes, salt, offset).ok()
}

/// The records of a group in which one bit is wrong, put right, and the byte that holds it; `None` when they are right, or more is
/// wrong.
pub fn mended_body(header: &GroupHeader, body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let bit = flipped_bit(body.len(), crc32c(body) ^ header.body_crc)?;
    let mut whole = body.to_vec();
    flip(&mut whole, bit);
    Some((whole, bit / 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogPosition;

    fn header(body: &[u8]) -> GroupHeader {
        GroupHeader {
            sequence: 9,
            offset: 8192,
            body_bytes: body.len() as u32,
            records: 1,
            synced: LogPosition {
                file: 1,
                offset: 4096,
            },
            body_crc: crc32c(body),
        }
    }

    #[test]
    fn flipped_bit_is_found_wherever_it_is_and_two_are_not() {
        let body: Vec<u8> = (0..1_000_u32).map(|at| (at * at) as u8).collect();
        let header = header(&body);
        assert_eq!(mended_body(&header, &body), None);
        for bit in (0..body.len() * 8).step_by(7) {
            let mut rotten = body.clone();
            flip(&mut rotten, bit);
            assert_eq!(mended_body(&header, &rotten), Some((body.clone(), bit / 8)));
            flip(&mut rotten, (bit + 13) % (body.len() * 8));
            assert_eq!(mended_body(&header, &rotten), None, "bit {bit}");
        }
        let bytes = header.encode(77);
        assert_eq!(mended_header(&bytes, 77, 8192), None);
        for bit in 0..bytes.len() * 8 {
            let mut rotten = bytes;
            flip(&mut rotten, bit);
            assert_eq!(mended_header(&rotten, 77, 8192), Some(header), "bit {bit}");
            assert_eq!(mended_header(&rotten, 77, 4096), None, "bit {bit}");
            assert_eq!(mended_header(&rotten, 78, 8192), None, "bit {bit}");
            flip(&mut rotten, (bit + 13) % (bytes.len() * 8));
            assert_eq!(mended_header(&rotten, 77, 8192), None, "bit {bit}");
        }
    }
}
