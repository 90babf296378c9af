//! Arrays: they behave as a device whatever their layout, lose members and get them back.

mod arrays;

use std::rc::Rc;

use arrays::{Moody, always, in_world, memories, new, open, plain};
use flashyard_block::array::{Array, ArrayError, Failure, Layout, MemberState, Options};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn};
use flashyard_block::pool::Pool;
use flashyard_block::{Device, DeviceExt, Io, IoError, SharedDevice, Tag};
use flashyard_testbed::{
    behaves_as_an_array, filled, flush, read, refuses_what_is_not_there, write,
};
use flashyard_time::Duration;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

#[test]
fn an_array_of_any_layout_is_a_device() {
    in_world(async |rt| {
        for (members, copies, safe_read) in [
            (1, 1, false),
            (3, 1, false),
            (2, 2, false),
            (2, 2, true),
            (3, 3, true),
            (4, 2, false),
            (6, 2, true),
        ] {
            let devices = memories(members, 16 * MIB);
            let layout = Layout {
                copies,
                parity: 0,
                safe_read,
            };
            let options = Options::default();
            let array =
                Array::create(&rt, new(&devices), arrays::ARRAY, layout, options, false).await;
            let array = array.expect("blank devices");
            behaves_as_an_array(&array, 7, 300).await;
            refuses_what_is_not_there(&array).await;
            let status = array.status();
            assert!(!status.is_degraded());
            assert_eq!(status.bytes, array.info().blocks * 4096);
            array.close().await;
            let again = open(&rt, &devices).await.expect("all members");
            assert_eq!(again.status().dirty_regions, 0, "it was closed");
            let before = read(&again, 0, BLOCK).await.expect("it is there");
            write(&again, 0, BLOCK, 9).await.expect("it works");
            drop(again);
            let again = open(&rt, &devices).await.expect("all members");
            assert_ne!(read(&again, 0, BLOCK).await.expect("there"), before);
        }
    });
}

#[test]
fn a_mirror_loses_a_member_and_gets_another_one_while_it_is_used() {
    in_world(async |rt| {
        let devices = memories(3, 16 * MIB);
        let broken = Rc::new(FaultDevice::new(&rt, devices[1].clone(), 1, Vec::new()));
        let members: Vec<SharedDevice> = vec![devices[0].clone(), broken.clone()];
        let array = plain(&rt, &members, 2).await;
        let pool = Rc::new(array);
        let pool = Pool::create(&rt, pool.clone(), [7; 16], false)
            .await
            .map(|it| (pool, it));
        let (array, pool) = pool.expect("an array is a device");
        let volume = pool
            .create_volume("a", [1; 16], 4 * MIB)
            .await
            .expect("room");
        write(&*volume, 3, BLOCK, 5).await.expect("both work");
        broken.set(vec![always(FaultKind::Gone, FaultOn::All)]);
        write(&*volume, 4, BLOCK, 6).await.expect("one works");
        let status = array.status();
        assert!(status.is_degraded());
        assert_eq!(status.members[1].state, MemberState::Failed);
        assert_eq!(read(&*volume, 3, BLOCK).await, Ok(vec![5; BLOCK]));
        let spare = arrays::named("m2", &devices[2]);
        array
            .replace("m1", spare, false)
            .await
            .expect("a blank device");
        settle(&rt, &array).await;
        let status = array.status();
        assert!(!status.is_degraded(), "{status:?}");
        assert_eq!(status.members.len(), 2);
        // The new one has all of it.
        array.close().await;
        drop((volume, pool, array));
        let alone = [devices[2].clone()];
        let refused = open(&rt, &alone)
            .await
            .err()
            .expect("the other one may have later data");
        assert!(matches!(refused, ArrayError::MayBeOld(_)), "{refused}");
        let array = arrays::open_degraded(&rt, &alone).await.expect("asked for");
        let pool = Pool::open(&rt, Rc::new(array))
            .await
            .expect("the pool is on both");
        let volume = pool.volume("a").expect("so is the volume");
        assert_eq!(read(&*volume, 3, BLOCK).await, Ok(vec![5; BLOCK]));
        assert_eq!(read(&*volume, 4, BLOCK).await, Ok(vec![6; BLOCK]));
    });
}

/// Waits until nothing is to be copied.
async fn settle(rt: &flashyard_runtime::Rt, array: &Array) {
    for _ in 0..1000 {
        if array.status().rebuild.is_none() {
            return;
        }
        rt.sleep(Duration::from_ms(100)).await;
    }
    panic!("{:?}", array.status());
}

