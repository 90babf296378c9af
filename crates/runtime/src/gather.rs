//! The data sent in one call: small copied bytes and owned payload, as the kernel takes them.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use crate::{Buf, Data, Shared};

/// Copied bytes are kept in blocks of this size, which never move.
const BLOCK: usize = 4096;
/// Blocks a cleared list keeps.
const KEPT_BLOCKS: usize = 4;
/// Pieces a cleared list keeps room for.
const KEPT_PIECES: usize = 2048;

/// What [`Data::Zeroes`] is sent from.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// An ordered list of pieces to be sent in one call: small copied bytes (headers) and owned
/// payload. Keeps its allocations when cleared, so a connection uses two of them in turn, always.
/// It is handed on often, so it is a pointer.
#[derive(Default)]
pub struct Gather(Box<Inner>);

#[derive(Default)]
struct Inner {
    /// What the kernel reads: into `blocks`, `payload` or the zeroes.
    pieces: Vec<libc::iovec>,
    blocks: Vec<Block>,
    /// Copied bytes so far; they fill the blocks in turn.
    copied: usize,
    payload: Vec<Buf>,
    shared: Vec<Shared>,
    len: usize,
    /// Whether the last piece is the last of the copied bytes, so that a copy may be appended to
    /// it.
    open: bool,
}

impl Gather {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a copy of `bytes` (meant for headers; merged with a directly preceding copy).
    pub fn push_bytes(&mut self, mut bytes: &[u8]) {
        let this = &mut *self.0;
        this.len += bytes.len();
        while !bytes.is_empty() {
            let at = this.copied % BLOCK;
            if this.copied / BLOCK == this.blocks.len() {
                this.blocks.push(Block::new());
            }
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - at));
            let start = this.blocks[this.copied / BLOCK].write(at, now);
            match this.pieces.last_mut().filter(|_| this.open && at > 0) {
                Some(last) => last.iov_len += now.len(),
                None => this.push_piece(start.as_ptr(), now.len()),
            }
            this.open = true;
            this.copied += now.len();
            bytes = rest;
        }
    }

    /// Appends `range` of `data`, which is kept until the list is cleared.
    ///
    /// # Panics
    /// When `range` is not within `data`.
    pub fn push_data(&mut self, data: Data, range: Range<usize>) {
        let this = &mut *self.0;
        assert!(
            range.start <= range.end && range.end <= data.len(),
            "{range:?} of {} bytes",
            data.len()
        );
        this.len += range.len();
        match data {
            Data::Buf(buf) => {
                if !range.is_empty() {
                    this.push_piece(buf[range.clone()].as_ptr(), range.len());
                    this.open = false;
                }
                this.payload.push(buf);
            }
            Data::Zeroes(_) => this.push_zeroes(range.len()),
        }
    }

    /// Appends data that others keep, too: to send parts of them apart, or all of them again.
    pub fn push_shared(&mut self, data: Shared) {
        if !data.is_empty() {
            self.0.len += data.len();
            self.0.push_piece(data.as_ptr(), data.len());
            self.0.open = false;
            self.0.shared.push(data);
        }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Pieces in all: each becomes one iovec (at most 1024 are sent by one call; more are sent by
    /// several).
    pub fn pieces(&self) -> usize {
        self.0.pieces.len()
    }

    /// Forgets everything and gives the payload back to the pool.
    pub fn clear(&mut self) {
        let this = &mut *self.0;
        this.pieces.clear();
        this.pieces.shrink_to(KEPT_PIECES);
        this.payload.clear();
        this.payload.shrink_to(KEPT_PIECES);
        this.shared.clear();
        this.shared.shrink_to(KEPT_PIECES);
        this.blocks.truncate(KEPT_BLOCKS);
        (this.copied, this.len, this.open) = (0, 0, false);
    }

    /// The pieces, for the kernel. Valid until the list is changed or dropped.
    pub(crate) fn as_iovecs(&self) -> &[libc::iovec] {
        &self.0.pieces
    }

    /// The pieces, in order.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.0.pieces.iter().map(|piece| {
            // SAFETY: every piece points to initialised bytes of a block, of the payload (a shared
            // buffer can be read only) or of the zeroes, which all stay where they are, and
            // unchanged, while the list is borrowed.
            unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) }
        })
    }
}

