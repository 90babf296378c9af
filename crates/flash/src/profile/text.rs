//! A profile as text: a subset of TOML, lines of keys and values.

use alloc::borrow::ToOwned;

use super::{FIELDS, Profile, ProfileError, Victim};

/// The keys whose values are strings.
const WORDS: [&str; 2] = ["name", "gc_victim"];

impl Profile {
    /// Reads a profile: lines `key = value`, where the values of `name` and `gc_victim` are strings
    /// in double quotes and every other one a whole number, with underscores where they help. `#`
    /// begins a comment. Every key stands once.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut words: [Option<&str>; WORDS.len()] = [None; WORDS.len()];
        let mut values = [None; FIELDS.len()];
        for (number, line) in (1..).zip(text.lines()) {
            let Some((key, value)) =
                split(line).map_err(|()| ProfileError::Syntax { line: number })?
            else {
                continue;
            };
            if let Some(place) = WORDS.iter().position(|word| *word == key) {
                let word = quoted(value).ok_or(ProfileError::Syntax { line: number })?;
                if words[place].replace(word).is_some() {
                    return Err(ProfileError::Repeated(WORDS[place]));
                }
                continue;
            }
            let place = FIELDS
                .iter()
                .position(|(field, _, _)| *field == key)
                .ok_or_else(|| ProfileError::UnknownField(key.to_owned()))?;
            let value = whole(value).ok_or(ProfileError::Syntax { line: number })?;
            if values[place].replace(value).is_some() {
                return Err(ProfileError::Repeated(FIELDS[place].0));
            }
        }
        let mut complete = [0; FIELDS.len()];
        for (place, value) in values.into_iter().enumerate() {
            complete[place] = value.ok_or(ProfileError::Missing(FIELDS[place].0))?;
        }
        let [name, victim] = words;
        let name = name.ok_or(ProfileError::Missing("name"))?;
        let victim = match victim.ok_or(ProfileError::Missing("gc_victim"))? {
            "greedy" => Victim::Greedy,
            "fifo" => Victim::Fifo,
            _ => {
                return Err(ProfileError::UnknownWord {
                    field: "gc_victim",
                    known: "\"greedy\" or \"fifo\"",
                });
            }
        };
        let profile = Self::from_values(name.to_owned(), victim, &complete);
        profile.check()?;
        Ok(profile)
    }
}

/// Key and value of a line; nothing for an empty one.
fn split(line: &str) -> Result<Option<(&str, &str)>, ()> {
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() {
        return Ok(None);
    }
    let (key, value) = line.split_once('=').ok_or(())?;
    Ok(Some((key.trim(), value.trim())))
}

fn quoted(value: &str) -> Option<&str> {
    let label = value.strip_prefix('"')?.strip_suffix('"')?;
    (!label.contains(['"', '\\'])).then_some(label)
}

fn whole(value: &str) -> Option<u64> {
    let mut number: u64 = 0;
    if !value.starts_with(|first: char| first.is_ascii_digit()) || value.ends_with('_') {
        return None;
    }
    for digit in value.chars().filter(|&digit| digit != '_') {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit.to_digit(10)?))?;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    use flashyard_time::Rng;

    use super::super::SHIPPED;
    use super::*;
    use crate::ssd::Device;

    #[test]
    fn a_wrong_value_is_reported_with_its_field_and_bound() {
        let text = SHIPPED[0].1;
        let with = |key: &str, value: &str| {
            let lines: Vec<_> = text
                .lines()
                .map(|line| match line.split_once('=') {
                    Some((known, _)) if known.trim() == key => format!("{key} = {value}"),
                    _ => line.to_owned(),
                })
                .collect();
            Profile::parse(&lines.join("\n"))
                .map_or_else(|error| error.to_string(), |_| "fine".to_owned())
        };
        assert_eq!(with("channels", "8"), "fine");
        assert_eq!(
            with("channels", "0"),
            "`channels` is 0; it must be from 1 to 64"
        );
        assert_eq!(
            with("page_bytes", "5000"),
            "`page_bytes` is 5000; it must be a multiple of 4096"
        );
        assert_eq!(
            with("pages_per_program", "2"),
            "`pages_per_program` is 2; it must be 1 or page_types"
        );
        assert!(with("buffer_bytes", "4096").ends_with("at least two programs of every die"));
        for nonsense in [
            "",
            "-1",
            "1.5",
            "_1",
            "1_",
            "0x10",
            "99999999999999999999",
            "\"8\"",
        ] {
            assert!(
                with("channels", nonsense).starts_with("line "),
                "{nonsense}"
            );
        }
        assert!(with("name", "dct983").starts_with("line "));
        assert_eq!(with("gc_victim", "\"fifo\""), "fine");
        assert_eq!(
            with("gc_victim", "\"luck\""),
            "`gc_victim` must be \"greedy\" or \"fifo\""
        );
    }

    /// Whatever stands in a file: an error, or a profile of which drives can be built or not, but
    /// never a panic.
    #[test]
    fn hostile_text_is_an_error_and_no_more() {
        let mut chance = Rng::new(11);
        let digits = [
            "0",
            "1",
            "7",
            "64",
            "4096",
            "1_000",
            "18446744073709551615",
            "9e9",
            "\"\"",
        ];
        for round in 0..2_000 {
            let mut text = SHIPPED[round % SHIPPED.len()].1.as_bytes().to_vec();
            for _ in 0..=chance.below(4) {
                if text.is_empty() {
                    break;
                }
                let place = chance.below(text.len() as u64) as usize;
                match chance.below(4) {
                    0 => text[place] = chance.below(256) as u8,
                    1 => drop(text.drain(place..(place + 40).min(text.len()))),
                    2 => text.truncate(place + 1),
                    _ => {
                        let line = text[..place].iter().rposition(|&byte| byte == b'=');
                        let from = line.map_or(0, |equals| equals + 1);
                        let to = text[from..].iter().position(|&byte| byte == b'\n');
                        let to = to.map_or(text.len(), |length| from + length);
                        let digit = *chance.pick(&digits).expect("there are some");
                        text.splice(from..to, digit.bytes());
                    }
                }
            }
            let Ok(profile) = Profile::parse(&String::from_utf8_lossy(&text)) else {
                continue;
            };
            assert_eq!(profile.check(), Ok(()));
            // Small enough to be built in no time, if this capacity suits the profile at all.
            drop(Device::new(&profile, 64 << 20, 0));
        }
    }

    #[test]
    fn a_wrong_key_is_reported() {
        let text = SHIPPED[0].1;
        let error = |text: &str| Profile::parse(text).expect_err("it is wrong").to_string();
        assert_eq!(
            error(&format!("{text}\ncolour = 1")),
            "no profile has a field `colour`"
        );
        assert_eq!(
            error(&format!("{text}\nchannels = 1")),
            "`channels` stands twice"
        );
        assert_eq!(
            error(&format!("{text}\nname = \"x\"")),
            "`name` stands twice"
        );
        assert_eq!(error("name = \"x\""), "`channels` is missing");
        assert_eq!(error("just words"), "line 1 is not `key = value`");
    }
}
