//! Arrays with parity: rows are written whole and read in any part, also without the members that
//! parity bears the loss of; what one cannot read or tells wrong is written anew; members are
//! replaced, come back old, and are given in any order.

mod arrays;

use std::rc::Rc;

use arrays::{ARRAY, always, in_world, memories, named, new, open, open_degraded};
use flashyard_block::array::{Array, ArrayError, Layout, MemberState, Options};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn};
use flashyard_block::{Copies, Device, DeviceExt, IoError, SharedDevice, Tag};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_testbed::{flush, read, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Superblocks, map, what all have alike, and four regions of rows.
const MEMBER: u64 = 11 * MIB;

async fn make(rt: &Rt, devices: &[SharedDevice], parity: usize) -> Array {
    let layout = Layout {
        copies: devices.len(),
        parity,
        safe_read: false,
    };
    let array = Array::create(rt, new(devices), ARRAY, layout, Options::default(), false).await;
    array.expect("devices that hold nothing")
}

/// Where rows begin, and blocks of a row.
fn rows(array: &Array) -> (u64, u64) {
    let rows = array.rows().expect("it has parity");
    (rows.from / BLOCK as u64, rows.bytes / BLOCK as u64)
}

/// The content of a block in some life.
fn content(lba: u64, life: u8) -> [u8; 8] {
    (lba << 8 | u64::from(life)).to_le_bytes()
}

async fn write_rows(array: &Array, row: u64, count: u64, life: u8) -> Result<(), IoError> {
    let (first, length) = rows(array);
    let lba = first + row * length;
    let mut buf = Buf::take((count * length) as usize * BLOCK).expect("memory");
    for (lba, block) in (lba..).zip(buf.chunks_mut(BLOCK)) {
        for word in block.chunks_mut(8) {
            word.copy_from_slice(&content(lba, life));
        }
    }
    array.write(Tag::default(), lba, buf, false).await
}

/// Whether blocks hold what was written in a life.
async fn check(array: &Array, lba: u64, blocks: u64, life: u8) {
    let bytes = read(array, lba, blocks as usize * BLOCK).await;
    let bytes = bytes.expect("it can be read");
    for (lba, block) in (lba..).zip(bytes.chunks(BLOCK)) {
        let whole = block.chunks(8).all(|word| word == content(lba, life));
        assert!(whole, "block {lba} holds {:?}", &block[..8]);
    }
}

/// All rows are written.
async fn fill(array: &Array, life: u8) {
    let (first, length) = rows(array);
    let count = (array.info().blocks - first) / length;
    for row in (0..count).step_by(32) {
        let rows = 32.min(count - row);
        write_rows(array, row, rows, life).await.expect("it works");
    }
}

async fn check_all(array: &Array, life: u8) {
    let first = rows(array).0;
    for lba in (first..array.info().blocks).step_by(64) {
        check(array, lba, 64.min(array.info().blocks - lba), life).await;
    }
}

async fn idle(rt: &Rt, array: &Array) {
    for _ in 0..600 {
        let status = array.status();
        if status.rebuild.is_none() && !status.scrub.running {
            return;
        }
        rt.sleep(Duration::from_ms(100)).await;
    }
    panic!("{:?}", array.status());
}

const SHAPES: [(usize, usize); 4] = [(3, 1), (5, 1), (4, 2), (6, 2)];

#[test]
fn any_part_is_read_as_it_was_written_without_any_members_that_parity_bears() {
    in_world(async |rt: Rt| {
        for (columns, parity) in SHAPES {
            let devices = memories(columns, MEMBER);
            let array = make(&rt, &devices, parity).await;
            let (first, length) = rows(&array);
            assert_eq!(length as usize, columns - parity);
            write(&array, 3, BLOCK, 7).await.expect("in place");
            fill(&array, 1).await;
            check_all(&array, 1).await;
            let mut rng = Rng::new(columns as u64);
            for _ in 0..40 {
                let lba = first + rng.below(array.info().blocks - first);
                let blocks = (array.info().blocks - lba).min(1 + rng.below(70));
                check(&array, lba, blocks, 1).await;
            }
            flush(&array).await.expect("it works");
            array.close().await;
            drop(array);
            for lost in 0..columns {
                let others = (0..columns)
                    .filter(|at| *at != lost && (parity == 1 || *at != (lost + 1) % columns));
                let mut left: Vec<_> = others
                    .map(|at| named(&format!("m{at}"), &devices[at]))
                    .collect();
                left.reverse();
                let opened = Array::open(&rt, left, None, Options::default(), true).await;
                let array = opened.expect("enough are there");
                assert!(array.status().is_degraded());
                check_all(&array, 1).await;
                assert_eq!(read(&array, 3, BLOCK).await.map(|it| it[0]), Ok(7));
                // Left as it was: what each says of the others would be old.
                drop(array);
                let all = open_degraded(&rt, &devices).await.expect("all are there");
                idle(&rt, &all).await;
                assert!(!all.status().is_degraded());
                check_all(&all, 1).await;
                all.close().await;
            }
        }
    });
}

/// Sets are added, of members of another size. Rows follow on each other, and each set bears by
/// itself what one bears: members that are lost, that come back old, and a spare.
#[test]
fn an_array_with_parity_grows_by_sets() {
    for (columns, parity) in SHAPES {
        in_world(async move |rt: Rt| {
            let first = memories(columns, MEMBER);
            let more = memories(2 * columns, MEMBER + 3 * MIB);
            let array = make(&rt, &first, parity).await;
            let (before, (start, length)) = (array.info().blocks, rows(&array));
            fill(&array, 1).await;
            let all: Vec<SharedDevice> = first.iter().chain(&more).cloned().collect();
            let added = array.add(new(&all)[columns..].to_vec(), false).await;
            added.expect("as many as two sets");
            let data = (columns - parity) as u64;
            assert_eq!(array.info().blocks, before + 2 * 11 * 256 * data);
            assert_eq!(rows(&array), (start, length));
            fill(&array, 2).await;
            check_all(&array, 2).await;
            // Across the end of the first set.
            check(&array, before - 5, 10, 2).await;
            array.close().await;
            drop(array);

            // As many of each set are away as it bears, and it is opened in another order.
            let mut left: Vec<_> = new(&all);
            left.reverse();
            left.retain(|it| {
                let at: usize = it.name[1..].parse().expect("a number");
                at % columns >= parity
            });
            let opened = Array::open(&rt, left, None, Options::default(), true).await;
            let array = opened.expect("enough of each are there");
            check_all(&array, 2).await;
            fill(&array, 3).await;
            array.close().await;
            drop(array);
            let array = open(&rt, &all).await.expect("all are there");
            idle(&rt, &array).await;
            assert!(!array.status().is_degraded(), "{:?}", array.status());
            check_all(&array, 3).await;
            array.scrub();
            idle(&rt, &array).await;
            let healed: u64 = array
                .status()
                .members
                .iter()
                .map(|it| it.counts.healed)
                .sum();
            assert_eq!(healed, 0, "what was rebuilt agrees");
            // A spare takes the place of one of the last set.
            let spare = named("s", &memories(1, MEMBER + 3 * MIB)[0]);
            let added = array.add_spares(vec![spare.clone()], false).await;
            added.expect("it is large enough");
            array.close().await;
            drop(array);
            let mut left = new(&all);
            left.pop();
            left.push(spare);
            let opened = Array::open(&rt, left, None, Options::default(), true).await;
            let array = opened.expect("parity bears one");
            idle(&rt, &array).await;
            assert!(!array.status().is_degraded(), "{:?}", array.status());
            check_all(&array, 3).await;
            array.close().await;
        });
    }
}

/// A device that takes no writes is not added; the others are free again, and the array is as it
/// was.
#[test]
fn a_set_with_a_device_that_fails_is_not_added() {
    in_world(async |rt: Rt| {
        let devices = memories(3, MEMBER);
        let array = make(&rt, &devices, 1).await;
        fill(&array, 1).await;
        let before = array.info().blocks;
        let more = memories(3, MEMBER);
        let layer = Rc::new(FaultDevice::new(&rt, more[1].clone(), 1, Vec::new()));
        let mut all = more.clone();
        all[1] = layer.clone();
        let named: Vec<_> = (0..3)
            .map(|at| named(&format!("n{at}"), &all[at]))
            .collect();
        // Its region map is written, and no superblock.
        let superblock = always(FaultKind::Error, FaultOn::Writes).within(0..512);
        layer.set(vec![superblock]);
        let added = array.add(named.clone(), false).await;
        let expected = ArrayError::Device("n1".into(), "writing the superblock of", IoError::Write);
        assert_eq!(added, Err(expected));
        assert_eq!(array.info().blocks, before);
        assert_eq!(array.status().members.len(), 3, "{:?}", array.status());
        layer.set(Vec::new());
        array.add(named, false).await.expect("all hold nothing");
        assert!(!array.status().is_degraded());
        fill(&array, 2).await;
        check_all(&array, 2).await;
        array.close().await;
    });
}

#[test]
fn what_is_not_whole_rows_is_refused_and_what_cannot_have_parity_too() {
    in_world(async |rt: Rt| {
        let devices = memories(5, MEMBER);
        let array = make(&rt, &devices, 1).await;
        let (first, length) = rows(&array);
        for (lba, blocks) in [(first, 1), (first + 1, length), (first, length + 1)] {
            let refused = write(&array, lba, blocks as usize * BLOCK, 1).await;
            assert_eq!(refused, Err(IoError::Unsupported), "{lba} {blocks}");
        }
        let across = write(&array, first - 1, BLOCK + length as usize * BLOCK, 1).await;
        assert_eq!(across, Ok(()), "a part in place and a row");
        for count in [1, 4, 6] {
            let added = array.add(new(&memories(count, MEMBER)), false).await;
            assert_eq!(added, Err(ArrayError::Groups(count, 5)));
        }
        for (count, parity, safe_read) in
            [(2, 1, false), (3, 2, false), (17, 1, false), (4, 1, true)]
        {
            let layout = Layout {
                copies: count,
                parity,
                safe_read,
            };
            let devices = memories(count, MEMBER);
            let made = Array::create(&rt, new(&devices), ARRAY, layout, Options::default(), false);
            let error = made.await.err();
            let expected = match safe_read {
                true => ArrayError::SafeRead,
                false => ArrayError::Columns(count, parity),
            };
            assert_eq!(error, Some(expected));
        }
    });
}

#[test]
fn zeroes_of_whole_rows_are_read_as_such_also_when_a_member_is_lost() {
    in_world(async |rt: Rt| {
        let devices = memories(4, MEMBER);
        let array = make(&rt, &devices, 1).await;
        let (first, length) = rows(&array);
        fill(&array, 1).await;
        let zeroed = array.deallocate(Tag::default(), first, 600 * length).await;
        assert_eq!(zeroed, Ok(()));
        array.close().await;
        drop(array);
        let array = open(&rt, &devices[1..]).await.expect("one may be missing");
        let bytes = read(&array, first, 600 * length as usize * BLOCK / 8).await;
        assert!(bytes.expect("it can be read").iter().all(|byte| *byte == 0));
        check(&array, first + 600 * length, 50, 1).await;
    });
}

#[test]
fn a_member_that_fails_is_missed_by_nothing_and_a_spare_or_another_takes_its_place() {
    in_world(async |rt: Rt| {
        for (columns, parity) in SHAPES {
            let devices = memories(columns, MEMBER);
            let fault = Rc::new(FaultDevice::new(&rt, devices[1].clone(), 1, vec![]));
            let mut members = devices.clone();
            members[1] = fault.clone();
            let array = make(&rt, &members, parity).await;
            fill(&array, 1).await;
            fault.set(vec![always(FaultKind::Error, FaultOn::Writes)]);
            fill(&array, 2).await;
            let status = array.status();
            assert!(status.is_degraded(), "{status:?}");
            assert_eq!(status.members[1].state, MemberState::Failed);
            check_all(&array, 2).await;
            let spare = memories(1, MEMBER);
            let added = array
                .add_spares(vec![named("spare", &spare[0])], false)
                .await;
            added.expect("it is large enough");
            // Written while it is rebuilt.
            write_rows(&array, 3, 5, 3).await.expect("it works");
            idle(&rt, &array).await;
            assert!(!array.status().is_degraded(), "{:?}", array.status());
            let (first, length) = rows(&array);
            check(&array, first + 3 * length, 5 * length, 3).await;
            check(&array, first + 8 * length, 500, 2).await;
            // Another one that works is replaced while it is used.
            let other = memories(1, MEMBER);
            let replaced = array.replace("m0", named("other", &other[0]), false).await;
            replaced.expect("it is large enough");
            let second = array
                .replace("m2", named("more", &memories(1, MEMBER)[0]), false)
                .await;
            assert!(
                matches!(second, Err(ArrayError::Rebuilding(_))),
                "{second:?}"
            );
            idle(&rt, &array).await;
            let names: Vec<String> = array
                .status()
                .members
                .into_iter()
                .map(|it| it.name)
                .collect();
            assert!(
                names.contains(&"other".into()) && !names.contains(&"m0".into()),
                "{names:?}"
            );
            check(&array, first + 8 * length, 500, 2).await;
            let needed = array.remove("other").await;
            assert_eq!(needed, Err(ArrayError::Needed("other".into())));
            // What was rebuilt is right: without the two that were never replaced.
            array.close().await;
            drop(array);
            let mut left = vec![named("spare", &spare[0]), named("other", &other[0])];
            let rest = (2..columns).take(columns - parity - 2);
            left.extend(rest.map(|at| named(&format!("m{at}"), &devices[at])));
            let array = Array::open(&rt, left, None, Options::default(), true).await;
            let array = array.expect("enough are there");
            check(&array, first + 3 * length, 5 * length, 3).await;
            check(&array, first + 8 * length, 500, 2).await;
        }
    });
}

#[test]
fn more_lost_members_than_parity_bears_are_refused_and_fail_what_needs_them() {
    in_world(async |rt: Rt| {
        for (columns, parity) in SHAPES {
            let devices = memories(columns, MEMBER);
            let faults: Vec<_> = devices
                .iter()
                .map(|it| Rc::new(FaultDevice::new(&rt, it.clone(), 1, vec![])))
                .collect();
            let members: Vec<SharedDevice> = faults.iter().map(|it| it.clone() as _).collect();
            let array = make(&rt, &members, parity).await;
            fill(&array, 1).await;
            for fault in &faults[..=parity] {
                fault.set(vec![always(FaultKind::Error, FaultOn::Writes)]);
            }
            let written = write_rows(&array, 0, 2, 2).await;
            assert!(written.is_err());
            let failed = array
                .status()
                .members
                .iter()
                .filter(|it| it.state == MemberState::Failed)
                .count();
            assert!(failed <= parity, "{failed} of {columns}");
            for fault in &faults {
                fault.set(vec![]);
            }
            let (first, length) = rows(&array);
            check(&array, first + 2 * length, 300, 1).await;
            drop(array);
            let few = open_degraded(&rt, &devices[parity + 1..]).await.err();
            assert!(matches!(few, Some(ArrayError::NoCopy(_))), "{few:?}");
        }
    });
}

#[test]
fn what_a_member_cannot_read_or_tells_wrong_is_computed_and_written_anew() {
    in_world(async |rt: Rt| {
        for (columns, parity) in SHAPES {
            let devices = memories(columns, MEMBER);
            let fault = Rc::new(FaultDevice::new(&rt, devices[2].clone(), 1, vec![]));
            let mut members = devices.clone();
            members[2] = fault.clone();
            let array = make(&rt, &members, parity).await;
            fill(&array, 1).await;
            let first = rows(&array).0;
            fault.set(vec![always(FaultKind::Error, FaultOn::Reads)]);
            check_all(&array, 1).await;
            fault.set(vec![]);
            let counts = array.status().members[2].counts;
            assert!(counts.read_errors > 0 && counts.healed > 0, "{counts:?}");
            // A block that is wrong on the medium: who knows what it should be finds it.
            let blocks = devices[2].info().blocks;
            for lba in blocks - 700..blocks - 600 {
                write(&*devices[2], lba, BLOCK, 0xee).await.expect("memory");
            }
            let mut healed = 0;
            for lba in first..array.info().blocks {
                let stored = read(&array, lba, BLOCK).await.expect("it can be read");
                if stored[..8] == content(lba, 1) {
                    continue;
                }
                let ways = array.count(lba);
                assert!(array.stored(lba) == 1 && ways > 1);
                for way in 1..ways {
                    let into = Buf::take(BLOCK).expect("memory");
                    let told = Copies::read(&array, Tag::default(), way, lba, into).await;
                    let Ok(Data::Buf(told)) = told.map(|done| done.data) else {
                        panic!("it is computed");
                    };
                    assert_eq!(told[..8], content(lba, 1), "way {way}");
                }
                let mut data = Buf::take(BLOCK).expect("memory");
                data.fill(9);
                assert_eq!(
                    array.heal(Tag::default(), lba, data).await,
                    Ok(0),
                    "nobody tells that"
                );
                let mut data = Buf::take(BLOCK).expect("memory");
                for word in data.chunks_mut(8) {
                    word.copy_from_slice(&content(lba, 1));
                }
                assert_eq!(array.heal(Tag::default(), lba, data).await, Ok(1));
                healed += 1;
            }
            let wrong = array.status().members[2].counts.wrong_reads;
            assert!(healed > 20 && wrong == healed, "{healed} of {wrong}");
            check_all(&array, 1).await;
            // What is left is wrong parity: a scrub finds it, and nothing after that. P alone does
            // not say that it was wrong.
            array.scrub();
            idle(&rt, &array).await;
            let after = array.status();
            let wrong = if parity == 1 { healed } else { 100 };
            assert_eq!(after.members[2].counts.wrong_reads, wrong, "{after:?}");
            let copied = after
                .members
                .iter()
                .map(|it| it.counts.healed)
                .collect::<Vec<_>>();
            array.scrub();
            idle(&rt, &array).await;
            let again = array
                .status()
                .members
                .iter()
                .map(|it| it.counts.healed)
                .collect::<Vec<_>>();
            assert_eq!(copied, again);
            let lost = (0, columns - 1);
            array.close().await;
            drop(array);
            let left = (0..columns).filter(|at| *at != lost.0 && (parity == 1 || *at != lost.1));
            let left = left.map(|at| named(&format!("m{at}"), &devices[at]));
            let array = Array::open(&rt, left.collect(), None, Options::default(), true).await;
            check_all(&array.expect("enough are there"), 1).await;
        }
    });
}

#[test]
fn double_parity_finds_a_column_that_is_wrong_by_itself() {
    in_world(async |rt: Rt| {
        let devices = memories(6, MEMBER);
        let array = make(&rt, &devices, 2).await;
        fill(&array, 1).await;
        let blocks = devices[3].info().blocks;
        for lba in blocks - 300..blocks - 200 {
            write(&*devices[3], lba, BLOCK, 0x11).await.expect("memory");
        }
        array.scrub();
        idle(&rt, &array).await;
        let counts = array.status().members[3].counts;
        assert_eq!((counts.wrong_reads, counts.healed), (100, 100));
        check_all(&array, 1).await;
    });
}

#[test]
fn a_member_that_was_missing_gets_what_it_missed_and_others_that_are_none_are_told_apart() {
    in_world(async |rt: Rt| {
        let devices = memories(4, MEMBER);
        let array = make(&rt, &devices, 1).await;
        fill(&array, 1).await;
        array.close().await;
        drop(array);
        let array = open(&rt, &devices[..3]).await.expect("one may be missing");
        write_rows(&array, 10, 4, 2).await.expect("it works");
        array.close().await;
        drop(array);
        // It comes back, and another one is missing: too few have everything.
        let old = open_degraded(&rt, &devices[1..]).await.err();
        assert!(matches!(old, Some(ArrayError::NoCopy(_))), "{old:?}");
        let mut shuffled = devices.clone();
        shuffled.rotate_left(3);
        let array = open(&rt, &shuffled).await.expect("all are there");
        idle(&rt, &array).await;
        let copied: u64 = array
            .status()
            .members
            .iter()
            .map(|it| it.counts.copied_bytes)
            .sum();
        assert!(copied < 4 * MIB, "only what it missed: {copied}");
        array.close().await;
        drop(array);
        let array = open(&rt, &devices[1..]).await.expect("it has everything");
        let (first, length) = rows(&array);
        check(&array, first + 10 * length, 4 * length, 2).await;
        check(&array, first + 14 * length, 500, 1).await;
        drop(array);
        // A member of another array, and one that is too small.
        let mut foreign = devices.clone();
        let others = memories(3, MEMBER);
        let layout = Layout {
            copies: 3,
            parity: 1,
            safe_read: false,
        };
        let other = Array::create(
            &rt,
            new(&others),
            [0xbb; 16],
            layout,
            Options::default(),
            false,
        );
        drop(other.await.expect("devices that hold nothing"));
        foreign[0] = others[0].clone();
        let error = open(&rt, &foreign).await.err();
        assert!(matches!(error, Some(ArrayError::Foreign(..))), "{error:?}");
        let array = open(&rt, &devices).await.expect("all are there");
        idle(&rt, &array).await;
        let small = memories(1, MEMBER - MIB);
        let error = array.replace("m1", named("small", &small[0]), false).await;
        assert!(matches!(error, Err(ArrayError::TooSmall(..))), "{error:?}");
    });
}

#[test]
fn members_with_blocks_of_512_bytes_have_rows_of_the_same_size() {
    in_world(async |rt: Rt| {
        let device = |_| {
            Rc::new(flashyard_block::MemoryDevice::new(512, MEMBER).expect("a good size"))
                as SharedDevice
        };
        let devices: Vec<SharedDevice> = (0..3).map(device).collect();
        let array = make(&rt, &devices, 1).await;
        let rows = array.rows().expect("it has parity");
        assert_eq!(rows.bytes, 8192);
        let lba = rows.from / 512;
        let mut buf = Buf::take(8192).expect("memory");
        for (at, byte) in buf.iter_mut().enumerate() {
            *byte = (at / 512) as u8;
        }
        array
            .write(Tag::default(), lba, buf, true)
            .await
            .expect("whole rows");
        array.close().await;
        drop(array);
        let array = open(&rt, &devices[1..]).await.expect("one may be missing");
        for at in 0..16u8 {
            let bytes = read(&array, lba + u64::from(at), 512)
                .await
                .expect("it can be read");
            assert!(bytes.iter().all(|byte| *byte == at));
        }
    });
}
