//! Messages of Protocol Buffers, written field by field: what it takes for the figures of
//! Prometheus, which are six small messages that do not change.

/// A message, or the part of it that is written.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

/// How the value of a field is written.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
}

impl Message {
    /// A whole number without a sign, a choice or a flag.
    pub fn uint(&mut self, field: u32, value: u64) {
        self.key(field, Wire::Varint);
        self.varint(value);
    }

    /// A whole number of the types `sint32` and `sint64`.
    pub fn sint(&mut self, field: u32, value: i64) {
        self.uint(field, zigzag(value));
    }

    pub fn double(&mut self, field: u32, value: f64) {
        self.key(field, Wire::Fixed64);
        self.0.extend(value.to_le_bytes());
    }

    pub fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A message that is made in `make`.
    pub fn message(&mut self, field: u32, make: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        make(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// Numbers of the type `sint64`, packed.
    pub fn sints(&mut self, field: u32, values: impl Iterator<Item = i64>) {
        let mut inner = Self::default();
        values.for_each(|value| inner.varint(zigzag(value)));
        self.bytes(field, &inner.0);
    }

    /// Adds it to others, each behind its length.
    pub fn delimited(self, all: &mut Vec<u8>) {
        let mut length = Self::default();
        length.varint(self.0.len() as u64);
        all.extend(length.0);
        all.extend(self.0);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, Wire::Length);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn key(&mut self, field: u32, wire: Wire) {
        self.varint((u64::from(field) << 3) | wire as u64);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Small numbers are short, whatever their sign.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as the encoding guide of Protocol Buffers has them.
    #[test]
    fn fields_are_written_as_they_are_specified() {
        let mut message = Message::default();
        message.uint(1, 150);
        message.text(2, "testing");
        message.message(3, |inner| inner.uint(1, 150));
        message.sint(4, -1);
        message.double(5, 1.0);
        message.sints(6, [0, 1, -2, 150].into_iter());
        let mut all = Vec::new();
        message.delimited(&mut all);
        let expected: &[u8] = &[
            0x08, 0x96, 0x01, // 150
            0x12, 7, b't', b'e', b's', b't', b'i', b'n', b'g', // "testing"
            0x1a, 3, 0x08, 0x96, 0x01, // a message
            0x20, 1, // -1
            0x29, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, // 1.0
            0x32, 5, 0, 2, 3, 0xac, 0x02, // packed
        ];
        assert_eq!(all[0] as usize, expected.len());
        assert_eq!(&all[1..], expected);
        assert_eq!(zigzag(i64::MIN), u64::MAX);
        assert_eq!(zigzag(i64::MAX), u64::MAX - 1);
    }
}
