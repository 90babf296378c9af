//! Any bytes as what a mapped pool has on its device. Used by the tests here and by the fuzz
//! target.

use flashyard_logstore::format::batch::{Header, Place};
use flashyard_logstore::format::fields::{get_u16, get_u32};
use flashyard_logstore::format::footer::Trailer;
use flashyard_logstore::format::page::{FANOUT, Head, PageKind, check_leaf, decode_inner};
use flashyard_logstore::format::rows::{PageRef, Row, SegmentRow, VolumeRow};
use flashyard_logstore::format::superblock::Superblock;
use flashyard_logstore::format::{BLOCK, Block};
use flashyard_logstore::{Action, IoOp, Options, SUPERBLOCK, Secret, State, Store};

/// Blocks of the device that superblocks are opened on.
const DEVICE: u64 = 1 << 14;
/// Steps that an opening may take.
const STEPS: u32 = 100_000;

/// The bytes as a superblock and as what is read from its pool, and as a block of every kind; with
/// checksums that are right.
pub(crate) fn logstore(bytes: &[u8]) {
    let mut superblock = bytes.to_vec();
    superblock.resize(SUPERBLOCK.max(bytes.len()), 0);
    let rest = superblock.split_off(SUPERBLOCK);
    let sum = Secret::NONE.checksum(&superblock[8..]);
    superblock[..8].copy_from_slice(&sum.to_le_bytes());
    if let Ok(decoded) = Superblock::decode(&superblock, 0) {
        assert_eq!(Superblock::decode(&decoded.encode(0), 0), Ok(decoded));
        open(&superblock, &rest);
    }
    for block in bytes.chunks(BLOCK) {
        let mut whole = [0; BLOCK];
        whole[..block.len()].copy_from_slice(block);
        decode(whole);
    }
}

/// Opens a pool of which every read gives these bytes, or zeroes.
fn open(superblock: &[u8], rest: &[u8]) {
    let options = Options {
        records: 256,
        leaves: 64,
        ..Options::default()
    };
    let opened = Store::open([Some(superblock), None, None, None], DEVICE, options);
    let Ok(mut store) = opened else {
        return;
    };
    let mut steps = 0;
    while store.state() == State::Opening && steps < STEPS {
        let Some(action) = store.poll() else {
            break;
        };
        steps += 1;
        let Action::Submit(tag) = action else {
            continue;
        };
        let io = store.io(tag);
        match io.op {
            IoOp::Read => {
                assert!(
                    io.block + u64::from(io.blocks) <= DEVICE,
                    "a read of nothing"
                );
                let mut read = vec![0; io.blocks as usize * BLOCK];
                let len = read.len().min(rest.len());
                read[..len].copy_from_slice(&rest[..len]);
                store.completed(tag, Ok(&read));
            }
            _ => store.completed(tag, Ok(&[])),
        }
    }
}

/// The block as each kind of block.
fn decode(mut block: Block) {
    let secret = Secret::NONE;
    let place = Place {
        segment: get_u32(&block, 16),
        generation: get_u32(&block, 20),
        block: get_u32(&block, 56),
    };
    let _leaf = check_leaf(&block);
    let head = Head::of_pool(PageKind::Inner, 0, 1);
    let _inner = decode_inner(&head, &block, 1 << 20, &mut [0; FANOUT]);
    for at in 0..15 {
        if let Ok(row) = VolumeRow::get(&block, at) {
            let mut again = [0; BLOCK];
            row.put(&mut again, at);
            assert_eq!(VolumeRow::get(&again, at), Ok(row));
        }
        let _segment = SegmentRow::get(&block, at);
        let _page = PageRef::get(&block, at);
    }
    for (end, items) in [
        (64, true),
        (256 + 32 * usize::from(get_u16(&block, 14)), false),
    ] {
        let Some(summed) = block.get(8..end) else {
            continue;
        };
        let sum = secret.checksum(summed);
        block[..8].copy_from_slice(&sum.to_le_bytes());
        match items {
            true => {
                if let Ok(trailer) = Trailer::decode(secret, &block, place) {
                    let _items = trailer.items(&block);
                }
            }
            false => {
                let mut records = Vec::new();
                let _header = Header::decode(secret, &block, place, 0, &mut records);
            }
        }
    }
}
