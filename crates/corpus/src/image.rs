//! Images of devices as text: `size` and how many bytes, then lines of an offset and the bytes
//! there, both in hexadecimal, and `x` and how often these repeat. What is not named is zero, and
//! `#` begins a comment.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Zeroes that end what is named; shorter ones are a part of it.
const GAP: usize = 32;
/// How often something repeats at least to be written as that.
const REPEATS: usize = 8;

/// What a device holds; most of it is zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Bytes of the device.
    pub size: u64,
    /// Where something else than zeroes is, and what.
    pub parts: Vec<(u64, Vec<u8>)>,
}

impl Image {
    /// The image that is called `name`.
    ///
    /// # Panics
    /// When there is none, or it is not such a text.
    pub fn named(name: &str) -> Self {
        let path = path(name);
        let text = fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(&text).unwrap_or_else(|line| panic!("{name}: line {line} is wrong"))
    }

    /// Keeps what a device holds as the image that is called `name`, with a comment.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn keep(name: &str, comment: &str, bytes: &[u8]) {
        let path = path(name);
        let text = format!("# {comment}\n{}", text(bytes));
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// All of it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for (offset, part) in &self.parts {
            bytes[*offset as usize..][..part.len()].copy_from_slice(part);
        }
        bytes
    }

    /// Reads the text of an image; or the number of the line that is wrong.
    fn parse(text: &str) -> Result<Self, usize> {
        let (mut size, mut parts) = (0, Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(count) = line.strip_prefix("size ") {
                size = count.parse().map_err(|_| number)?;
                continue;
            }
            let (offset, bytes) = part(line).ok_or(number)?;
            if offset + bytes.len() as u64 > size {
                return Err(number);
            }
            parts.push((offset, bytes));
        }
        Ok(Self { size, parts })
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("images/{name}.txt"))
}

/// What a device holds, as text.
fn text(bytes: &[u8]) -> String {
    let mut text = format!("size {}\n", bytes.len());
    let mut at = 0;
    while let Some(skipped) = bytes[at..].iter().position(|byte| *byte != 0) {
        at += skipped;
        let (unit, times) = repeats(&bytes[at..]).unwrap_or((literal(&bytes[at..]), 1));
        write!(text, "{at:x} ").expect("it is memory");
        for byte in &bytes[at..at + unit] {
            write!(text, "{byte:02x}").expect("it is memory");
        }
        if times > 1 {
            write!(text, " x{times}").expect("it is memory");
        }
        text.push('\n');
        at += unit * times;
    }
    text
}

/// The length of what repeats at the beginning of these bytes, and how often.
fn repeats(bytes: &[u8]) -> Option<(usize, usize)> {
    let of = |unit: usize| {
        let mut parts = bytes.chunks_exact(unit);
        let first = parts.next()?;
        let times = 1 + parts.take_while(|part| *part == first).count();
        (times >= REPEATS).then_some((unit, times))
    };
    [1, 8].into_iter().find_map(of)
}

/// How many bytes there are before many zeroes, or something else that repeats.
fn literal(bytes: &[u8]) -> usize {
    let ends = |at: &usize| {
        let gap = &bytes[*at..bytes.len().min(at + GAP)];
        gap.iter().all(|byte| *byte == 0)
            || (at.is_multiple_of(8) && repeats(&bytes[*at..]).is_some())
    };
    (1..bytes.len()).find(ends).unwrap_or(bytes.len())
}

fn part(line: &str) -> Option<(u64, Vec<u8>)> {
    let mut words = line.split(' ');
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let digits = words.next()?;
    let bytes = (0..digits.len()).step_by(2).map(|at| {
        let byte = digits.get(at..at + 2)?;
        u8::from_str_radix(byte, 16).ok()
    });
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    let times = match words.next() {
        Some(times) => times.strip_prefix('x')?.parse().ok()?,
        None => 1,
    };
    words
        .next()
        .is_none()
        .then(|| (offset, bytes.repeat(times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_what_its_text_says() {
        let mut bytes = vec![0; 3000];
        bytes[7] = 1;
        bytes[30..33].fill(9);
        bytes[100..400].fill(5);
        bytes[512..1536].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 0].repeat(128));
        bytes[2990..].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
        let written = text(&bytes);
        assert!(written.len() < 250, "{written}");
        let image = Image::parse(&written).expect("it is right");
        assert!(image.bytes() == bytes, "{written}");
    }

    #[test]
    fn the_text_says_what_is_there() {
        let image = Image::parse("# A device.\nsize 16\n2 0aff\n8 0b x3\n").expect("it is right");
        let mut expected = [0; 16];
        expected[2..4].copy_from_slice(&[10, 255]);
        expected[8..11].fill(11);
        assert_eq!(image.bytes(), expected);
        for wrong in ["size 4\n2 0a0b0c", "2 0a", "size 9\n1 0", "size 9\n1 00 3"] {
            assert!(Image::parse(wrong).is_err(), "{wrong}");
        }
    }
}
