//! CRC32C on two units of the processor at once: the instruction `crc32` takes three parts of the
//! bytes, each its own, and 256-bit carry-less multiplication folds the fourth. Where each alone
//! does 25 GB/s, both together do 36 (docs/performance.md).
//!
//! A state and bytes are polynomials over GF(2), with the lowest bit of the first byte as the
//! highest coefficient. The state after the bytes M, from the state S, is
//! S x^|M| + M x^32 modulo P, |M| in bits. So parts are added up when each state was multiplied by
//! x to the bits that follow it; and 128 bits L x^64 + H are moved on by n bits by two products,
//! L x^(64+n) + H x^n, that are as long again (Gopal and others, "Fast CRC Computation Using
//! PCLMULQDQ Instruction", Intel, 2009). The product of two reflected polynomials comes out
//! shifted by one, and a factor of 32 bits in a register of 64 stands for itself times x^32: hence
//! the 33 in [`SHIFT`].

use std::arch::x86_64::{
    __m128i, __m256i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi32_si128,
    _mm_cvtsi128_si64, _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_clmulepi64_epi128,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_xor_si256,
};
use std::sync::LazyLock;

/// The polynomial, lowest coefficient first.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x^0, so written.
const ONE: u32 = 1 << 31;
/// What a product of a reflected state with a reflected factor is too long by, in bits.
const SHIFT: usize = 33;
/// Bytes of one step in each of the three parts of `crc32`, and in the folded one. So both units
/// take as long: 18 and 16 cycles.
const EACH: usize = 48;
const FOLDED: usize = 128;
const STEP: usize = 3 * EACH + FOLDED;
/// Steps of a block at most, so that 4 KiB are one block and 16 bytes.
const STEPS: usize = 15;

/// By what the states of the three parts are multiplied after so many steps, less one.
static FACTORS: [[u32; 3]; STEPS] = {
    let mut factors = [[0; 3]; STEPS];
    let mut steps = 1;
    while steps <= STEPS {
        let mut part = 0;
        while part < 3 {
            let behind = steps * ((2 - part) * EACH + FOLDED);
            factors[steps - 1][part] = power(8 * behind - SHIFT);
            part += 1;
        }
        steps += 1;
    }
    factors
};

/// Product modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit > 0 {
        if a & bit > 0 {
            product ^= b;
        }
        b = (b >> 1) ^ (POLYNOMIAL * (b & 1));
        bit >>= 1;
    }
    product
}

