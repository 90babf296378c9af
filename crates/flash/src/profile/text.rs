//! A profile as text: a subset of TOML, lines of keys and values.

use alloc::borrow::ToOwned;

use super::{FIELDS, Profile, ProfileError, SHIPPED, Victim};

/// The keys whose values are strings.
const WORDS: [&str; 3] = ["name", "gc_victim", "base"];

impl Profile {
    /// Reads a profile: lines `key = value`, where the values of `name`, `gc_victim` and `base` are
    /// strings in double quotes and every other one a whole number, with underscores where they
    /// help. `#` begins a comment. Every key stands once. What does not stand there is that of
    /// `base`, a profile that ships and has no base itself; without a base everything has to stand.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let Written { words, values } = Written::read(text)?;
        let [name, victim, base] = words;
        let name = name.ok_or(ProfileError::Missing("name"))?;
        let base = base.map(Self::base).transpose()?;
        let inherited = base.as_ref().map(Self::values);
        let mut complete = [0; FIELDS.len()];
        for (place, value) in values.into_iter().enumerate() {
            let value = value.or_else(|| inherited.map(|values| values[place]));
            complete[place] = value.ok_or(ProfileError::Missing(FIELDS[place].0))?;
        }
        let victim = match (victim, base) {
            (Some("greedy"), _) => Victim::Greedy,
            (Some("fifo"), _) => Victim::Fifo,
            (Some(_), _) => {
                return Err(ProfileError::UnknownWord {
                    field: "gc_victim",
                    known: "\"greedy\" or \"fifo\"",
                });
            }
            (None, Some(base)) => base.gc_victim,
            (None, None) => return Err(ProfileError::Missing("gc_victim")),
        };
        let profile = Self::from_values(name.to_owned(), victim, &complete);
        profile.check()?;
        Ok(profile)
    }

    fn base(name: &str) -> Result<Self, ProfileError> {
        let unknown = ProfileError::UnknownWord {
            field: "base",
            known: "the name of a profile that ships and has no base itself",
        };
        let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
        let Some((_, text)) = shipped else {
            return Err(unknown);
        };
        match Written::read(text)?.words {
            [_, _, Some(_)] => Err(unknown),
            _ => Self::parse(text),
        }
    }
}

/// What stands in a text.
struct Written<'a> {
    words: [Option<&'a str>; WORDS.len()],
    values: [Option<u64>; FIELDS.len()],
}

impl<'a> Written<'a> {
    fn read(text: &'a str) -> Result<Self, ProfileError> {
        let mut words = [None; WORDS.len()];
        let mut values = [None; FIELDS.len()];
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = || ProfileError::Syntax { line: number };
            let Some((key, value)) = split(line).map_err(|()| wrong())? else {
                continue;
            };
            if let Some(place) = WORDS.iter().position(|word| *word == key) {
                let word = quoted(value).ok_or_else(wrong)?;
                if words[place].replace(word).is_some() {
                    return Err(ProfileError::Repeated(WORDS[place]));
                }
                continue;
            }
            let place = FIELDS.iter().position(|(field, _, _)| *field == key);
            let place = place.ok_or_else(|| ProfileError::UnknownField(key.to_owned()))?;
            let value = whole(value).ok_or_else(wrong)?;
            if values[place].replace(value).is_some() {
                return Err(ProfileError::Repeated(FIELDS[place].0));
            }
        }
        Ok(Self { words, values })
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
    fn what_is_not_said_is_that_of_the_base() {
        let text = "name = \"mine\"\nbase = \"dct983\"\nsuspends = 7";
        let mine = Profile::parse(text).expect("the base says the rest");
        let base = Profile::named("dct983").expect("it ships");
        let wanted = Profile {
            name: "mine".to_owned(),
            suspends: 7,
            ..base
        };
        assert_eq!(mine, wanted);
        let fifo = Profile::parse(&format!("{text}\ngc_victim = \"fifo\""));
        assert_eq!(fifo.expect("it may be said").gc_victim, Victim::Fifo);
        for other in ["none", "dct983-b"] {
            let error = Profile::parse(&text.replace("\"dct983\"", &format!("\"{other}\"")));
            let error = error.expect_err("it is no base").to_string();
            assert!(
                error.starts_with("`base` must be the name of a profile that ships"),
                "{error}"
            );
        }
        let nameless = Profile::parse("base = \"dct983\"");
        assert_eq!(nameless, Err(ProfileError::Missing("name")));
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
