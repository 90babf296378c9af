//! What hostile hosts send: commands over valid framing with any meaning, data without an R2T,
//! damaged PDUs and noise. All of it is drawn from a seed.

use flashyard_nvme::command::Fuse;
use flashyard_nvme::tcp::{Digests, H2CData};
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_time::Rng;

/// A command that looks like one, to namespaces from 1 to `namespaces` with blocks of `block_size`
/// bytes: known opcodes and small numbers more often than not.
pub fn command(rng: &mut Rng, namespaces: u32, block_size: u32) -> SubmissionQueueEntry {
    let opcodes = [0, 1, 2, 5, 6, 8, 9, 0x0a, 0x0c, 0x0d, 0x18, 0x7f];
    let opcode = match rng.pick(&opcodes) {
        Some(known) if rng.chance(9, 10) => *known,
        _ => rng.next_u64() as u8,
    };
    let nsid = if rng.chance(4, 5) {
        1 + rng.below(u64::from(namespaces)) as u32
    } else {
        rng.next_u64() as u32
    };
    let mut entry = SubmissionQueueEntry::raw(opcode, nsid).with_cid(rng.below(70) as u16);
    for dword in 10..16 {
        let value = match rng.below(4) {
            0 => rng.next_u64() as u32,
            1 => rng.below(32) as u32,
            _ => 0,
        };
        entry = entry.with_cdw(dword, value);
    }
    let mut raw = entry.sgl().encode();
    let length = if rng.chance(2, 3) {
        block_size * (1 + rng.below(3) as u32)
    } else {
        rng.next_u64() as u32
    };
    raw[8..12].copy_from_slice(&length.to_le_bytes());
    raw[15] = *rng
        .pick(&[0x01, 0x5a, 0x5a, 0x00, 0x40, 0x30])
        .unwrap_or(&0x5a);
    let entry = entry.with_sgl(Sgl::parse(&raw));
    match rng.below(12) {
        0 => entry.with_fuse(Fuse::First),
        1 => entry.with_fuse(Fuse::Second),
        _ => entry,
    }
}

/// The header of some data, which may or may not have been asked for.
pub fn data(rng: &mut Rng) -> H2CData {
    let datal = 1 + rng.below(20_000) as u32;
    H2CData {
        cccid: rng.below(70) as u16,
        ttag: rng.below(5) as u16,
        datao: if rng.chance(1, 2) {
            0
        } else {
            rng.next_u64() as u32
        },
        datal,
        last: rng.chance(1, 2),
    }
}

/// Digests by chance.
pub fn digests(rng: &mut Rng) -> Digests {
    Digests {
        header: rng.chance(1, 2),
        data: rng.chance(1, 2),
    }
}

/// Cuts bytes off, or changes one of them.
pub fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    match rng.below(3) {
        0 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
        1 => {
            let at = rng.below(bytes.len().clamp(1, 24) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = rng.next_u64() as u8;
            }
        }
        _ => {
            let at = rng.below(bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
    }
}

/// Some bytes, at most `most`.
pub fn noise(rng: &mut Rng, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; 1 + rng.below(most) as usize];
    rng.fill_bytes(&mut bytes);
    bytes
}
