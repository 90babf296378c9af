//! The best rates of scenes in a file, as they take longer to find than to compare with.
//!
//! A line is for a phase of a scene: a key that everything about it decides, the fraction, and what
//! each tenant has alone and at the best rates. A line that is spoilt is as good as none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;

use flashyard_time::Duration;

use super::oracle::Best;
use super::scene::Scene;
use crate::bench::fold;
use crate::experiment::Refused;

/// What is known, and where it is kept.
#[derive(Debug)]
pub(super) struct Cache {
    path: String,
    known: BTreeMap<u64, Best>,
    changed: bool,
}

/// Grows with every change of how the best rates are found.
const VERSION: u64 = 2;

impl Cache {
    /// What a file holds that may not be there yet; without a name, nothing.
    pub(super) fn open(path: &str) -> Result<Self, Refused> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if path.is_empty() || error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(unusable(path, &error)),
        };
        Ok(Self {
            path: path.into(),
            known: text.lines().filter_map(parse).collect(),
            changed: false,
        })
    }

    /// What a scene is known by.
    pub(super) fn key(scene: &Scene, seed: u64, span: Duration, claim: u64) -> u64 {
        let text = format!("{VERSION} {seed} {span:?} {claim} {scene:?}");
        text.bytes().fold(0, |key, byte| fold(key, byte.into()))
    }

    pub(super) fn get(&self, key: u64) -> Option<Best> {
        self.known.get(&key).cloned()
    }

    pub(super) fn put(&mut self, key: u64, best: Best) {
        self.known.insert(key, best);
        self.changed = true;
    }

    /// Writes everything that is known if there is something new, and a file to write it to.
    pub(super) fn save(&self) -> Result<(), Refused> {
        if self.path.is_empty() || !self.changed {
            return Ok(());
        }
        let mut text = String::new();
        for (key, best) in &self.known {
            line(&mut text, *key, best);
        }
        fs::write(&self.path, text).map_err(|error| unusable(&self.path, &error))
    }
}

fn unusable(path: &str, error: &std::io::Error) -> Refused {
    Refused::Conflict(format!(
        "the file `{path}` for the best rates cannot be used: {error}"
    ))
}

fn line(text: &mut String, key: u64, best: &Best) {
    let fraction = best.fraction.unwrap_or(f64::INFINITY);
    write!(text, "{key:016x} {fraction}").expect("a string takes everything");
    for value in best.alone.iter().chain(&best.got) {
        write!(text, " {value}").expect("a string takes everything");
    }
    text.push('\n');
}

fn parse(line: &str) -> Option<(u64, Best)> {
    let mut words = line.split(' ');
    let key = u64::from_str_radix(words.next()?, 16).ok()?;
    let numbers = words.map(|word| word.parse().ok());
    let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    let (&fraction, values) = numbers.split_first()?;
    let (alone, got) = values.split_at(values.len() / 2);
    let best = Best {
        fraction: Some(fraction).filter(|fraction| fraction.is_finite()),
        alone: alone.to_vec(),
        got: got.to_vec(),
    };
    (alone.len() == got.len()).then_some((key, best))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_what_is_spoilt_is_not() {
        for fraction in [None, Some(0.1 + 0.2)] {
            let best = Best {
                fraction,
                alone: vec![1.0 / 3.0, 2.0],
                got: vec![0.0, 1e9],
            };
            let mut text = String::new();
            line(&mut text, 7, &best);
            assert_eq!(parse(text.trim_end()), Some((7, best)));
        }
        for spoilt in ["", "7", "x 1", "7 1 2", "7 1 2 y"] {
            assert_eq!(parse(spoilt), None, "{spoilt}");
        }
    }
}
