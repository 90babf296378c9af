//! Arrays whose members cannot be written for now: commands end with that, and what they would have
//! changed is as it was.

mod arrays;

use std::rc::Rc;

use arrays::{Moody, always, in_world, memories, named, new, open, plain};
use flashyard_block::array::{Array, ArrayError, MemberState, Options};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn};
use flashyard_block::{IoError, SharedDevice};
use flashyard_runtime::Rt;
use flashyard_testbed::{read, write};
use flashyard_time::Duration;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// More than every bound of an array.
const LONG: Duration = Duration::from_secs(120);

/// Waits until nothing is to be copied.
async fn settle(rt: &Rt, array: &Array) {
    for _ in 0..1000 {
        if array.status().rebuild.is_none() {
            return;
        }
        rt.sleep(Duration::from_ms(100)).await;
    }
    panic!("{:?}", array.status());
}

/// The members, with their states, and whether they leave.
fn members(array: &Array) -> Vec<(String, MemberState, bool)> {
    let members = array.status().members.into_iter();
    members.map(|it| (it.name, it.state, it.leaving)).collect()
}

fn is_protected(ended: Option<Result<(), ArrayError>>, action: &str) -> bool {
    let Some(Err(ArrayError::Device(name, did, IoError::WriteProtected))) = ended else {
        panic!("{ended:?}");
    };
    name == "m0" && did == action
}

const SUPERBLOCK: &str = "writing the superblock of";
const MAP: &str = "writing the region map of";

#[test]
fn no_member_is_taken_away_and_none_replaced_while_the_last_one_is_write_protected() {
    in_world(async |rt| {
        let devices = memories(3, 16 * MIB);
        let last = Moody::new(devices[0].clone());
        let shared: SharedDevice = last.clone();
        let array = plain(&rt, std::slice::from_ref(&shared), 1).await;
        write(&array, 0, BLOCK, 1).await.expect("it works");
        let spare = vec![named("s", &devices[1])];
        array.add_spares(spare, false).await.expect("it is blank");
        let before = members(&array);
        last.protect(|_| true);
        let removed = rt.timeout(LONG, array.remove("s")).await;
        assert!(is_protected(removed, SUPERBLOCK));
        let other = || named("m2", &devices[2]);
        let replaced = rt.timeout(LONG, array.replace("m0", other(), false));
        assert!(is_protected(replaced.await, MAP));
        // The superblock alone cannot be written.
        last.protect(|io| io.lba() < 512);
        let replaced = rt.timeout(LONG, array.replace("m0", other(), false));
        assert!(is_protected(replaced.await, SUPERBLOCK));
        assert_eq!(members(&array), before);
        write(&array, 1, BLOCK, 2).await.expect("data go on");
        last.protect(|_| false);
        array.remove("s").await.expect("it can be recorded");
        let replaced = array.replace("m0", other(), false);
        replaced.await.expect("the device holds nothing");
        settle(&rt, &array).await;
        let expected = [("m2".to_owned(), MemberState::Active, false)];
        assert_eq!(members(&array), expected);
        array.close().await;
        let array = open(&rt, &devices[2..]).await.expect("it has everything");
        for (lba, value) in [(0, 1), (1, 2)] {
            assert_eq!(read(&array, lba, BLOCK).await, Ok(vec![value; BLOCK]));
        }
    });
}

/// What a member has missed is not read after a restart, whenever the others could say so.
#[test]
fn an_array_that_opens_write_protected_records_what_it_found_before_it_answers() {
    in_world(async |rt| {
        let devices = memories(3, 16 * MIB);
        let last = Moody::new(devices[0].clone());
        let array = plain(&rt, &devices[..2], 2).await;
        let spare = vec![named("s", &devices[2])];
        array.add_spares(spare, false).await.expect("it is blank");
        write(&array, 0, BLOCK, 1).await.expect("both work");
        array.close().await;
        last.protect(|io| io.lba() < 512);
        let present = || {
            let here: [SharedDevice; 2] = [last.clone(), devices[2].clone()];
            vec![named("m0", &here[0]), named("s", &here[1])]
        };
        let opened = Array::open(&rt, present(), None, Options::default(), true);
        let opened = rt.timeout(LONG, opened).await;
        let array = opened.expect("in time").expect("it can be read");
        assert_eq!(read(&array, 0, BLOCK).await, Ok(vec![1; BLOCK]));
        assert_eq!(write(&array, 0, BLOCK, 2).await, Err(IoError::Write));
        let state = |array: &Array| members(array).iter().map(|it| it.1).collect::<Vec<_>>();
        let spared = [MemberState::Active, MemberState::Failed, MemberState::Spare];
        assert_eq!(state(&array), spared);
        last.protect(|_| false);
        rt.sleep(Duration::from_secs(2)).await;
        write(&array, 0, BLOCK, 3).await.expect("it is recorded");
        settle(&rt, &array).await;
        assert_eq!(state(&array), [MemberState::Active; 2]);
        drop(array);
        let array = open(&rt, &devices).await.expect("all are there");
        for _ in 0..4 {
            assert_eq!(read(&array, 0, BLOCK).await, Ok(vec![3; BLOCK]));
        }
    });
}

