//! Images of devices as text: `size` and how many bytes, then lines of an offset and the bytes
//! there, both in hexadecimal, and `x` and how often these repeat. What is not named is zero, and
//! `#` begins a comment.

use std::fs;
use std::path::Path;

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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("images/{name}.txt"));
        let text = fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(&text).unwrap_or_else(|line| panic!("{name}: line {line} is wrong"))
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
