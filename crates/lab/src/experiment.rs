//! What an experiment is: a claim, settings, and a run that reports.
//!
//! A new experiment is one file under `experiments` and one line in its registry. It is given a
//! [`Context`], in which everything a user asked for is checked already, and answers with a
//! [`Report`].

use core::fmt;
use std::path::Path;

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;

use crate::bench::SetupError;
use crate::report::{Promise, Report};

/// An experiment: a question about storage, and how it is answered.
pub trait Experiment: Sync {
    /// What it is run by: small letters and hyphens.
    fn name(&self) -> &'static str;

    /// What it shows, in a paragraph whose first sentence can stand alone.
    fn claim(&self) -> &'static str;

    /// What a user may set.
    fn settings(&self) -> &'static [Setting];

    /// The policies that it compares when the user names none; none when there is no switch in it.
    fn policies(&self) -> &'static [&'static str] {
        &[]
    }

    /// What is wanted of its results.
    fn promises(&self) -> &'static [Promise] {
        &[]
    }

    /// Whether it measures the machine that runs it, and so gives other figures each time. It has
    /// no digest then.
    fn is_measured(&self) -> bool {
        false
    }

    /// The most seeds that it can be run with.
    fn most_seeds(&self) -> u32 {
        MOST_SEEDS
    }

    /// Runs it.
    fn run(&self, context: &Context) -> Result<Report, Refused>;
}

/// Receives the progress of a run, from several threads.
pub trait Progress: Sync {
    /// The run has so many parts. Called once, before the first part.
    fn begin(&self, total: u64);

    /// A part is done: what it was.
    fn step(&self, what: &str);

    /// Whether the run is to stop: no part is begun any more, and the report has what there is.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Progress that is not shown.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _total: u64) {}
    fn step(&self, _what: &str) {}
}

/// A setting of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What it is set by.
    pub key: &'static str,
    /// Its default, as a user would write it.
    pub default: &'static str,
    /// What it may be.
    pub domain: Domain,
    /// What it means.
    pub meaning: &'static str,
}

/// What a setting may be.
#[derive(Clone, Copy, Debug)]
pub enum Domain {
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// One or more of these words, with commas between.
    Words(&'static [&'static str]),
    /// One or more profiles of drives, with commas between: names of those that ship, or files.
    Profiles,
    /// One or more conditions of drives, with commas between.
    Conditions,
    /// A file, or nothing.
    File,
}

/// What a user asks for, unchecked.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The seed of all randomness; 1 by default.
    pub seed: Option<u64>,
    /// How many seeds to take a mean over; 1 by default.
    pub seeds: Option<u32>,
    /// Small drives and short spans: a test that it works, not a result.
    pub quick: bool,
    /// The policies to compare; the experiment's own when empty.
    pub policies: Vec<String>,
    /// Keys and values.
    pub settings: Vec<(String, String)>,
}

/// Why an experiment does not run. Each says what there is instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No experiment has this name.
    UnknownExperiment {
        /// What was given.
        name: String,
        /// The experiments that there are.
        known: Vec<&'static str>,
    },
    /// The experiment has no such setting.
    UnknownSetting {
        /// What was given.
        key: String,
        /// The settings that there are.
        known: Vec<&'static str>,
    },
    /// A setting is given a value that it cannot have.
    BadValue {
        /// The setting.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// No policy has this name.
    UnknownPolicy(String),
    /// There is no switch in this experiment.
    NoPolicies(&'static str),
    /// From one to this many seeds can be averaged.
    Seeds(u32),
    /// The run was stopped before there was anything to report.
    Stopped,
    /// The settings do not go together, or what they name cannot be used: a sentence.
    Conflict(String),
}

/// The most seeds that means are taken over.
const MOST_SEEDS: u32 = 100;

/// What an experiment runs with: what the user asked for, checked and completed.
pub struct Context<'a> {
    /// The seed of all randomness: the first of [`Context::seeds`].
    pub seed: u64,
    /// How many seeds to take means over, at least 1.
    pub seed_count: u32,
    /// Small drives and short spans.
    pub quick: bool,
    /// The policies to compare, each one that there is; none when there is no switch in the
    /// experiment.
    pub policies: Vec<&'static str>,
    /// Notified of every part.
    pub progress: &'a dyn Progress,
    settings: Vec<(Setting, String)>,
}

impl<'a> Context<'a> {
    /// Checks what is asked of `experiment`.
    pub fn new(
        experiment: &dyn Experiment,
        request: &Request,
        progress: &'a dyn Progress,
    ) -> Result<Self, Refused> {
        let seed_count = request.seeds.unwrap_or(1);
        let most = experiment.most_seeds();
        if !(1..=most).contains(&seed_count) {
            return Err(Refused::Seeds(most));
        }
        Ok(Self {
            seed: request.seed.unwrap_or(1),
            seed_count,
            quick: request.quick,
            policies: chosen_policies(experiment, &request.policies)?,
            progress,
            settings: settled(experiment.settings(), &request.settings)?,
        })
    }

