//! The MSI-X table and its pending bits, as BAR 4 and BAR 5 show them. The monitor sends the
//! messages, by the eventfds that it gives; so what the table says is only kept for the guest to
//! read, and an interrupt without an eventfd is pending.

use alloc::vec;
use alloc::vec::Vec;

/// Bytes of one vector in the table.
const ENTRY: usize = 16;
/// Bytes of each BAR.
pub const BYTES: usize = 4096;

/// The table and the pending bits of one function.
#[derive(Clone, Debug)]
pub struct Msix {
    table: Vec<u8>,
    pending: [u64; 4],
}

impl Msix {
    /// All masked, none pending; 1 to 256 vectors.
    pub fn new(vectors: u16) -> Self {
        let vectors = usize::from(vectors.clamp(1, 256));
        let mut msix = Self {
            table: vec![0; vectors * ENTRY],
            pending: [0; 4],
        };
        msix.reset();
        msix
    }

    /// As after power-on.
    pub fn reset(&mut self) {
        for entry in self.table.chunks_exact_mut(ENTRY) {
            entry.fill(0);
            // Vector Control: masked.
            entry[12] = 1;
        }
        self.pending = [0; 4];
    }

    /// Vectors there are.
    pub fn vectors(&self) -> u16 {
        (self.table.len() / ENTRY) as u16
    }

    /// Copies a part of BAR 4 to `to`. False if that is not within the BAR.
    pub fn read_table(&self, offset: u64, to: &mut [u8]) -> bool {
        copy(&self.table, offset, to)
    }

    /// Writes a part of BAR 4. False if that is not within the BAR.
    pub fn write_table(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some(start) = within(offset, data.len()) else {
            return false;
        };
        for (byte, value) in self.table.iter_mut().skip(start).zip(data) {
            *byte = *value;
        }
        true
    }

    /// Copies a part of BAR 5 to `to`. False if that is not within the BAR.
    pub fn read_pending(&self, offset: u64, to: &mut [u8]) -> bool {
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.pending) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        copy(&bytes, offset, to)
    }

    /// An interrupt could not be sent.
    pub fn set_pending(&mut self, vector: u16) {
        if vector < self.vectors() {
            self.pending[usize::from(vector / 64)] |= 1 << (vector % 64);
        }
    }

    /// Takes back that an interrupt is pending; whether it was.
    pub fn take_pending(&mut self, vector: u16) -> bool {
        let Some(word) = self.pending.get_mut(usize::from(vector / 64)) else {
            return false;
        };
        let bit = 1 << (vector % 64);
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

fn within(offset: u64, len: usize) -> Option<usize> {
    let start = usize::try_from(offset).ok()?;
    (start.checked_add(len)? <= BYTES).then_some(start)
}

fn copy(from: &[u8], offset: u64, to: &mut [u8]) -> bool {
    let Some(start) = within(offset, to.len()) else {
        return false;
    };
    to.fill(0);
    let rest = from.get(start..).unwrap_or_default();
    let count = rest.len().min(to.len());
    to[..count].copy_from_slice(&rest[..count]);
    true
}
