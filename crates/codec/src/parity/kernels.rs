//! Linear combinations of columns: each output is the sum of all sources, each times a coefficient
//! of its own. P is that with all coefficients 1; Q, and what is reconstructed, with others.
//!
//! The same is computed in three ways: with tables on any processor, with AVX2, and with AVX-512
//! and GFNI. Which of them runs is found out at run time.

use super::field::multiply;

/// A column with its coefficients, one for each output.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub bytes: &'a [u8],
    pub times: [u8; 2],
}

/// How it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Path {
    /// All that this processor has, the fastest first.
    pub(super) fn available() -> Vec<Self> {
        let mut paths = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let has_512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("gfni");
            paths.extend(has_512.then_some(Self::Avx512));
            paths.extend(is_x86_feature_detected!("avx2").then_some(Self::Avx2));
        }
        paths.push(Self::Portable);
        paths
    }
}

/// Fills `outputs`, of which there are one or two, with the combinations of `sources`.
///
/// # Panics
/// When a source or output is not as long as the first output, or there are not one or two
/// outputs.
pub(super) fn combine(path: Path, sources: &[Source], outputs: &mut [&mut [u8]]) {
    match outputs {
        [one] => run::<1>(path, sources, [one]),
        [one, two] => run::<2>(path, sources, [one, two]),
        _ => panic!("one or two outputs, not {}", outputs.len()),
    }
}

