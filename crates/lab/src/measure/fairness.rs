//! Measures of fairness: how evenly a drive is shared.

/// Utilisation relative to a fair share: a worker's bandwidth for the `workers`-th part of what it
/// has alone on the same drive in the same condition. 1 is exactly fair. (Gimbal, SIGCOMM 2021,
/// section 5.1)
pub fn f_util(bandwidth: f64, alone: f64, workers: usize) -> f64 {
    bandwidth / (alone / workers as f64)
}

/// Jain's index of shares: 1 when all are equal, `1 / n` when one of `n` has everything; nothing
/// without shares.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fair_share_is_one() {
        assert!((f_util(50.0, 1600.0, 32) - 1.0).abs() < 1e-12);
        assert!((f_util(100.0, 1600.0, 32) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn jains_index_has_its_known_values() {
        for (shares, index) in [
            (&[3.0, 3.0, 3.0][..], 1.0),
            (&[1.0, 0.0, 0.0, 0.0], 0.25),
            (&[1.0, 2.0], 0.9),
        ] {
            assert!((jain(shares).expect("there are shares") - index).abs() < 1e-12);
        }
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
