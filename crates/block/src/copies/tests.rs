//! What is put together of pieces that lie on several members.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::{Info, Io, Limits};

/// Bytes of a piece, and of a block.
const PIECE: usize = 4096;

/// What copies hold of pieces: a byte all over, zeroes that were never written, or an error.
type Piece = Result<Option<u8>, IoError>;

/// A device whose copies hold what is given.
struct Told {
    /// By piece and copy.
    pieces: RefCell<Vec<Vec<Piece>>>,
    /// The memory for I/O that was taken at once, at most.
    most_taken: Cell<isize>,
}

impl Told {
    fn new(pieces: &[&[Piece]]) -> Self {
        let pieces = pieces.iter().map(|copies| copies.to_vec()).collect();
        Self {
            pieces: RefCell::new(pieces),
            most_taken: Cell::new(0),
        }
    }

    /// What each copy holds: a letter for each piece, `.` for zeroes, or why not.
    fn read(&self) -> Result<Vec<String>, IoError> {
        let bytes = self.pieces.borrow().len() * PIECE;
        let reads = now(read_long(self, 0, bytes))?;
        let told = reads.into_iter().map(|read| match read {
            Raw::Blank => "blank".to_owned(),
            Raw::Unreadable => "unreadable".to_owned(),
            Raw::Bytes(bytes) => {
                let letters = bytes.chunks(PIECE).map(|piece| {
                    assert!(piece.iter().all(|byte| *byte == piece[0]));
                    if piece[0] == 0 {
                        '.'
                    } else {
                        char::from(piece[0])
                    }
                });
                letters.collect()
            }
        });
        Ok(told.collect())
    }
}

impl Device for Told {
    fn info(&self) -> Info {
        Info {
            block_size: PIECE as u32,
            blocks: self.pieces.borrow().len() as u64,
            volatile_cache: false,
            read_only: true,
            deallocate: false,
            limits: Limits::default(),
        }
    }

    fn submit(&self, _: Tag, _: Io) -> IoFuture {
        unreachable!("it has copies")
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(self)
    }
}

impl Copies for Told {
    fn stripe(&self) -> u64 {
        PIECE as u64
    }

    fn count(&self, lba: u64) -> usize {
        self.pieces.borrow()[lba as usize].len()
    }

    fn read(&self, _: Tag, copy: usize, lba: u64, mut into: Buf) -> IoFuture {
        self.most_taken
            .set(self.most_taken.get().max(Buf::balance()));
        let piece = self.pieces.borrow()[lba as usize][copy];
        if piece == Err(IoError::NotReady) {
            let _ = self.pieces.borrow_mut()[lba as usize].remove(copy);
        }
        IoFuture::ready(piece.map(|byte| match byte {
            None => Data::Zeroes(into.len()).into(),
            Some(byte) => {
                into.fill(byte);
                Data::Buf(into).into()
            }
        }))
    }

    fn heal(&self, _: Tag, _: u64, _: Buf) -> Healed {
        unreachable!("nothing is healed here")
    }
}

/// What is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here waits"),
    }
}

const BAD: Piece = Err(IoError::Read);
const ZEROES: Piece = Ok(None);

#[test]
fn pieces_are_put_together_copy_by_copy() {
    let (a, b, c): (Piece, Piece, Piece) = (Ok(Some(b'a')), Ok(Some(b'b')), Ok(Some(b'c')));
    let cases: &[(&[&[Piece]], &[&str])] = &[
        (&[&[a], &[b]], &["ab"]),
        (&[&[a, b], &[b, c]], &["ab", "bc"]),
        // Where there are fewer copies, the last ones count for the others.
        (&[&[a, b, c], &[b]], &["ab", "bb", "cb"]),
        (&[&[a, ZEROES], &[ZEROES, ZEROES]], &["a.", "blank"]),
        (&[&[BAD], &[a]], &["unreadable"]),
        (&[&[BAD, BAD], &[a, a]], &["unreadable"]),
        // What one copy cannot read another one can; that it could not is told.
        (&[&[BAD, a], &[b, BAD]], &["ab", "ab", "unreadable"]),
        (
            &[&[a, BAD, a], &[b, c, BAD]],
            &["ab", "ac", "ab", "unreadable"],
        ),
        (
            &[&[BAD, ZEROES], &[BAD, ZEROES]],
            &["blank", "blank", "unreadable"],
        ),
    ];
    for (pieces, expected) in cases {
        let told = Told::new(pieces).read().expect("one can be read");
        assert_eq!(told, *expected);
    }
}

#[test]
fn a_member_that_goes_takes_its_copy_with_it() {
    let (a, b): (Piece, Piece) = (Ok(Some(b'a')), Ok(Some(b'b')));
    let gone = Err(IoError::NotReady);
    let told = |pieces: &[&[Piece]]| Told::new(pieces).read();
    assert_eq!(told(&[&[gone, a], &[b]]), Ok(vec!["ab".to_owned()]));
    assert_eq!(told(&[&[a], &[Err(IoError::Busy)]]), Err(IoError::Busy));
}

/// The memory for I/O is short: whatever is read of it is held for one piece.
#[test]
fn a_long_read_takes_the_memory_of_one_piece() {
    let copies: [Piece; 2] = [Ok(Some(b'a')), Ok(Some(b'a'))];
    let told = Told::new(&vec![&copies[..]; 64]);
    let before = Buf::balance();
    assert_eq!(told.read(), Ok(vec!["a".repeat(64); 2]));
    let taken = told.most_taken.get() - before;
    assert!(taken <= 2 * PIECE.cast_signed(), "{taken} bytes at once");
}