#[test]
fn a_member_that_hangs_is_failed_in_time() {
    in_world(async |rt| {
        let devices = memories(2, 16 * MIB);
        let hung = Rc::new(FaultDevice::new(&rt, devices[1].clone(), 1, Vec::new()));
        let array = plain(&rt, &[devices[0].clone(), hung.clone()], 2).await;
        write(&array, 0, BLOCK, 1).await.expect("both work");
        hung.set(vec![always(FaultKind::Hang, FaultOn::All)]);
        let begun = rt.now();
        write(&array, 0, BLOCK, 2).await.expect("one works");
        let took = rt.now().since(begun);
        let bound = Options::default().hang_after;
        assert!(
            took >= bound.scale(1, 2) && took <= bound.scale(2, 1),
            "{took}"
        );
        for _ in 0..4 {
            assert_eq!(read(&array, 0, BLOCK).await, Ok(vec![2; BLOCK]));
        }
        let begun = rt.now();
        write(&array, 1, BLOCK, 3).await.expect("one works");
        flush(&array).await.expect("one works");
        assert!(rt.now().since(begun) < Duration::from_ms(10));
    });
}

#[test]
fn the_last_copy_is_never_failed() {
    in_world(async |rt| {
        let devices = memories(2, 16 * MIB);
        let faulty: Vec<Rc<FaultDevice>> = devices
            .iter()
            .map(|it| Rc::new(FaultDevice::new(&rt, it.clone(), 1, Vec::new())))
            .collect();
        let members: Vec<SharedDevice> =
            faulty.iter().map(|it| it.clone() as SharedDevice).collect();
        let array = plain(&rt, &members, 2).await;
        write(&array, 0, BLOCK, 1).await.expect("both work");
        for layer in &faulty {
            layer.set(vec![always(FaultKind::Error, FaultOn::Writes)]);
        }
        assert_eq!(write(&array, 0, BLOCK, 2).await, Err(IoError::Write));
        let failed = array
            .status()
            .members
            .iter()
            .filter(|it| it.failure.is_some())
            .count();
        assert_eq!(failed, 0, "both said no: neither has later data");
        for layer in &faulty {
            layer.set(Vec::new());
        }
        let read_now = read(&array, 0, BLOCK).await.expect("they are there");
        for _ in 0..4 {
            assert_eq!(
                read(&array, 0, BLOCK).await.as_ref(),
                Ok(&read_now),
                "one truth"
            );
        }
    });
}

#[test]
fn a_read_that_fails_is_answered_by_another_copy_and_healed() {
    in_world(async |rt| {
        let devices = memories(2, 16 * MIB);
        let bad = Rc::new(FaultDevice::new(&rt, devices[1].clone(), 1, Vec::new()));
        let array = plain(&rt, &[devices[0].clone(), bad.clone()], 2).await;
        write(&array, 0, BLOCK, 1).await.expect("both work");
        bad.set(vec![always(FaultKind::Error, FaultOn::Reads)]);
        for _ in 0..4 {
            assert_eq!(read(&array, 0, BLOCK).await, Ok(vec![1; BLOCK]));
        }
        let counts = array.status().members[1].counts;
        assert!(counts.read_errors >= 1 && counts.healed >= 1, "{counts:?}");
        assert_eq!(array.status().members[1].state, MemberState::Active);
    });
}

