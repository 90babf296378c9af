//! Parity against multiplication as it is defined, in every way that this processor has.

use flashyard_codec::parity::{Column, MOST_COLUMNS, Parity, ParityError};
use flashyard_time::Rng;

/// Multiplication bit by bit, modulo 11Dh.
fn multiply(mut a: u8, b: u8) -> u8 {
    let mut product = 0;
    for bit in 0..8 {
        product ^= if b >> bit & 1 == 1 { a } else { 0 };
        a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { 0x1d };
    }
    product
}

/// P and Q, byte by byte.
fn oracle(data: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let len = data.iter().map(Vec::len).max().unwrap_or(0);
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    let mut power = 1;
    for column in data {
        for (at, &byte) in column.iter().enumerate() {
            p[at] ^= byte;
            q[at] ^= multiply(power, byte);
        }
        power = multiply(power, 2);
    }
    (p, q)
}

fn random(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// Columns of which some are shorter, empty, and no multiple of a vector.
fn columns(rng: &mut Rng) -> Vec<Vec<u8>> {
    let most = 1 + rng.below(700) as usize;
    let count = 1 + rng.below(12) as usize;
    let lens = (0..count).map(|_| match rng.below(3) {
        0 => rng.below(most as u64 + 1) as usize,
        1 => most / 2,
        _ => most,
    });
    let lens: Vec<usize> = lens.collect();
    lens.into_iter().map(|len| random(rng, len)).collect()
}

fn slices(data: &[Vec<u8>]) -> Vec<&[u8]> {
    data.iter().map(Vec::as_slice).collect()
}

#[test]
fn p_and_q_are_those_of_the_definition() {
    let ways = Parity::every_way();
    assert_eq!(ways.last().map(|way| way.name()), Some("portable"));
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let data = columns(&mut rng);
        let (expected_p, expected_q) = oracle(&data);
        for way in &ways {
            let (mut p, mut q) = (vec![7; expected_p.len()], vec![7; expected_q.len()]);
            way.generate(&slices(&data), &mut p, Some(&mut q))
                .expect("the lengths are right");
            assert!(
                p == expected_p && q == expected_q,
                "{}, seed {seed}",
                way.name()
            );
            let mut alone = vec![7; expected_p.len()];
            way.generate(&slices(&data), &mut alone, None)
                .expect("the lengths are right");
            assert_eq!(alone, expected_p);
        }
    }
}

/// Gives what a row is after some of its columns were lost and reconstructed. Columns come first,
/// then P, then Q.
fn lose(
    way: Parity,
    row: &[Vec<u8>],
    lost: &[usize],
    level: usize,
) -> Result<Vec<Vec<u8>>, ParityError> {
    let mut after = row.to_vec();
    for place in lost {
        after[*place].fill(0xa5);
    }
    let mut columns: Vec<Column> = after
        .iter_mut()
        .enumerate()
        .map(|(place, bytes)| match lost.contains(&place) {
            true => Column::Lost(bytes),
            false => Column::Known(bytes),
        })
        .collect();
    let q = columns.pop().filter(|_| level == 2);
    let p = columns.pop();
    way.reconstruct(&mut columns, p, q)?;
    Ok(after)
}

#[test]
fn any_one_and_any_two_columns_are_reconstructed() {
    let mut pairs = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut row = columns(&mut rng);
        let data = row.len();
        let (p, q) = oracle(&row);
        row.extend([p, q]);
        for way in Parity::every_way() {
            for x in 0..row.len() {
                assert_eq!(
                    lose(way, &row, &[x], 2).as_ref(),
                    Ok(&row),
                    "{x}, seed {seed}"
                );
                if x <= data {
                    assert_eq!(
                        lose(way, &row, &[x], 1).as_ref(),
                        Ok(&row),
                        "{x}, seed {seed}"
                    );
                }
                for y in x + 1..row.len() {
                    assert_eq!(
                        lose(way, &row, &[x, y], 2).as_ref(),
                        Ok(&row),
                        "{x} {y}, seed {seed}"
                    );
                    pairs += 1;
                }
            }
        }
    }
    assert!(pairs > 1000, "{pairs}");
}

#[test]
fn more_than_parity_makes_up_for_is_refused() {
    let mut rng = Rng::new(1);
    let mut row: Vec<Vec<u8>> = (0..5).map(|_| random(&mut rng, 512)).collect();
    let (p, q) = oracle(&row);
    row.extend([p, q]);
    let way = Parity::new();
    for lost in [&[0, 1, 2][..], &[0, 1, 5], &[0, 1, 6], &[0, 5, 6]] {
        assert_eq!(
            lose(way, &row, lost, 2),
            Err(ParityError::TooManyLost),
            "{lost:?}"
        );
    }
    for lost in [&[0, 1][..], &[0, 5]] {
        assert_eq!(
            lose(way, &row, lost, 1),
            Err(ParityError::TooManyLost),
            "{lost:?}"
        );
    }
    // Columns that end before one another are not lost where they have no bytes.
    row[1].clear();
    row[2].clear();
    let (p, q) = oracle(&row[..5]);
    (row[5], row[6]) = (p, q);
    assert_eq!(lose(way, &row, &[0, 1, 2, 3], 2).as_ref(), Ok(&row));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let way = Parity::new();
    let bytes = [0; 512];
    let columns = [&bytes[..]; MOST_COLUMNS + 1];
    let (mut p, mut short) = ([0; 512], [0; 511]);
    assert_eq!(
        way.generate(&columns, &mut p, None),
        Err(ParityError::TooManyColumns)
    );
    let columns = &columns[..MOST_COLUMNS];
    assert_eq!(way.generate(columns, &mut p, None), Ok(()));
    assert_eq!(
        way.generate(columns, &mut short, None),
        Err(ParityError::Length)
    );
    assert_eq!(
        way.generate(columns, &mut p, Some(&mut short)),
        Err(ParityError::Length)
    );
    assert_eq!(way.generate(&[], &mut [], None), Ok(()));
    let mut columns = [Column::Known(&bytes), Column::Lost(&mut p)];
    assert_eq!(
        way.reconstruct(&mut columns, None, None),
        Err(ParityError::TooManyLost)
    );
}

#[test]
fn q_is_that_of_linux_md() {
    // Of RAID 6 in Linux (lib/raid6, and H. P. Anvin, The mathematics of RAID-6): columns 1, 2, 4
    // give P = 1 ^ 2 ^ 4 and Q = 1 ^ 2 * 2 ^ 4 * 4, and the eighth power of 2 is 1Dh.
    let columns: Vec<Vec<u8>> = vec![vec![1; 130], vec![2; 130], vec![4; 130]];
    let mut high = vec![vec![0; 130]; 9];
    high[8].fill(1);
    for way in Parity::every_way() {
        let (mut p, mut q) = (vec![0; 130], vec![0; 130]);
        way.generate(&slices(&columns), &mut p, Some(&mut q))
            .expect("the lengths are right");
        assert_eq!((p, q), (vec![7; 130], vec![1 ^ 4 ^ 16; 130]));
        let (mut p, mut q) = (vec![0; 130], vec![0; 130]);
        way.generate(&slices(&high), &mut p, Some(&mut q))
            .expect("the lengths are right");
        assert_eq!((p, q), (vec![1; 130], vec![0x1d; 130]));
    }
}
