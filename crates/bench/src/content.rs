//! What the objects of a benchmark hold: a function of the key and the offset.
//!
//! So nothing has to be kept to check an answer byte by byte, whichever range of an object it is,
//! and no two places of a bucket hold the same 8 bytes but by chance. The bytes look random: a
//! store that compresses gains nothing.
//!
//! The word at offset `8 * i` of an object is a mix of the object's seed and `i`, in little-endian
//! order. One multiplication for 8 bytes: the client must stay cheaper than what it measures.

/// The bytes of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    seed: u64,
}

/// Offsets and multipliers of FNV-1a, 64 bits.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
/// Odd constants of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA '14).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: u64 = 0xbf58_476d_1ce4_e5b9;

const WORD_BYTES: u64 = 8;

impl Content {
    /// The content of the object of that name.
    pub(crate) fn of(key: &str) -> Self {
        let hash = key.bytes().fold(FNV_START, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
        });
        // FNV leaves similar keys with similar hashes; words of two objects must not line up.
        let seed = (hash ^ (hash >> 32)).wrapping_mul(MIX);
        Self {
            seed: seed ^ (seed >> 29),
        }
    }

    fn word(self, index: u64) -> [u8; 8] {
        let mut word = self.seed.wrapping_add(index.wrapping_mul(STEP));
        word = (word ^ (word >> 30)).wrapping_mul(MIX);
        (word ^ (word >> 31)).to_le_bytes()
    }

    /// Writes the bytes from `offset` on over all of `out`.
    pub(crate) fn fill(self, offset: u64, out: &mut [u8]) {
        let mut index = offset / WORD_BYTES;
        let within = within_word(offset);
        let head_bytes = if within == 0 {
            0
        } else {
            let word = self.word(index);
            let count = (8 - within).min(out.len());
            out[..count].copy_from_slice(&word[within..within + count]);
            index += 1;
            count
        };
        let mut words = out[head_bytes..].chunks_exact_mut(8);
        for place in &mut words {
            place.copy_from_slice(&self.word(index));
            index += 1;
        }
        let rest = words.into_remainder();
        let word = self.word(index);
        rest.copy_from_slice(&word[..rest.len()]);
    }

    /// The offset of the first byte that is not this object's, when `bytes` begin at `offset`.
    pub(crate) fn first_difference(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut index = offset / WORD_BYTES;
        let within = within_word(offset);
        let mut at = 0;
        if within != 0 {
            let word = self.word(index);
            let count = (8 - within).min(bytes.len());
            if bytes[..count] != word[within..within + count] {
                return Some(offset + differs_at(&bytes[..count], &word[within..]));
            }
            index += 1;
            at = count;
        }
        let words = bytes[at..].chunks_exact(8);
        let rest = words.remainder();
        for piece in words {
            let word = self.word(index);
            if piece != word {
                return Some(index * WORD_BYTES + differs_at(piece, &word));
            }
            index += 1;
        }
        let word = self.word(index);
        let is_same = rest == &word[..rest.len()];
        (!is_same).then(|| index * WORD_BYTES + differs_at(rest, &word))
    }
}

fn within_word(offset: u64) -> usize {
    (offset % WORD_BYTES) as usize
}

fn differs_at(left: &[u8], right: &[u8]) -> u64 {
    let same = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    same as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(key: &str, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        Content::of(key).fill(0, &mut bytes);
        bytes
    }

    #[test]
    fn any_range_is_a_piece_of_the_whole() {
        let (content, all) = (Content::of("a/b"), whole("a/b", 100));
        for start in 0..40 {
            for end in start..100 {
                let mut piece = vec![0; end - start];
                content.fill(start as u64, &mut piece);
                assert_eq!(piece, all[start..end], "{start}..{end}");
                let found = content.first_difference(start as u64, &piece);
                assert_eq!(found, None, "{start}..{end}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let content = Content::of("a/b");
        for start in [0, 3, 8, 13] {
            let mut bytes = vec![0; 50];
            content.fill(start, &mut bytes);
            for at in 0..bytes.len() {
                bytes[at] ^= 0x10;
                let found = content.first_difference(start, &bytes);
                assert_eq!(found, Some(start + at as u64), "from {start}, byte {at}");
                bytes[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn another_key_or_another_place_is_found() {
        let near = whole("objects/0002", 4096);
        let found = Content::of("objects/0001").first_difference(0, &near);
        assert!(found.is_some_and(|at| at < 8), "{found:?}");
        let own = whole("objects/0001", 4096);
        let found = Content::of("objects/0001").first_difference(8, &own);
        assert!(found.is_some(), "shifted by a word");
    }
}
