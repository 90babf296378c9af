//! Reads and writes fields that follow each other, numbers little-endian.

/// Adds fields at the end.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Behind what is there already.
    pub(super) fn after(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// All that was written.
    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Four bytes.
    pub fn u32(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// The length of a list, in four bytes. Lists have bounds that fit.
    pub fn count(&mut self, count: usize) {
        self.u32(count as u32);
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

/// Takes fields off the front; nothing when there are not enough bytes.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// From the first of `bytes` on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything was taken.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The length of a list of `most` at most, in four bytes.
    pub fn count(&mut self, most: usize) -> Option<usize> {
        let count = self.u32()? as usize;
        (count <= most).then_some(count)
    }

    /// `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// `len` bytes of UTF-8.
    pub fn text(&mut self, len: usize) -> Option<String> {
        std::str::from_utf8(self.take(len)?).ok().map(str::to_owned)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(front)
    }
}
