//! Little-endian fields at fixed offsets of a larger structure.
//!
//! The structures of Identify and the log pages are sparse: a table of offsets is closer to the
//! specification than a struct with hundreds of reserved fields. Offsets here are constants of
//! ours, so a bad one is a bug.

use crate::nqn::Nqn;

/// A type that is a field of a structure.
pub(crate) trait Field: Sized {
    /// Reads the field at `at`.
    fn get(from: &[u8], at: usize) -> Self;
    /// Writes the field at `at`.
    fn put(&self, to: &mut [u8], at: usize);
}

impl<const N: usize> Field for [u8; N] {
    #[inline]
    fn get(from: &[u8], at: usize) -> Self {
        let mut out = [0; N];
        out.copy_from_slice(&from[at..at + N]);
        out
    }

    #[inline]
    fn put(&self, to: &mut [u8], at: usize) {
        to[at..at + N].copy_from_slice(self);
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Field for $int {
            #[inline]
            fn get(from: &[u8], at: usize) -> Self {
                Self::from_le_bytes(Field::get(from, at))
            }

            #[inline]
            fn put(&self, to: &mut [u8], at: usize) {
                self.to_le_bytes().put(to, at);
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128);

/// A 256-byte name; `None` is a field that holds none, all zero when written.
impl Field for Option<Nqn> {
    fn get(from: &[u8], at: usize) -> Self {
        Nqn::from_field(&from[at..at + Nqn::FIELD_LEN]).ok()
    }

    fn put(&self, to: &mut [u8], at: usize) {
        self.map_or([0; Nqn::FIELD_LEN], |name| name.to_field())
            .put(to, at);
    }
}

/// Declares a structure of the specification by the offsets of its fields: the struct, `LEN`,
/// `encode` (reserved bytes become zero), `decode` (reserved bytes are ignored) and a `Default` of
/// all zeroes.
macro_rules! structure {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident: $len:literal {
            $($(#[$doc:meta])* $field:ident: $type:ty = $at:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        $vis struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;

            /// Writes the structure; reserved bytes become zero.
            pub fn encode(&self, data: &mut [u8; $len]) {
                data.fill(0);
                $($crate::bytes::Field::put(&self.$field, data, $at);)*
            }

            /// Reads the structure; reserved bytes are ignored.
            pub fn decode(data: &[u8; $len]) -> Self {
                Self { $($field: $crate::bytes::Field::get(data, $at),)* }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::decode(&[0; $len])
            }
        }
    };
}

pub(crate) use structure;

/// An ASCII field: `text` and spaces. What is not printable ASCII becomes `?`, what is too long is
/// cut.
pub(crate) fn ascii<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.chars()) {
        *to = if matches!(from, ' '..='~') {
            from as u8
        } else {
            b'?'
        };
    }
    field
}

/// The text of an ASCII field: up to a NUL, without the spaces behind it; `None` if it is not
/// ASCII.
pub(crate) fn text_of(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    let text = core::str::from_utf8(&field[..end]).ok()?;
    text.is_ascii().then(|| text.trim_end_matches(' '))
}
