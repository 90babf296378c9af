//! One comparison of a measured value with its expected value.

/// One comparison.
#[derive(Clone, Debug)]
pub struct Row {
    /// The test it belongs to, from 1 to 20; see [`super::TESTS`].
    pub number: u8,
    /// What is compared, with its unit.
    pub test: String,
    /// What it should be.
    pub oracle: f64,
    /// What it is.
    pub measured: f64,
    /// How much less and how much more than the oracle passes, as fractions of it.
    pub tolerance: (f64, f64),
    /// Where the oracle comes from, or what physics makes of the difference; may be empty.
    pub note: &'static str,
    /// Outside of the tolerance for the physical reason in the note, as far as is known; not a
    /// pass.
    pub explained: bool,
}

impl Row {
    /// Whether the measured value lies within the tolerance.
    pub fn pass(&self) -> bool {
        let (less, more) = self.tolerance;
        let slack = self.oracle.abs() * 1e-9;
        (self.oracle * (1.0 - less) - slack..=self.oracle * (1.0 + more) + slack)
            .contains(&self.measured)
    }

    /// Passes within `tolerance` on either side.
    pub(super) fn near(
        test: impl Into<String>,
        oracle: f64,
        measured: f64,
        tolerance: f64,
    ) -> Self {
        Self::within(test, oracle, measured, (tolerance, tolerance))
    }

    pub(super) fn within(
        test: impl Into<String>,
        oracle: f64,
        measured: f64,
        tolerance: (f64, f64),
    ) -> Self {
        Self {
            number: 0,
            test: test.into(),
            oracle,
            measured,
            tolerance,
            note: "",
            explained: false,
        }
    }

    /// Passes when both are the same.
    pub(super) fn exact(test: &'static str, oracle: u64, measured: u64) -> Self {
        Self::near(test, oracle as f64, measured as f64, 0.0)
    }

    pub(super) fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// Says why the value is not within the tolerance, if it is not.
    pub(super) fn unless_within(self, reason: &'static str) -> Self {
        if self.pass() {
            return self;
        }
        Self {
            note: reason,
            explained: true,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_can_fail() {
        let row = |oracle, measured, tolerance| Row::near("", oracle, measured, tolerance).pass();
        assert!(row(100.0, 101.0, 0.01));
        assert!(!row(100.0, 101.1, 0.01));
        assert!(!row(100.0, 98.9, 0.01));
        assert!(row(7.0, 7.0, 0.0));
        assert!(row(0.0, 0.0, 0.0));
        assert!(!row(0.0, 1.0, 0.0));
        assert!(!row(100.0, f64::NAN, 0.01));
    }
}
