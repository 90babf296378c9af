//! What becomes of bytes before they are stored: compression, encryption, and parity. No runtime,
//! no files, no clock; whoever calls brings the memory and decides on which core it runs.
//!
//! - [`compress`]: LZ4 and Zstandard behind one face, in whole sectors.
//! - [`cipher`]: AES-256-XTS of data units.
//! - [`parity`]: P and Q over columns of own lengths, and reconstruction.
//!
//! The vector instructions of `parity` are the only `unsafe` here. Libraries: LZ4 is `lz4_flex`
//! with its safe encoder and decoder, since what is on a disk may be hostile; Zstandard is the
//! reference implementation; the cipher is OpenSSL's.

pub mod cipher;
pub mod compress;
pub mod parity;
