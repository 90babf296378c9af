//! A Zipf distribution over any number of items, from a small table of whole numbers.
//!
//! The most popular items have a place of their own in the table; of the others those of nearly the
//! same rank share one. Powers are made of square roots and products, which every machine rounds
//! alike, so a seed gives the same addresses everywhere.

use flashyard_time::Rng;

/// Ranks with a place of their own.
const SINGLE: u64 = 1024;
/// Where ranks share a place, it holds this part of the ranks before it.
const SHARED_PART: u64 = 64;
/// The weight of the first rank: enough for the last of 2^32 with an exponent of 2 not to vanish
/// within its place.
const SCALE: f64 = (1_u64 << 52) as f64;

/// Draws items, scattered over their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    items: u64,
    /// The first rank of each place, counted from zero, and the weight of all places up to and with
    /// it.
    places: Vec<(u64, u64)>,
    step: u64,
}

impl Zipf {
    /// A distribution over `items` numbers from zero. `theta_per_mille` is the exponent in
    /// thousandths.
    pub(crate) fn new(items: u64, theta_per_mille: u32) -> Self {
        let mut places = Vec::new();
        let (mut rank, mut sum) = (0, 0);
        while rank < items {
            let wide = if rank < SINGLE { 1 } else { rank / SHARED_PART };
            let end = (rank + wide).min(items);
            // The weight of the middle rank stands for all of them.
            let middle = (rank + end + 1) as f64 / 2.0;
            let weight = (end - rank) as f64 * SCALE / power(middle, theta_per_mille);
            sum += (weight / 256.0) as u64 + 1;
            places.push((rank, sum));
            rank = end;
        }
        Self {
            items,
            places,
            step: coprime_step(items),
        }
    }

    /// An item.
    pub(crate) fn draw(&self, chance: &mut Rng) -> u64 {
        let rank = self.rank(chance);
        // Multiples of a number without common factor with `items` visit each item once.
        (u128::from(rank) * u128::from(self.step) % u128::from(self.items)) as u64
    }

    /// How popular the item drawn is, counted from zero.
    fn rank(&self, chance: &mut Rng) -> u64 {
        let (_, total) = self.places[self.places.len() - 1];
        let drawn = chance.below(total);
        let place = self.places.partition_point(|&(_, sum)| sum <= drawn);
        let first = self.places[place].0;
        let end = self.places.get(place + 1).map_or(self.items, |next| next.0);
        if end - first == 1 {
            return first;
        }
        first + chance.below(end - first)
    }
}

/// `base` to the power of `per_mille / 1000`, for an exponent up to 2.
fn power(base: f64, per_mille: u32) -> f64 {
    let mut exponent = (u64::from(per_mille) << 32) / 1000;
    let (mut result, mut factor) = (1.0, base * base);
    // The bits of the exponent from 2^1 down: every square root halves what the next bit stands
    // for.
    for bit in (0..=33).rev() {
        if exponent >> bit & 1 == 1 {
            result *= factor;
            exponent ^= 1 << bit;
        }
        factor = factor.sqrt();
    }
    result
}

/// A number near the golden section of `items` that has no common factor with it.
fn coprime_step(items: u64) -> u64 {
    let golden = (u128::from(items) * 618_034 / 1_000_000) as u64;
    let mut step = golden.max(1);
    while greatest_common_divisor(step, items) != 1 {
        step += 1;
    }
    step
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_powers() {
        for (base, per_mille, expected) in [
            (2.0, 1000, 2.0),
            (3.0, 2000, 9.0),
            (16.0, 500, 4.0),
            (7.0, 0, 1.0),
            (10.0, 990, 9.772_372),
        ] {
            let error: f64 = power(base, per_mille) / expected - 1.0;
            assert!(error.abs() < 1e-6, "{base}^{per_mille}/1000: {error}");
        }
    }

    #[test]
    fn ranks_are_as_popular_as_they_should_be() {
        let (items, draws) = (100_000, 200_000);
        let zipf = Zipf::new(items, 990);
        let weights: Vec<f64> = (1..=items).map(|rank| (rank as f64).powf(-0.99)).collect();
        let total: f64 = weights.iter().sum();
        let mut chance = Rng::new(1);
        let mut counts = vec![0_u64; items as usize];
        for _ in 0..draws {
            counts[zipf.rank(&mut chance) as usize] += 1;
        }
        for range in [0..1, 1..10, 10..1000, 1000..10_000, 10_000..100_000] {
            let expected: f64 = weights[range.clone()].iter().sum::<f64>() / total;
            let measured = counts[range.clone()].iter().sum::<u64>() as f64 / f64::from(draws);
            assert!(
                (measured / expected - 1.0).abs() < 0.03,
                "{range:?}: {measured} for {expected}"
            );
        }
    }

    #[test]
    fn every_item_has_its_rank() {
        for items in [1, 2, 3, 64, 1000, 4096] {
            let zipf = Zipf::new(items, 500);
            let mut seen: Vec<u64> = (0..items).map(|rank| rank * zipf.step % items).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..items).collect::<Vec<_>>());
            let mut chance = Rng::new(2);
            assert!((0..1000).all(|_| zipf.draw(&mut chance) < items));
        }
    }

    #[test]
    fn without_exponent_all_are_alike() {
        let zipf = Zipf::new(4096, 0);
        let mut chance = Rng::new(3);
        let low = (0..40_000)
            .filter(|_| zipf.draw(&mut chance) < 1024)
            .count();
        assert!((9_500..=10_500).contains(&low), "{low}");
    }
}