#[test]
fn arrays_grow_by_sets_and_have_spares() {
    in_world(async |rt| {
        let devices = memories(6, 16 * MIB);
        let bad = Rc::new(FaultDevice::new(&rt, devices[1].clone(), 1, Vec::new()));
        let array = plain(&rt, &[devices[0].clone(), bad.clone()], 2).await;
        let before = array.info().blocks;
        write(&array, before - 1, BLOCK, 1).await.expect("it works");
        let more = vec![
            arrays::named("m2", &devices[2]),
            arrays::named("m3", &devices[3]),
        ];
        let odd = array.add(more[..1].to_vec(), false).await;
        assert_eq!(odd, Err(ArrayError::Members(1, 2)));
        array.add(more, false).await.expect("two blank devices");
        assert_eq!(array.info().blocks, 2 * before);
        behaves_as_an_array_behind(&array, before).await;
        assert_eq!(read(&array, before - 1, BLOCK).await, Ok(vec![1; BLOCK]));
        array
            .add_spares(vec![arrays::named("m4", &devices[4])], false)
            .await
            .expect("blank");
        bad.set(vec![always(FaultKind::Gone, FaultOn::All)]);
        write(&array, before - 1, BLOCK, 2)
            .await
            .expect("one works");
        settle(&rt, &array).await;
        let status = array.status();
        assert!(!status.is_degraded(), "{status:?}");
        let names: Vec<&str> = status.members.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["m0", "m4", "m2", "m3"]);
        assert_eq!(
            array.remove("m0").await,
            Err(ArrayError::Needed("m0".into()))
        );
        assert_eq!(
            array.remove("m1").await,
            Err(ArrayError::NotAMember("m1".into()))
        );
        array.close().await;
        drop(array);
        let kept = [4, 3, 2, 0].map(|at: usize| devices[at].clone());
        let array = open(&rt, &kept).await.expect("all members");
        assert_eq!(read(&array, before - 1, BLOCK).await, Ok(vec![2; BLOCK]));
        assert!(!array.status().is_degraded());
    });
}

async fn behaves_as_an_array_behind(array: &Array, lba: u64) {
    let tag = Tag::default();
    let data = filled(64 * BLOCK, 7);
    array
        .write(tag, lba - 3, data, true)
        .await
        .expect("it works");
    let all = read(array, lba - 3, 64 * BLOCK).await.expect("it works");
    assert!(all.iter().all(|byte| *byte == 7));
    array
        .write_zeroes(tag, lba - 2, 40, true)
        .await
        .expect("it works");
    let all = read(array, lba - 3, 64 * BLOCK).await.expect("it works");
    let expected = |at: usize| {
        if (1..41).contains(&(at / BLOCK)) {
            0
        } else {
            7
        }
    };
    assert!(
        all.iter()
            .enumerate()
            .all(|(at, byte)| *byte == expected(at))
    );
    write(array, lba - 1, BLOCK, 1).await.expect("it works");
}

#[test]
fn a_plain_member_is_exchanged_while_it_is_used() {
    in_world(async |rt| {
        let devices = memories(3, 16 * MIB);
        let array = plain(&rt, &devices[..2], 1).await;
        behaves_as_an_array(&array, 3, 100).await;
        let before = read(&array, 0, 512 * BLOCK).await.expect("it works");
        array
            .replace("m0", arrays::named("m2", &devices[2]), false)
            .await
            .expect("blank");
        write(&array, 0, BLOCK, 0x77).await.expect("it works");
        settle(&rt, &array).await;
        let names: Vec<String> = array
            .status()
            .members
            .into_iter()
            .map(|it| it.name)
            .collect();
        assert_eq!(names, ["m2", "m1"]);
        array.close().await;
        drop(array);
        let kept = [devices[1].clone(), devices[2].clone()];
        let array = open(&rt, &kept).await.expect("all members");
        let after = read(&array, 0, 512 * BLOCK).await.expect("it works");
        assert!(after[BLOCK..] == before[BLOCK..] && after[..BLOCK] == [0x77; BLOCK]);
    });
}

/// The first I/O after a rest is one of the array's own: it notes that a region is dirty.
#[test]
fn a_member_that_hangs_while_it_is_noted_what_is_written_is_failed_in_time() {
    in_world(async |rt| {
        let devices = memories(2, 16 * MIB);
        let hung = Rc::new(FaultDevice::new(&rt, devices[1].clone(), 1, Vec::new()));
        let array = plain(&rt, &[devices[0].clone(), hung.clone()], 2).await;
        hung.set(vec![always(FaultKind::Hang, FaultOn::All)]);
        let begun = rt.now();
        let written = rt.timeout(Duration::from_secs(60), write(&array, 0, BLOCK, 2));
        assert_eq!(written.await, Some(Ok(())));
        let bound = Options::default().hang_after;
        assert!(rt.now().since(begun) <= bound.scale(3, 1));
        assert_eq!(array.status().members[1].failure, Some(Failure::Hung));
        assert_eq!(read(&array, 0, BLOCK).await, Ok(vec![2; BLOCK]));
    });
}

