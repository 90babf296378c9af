//! Means over seeds, and their confidence.

/// Student's t for 95 % (two-sided) and 1 to 30 degrees of freedom.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; nothing when there was a single value.
    pub half: Option<f64>,
}

impl Estimate {
    /// The estimate from independent values; nothing without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values
            .iter()
            .map(|value| (value - mean) * (value - mean))
            .sum();
        let half = (values.len() > 1).then(|| {
            let freedom = values.len() - 1;
            let half = student_t(freedom) * (squares / freedom as f64 / count).sqrt();
            // What rounding makes of values that are all the same.
            if half < mean.abs() * 1e-12 { 0.0 } else { half }
        });
        Some(Self { mean, half })
    }
}

/// Beyond the table, the first terms of the expansion around the normal distribution (Abramowitz
/// and Stegun 26.7.5).
fn student_t(freedom: usize) -> f64 {
    const Z: f64 = 1.959_964;
    if let Some(t) = T_95.get(freedom - 1) {
        return *t;
    }
    let n = freedom as f64;
    let cubic = (Z.powi(3) + Z) / 4.0;
    let quintic = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    Z + cubic / n + quintic / (n * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_interval_is_met() {
        let estimate = Estimate::of(&[4.0, 5.0, 6.0]).expect("there are values");
        assert!((estimate.mean - 5.0).abs() < 1e-12);
        // t(2) / sqrt(3)
        assert!((estimate.half.expect("three values") - 2.484).abs() < 1e-3);
    }

    #[test]
    fn values_that_are_the_same_have_no_width() {
        let estimate = Estimate::of(&[0.1 + 0.2; 5]).expect("there are values");
        assert_eq!(estimate.half, Some(0.0));
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(
            Estimate::of(&[7.0]),
            Some(Estimate {
                mean: 7.0,
                half: None
            })
        );
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn the_expansion_goes_on_where_the_table_ends() {
        for (freedom, published) in [(40, 2.021), (60, 2.000), (120, 1.980)] {
            assert!((student_t(freedom) - published).abs() < 1e-3);
        }
    }
}