    /// The seeds to take means over.
    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        let first = self.seed;
        (0..u64::from(self.seed_count)).map(move |place| first.wrapping_add(place))
    }

    /// A setting that is a number.
    ///
    /// # Panics
    /// When the experiment has no such number: it should ask for what it declares.
    pub fn number(&self, key: &str) -> u64 {
        self.text(key).parse().expect("a number's value is checked")
    }

    /// A setting that is one word.
    ///
    /// # Panics
    /// When the experiment has no such setting.
    pub fn word(&self, key: &str) -> &str {
        self.text(key)
    }

    /// The words of a setting, in the order in which the user named them.
    ///
    /// # Panics
    /// When the experiment has no such setting.
    pub fn words(&self, key: &str) -> Vec<&str> {
        self.text(key).split(',').map(str::trim).collect()
    }

    /// Every setting with its value, for the report.
    pub fn settings(&self) -> Vec<(String, String)> {
        let pair = |(setting, value): &(Setting, String)| (setting.key.into(), value.clone());
        self.settings.iter().map(pair).collect()
    }

    fn text(&self, key: &str) -> &str {
        let found = self.settings.iter().find(|(setting, _)| setting.key == key);
        &found.expect("an experiment asks for what it declares").1
    }
}

impl Domain {
    /// Whether `value` is one that the setting may have.
    pub fn contains(&self, value: &str) -> bool {
        match self {
            Self::Number(least, most) => value
                .parse()
                .is_ok_and(|number: u64| (*least..=*most).contains(&number)),
            Self::Word(words) => words.contains(&value),
            Self::Words(words) => value.split(',').all(|word| words.contains(&word.trim())),
            Self::Profiles => value.split(',').all(|word| is_profile(word.trim())),
            Self::Conditions => {
                let known = |word: &str| word.trim().parse::<Condition>().is_ok();
                value.split(',').all(known)
            }
            Self::File => true,
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(least, most) => write!(f, "a whole number from {least} to {most}"),
            Self::Word(words) => write!(f, "one of {}", words.join(", ")),
            Self::Words(words) => write!(f, "one or more of {}, with commas", words.join(", ")),
            Self::Profiles => {
                let names: Vec<_> = Profile::names().collect();
                write!(
                    f,
                    "one or more of {} or files `*.toml`, with commas",
                    names.join(", ")
                )
            }
            Self::Conditions => f.write_str(
                "one or more of empty, clean, fragmented or fragmented=50%, with commas",
            ),
            Self::File => f.write_str("the name of a file"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownExperiment { name, known } => {
                write!(
                    f,
                    "there is no experiment `{name}`; there are {}",
                    known.join(", ")
                )
            }
            Self::UnknownSetting { key, known } if known.is_empty() => {
                write!(f, "there is no setting `{key}`: this experiment has none")
            }
            Self::UnknownSetting { key, known } => {
                write!(
                    f,
                    "there is no setting `{key}`; there are {}",
                    known.join(", ")
                )
            }
            Self::BadValue {
                key,
                value,
                allowed,
            } => {
                write!(f, "`{key}` cannot be `{value}`; it is {allowed}")
            }
            Self::UnknownPolicy(name) => {
                write!(
                    f,
                    "there is no policy `{name}`; there are {}",
                    crate::policies::names().collect::<Vec<_>>().join(", ")
                )
            }
            Self::NoPolicies(experiment) => {
                write!(
                    f,
                    "`{experiment}` has no switch in it, so there is no policy to choose"
                )
            }
            Self::Seeds(most) => write!(f, "a mean is taken over 1 to {most} seeds"),
            Self::Stopped => f.write_str("stopped before anything was complete"),
            Self::Conflict(sentence) => f.write_str(sentence),
        }
    }
}

impl core::error::Error for Refused {}

impl From<SetupError> for Refused {
    fn from(error: SetupError) -> Self {
        Self::Conflict(error.to_string())
    }
}

/// Whether a word names a profile that ships or may name a file with one.
fn is_profile(word: &str) -> bool {
    Profile::names().any(|name| name == word)
        || Path::new(word)
            .extension()
            .is_some_and(|extension| extension == "toml")
}

fn chosen_policies(
    experiment: &dyn Experiment,
    asked: &[String],
) -> Result<Vec<&'static str>, Refused> {
    if asked.is_empty() {
        return Ok(experiment.policies().to_vec());
    }
    if experiment.policies().is_empty() {
        return Err(Refused::NoPolicies(experiment.name()));
    }
    let known = |name: &String| {
        crate::policies::names()
            .find(|known| known == name)
            .ok_or_else(|| Refused::UnknownPolicy(name.clone()))
    };
    asked.iter().map(known).collect()
}

/// Every setting with what it was given, or its default. The last of several values counts.
fn settled(
    settings: &'static [Setting],
    given: &[(String, String)],
) -> Result<Vec<(Setting, String)>, Refused> {
    let mut settled: Vec<_> = settings
        .iter()
        .map(|setting| (*setting, setting.default.to_owned()))
        .collect();
    for (key, value) in given {
        let Some((setting, kept)) = settled.iter_mut().find(|(setting, _)| setting.key == key)
        else {
            return Err(Refused::UnknownSetting {
                key: key.clone(),
                known: settings.iter().map(|setting| setting.key).collect(),
            });
        };
        if !setting.domain.contains(value) {
            return Err(Refused::BadValue {
                key: setting.key,
                value: value.clone(),
                allowed: setting.domain.to_string(),
            });
        }
        kept.clone_from(value);
    }
    Ok(settled)
}
