//! Who shares a limit, as the ledger knows it.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};

use sha2::{Digest as _, Sha256};

/// A scope: the first 128 bits of the SHA-256 of a token, a merchant, a host. The value itself goes nowhere.
///
/// ```
/// use outgate::ledger::ScopeId;
///
/// assert_eq!(ScopeId::of(b"m-17"), ScopeId::of(b"m-17")); // a hash: the value itself goes nowhere
/// assert_ne!(ScopeId::of(b"m-17"), ScopeId::from_bits(17));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopeId {
    // In halves, as 128 bits in one are aligned to as many: many of them lie about, each maybe none.
    high: u64,
    low: u64,
}

impl ScopeId {
    /// The scope of a value.
    #[must_use]
    pub fn of(value: &[u8]) -> Self {
        let hash = Sha256::digest(value);
        Self::from_bits(u128::from_be_bytes(std::array::from_fn(|at| hash[at])))
    }

    /// The scope of these bits.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "one half, and the other")]
    pub const fn from_bits(bits: u128) -> Self {
        Self { high: (bits >> 64) as u64, low: bits as u64 }
    }

    /// The same value of another scope, so that values which are alike share nothing.
    pub(crate) const fn mixed_with(self, scope: Self) -> Self {
        Self { high: self.high ^ scope.high, low: self.low ^ scope.low }
    }

    /// In parts of 32 bits, the first first.
    #[cfg(feature = "redis")]
    #[expect(clippy::cast_possible_truncation, reason = "one part after another")]
    pub(crate) const fn parts(self) -> [u32; 4] {
        [(self.high >> 32) as u32, self.high as u32, (self.low >> 32) as u32, self.low as u32]
    }

    /// The scope of these parts, where they are some.
    #[cfg(feature = "redis")]
    pub(crate) fn from_parts(parts: &[i64; 4]) -> Option<Self> {
        let bits = parts.iter().try_fold(0, |bits, &part| Some(bits << 32 | u128::from(u32::try_from(part).ok()?)));
        bits.map(Self::from_bits)
    }

    /// Its first 64 bits, spread evenly.
    pub(crate) const fn first_half(self) -> u64 {
        self.high
    }

    /// Its first 16 bits, spread evenly.
    pub(crate) const fn first_bits(self) -> u16 {
        (self.high >> 48) as u16
    }
}

impl Hash for ScopeId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // It is a hash: half of it is enough to find it by.
        state.write_u64(self.low);
    }
}

impl fmt::Display for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.high, self.low)
    }
}

impl fmt::Debug for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeId({self})")
    }
}

/// A hash of scopes, which are hashes already, and of the names of upstreams, which the program chooses. Under a key of its own,
/// so that a table cannot be made to collide from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeHasher {
    key: u64,
    hash: u64,
}

/// An odd number whose bits are those of the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for ScopeHasher {
    fn default() -> Self {
        Self { key: fastrand::u64(..) | 1, hash: 0 }
    }
}

impl BuildHasher for ScopeHasher {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for ScopeHasher {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.write_u64(rest.iter().fold(1, |word, &byte| word << 8 | u64::from(byte)));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u64(&mut self, part: u64) {
        let mixed = (self.hash.rotate_left(32) ^ part).wrapping_mul(self.key);
        self.hash = (mixed ^ (mixed >> 32)).wrapping_mul(GOLDEN);
    }

    fn write_usize(&mut self, part: usize) {
        self.write_u64(part as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_the_first_half_of_a_sha_256() {
        let abc = ScopeId::of(b"abc");
        assert_eq!(abc.to_string(), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(abc.first_bits(), 0xba78);
        assert_eq!(format!("{:?}", ScopeId::from_bits(10)), "ScopeId(0000000000000000000000000000000a)");
    }

    #[test]
    fn hashes_of_scopes_are_spread_and_differ_between_tables() {
        let hashes = |hasher: &ScopeHasher| {
            (0..4_096_u128).map(|bits| hasher.hash_one(ScopeId::from_bits(bits))).collect::<Vec<_>>()
        };
        let (one, other) = (ScopeHasher { key: 3, hash: 0 }, ScopeHasher { key: 0x1234_5677, hash: 0 });
        let mut buckets = [0_u32; 64];
        for hash in hashes(&one) {
            buckets[usize::try_from(hash % 64).unwrap()] += 1;
        }
        assert!(buckets.iter().all(|&count| (30..110).contains(&count)), "{buckets:?}");
        assert_ne!(hashes(&one), hashes(&other));
    }
}
