//! Every form in which PRPs may describe data, and every one in which they may not.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use flashyard_nvme::Status;
use flashyard_time::Rng;

use crate::pcie::prp::{Segment, walk};

const OFFSET: Status = Status::PRP_OFFSET_INVALID.with_dnr();
const UNMAPPED: Status = Status::DATA_TRANSFER_ERROR;

/// Addresses and lengths, or why there are none.
type Found = Result<Vec<(u64, u32)>, Status>;

/// Memory of 8 bytes at each address; there is none elsewhere.
#[derive(Default)]
struct Memory(BTreeMap<u64, u64>);

impl Memory {
    fn put(&mut self, address: u64, entries: impl IntoIterator<Item = u64>) {
        for (number, entry) in entries.into_iter().enumerate() {
            self.0.insert(address + number as u64 * 8, entry);
        }
    }

    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Status> {
        for (number, to) in to.chunks_exact_mut(8).enumerate() {
            let at = address.wrapping_add(number as u64 * 8);
            let entry = self.0.get(&at).ok_or(UNMAPPED)?;
            to.copy_from_slice(&entry.to_le_bytes());
        }
        Ok(())
    }

    fn walk(&self, prps: (u64, u64), bytes: u32) -> Found {
        let mut segments = vec![Segment {
            address: 1,
            bytes: 1,
        }];
        walk(prps, bytes, &mut segments, |address, to| {
            self.read(address, to)
        })?;
        let pair = |segment: &Segment| (segment.address, segment.bytes);
        Ok(segments.iter().map(pair).collect())
    }
}

#[test]
fn up_to_two_pages_need_no_list() {
    let memory = Memory::default();
    let table: [((u64, u64), u32, Found); 12] = [
        ((0, 0), 0, Ok(vec![])),
        ((0x1000, 0xdead), 512, Ok(vec![(0x1000, 512)])),
        ((0x1000, 0xdead), 4096, Ok(vec![(0x1000, 4096)])),
        ((0x1ffc, 0xdead), 4, Ok(vec![(0x1ffc, 4)])),
        (
            (0x1e00, 0x5000),
            1024,
            Ok(vec![(0x1e00, 512), (0x5000, 512)]),
        ),
        (
            (0x1000, 0x5000),
            8192,
            Ok(vec![(0x1000, 4096), (0x5000, 4096)]),
        ),
        (
            (0x1ffc, 0x5000),
            4100,
            Ok(vec![(0x1ffc, 4), (0x5000, 4096)]),
        ),
        ((0x1002, 0), 512, Err(OFFSET)),
        ((0x1001, 0), 512, Err(OFFSET)),
        ((0x1000, 0x5004), 8192, Err(OFFSET)),
        ((0x1e00, 0x5e00), 1024, Err(OFFSET)),
        (
            (u64::MAX - 4095, 0),
            4096,
            Ok(vec![(u64::MAX - 4095, 4096)]),
        ),
    ];
    for ((prp1, prp2), bytes, expected) in table {
        assert_eq!(
            memory.walk((prp1, prp2), bytes),
            expected,
            "{prp1:#x} {prp2:#x} {bytes}"
        );
    }
}

#[test]
fn a_list_may_begin_within_its_page_and_is_read_only_as_far_as_needed() {
    let mut memory = Memory::default();
    memory.put(0x8010, [0x2_0000, 0x3_0000]);
    let expected = vec![(0x1e00, 512), (0x2_0000, 4096), (0x3_0000, 100)];
    assert_eq!(
        memory.walk((0x1e00, 0x8010), 512 + 4096 + 100),
        Ok(expected)
    );
    assert_eq!(memory.walk((0x1e00, 0x8010), 512 + 3 * 4096), Err(UNMAPPED));
    assert_eq!(memory.walk((0x1e00, 0x8014), 512 + 4096 + 100), Err(OFFSET));
    memory.put(0x8010, [0x2_0000, 0x3_0008]);
    assert_eq!(memory.walk((0x1e00, 0x8010), 512 + 4096 + 100), Err(OFFSET));
}

#[test]
fn the_last_slot_of_a_page_is_data_if_it_is_the_last_and_a_link_otherwise() {
    let mut memory = Memory::default();
    let pages = |from: u64, count: u64| (from..from + count).map(|page| page << 16);
    // Two slots left in the page of the list: two pages are data, three need a link.
    memory.put(0x8ff0, [1 << 16, 2 << 16]);
    let two = memory.walk((0, 0x8ff0), 3 * 4096).expect("no link needed");
    assert_eq!(two, [(0, 4096), (1 << 16, 4096), (2 << 16, 4096)]);
    memory.put(0x8ff0, [1 << 16, 0xa000]);
    memory.put(0xa000, pages(2, 2));
    let three = memory.walk((0, 0x8ff0), 4 * 4096).expect("one link");
    assert_eq!(
        three[1..],
        [(1 << 16, 4096), (2 << 16, 4096), (3 << 16, 4096)]
    );
    memory.put(0x8ff8, [0xa008]);
    assert_eq!(
        memory.walk((0, 0x8ff0), 4 * 4096),
        Err(OFFSET),
        "a link within a page"
    );
    // Only a link in the first page: no page of data there at all.
    memory.put(0x8ff8, [0xa000]);
    let all = memory.walk((0, 0x8ff8), 3 * 4096).expect("one link");
    assert_eq!(all[1..], [(2 << 16, 4096), (3 << 16, 4096)]);
}

#[test]
fn lists_that_are_chained_over_several_pages_give_all_pages_in_order() {
    let mut memory = Memory::default();
    let mut entry = 1..;
    for list in 0..3u64 {
        let at = 0x10_0000 + list * 4096;
        let pages = entry.by_ref().take(511).map(|page| page << 12);
        memory.put(at, pages);
        memory.put(at + 4088, [at + 4096]);
    }
    let bytes = 1 + 511 + 511 + 500;
    let found = memory
        .walk((0, 0x10_0000), bytes * 4096)
        .expect("three lists");
    let expected: Vec<_> = (0..u64::from(bytes))
        .map(|page| (page << 12, 4096))
        .collect();
    assert_eq!(found, expected);
}

/// A list that is chained with itself ends with the data.
#[test]
fn a_circle_of_lists_ends() {
    let mut memory = Memory::default();
    memory.put(0x1000, [0x1000; 512]);
    let found = memory.walk((0, 0x1000), 2000 * 4096).expect("it ends");
    assert_eq!(found.len(), 2000);
}

#[test]
fn whatever_is_read_the_data_are_as_long_as_they_have_to_be() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let bytes = rng.below(1 << 20) as u32;
        let prps = (rng.next_u64() & !3, rng.next_u64() & !7);
        let mut segments = Vec::new();
        let aligned = rng.chance(3, 4);
        let read = |_, to: &mut [u8]| {
            rng.fill_bytes(to);
            if aligned {
                for entry in to.chunks_exact_mut(8) {
                    entry[0] = 0;
                    entry[1] &= 0xf0;
                }
            }
            Ok(())
        };
        if walk(prps, bytes, &mut segments, read).is_err() {
            continue;
        }
        assert_eq!(
            segments.iter().map(|segment| segment.bytes).sum::<u32>(),
            bytes
        );
        for segment in segments {
            let end = segment.address % 4096 + u64::from(segment.bytes);
            assert!(segment.bytes > 0 && end <= 4096, "{segment:?}");
        }
    }
}