/// x to this power modulo the polynomial.
const fn power(mut exponent: usize) -> u32 {
    let (mut result, mut square) = (ONE, ONE >> 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

/// Where this is the fastest way: with AVX-512 the library is faster.
static IS_FASTEST: LazyLock<bool> =
    LazyLock::new(|| is_possible() && !is_x86_feature_detected!("avx512vl"));

/// Whether this processor has all that it takes.
fn is_possible() -> bool {
    is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

/// The state after more bytes, on a processor for which this is the fastest way.
#[inline]
pub(super) fn update(state: u32, bytes: &[u8]) -> Option<u32> {
    // SAFETY: the processor has these features.
    IS_FASTEST.then(|| unsafe { in_blocks(state, bytes) })
}

#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn in_blocks(mut state: u32, mut bytes: &[u8]) -> u32 {
    while bytes.len() >= STEP {
        let steps = (bytes.len() / STEP).min(STEPS);
        let (now, later) = bytes.split_at(steps * STEP);
        state = block(state, now, steps);
        bytes = later;
    }
    let (words, rest) = bytes.as_chunks::<8>();
    let word = |state, word: &[u8; 8]| _mm_crc32_u64(state, u64::from_le_bytes(*word));
    let state = words.iter().fold(u64::from(state), word) as u32;
    rest.iter()
        .fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

/// The state after a block of so many steps.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn block(state: u32, bytes: &[u8], steps: usize) -> u32 {
    let (a, rest) = bytes.split_at(steps * EACH);
    let (b, rest) = rest.split_at(steps * EACH);
    let (c, folded) = rest.split_at(steps * EACH);
    let (a, b, c) = (
        a.as_chunks::<EACH>().0,
        b.as_chunks::<EACH>().0,
        c.as_chunks::<EACH>().0,
    );
    let mut states = [u64::from(state), 0, 0];
    let mut lanes = [_mm256_setzero_si256(); FOLDED / 32];
    let factor = _mm256_broadcastsi128_si256(const { Fold::by(FOLDED) }.register());
    let folded = folded.as_chunks::<FOLDED>().0;
    for (((a, b), c), folded) in a.iter().zip(b).zip(c).zip(folded) {
        let words = [a, b, c].map(|part| part.as_chunks::<8>().0);
        for at in 0..EACH / 8 {
            for (state, words) in states.iter_mut().zip(words) {
                *state = _mm_crc32_u64(*state, u64::from_le_bytes(words[at]));
            }
        }
        for (lane, new) in lanes.iter_mut().zip(folded.as_chunks::<32>().0) {
            *lane = _mm256_xor_si256(fold(*lane, factor), load(new));
        }
    }
    let states = states.iter().zip(FACTORS[steps - 1]);
    let ahead = states.fold(0, |sum, (state, factor)| {
        let [state, factor] = [*state as u32, factor].map(|it| _mm_cvtsi32_si128(it.cast_signed()));
        sum ^ _mm_cvtsi128_si64(_mm_clmulepi64_si128(state, factor, 0)) as u64
    });
    let last = together(lanes);
    let [low, high] = [_mm_cvtsi128_si64(last), _mm_extract_epi64(last, 1)].map(|it| it as u64);
    _mm_crc32_u64(_mm_crc32_u64(0, low), high ^ ahead) as u32
}

/// Factors that move 128 bits on.
#[derive(Clone, Copy)]
struct Fold {
    low: u32,
    high: u32,
}

impl Fold {
    /// By so many bytes.
    const fn by(bytes: usize) -> Self {
        Self {
            low: power(8 * bytes + 64 - SHIFT),
            high: power(8 * bytes - SHIFT),
        }
    }

    #[target_feature(enable = "sse2")]
    fn register(self) -> __m128i {
        _mm_set_epi64x(i64::from(self.high), i64::from(self.low))
    }
}

/// Each half of a lane, moved on by its factors.
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold(lane: __m256i, factor: __m256i) -> __m256i {
    let low = _mm256_clmulepi64_epi128(lane, factor, 0x00);
    let high = _mm256_clmulepi64_epi128(lane, factor, 0x11);
    _mm256_xor_si256(low, high)
}

/// What all lanes are, moved on to the last 16 bytes.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq")]
fn together([a, b, c, d]: [__m256i; 4]) -> __m128i {
    let by = |factors: Fold| _mm256_broadcastsi128_si256(factors.register());
    let (two, one) = (const { Fold::by(64) }, const { Fold::by(32) });
    let c = _mm256_xor_si256(fold(a, by(two)), c);
    let d = _mm256_xor_si256(fold(b, by(two)), d);
    let d = _mm256_xor_si256(fold(c, by(one)), d);
    let factor = const { Fold::by(16) }.register();
    let first = _mm256_castsi256_si128(d);
    let low = _mm_clmulepi64_si128(first, factor, 0x00);
    let high = _mm_clmulepi64_si128(first, factor, 0x11);
    _mm_xor_si128(_mm_xor_si128(low, high), _mm256_extracti128_si256(d, 1))
}

#[target_feature(enable = "avx")]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: there are 32 bytes, and it may be anywhere.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where the library is faster, so that it is tested on more machines.
    #[test]
    fn it_is_as_the_library_has_it() {
        if !is_possible() {
            return;
        }
        let bytes: Vec<u8> = (0..20_000_u32)
            .map(|at| (at * 7 + at / 256) as u8)
            .collect();
        for len in (0..1_200).chain([4_079, 4_080, 4_096, 8_160, 12_345, 20_000]) {
            let (state, bytes) = (u32::MAX - len as u32, &bytes[..len]);
            // SAFETY: the processor has these features.
            let ours = unsafe { in_blocks(state, bytes) };
            assert_eq!(ours, crate::by_library(state, bytes), "{len}");
        }
    }
}
