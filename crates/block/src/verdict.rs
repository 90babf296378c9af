//! The result of a verification.

use std::fmt;

/// How what is on a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All is as it should be.
    Sound,
    /// Something is not as it should be, as a kill or a power cut leaves it. Nothing is lost: it is
    /// put right when the device is used again, and is good for use until then.
    Repairable,
    /// Something is lost, or cannot be used.
    Lost,
}

impl Verdict {
    /// What `repairs` and `problems` come to, of which either may be empty.
    pub fn of(repairs: &[String], problems: &[String]) -> Self {
        match (repairs, problems) {
            (_, [_, ..]) => Self::Lost,
            ([_, ..], []) => Self::Repairable,
            ([], []) => Self::Sound,
        }
    }

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Repairable => "repairable",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sound => "sound",
            Self::Repairable => "repairable: nothing is lost",
            Self::Lost => "not sound",
        })
    }
}
