//! AES-256-XTS against the vectors of IEEE 1619 and a second implementation; keys leave no copies.

use aes::Aes256;
use aes::cipher::KeyInit;
use flashyard_codec::cipher::{Cipher, CipherError, KEY_BYTES, Key, Unit};
use flashyard_time::Rng;
use xts_mode::Xts128;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let byte = |pair: &[u32]| (pair[0] << 4 | pair[1]) as u8;
    digits.chunks(2).map(byte).collect()
}

fn key(of: &[u8]) -> Key {
    let mut bytes: [u8; KEY_BYTES] = of.try_into().expect("a key has 64 bytes");
    Key::take(&mut bytes).expect("its halves differ")
}

const KEY: &str = "2718281828459045235360287471352662497757247093699959574966967627
    3141592653589793238462643383279502884197169399375105820974944592";

/// Vector 10, whole: data unit FFh.
const VECTOR_10: &str = "
    1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b5d31e276f8fe4a8d66b317f9ac683f44
    680a86ac35adfc3345befecb4bb188fd5776926c49a3095eb108fd1098baec70aaa66999a72a82f27d848b21d4a741b0
    c5cd4d5fff9dac89aeba122961d03a757123e9870f8acf1000020887891429ca2a3e7a7d7df7b10355165c8b9a6d0a7d
    e8b062c4500dc4cd120c0f7418dae3d0b5781c34803fa75421c790dfe1de1834f280d7667b327f6c8cd7557e12ac3a0f
    93ec05c52e0493ef31a12d3d9260f79a289d6a379bc70c50841473d1a8cc81ec583e9645e07b8d9670655ba5bbcfecc6
    dc3966380ad8fecb17b6ba02469a020a84e18e8f84252070c13e9f1f289be54fbc481457778f616015e1327a02b140f1
    505eb309326d68378f8374595c849d84f4c333ec4423885143cb47bd71c5edae9be69a2ffeceb1bec9de244fbe15992b
    11b77c040f12bd8f6a975a44a0f90c29a9abc3d4d893927284c58754cce294529f8614dcd2aba991925fedc4ae74ffac
    6e333b93eb4aff0479da9a410e4450e0dd7ae4c6e2910900575da401fc07059f645e8b7e9bfdef33943054ff84011493
    c27b3429eaedb4ed5376441a77ed43851ad77f16f541dfd269d50d6a5f14fb0aab1cbb4c1550be97f7ab4066193c4caa
    773dad38014bd2092fa755c824bb5e54c4f36ffda9fcea70b9c6e693e148c151";

#[test]
fn a_sector_is_encrypted_as_ieee_1619_says() {
    let plain: Vec<u8> = (0..512).map(|at| at as u8).collect();
    let mut cipher = Cipher::new(&key(&bytes(KEY)), Unit::Sector).expect("the library has XTS");
    let mut data = plain.clone();
    cipher.encrypt(0xff, &mut data).expect("one sector");
    assert_eq!(data, bytes(VECTOR_10));
    cipher.decrypt(0xff, &mut data).expect("one sector");
    assert_eq!(data, plain);
}

/// The other implementation.
fn oracle(key: &[u8], unit: Unit, first: u128, data: &mut [u8]) {
    let half = |at: usize| Aes256::new_from_slice(&key[at..at + 32]).expect("32 bytes");
    let xts = Xts128::new(half(0), half(32));
    for (number, unit) in (0..).zip(data.chunks_mut(unit.bytes())) {
        xts.encrypt_sector(unit, first.wrapping_add(number).to_le_bytes().into());
    }
}

#[test]
fn another_implementation_gives_the_same() {
    let mut rng = Rng::new(3);
    let mut random = |len: usize| -> Vec<u8> { (0..len).map(|_| rng.below(256) as u8).collect() };
    for round in 0..40 {
        let (secret, number) = (random(KEY_BYTES), random(16));
        let first = u128::from_le_bytes(number.try_into().expect("16 bytes"));
        let first = [first, 0, u128::MAX, 1 << 64][round % 4];
        let unit = [Unit::Sector, Unit::Page][round / 4 % 2];
        // The last unit may be shorter.
        let short = round / 8 % 3 * 1024 % unit.bytes();
        let plain = random(unit.bytes() * (1 + round % 5) + short);
        let mut cipher = Cipher::new(&key(&secret), unit).expect("the library has XTS");
        let mut expected = plain.clone();
        oracle(&secret, unit, first, &mut expected);
        let mut stored = vec![0; plain.len()];
        cipher
            .encrypt_into(first, &plain, &mut stored)
            .expect("whole units");
        assert_eq!(stored, expected, "round {round}");
        let mut data = plain.clone();
        cipher.encrypt(first, &mut data).expect("whole units");
        assert_eq!(data, expected, "round {round}");
        cipher.decrypt(first, &mut data).expect("whole units");
        assert_eq!(data, plain, "round {round}");
    }
}

#[test]
fn what_cannot_be_encrypted_is_refused() {
    let mut equal = [7; KEY_BYTES];
    assert_eq!(Key::take(&mut equal).err(), Some(CipherError::EqualHalves));
    assert_eq!(equal, [0; KEY_BYTES]);
    let mut cipher = Cipher::new(&key(&bytes(KEY)), Unit::Page).expect("the library has XTS");
    let mut data = [0; 4096 + 500];
    assert_eq!(cipher.encrypt(0, &mut data), Err(CipherError::Length));
    assert_eq!(cipher.decrypt(0, &mut data), Err(CipherError::Length));
    let plain = [0; 4096];
    let into = cipher.encrypt_into(0, &plain, &mut data);
    assert_eq!(into, Err(CipherError::Length));
    assert_eq!(data, [0; 4096 + 500], "nothing was touched");
    assert_eq!(cipher.encrypt(0, &mut []), Ok(()));
}

#[test]
fn a_key_is_not_printed() {
    let secret = key(&(0..64).collect::<Vec<u8>>());
    assert_eq!(format!("{secret:?} {secret:#?}"), "Key(..) Key(..)");
}
