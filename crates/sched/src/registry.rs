//! The policies that there are: what each is called, what it has to be told, and how it is made.
//!
//! Everybody who offers a choice of policies takes it from here: the target, the laboratory, and
//! the tests that every policy has to pass. A new policy is a file or folder of this crate and an
//! entry below.

use alloc::boxed::Box;

use crate::figures::Figures;
use crate::gimbal::{Flaws, Tuning};
use crate::{Caps, Fair, Fifo, FlashFq, Gimbal, Policy, Reflex, Window};

/// A policy that a device can have.
#[derive(Debug)]
pub struct PolicyKind {
    /// What it is chosen by: small letters and hyphens.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// Whether it keeps the guarantees of shares.
    pub keeps_guarantees: bool,
    /// What it has to be told, and how it is made.
    pub made_of: Make,
}

/// What a policy has to be told, and how it is made of that.
#[derive(Debug)]
pub enum Make {
    /// Nothing: it learns, or need not know.
    Untold(fn() -> Box<dyn Policy>),
    /// What the device may get at once.
    Window(fn(Window) -> Box<dyn Policy>),
    /// What the device was measured to do.
    Figures(fn(&Figures) -> Box<dyn Policy>),
}

/// What is known of a device before a policy stands in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What the device may get at once.
    pub window: Window,
    /// What it was measured to do, if it was.
    pub figures: Option<Figures>,
}

/// All policies, in the order in which they are listed.
pub const POLICIES: &[PolicyKind] = &[
    PolicyKind {
        name: "fifo",
        about: "Order of arrival.",
        keeps_guarantees: false,
        made_of: Make::Window(|window| Box::new(Fifo::new(window))),
    },
    PolicyKind {
        name: "fair",
        about: "Device time in proportion to weights, with guarantees, limits and latency targets.",
        keeps_guarantees: true,
        made_of: Make::Untold(|| Box::new(Fair::new())),
    },
    PolicyKind {
        name: "gimbal",
        about: "Gimbal (SIGCOMM 2021), with the faults of its release repaired.",
        keeps_guarantees: false,
        made_of: Make::Untold(|| Box::new(Gimbal::new(Tuning::default(), Flaws::default()))),
    },
    PolicyKind {
        name: "gimbal-released",
        about: "Gimbal as its authors released it.",
        keeps_guarantees: false,
        made_of: Make::Untold(|| Box::new(Gimbal::new(Tuning::default(), Flaws::RELEASED))),
    },
    PolicyKind {
        name: "reflex",
        about: "ReFlex (ASPLOS 2017): tokens priced by what the device was measured to do.",
        keeps_guarantees: true,
        made_of: Make::Figures(|figures| Box::new(Reflex::new(figures.into()))),
    },
    PolicyKind {
        name: "flashfq",
        about: "FlashFQ (USENIX ATC 2013): start-time fair queueing with costs measured before.",
        keeps_guarantees: false,
        made_of: Make::Figures(|figures| Box::new(FlashFq::new(figures.into()))),
    },
    PolicyKind {
        name: "caps",
        about: "Limits alone.",
        keeps_guarantees: false,
        made_of: Make::Untold(|| Box::new(Caps::new())),
    },
];

/// The names of all policies.
pub const POLICY_NAMES: &[&str] = &{
    let mut names = [""; POLICIES.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = POLICIES[place].name;
        place += 1;
    }
    names
};

impl Known {
    /// Nothing: the device may get everything at once.
    pub const NOTHING: Self = Self {
        window: Window::UNLIMITED,
        figures: None,
    };
}

impl PolicyKind {
    /// The policy of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|kind| kind.name == name)
    }

    /// Whether the device has to be measured before.
    pub fn needs_figures(&self) -> bool {
        matches!(self.made_of, Make::Figures(_))
    }

    /// The policy, with nothing in it. None when it needs figures that are not known.
    pub fn make(&self, known: &Known) -> Option<Box<dyn Policy>> {
        Some(match self.made_of {
            Make::Untold(make) => make(),
            Make::Window(make) => make(known.window),
            Make::Figures(make) => make(known.figures.as_ref()?),
        })
    }
}

/// There is one of each name.
impl PartialEq for PolicyKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PolicyKind {}
