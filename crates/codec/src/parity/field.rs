//! The field of 256 elements in which Q is computed: polynomials over one bit, modulo x^8 + x^4 +
//! x^3 + x^2 + 1 (11Dh), with the generator 2. Linux md and ZFS use the same.

/// The polynomial, without its highest bit.
const POLYNOMIAL: u8 = 0x1d;

/// Powers of the generator, twice in a row, so that sums of logarithms need no modulus.
const POWERS: [u8; 512] = powers();
/// The logarithm of each element but 0, whose entry is not used.
const LOGARITHMS: [u8; 256] = logarithms();

const fn powers() -> [u8; 512] {
    let mut powers = [0; 512];
    let (mut at, mut power) = (0, 1_u8);
    while at < 512 {
        powers[at] = power;
        power = (power << 1) ^ if power & 0x80 == 0 { 0 } else { POLYNOMIAL };
        at += 1;
    }
    powers
}

const fn logarithms() -> [u8; 256] {
    let mut logarithms = [0; 256];
    let mut at = 0;
    while at < 255 {
        logarithms[POWERS[at] as usize] = at as u8;
        at += 1;
    }
    logarithms
}

/// The product.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// The generator to the power of `exponent`.
pub(super) const fn power(exponent: usize) -> u8 {
    POWERS[exponent % 255]
}

/// What gives 1 when multiplied with `a`, which is not 0.
pub(super) const fn inverse(a: u8) -> u8 {
    POWERS[255 - LOGARITHMS[a as usize] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as it is defined, bit by bit.
    fn slow(a: u8, b: u8) -> u8 {
        let doubled = |a: u8| (a << 1) ^ if a & 0x80 == 0 { 0 } else { POLYNOMIAL };
        let (mut product, mut term) = (0, a);
        for bit in 0..8 {
            product ^= if b >> bit & 1 == 0 { 0 } else { term };
            term = doubled(term);
        }
        product
    }

    #[test]
    fn products_and_inverses_are_those_of_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), slow(a, b), "{a} * {b}");
            }
            assert!(a == 0 || multiply(a, inverse(a)) == 1, "{a}");
        }
        // A generator: all elements but 0 are powers of it.
        let mut powers: Vec<u8> = (0..255).map(power).collect();
        powers.sort_unstable();
        assert!(powers.iter().copied().eq(1..=255));
    }
}
