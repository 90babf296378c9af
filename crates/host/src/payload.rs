//! The payload of a command, and its direction.

use std::ops::Range;

use flashyard_runtime::{Buf, Data, Shared};

/// Where the data of a read go.
#[derive(Debug)]
pub enum ReadInto {
    /// Into this buffer, from its beginning; its length is the length of the transfer.
    Buf(Buf),
    /// Nowhere: this many bytes are received, checked and dropped (load generators).
    Discard(usize),
}

impl ReadInto {
    /// Bytes wanted.
    pub fn len(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.len(),
            Self::Discard(len) => *len,
        }
    }

    /// Whether no bytes are wanted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer, if there is one.
    pub fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Buf(buf) => Some(buf),
            Self::Discard(_) => None,
        }
    }
}

/// What a command moves.
#[derive(Debug, Default)]
pub enum Payload {
    /// Nothing.
    #[default]
    None,
    /// Data from the controller.
    In(ReadInto),
    /// Data to the controller.
    Out(Data),
    /// Data to the controller that others keep, too: to send them again if need be.
    Shared(Shared),
}

impl Payload {
    /// Bytes to or from the controller.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::In(into) => into.len(),
            Self::Out(data) => data.len(),
            Self::Shared(data) => data.len(),
        }
    }

    /// Whether nothing is moved.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it goes to the controller.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self, Self::Out(_) | Self::Shared(_))
    }

    /// Takes the outgoing data from `part.start` on, up to `part.end`; what is left stays. The last
    /// part takes the data themselves.
    pub(crate) fn take_part(&mut self, part: Range<usize>) -> Self {
        if let Self::Out(Data::Buf(_)) = self
            && part != (0..self.len())
            && let Self::Out(Data::Buf(buf)) = std::mem::take(self)
        {
            *self = Self::Shared(buf.into());
        }
        match self {
            Self::Out(Data::Zeroes(_)) => Self::Out(Data::Zeroes(part.len())),
            Self::Shared(data) => Self::Shared(data.slice(part)),
            other => std::mem::take(other),
        }
    }
}

impl From<Data> for Payload {
    fn from(data: Data) -> Self {
        Self::Out(data)
    }
}

impl From<Shared> for Payload {
    fn from(data: Shared) -> Self {
        Self::Shared(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_go_in_parts_without_copies() {
        let mut buf = Buf::take(100).expect("memory");
        buf.iter_mut().zip(0..).for_each(|(byte, at)| *byte = at);
        let mut payload = Payload::Out(Data::Buf(buf));
        let Payload::Shared(first) = payload.take_part(0..40) else {
            panic!("a part is shared")
        };
        assert_eq!(*first, *(0..40).collect::<Vec<u8>>());
        let Payload::Shared(last) = payload.take_part(40..100) else {
            panic!("a part is shared")
        };
        assert_eq!(*last, *(40..100).collect::<Vec<u8>>());
        let mut part_of = Payload::Shared(last.slice(10..20));
        assert!(matches!(part_of.take_part(2..5), Payload::Shared(data) if *data == [52, 53, 54]));
        let mut whole = Payload::Out(Data::Buf(Buf::take(100).expect("memory")));
        assert!(
            matches!(whole.take_part(0..100), Payload::Out(Data::Buf(_))),
            "is handed over"
        );
        assert!(whole.is_empty());
        let mut zeroes = Payload::Out(Data::Zeroes(100));
        assert!(matches!(
            zeroes.take_part(7..9),
            Payload::Out(Data::Zeroes(2))
        ));
    }
}
