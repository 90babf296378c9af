//! Drives by the names that users give.

use std::fs::File;
use std::io::{self, Read as _};

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};

use crate::experiment::Refused;

/// A file with a profile can be no longer than this.
const MOST_PROFILE_BYTES: u64 = 1 << 20;

/// A profile that ships, or one in a file whose name ends with `.toml`.
pub(super) fn profile(word: &str) -> Result<Profile, Refused> {
    if let Some(profile) = Profile::named(word) {
        return Ok(profile);
    }
    let refused =
        |why: String| Refused::Conflict(format!("the profile `{word}` cannot be used: {why}"));
    let text = read(word).map_err(|error| refused(error.to_string()))?;
    if text.len() as u64 > MOST_PROFILE_BYTES {
        return Err(refused("the file is longer than 1 MiB".into()));
    }
    Profile::parse(&text).map_err(|error| refused(error.to_string()))
}

/// The text of a file, and no more of it than shows that it is too long: not every file says how
/// long it is.
fn read(path: &str) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(MOST_PROFILE_BYTES + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// The profiles that `words` name.
pub(super) fn profiles(words: &[&str]) -> Result<Vec<Profile>, Refused> {
    words.iter().map(|word| profile(word)).collect()
}

/// The conditions that `words` name.
///
/// # Panics
/// When one names none: settings are checked before.
pub(super) fn conditions(words: &[&str]) -> Vec<Condition> {
    let parse = |word: &&str| word.parse().expect("settings are checked");
    words.iter().map(parse).collect()
}

/// A drive of so many GiB.
pub(super) fn build(
    profile: &Profile,
    gib: u64,
    seed: u64,
    condition: Condition,
) -> Result<Device, Refused> {
    Device::in_condition(profile, gib << 30, seed, condition).map_err(|error| {
        Refused::Conflict(format!(
            "`{}` cannot be {gib} GiB large: {error}",
            profile.name
        ))
    })
}