impl Inner {
    fn push_zeroes(&mut self, mut len: usize) {
        while len > 0 {
            let now = len.min(ZEROES.len());
            self.push_piece(ZEROES.as_ptr(), now);
            self.open = false;
            len -= now;
        }
    }

    fn push_piece(&mut self, start: *const u8, len: usize) {
        self.pieces.push(libc::iovec {
            iov_base: start.cast_mut().cast(),
            iov_len: len,
        });
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Gather({} bytes in {} pieces)",
            self.0.len,
            self.0.pieces.len()
        )
    }
}

/// Memory for copied bytes. Reached by pointer only, since pieces point into it while more is
/// written behind.
struct Block(NonNull<[u8; BLOCK]>);

impl Block {
    fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new([0; BLOCK]))))
    }

    /// Copies `bytes` to offset `at`; where they are now.
    fn write(&self, at: usize, bytes: &[u8]) -> NonNull<u8> {
        assert!(
            at + bytes.len() <= BLOCK,
            "the caller cut the bytes to what fits"
        );
        // SAFETY: the target range lies inside the block, as just checked; `bytes` is elsewhere,
        // since no reference into a block exists while the list can be changed.
        unsafe {
            let start = self.0.cast::<u8>().add(at);
            start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            start
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block was leaked from a box by `new`, and is freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(gather: &Gather) -> Vec<u8> {
        gather.slices().collect::<Vec<_>>().concat()
    }

    #[test]
    fn pieces_come_in_order_and_copies_merge() {
        let mut gather = Gather::new();
        for round in 0..3 {
            let mut buf = Buf::take(4096).expect("the default bound is far");
            buf.fill(9);
            gather.push_bytes(&[1, 2]);
            gather.push_bytes(&[3]);
            gather.push_data(Data::Buf(buf), 10..14);
            gather.push_bytes(&[4]);
            gather.push_data(Data::Zeroes(2), 0..2);
            gather.push_data(Data::Zeroes(2), 1..1);
            gather.push_bytes(&[]);
            assert_eq!(
                content(&gather),
                [1, 2, 3, 9, 9, 9, 9, 4, 0, 0],
                "round {round}"
            );
            assert_eq!((gather.len(), gather.pieces()), (10, 4));
            gather.clear();
            assert!(gather.is_empty() && gather.pieces() == 0);
        }
    }

    #[test]
    fn copies_longer_than_a_block_stay_whole() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 5).map(|at| (at % 251) as u8).collect();
        let mut gather = Gather::new();
        for part in bytes.chunks(1000) {
            gather.push_bytes(part);
        }
        assert_eq!(content(&gather), bytes);
        assert_eq!(gather.pieces(), 4, "one piece a block");
    }

    #[test]
    fn zeroes_may_be_many() {
        let mut gather = Gather::new();
        gather.push_data(Data::Zeroes(200_000), 0..200_000);
        assert_eq!((gather.len(), gather.pieces()), (200_000, 4));
        assert!(content(&gather).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_shared_buffer_is_sent_in_parts_and_kept_by_others() {
        let mut buf = Buf::take(4096).expect("the default bound is far");
        buf[..4].copy_from_slice(&[1, 2, 3, 4]);
        let data = Shared::from(buf);
        let mut gather = Gather::new();
        gather.push_shared(data.slice(2..4));
        gather.push_bytes(&[9]);
        gather.push_shared(data.slice(0..2));
        gather.push_shared(data.slice(1..1));
        assert_eq!(content(&gather), [3, 4, 9, 1, 2]);
        assert_eq!(gather.len(), 5);
        let data = data.try_into_buf().expect_err("the list holds some of it");
        gather.clear();
        assert!(data.try_into_buf().is_ok(), "it has no other holder");
    }

    #[test]
    #[should_panic(expected = "3..5 of 4 bytes")]
    fn a_range_outside_is_refused() {
        Gather::new().push_data(Data::Zeroes(4), 3..5);
    }
}