fn run<const N: usize>(path: Path, sources: &[Source], mut outputs: [&mut [u8]; N]) {
    let len = outputs[0].len();
    let alike = sources.iter().all(|it| it.bytes.len() == len);
    assert!(alike && outputs.iter().all(|it| it.len() == len));
    let done = match path {
        Path::Portable => 0,
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Path::available` names a path only where the processor has its features, and
        // nothing else makes one. All slices have the length of the first output, by the assertion.
        Path::Avx2 => unsafe { x86::avx2(sources, &mut outputs) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Path::Avx512 => unsafe { x86::avx512(sources, &mut outputs) },
    };
    if done < len {
        portable(sources, &mut outputs, done);
    }
}

/// The bytes from `start` on, one after the other.
fn portable<const N: usize>(sources: &[Source], outputs: &mut [&mut [u8]; N], start: usize) {
    for (number, output) in outputs.iter_mut().enumerate() {
        let output = &mut output[start..];
        output.fill(0);
        for source in sources {
            add(output, &source.bytes[start..], source.times[number]);
        }
    }
}

/// Adds `times` times each byte.
fn add(output: &mut [u8], bytes: &[u8], times: u8) {
    let pairs = output.iter_mut().zip(bytes);
    match times {
        0 => {}
        1 => pairs.for_each(|(sum, byte)| *sum ^= byte),
        _ => {
            let mut products = [0; 256];
            for (value, product) in (0..=255).zip(&mut products) {
                *product = multiply(value, times);
            }
            pairs.for_each(|(sum, byte)| *sum ^= products[usize::from(*byte)]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
// The loads and stores are those that take any address.
#[allow(clippy::cast_ptr_alignment)]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
        _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
        _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8,
        _mm512_loadu_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512,
        _mm512_xor_si512,
    };

    use super::Source;
    use crate::parity::field::multiply;

    /// Products of the low and the high four bits of a byte with a coefficient.
    type Nibbles = [[u8; 16]; 2];

    /// Those of all coefficients.
    static NIBBLES: [Nibbles; 256] = {
        let mut all = [[[0; 16]; 2]; 256];
        let mut at = 0;
        while at < 256 * 16 {
            let (times, value) = (at / 16, at % 16);
            all[times][0][value] = multiply(value as u8, times as u8);
            all[times][1][value] = multiply((value << 4) as u8, times as u8);
            at += 1;
        }
        all
    };

    /// Bytes from the beginning that were done, 64 at a time.
    ///
    /// # Safety
    /// The processor has AVX2, and all slices are as long as the first output.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2<const N: usize>(
        sources: &[Source],
        outputs: &mut [&mut [u8]; N],
    ) -> usize {
        let len = outputs[0].len() / 64 * 64;
        for at in (0..len).step_by(64) {
            let mut sums = [[_mm256_setzero_si256(); 2]; N];
            for source in sources {
                // SAFETY: 64 bytes from `at` on lie in every slice, as `len` does.
                let data = unsafe {
                    let from = source.bytes.as_ptr().add(at).cast::<__m256i>();
                    [_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))]
                };
                for (sums, times) in sums.iter_mut().zip(source.times) {
                    let terms = match times {
                        1 => data,
                        _ => times_avx2(data, &NIBBLES[usize::from(times)]),
                    };
                    sums[0] = _mm256_xor_si256(sums[0], terms[0]);
                    sums[1] = _mm256_xor_si256(sums[1], terms[1]);
                }
            }
            for (output, sums) in outputs.iter_mut().zip(sums) {
                // SAFETY: as for the loads.
                unsafe {
                    let to = output.as_mut_ptr().add(at).cast::<__m256i>();
                    _mm256_storeu_si256(to, sums[0]);
                    _mm256_storeu_si256(to.add(1), sums[1]);
                }
            }
        }
        len
    }

    /// Each byte times a coefficient: a look-up for each half of it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn times_avx2(data: [__m256i; 2], table: &Nibbles) -> [__m256i; 2] {
        // SAFETY: each table is 16 bytes long.
        let [low, high] = table.each_ref().map(|table| unsafe {
            _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()))
        });
        let mask = _mm256_set1_epi8(0x0f);
        data.map(|data| {
            let lows = _mm256_and_si256(data, mask);
            let highs = _mm256_and_si256(_mm256_srli_epi64::<4>(data), mask);
            _mm256_xor_si256(
                _mm256_shuffle_epi8(low, lows),
                _mm256_shuffle_epi8(high, highs),
            )
        })
    }

    /// Multiplication with each coefficient as a matrix of bits, as GFNI takes it: byte 7 - i holds
    /// the row that gives bit i.
    static MATRICES: [u64; 256] = {
        let mut all = [0; 256];
        let mut at = 0;
        while at < 256 * 64 {
            let (times, row, column) = (at / 64, at / 8 % 8, at % 8);
            let product = multiply(1 << column, times as u8);
            let set = (product >> row & 1) as u64;
            all[times] |= set << (8 * (7 - row) + column);
            at += 1;
        }
        all
    };

    /// Bytes from the beginning that were done, 128 at a time.
    ///
    /// # Safety
    /// The processor has AVX-512 F and BW and GFNI, and all slices are as long as the first output.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) unsafe fn avx512<const N: usize>(
        sources: &[Source],
        outputs: &mut [&mut [u8]; N],
    ) -> usize {
        let len = outputs[0].len() / 128 * 128;
        for at in (0..len).step_by(128) {
            let mut sums = [[_mm512_setzero_si512(); 2]; N];
            for source in sources {
                // SAFETY: 128 bytes from `at` on lie in every slice, as `len` does.
                let data = unsafe {
                    let from = source.bytes.as_ptr().add(at).cast::<__m512i>();
                    [_mm512_loadu_si512(from), _mm512_loadu_si512(from.add(1))]
                };
                for (sums, times) in sums.iter_mut().zip(source.times) {
                    let terms = match times {
                        1 => data,
                        _ => data.map(|data| {
                            let matrix = MATRICES[usize::from(times)].cast_signed();
                            let matrix = _mm512_set1_epi64(matrix);
                            _mm512_gf2p8affine_epi64_epi8::<0>(data, matrix)
                        }),
                    };
                    sums[0] = _mm512_xor_si512(sums[0], terms[0]);
                    sums[1] = _mm512_xor_si512(sums[1], terms[1]);
                }
            }
            for (output, sums) in outputs.iter_mut().zip(sums) {
                // SAFETY: as for the loads.
                unsafe {
                    let to = output.as_mut_ptr().add(at).cast::<__m512i>();
                    _mm512_storeu_si512(to, sums[0]);
                    _mm512_storeu_si512(to.add(1), sums[1]);
                }
            }
        }
        len
    }
}
