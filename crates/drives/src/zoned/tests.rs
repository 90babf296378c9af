//! Which owner is notified of which completion, when owners come and go.

use std::cell::RefCell;

use flashyard_runtime::ZoneModel;
use flashyard_runtime::sim::{Config, World, ZoneConfig};
use flashyard_time::Duration;

use super::*;
use crate::backing::Done;

/// Records what it is notified of.
#[derive(Default)]
struct Recorder {
    done: RefCell<Vec<u32>>,
    alarms: RefCell<Vec<Time>>,
}

impl Owner for Recorder {
    fn completed(&self, _at: Time, done: &Done) {
        self.done.borrow_mut().push(done.tag);
    }

    fn alarm(&self, at: Time) {
        self.alarms.borrow_mut().push(at);
    }
}

fn register(zones: &Zones) -> (Rc<Recorder>, OwnerId) {
    let recorder = Rc::new(Recorder::default());
    let owner: Rc<dyn Owner> = recorder.clone();
    (recorder, zones.register(Rc::downgrade(&owner)))
}

fn submit(zones: &Zones, owner: OwnerId, tag: u32, op: Op, (addresses, wanted): (&[u64], u64)) {
    let vector = Vector {
        op,
        addresses,
        wanted,
    };
    let accepted = zones.submit(zones.catch_up(), owner, tag, vector);
    assert!(matches!(accepted, Some(Ok(_))), "{accepted:?}");
}

fn with_zones<F: Future<Output = ()> + 'static>(test: impl FnOnce(Rc<Zones>) -> F + 'static) {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let zones = ZoneConfig {
        zone_bytes: 2 << 20,
        capacity: 2 << 20,
        zones: 32,
        active_most: 0,
        model: ZoneModel::HostManaged,
    };
    machine.add_zoned_disk("/dev/zoned0", zones);
    world.run(&machine, |rt| async move {
        let opened = Zones::open(&rt, Path::new("/dev/zoned0"), Some(2)).await;
        test(opened.expect("it is a good device")).await;
    });
}

#[test]
fn a_place_is_not_taken_while_something_can_come_for_who_had_it() {
    with_zones(|zones| async move {
        let unit: Vec<u64> = (0..unit::SECTORS as u64).collect();
        for op in [Op::Write { metadata: &[] }, Op::Read, Op::Reset] {
            let (gone, first) = register(&zones);
            submit(&zones, first, 7, op, (&unit, 0));
            drop(gone);
            let (recorder, second) = register(&zones);
            assert_ne!(second, first, "{op:?}");
            submit(&zones, second, 8, Op::Read, (&unit, 0));
            zones.rt().sleep(Duration::from_secs(1)).await;
            assert_eq!(*recorder.done.borrow(), [8], "{op:?}");
            let (_third, third) = register(&zones);
            assert_eq!(third, first, "{op:?}: nothing is in flight any more");
        }
    });
}

#[test]
fn an_alarm_of_an_owner_that_is_gone_reaches_no_other_owner() {
    with_zones(|zones| async move {
        let rt = zones.rt().clone();
        let (early, late) = (Duration::from_ms(10), Duration::from_ms(20));
        let (gone, first) = register(&zones);
        zones.set_alarm(first, Some(rt.turn_time() + early));
        drop(gone);
        let (recorder, second) = register(&zones);
        assert_eq!(second, first);
        let at = rt.turn_time() + late;
        zones.set_alarm(second, Some(at));
        rt.sleep(Duration::from_secs(1)).await;
        let alarms = recorder.alarms.borrow();
        assert!(alarms.len() == 1 && alarms[0] >= at, "{alarms:?}");
    });
}

#[test]
fn owners_that_come_and_go_leave_nothing() {
    with_zones(|zones| async move {
        let (_stays, first) = register(&zones);
        for _ in 0..100 {
            let (recorder, id) = register(&zones);
            assert_ne!(id, first);
            submit(&zones, id, 1, Op::Read, (&[0], 1));
            // Not a write at the pointer of its chunk, so it is refused; that is reported as well.
            submit(&zones, id, 2, Op::Write { metadata: &[] }, (&[3], 1));
            submit(&zones, id, 3, Op::Copy { to: &[0] }, (&[0], 1));
            zones.rt().sleep(Duration::from_ms(10)).await;
            recorder.done.borrow_mut().sort_unstable();
            assert_eq!(*recorder.done.borrow(), [1, 2, 3]);
        }
        assert_eq!(zones.state.borrow().owners.len(), 2);
    });
}
