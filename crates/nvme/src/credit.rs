//! Credits: a controller of this project tells a host that has asked for it (feature C1h) in each
//! completion of a success how much it may have outstanding at the namespace of that command.
//!
//! What is reported is a total and no increment, so that a completion that comes late or not at all
//! does no harm, and it is counted in units of cost, not in commands. It lies in bits 15:3 of the
//! Submission Queue Identifier of the completion, which is reserved on fabrics (bits 2:0 count the
//! further commands that it retires): telling it takes no byte, and no message of its own. Failures
//! tell nothing.

/// How much a host may have outstanding at a namespace, over all queues of its association.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Allowance {
    /// Nothing is said; what was said before holds. Before that, the depth of the queues is the
    /// only bound.
    #[default]
    Silent,
    /// So many units ([`Allowance::cost`]). A host that has nothing outstanding may send one
    /// command in any case.
    Units(u64),
    /// As much as the queues hold.
    Unbounded,
}

impl Allowance {
    /// Bytes of a unit.
    pub const UNIT: u64 = 512;
    /// What a command costs at least: as much as 4 KiB.
    pub const LEAST: u64 = 8;
    /// The most units that can be reported.
    pub const MOST: u64 = (1023 << 14) - 1;

    /// Bits of the code.
    const BITS: u32 = 13;
    const ALL: u16 = (1 << Self::BITS) - 1;
    /// Bits of the code's fraction.
    const FRACTION: u32 = 9;

    /// Units that a command of so many bytes of data costs from when it is sent to its completion.
    #[inline]
    pub const fn cost(bytes: u64) -> u64 {
        let units = bytes.div_ceil(Self::UNIT);
        if units < Self::LEAST {
            Self::LEAST
        } else {
            units
        }
    }

    /// The 13 bits of a completion: 0 is silence, all ones no bound; else a number of four bits of
    /// exponent and nine of fraction, which is at most a five hundredth less than what is meant,
    /// and 1 at least.
    #[inline]
    pub fn code(self) -> u16 {
        match self {
            Self::Silent => 0,
            Self::Unbounded => Self::ALL,
            Self::Units(units) => {
                let units = units.clamp(1, Self::MOST);
                let exponent = (units.ilog2() + 1).saturating_sub(Self::FRACTION);
                if exponent == 0 {
                    return units as u16;
                }
                let fraction = (units >> (exponent - 1)) as u16 & ((1 << Self::FRACTION) - 1);
                (exponent as u16) << Self::FRACTION | fraction
            }
        }
    }

    /// What the 13 bits of a completion say; further bits do not matter.
    #[inline]
    pub fn from_code(code: u16) -> Self {
        let code = code & Self::ALL;
        let (exponent, fraction) = (
            code >> Self::FRACTION,
            u64::from(code) & ((1 << Self::FRACTION) - 1),
        );
        match (code, exponent) {
            (0, _) => Self::Silent,
            (Self::ALL, _) => Self::Unbounded,
            (_, 0) => Self::Units(fraction),
            _ => Self::Units((fraction | 1 << Self::FRACTION) << (exponent - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_costs_its_bytes_and_no_less_than_a_page() {
        for (bytes, units) in [
            (0, 8),
            (512, 8),
            (4096, 8),
            (4097, 9),
            (8192, 16),
            (1 << 20, 2048),
        ] {
            assert_eq!(Allowance::cost(bytes), units, "{bytes}");
        }
        assert_eq!(Allowance::cost(u64::MAX), 1 << 55);
    }

    #[test]
    fn every_code_means_one_thing_and_back() {
        for code in 0..=Allowance::ALL {
            assert_eq!(Allowance::from_code(code).code(), code, "{code:#x}");
            assert_eq!(
                Allowance::from_code(code | 0xe000),
                Allowance::from_code(code)
            );
        }
    }

    #[test]
    fn numbers_are_never_told_greater_and_hardly_less() {
        let mut before = 0;
        for units in (0..100_000).chain((100_000..2 * Allowance::MOST).step_by(9_973)) {
            let Allowance::Units(reported) = Allowance::from_code(Allowance::Units(units).code())
            else {
                panic!("{units} are units")
            };
            let meant = units.clamp(1, Allowance::MOST);
            assert!(
                reported <= meant && reported >= meant - meant / 512,
                "{units}: {reported}"
            );
            assert!(reported >= before, "more is never reported as less");
            before = reported;
        }
        assert_eq!(Allowance::Units(u64::MAX).code(), Allowance::ALL - 1);
    }
}