/// One member of two takes no writes, or both: what was written can be read. While one does, writes
/// go on without the other.
#[test]
fn a_mirror_whose_members_are_write_protected_when_it_is_opened_can_be_read() {
    in_world(async |rt| {
        for protected in [1, 2] {
            let memories = memories(2, 16 * MIB);
            let moody: Vec<_> = memories.iter().map(|it| Moody::new(it.clone())).collect();
            let devices: Vec<SharedDevice> = moody.iter().map(|it| it.clone() as _).collect();
            let array = plain(&rt, &devices, 2).await;
            write(&array, 0, BLOCK, 1).await.expect("both work");
            array.close().await;
            moody[..protected]
                .iter()
                .for_each(|it| it.protect(|_| true));
            let opened = rt.timeout(LONG, open(&rt, &devices)).await;
            let array = opened.expect("in time").expect("it can be read");
            for _ in 0..4 {
                assert_eq!(read(&array, 0, BLOCK).await, Ok(vec![1; BLOCK]));
            }
            let written = write(&array, 0, BLOCK, 2).await;
            assert_eq!(written.is_ok(), protected == 1, "{written:?}");
            assert!(array.status().is_degraded(), "one is not written any more");
            for it in &moody {
                it.protect(|_| false);
            }
            rt.sleep(Duration::from_secs(5)).await;
            write(&array, 1, BLOCK, 3).await.expect("one takes writes");
            let found = read(&array, 0, BLOCK).await.expect("it can be read");
            array.close().await;
            drop(array);
            let array = open(&rt, &devices).await.expect("both are there");
            settle(&rt, &array).await;
            assert!(!array.status().is_degraded());
            for _ in 0..4 {
                assert_eq!(read(&array, 0, BLOCK).await, Ok(found.clone()));
                assert_eq!(read(&array, 1, BLOCK).await, Ok(vec![3; BLOCK]));
            }
        }
    });
}

/// Its devices may be somebody else's then.
#[test]
fn nothing_is_recorded_after_the_end() {
    in_world(async |rt| {
        for destroyed in [false, true] {
            let devices = memories(3, 16 * MIB);
            let slow = Rc::new(FaultDevice::new(&rt, devices[0].clone(), 1, Vec::new()));
            let array = plain(&rt, &[slow.clone(), devices[1].clone()], 2).await;
            let array = Rc::new(array);
            let late = FaultKind::Latency {
                fixed: Duration::from_ms(500),
                spread: Duration::ZERO,
            };
            slow.set(vec![always(late, FaultOn::Writes)]);
            let (below, spare) = (Rc::clone(&array), vec![named("s", &devices[2])]);
            let adding = rt.spawn(async move { below.add_spares(spare, false).await });
            // It has begun to write the superblocks.
            rt.sleep(Duration::from_ms(100)).await;
            match destroyed {
                true => array.destroy().await.expect("the devices work"),
                false => array.close().await,
            }
            let generation = array.status().generation;
            adding.await.expect("it had begun before");
            slow.set(Vec::new());
            rt.sleep(Duration::from_secs(10)).await;
            let closed = Err(ArrayError::Closed);
            assert_eq!(array.remove("s").await, closed);
            let other = named("n", &memories(1, 16 * MIB)[0]);
            assert_eq!(array.replace("m1", other, false).await, closed);
            assert_eq!(array.status().generation, generation);
            let again = Array::open(&rt, new(&devices), None, Options::default(), false).await;
            match destroyed {
                true => assert!(matches!(again, Err(ArrayError::NoMember(_)))),
                false => drop(again.expect("it was closed")),
            }
        }
    });
}