/// A write that a member missed is answered only when the others say that it has: else it would be
/// read after a restart.
#[test]
fn a_failure_that_cannot_be_recorded_is_no_success() {
    in_world(async |rt| {
        let devices = memories(2, 16 * MIB);
        let faulty = |at: usize| FaultDevice::new(&rt, devices[at].clone(), 1, Vec::new());
        let (bad, gone) = (Rc::new(faulty(0)), Rc::new(faulty(1)));
        let array = plain(&rt, &[bad.clone(), gone.clone()], 2).await;
        write(&array, 0, BLOCK, 1).await.expect("both work");
        let superblocks = always(FaultKind::Error, FaultOn::Writes).within(0..512);
        bad.set(vec![superblocks]);
        gone.set(vec![always(FaultKind::Gone, FaultOn::All)]);
        for value in 2..5 {
            assert_eq!(write(&array, 0, BLOCK, value).await, Err(IoError::Write));
        }
        bad.set(Vec::new());
        rt.sleep(Duration::from_secs(2)).await;
        write(&array, 0, BLOCK, 9).await.expect("it is recorded");
        gone.set(Vec::new());
        drop(array);
        let array = open(&rt, &devices).await.expect("both are there");
        for _ in 0..4 {
            assert_eq!(read(&array, 0, BLOCK).await, Ok(vec![9; BLOCK]));
        }
    });
}

/// No memory for a superblock or a map says nothing of the member.
#[test]
fn a_member_is_not_failed_for_want_of_memory() {
    in_world(async |rt| {
        let devices = memories(3, 16 * MIB);
        let gone = Rc::new(FaultDevice::new(&rt, devices[1].clone(), 1, Vec::new()));
        let moody = Moody::new(devices[2].clone());
        let members: [SharedDevice; 3] = [devices[0].clone(), gone.clone(), moody.clone()];
        let array = plain(&rt, &members, 3).await;
        let mut left = 5;
        moody.busy_for(move |io| {
            let own = matches!(io, Io::Write { lba, .. } if *lba < 3 * MIB / BLOCK as u64);
            let is_busy = own && left > 0;
            left -= u32::from(is_busy);
            is_busy
        });
        assert_eq!(
            write(&array, 0, BLOCK, 1).await,
            Err(IoError::Busy),
            "the map"
        );
        gone.set(vec![always(FaultKind::Gone, FaultOn::All)]);
        while let Err(error) = write(&array, 0, BLOCK, 1).await {
            assert_eq!(error, IoError::Busy);
        }
        let states = array.status().members.into_iter().map(|it| it.state);
        let expected = [
            MemberState::Active,
            MemberState::Failed,
            MemberState::Active,
        ];
        assert_eq!(states.collect::<Vec<_>>(), expected);
    });
}

/// One write hangs at a member, which works otherwise. What it got as a new member stays.
#[test]
fn a_write_that_hung_does_not_land_on_what_came_later() {
    in_world(async |rt| {
        let devices = memories(4, 16 * MIB);
        let hung = Rc::new(FaultDevice::new(&rt, devices[1].clone(), 1, Vec::new()));
        let shared: SharedDevice = hung.clone();
        let array = plain(&rt, &[devices[0].clone(), shared.clone()], 2).await;
        let data = 3 * MIB / BLOCK as u64;
        let hang = always(FaultKind::Hang, FaultOn::Writes).within(data..data + 1);
        hung.set(vec![hang]);
        write(&array, 0, BLOCK, 1).await.expect("one works");
        write(&array, 0, BLOCK, 2).await.expect("one works");
        let late = Err(ArrayError::Unfinished("m1".into()));
        let same = || arrays::named("m1", &shared);
        assert_eq!(array.replace("m1", same(), false).await, late);
        assert_eq!(array.remove("m1").await, late);
        assert_eq!(array.unfinished(), ["m1"]);
        // Another one takes the place: it is a former member then.
        let other = arrays::named("m2", &devices[2]);
        array
            .replace("m1", other, false)
            .await
            .expect("it is blank");
        settle(&rt, &array).await;
        assert_eq!(array.unfinished(), ["m1"]);
        assert_eq!(array.add_spares(vec![same()], true).await, late);
        hung.set(Vec::new());
        rt.sleep(Duration::from_ms(1)).await;
        assert_eq!(array.unfinished(), Vec::<String>::new());
        array
            .replace("m2", same(), true)
            .await
            .expect("it has ended");
        settle(&rt, &array).await;
        array.close().await;
        drop(array);
        let alone = arrays::open_degraded(&rt, &devices[1..2]).await;
        let array = alone.expect("it has everything");
        assert_eq!(read(&array, 0, BLOCK).await, Ok(vec![2; BLOCK]));
    });
}
