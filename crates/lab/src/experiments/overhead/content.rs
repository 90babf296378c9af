//! What is written.

use flashyard_time::Rng;

/// Data of a kind that compresses well, not at all, or away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Content {
    /// Lines of a log, of which Zstandard leaves about a fourth.
    Text,
    /// Random bytes.
    Random,
    /// Zeroes.
    Zeroes,
}

/// Words of the lines.
const WORDS: [&str; 16] = [
    "volume",
    "tenant",
    "write",
    "read",
    "queue",
    "flush",
    "device",
    "latency",
    "connected",
    "pool",
    "segment",
    "checkpoint",
    "accepted",
    "retry",
    "controller",
    "namespace",
];

impl Content {
    pub(in super::super) fn label(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Random => "random",
            Self::Zeroes => "zeroes",
        }
    }

    /// Fills memory with it: the same each time.
    pub(super) fn write_to(self, into: &mut [u8]) {
        let mut rng = Rng::new(7);
        match self {
            Self::Zeroes => into.fill(0),
            Self::Random => rng.fill_bytes(into),
            Self::Text => {
                let mut at = 0;
                while at < into.len() {
                    let line = line(&mut rng);
                    let len = line.len().min(into.len() - at);
                    into[at..at + len].copy_from_slice(&line.as_bytes()[..len]);
                    at += len;
                }
            }
        }
    }
}

/// A line: words that repeat, and a number that does not.
fn line(rng: &mut Rng) -> String {
    let mut word = || WORDS[rng.below(WORDS.len() as u64) as usize];
    let words = [word(), word(), word(), word()].join(" ");
    format!("{:04} {words}\n", rng.below(10_000))
}

#[cfg(test)]
mod tests {
    use flashyard_codec::compress::{Codec, Compressor};

    use super::*;

    #[test]
    fn text_leaves_about_a_fourth_and_random_bytes_all() {
        let mut data = vec![0; 128 << 10];
        Content::Text.write_to(&mut data);
        let mut compressor = Compressor::new();
        let stored = compressor.compress(Codec::Zstd, &data).map(<[u8]>::len);
        let ratio = data.len() as f64 / stored.expect("text is compressible") as f64;
        assert!((3.5..4.5).contains(&ratio), "{ratio}");
        Content::Random.write_to(&mut data);
        assert!(compressor.compress(Codec::Zstd, &data).is_none());
    }
}
