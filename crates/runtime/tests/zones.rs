//! Zoned block devices: what a simulated one demands, what a power cut takes from it, and what a
//! file that is none says.

use std::io;
use std::path::Path;

use flashyard_runtime::sim::{Access, Config, Machine, World, ZoneConfig};
use flashyard_runtime::{Buf, File, OpenOptions, Rt, ZoneModel, ZoneState, uring};
use flashyard_testbed::Scratch;

const DISK: &str = "/dev/zoned0";
const ZONE: u64 = 1 << 20;
const ZONES: ZoneConfig = ZoneConfig {
    zone_bytes: ZONE,
    capacity: ZONE - 65_536,
    zones: 8,
    active_most: 2,
    model: ZoneModel::HostManaged,
};

fn open(rt: &Rt) -> File {
    let options = OpenOptions {
        write: true,
        direct: true,
        exclusive: true,
        ..OpenOptions::default()
    };
    rt.open(Path::new(DISK), options)
        .expect("the disk is there")
}

async fn write(file: &File, offset: u64, len: u64, durable: bool) -> io::Result<usize> {
    let mut buf = Buf::take(len as usize).expect("the bound is far");
    buf.fill(7);
    file.write_at(buf, offset, durable).await.0
}

fn machine(world: &World) -> Machine {
    let machine = world.machine(1);
    machine.add_zoned_disk(DISK, ZONES);
    machine
}

#[test]
fn zones_are_written_at_their_pointers_and_reset() {
    let world = World::new(Config::default());
    let machine = machine(&world);
    world.run(&machine, |rt| async move {
        let file = open(&rt);
        let facts = file.zoned().expect("it answers").expect("it is zoned");
        assert_eq!(
            (facts.zones, facts.zone_bytes, facts.active_most),
            (8, ZONE, 2)
        );
        let state = |zone: u64| {
            let report = file.report_zones(zone * ZONE, 1);
            async move { report.await.expect("it answers")[0] }
        };
        let behind = write(&file, 4096, 4096, true).await;
        assert_eq!(behind.unwrap_err().raw_os_error(), Some(libc::EIO));
        write(&file, 0, 8192, true).await.expect("at the pointer");
        let zone = state(0).await;
        assert_eq!((zone.state, zone.pointer), (ZoneState::Active, 8192));
        write(&file, 2 * ZONE, 4096, true)
            .await
            .expect("a second zone may be active");
        let third = write(&file, 3 * ZONE, 4096, true).await;
        assert_eq!(third.unwrap_err().raw_os_error(), Some(libc::EOVERFLOW));
        file.finish_zone(0, ZONE).await.expect("it can be");
        assert_eq!(state(0).await.state, ZoneState::Full);
        write(&file, 3 * ZONE, 4096, true)
            .await
            .expect("one active zone is fewer");
        assert!(
            write(&file, 8192, 4096, true).await.is_err(),
            "it is finished"
        );
        file.reset_zone(0, ZONE).await.expect("it can be");
        assert_eq!(
            (state(0).await.state, state(0).await.pointer),
            (ZoneState::Empty, 0)
        );
        let (read, buf) = file
            .read_at(Buf::take(4096).expect("the bound is far"), 0)
            .await;
        assert!(read.is_ok() && buf.iter().all(|byte| *byte == 0));
        let all = file.report_zones(5 * ZONE, 100).await.expect("it answers");
        assert_eq!(all.len(), 3, "there are no more");
        let whole = write(&file, 2 * ZONE + 4096, ZONE - 65_536, true).await;
        assert!(whole.is_err(), "longer than the zone can hold");
        write(&file, 2 * ZONE + 4096, ZONE - 65_536 - 4096, true)
            .await
            .expect("it fills the zone");
        assert_eq!(state(2).await.state, ZoneState::Full);
    });
}

#[test]
fn a_power_cut_takes_pointers_back_to_what_was_durable() {
    let (mut kept_all, mut lost_all) = (false, false);
    for seed in 0..50 {
        let world = World::new(Config::calm(seed));
        let machine = machine(&world);
        world.run(&machine, |rt| async move {
            let file = open(&rt);
            write(&file, 0, 4096, true).await.expect("at the pointer");
            write(&file, 4096, 8192, false)
                .await
                .expect("at the pointer");
        });
        machine.power_cut();
        machine.restart();
        let pointer = world.run(&machine, |rt| async move {
            let file = open(&rt);
            let zone = file.report_zones(0, 1).await.expect("it answers")[0];
            assert_eq!(zone.state, ZoneState::Active);
            zone.pointer
        });
        assert!(
            (4096..=12_288).contains(&pointer) && pointer.is_multiple_of(512),
            "{pointer}"
        );
        kept_all |= pointer == 12_288;
        lost_all |= pointer == 4096;
        let disk = machine.disk(DISK).expect("it is there");
        assert!(disk.read(0..pointer).iter().all(|byte| *byte == 7));
        assert!(disk.read(pointer..16_384).iter().all(|byte| *byte == 0));
    }
    assert!(
        kept_all && lost_all,
        "fifty seeds bring the first and the last"
    );
}

#[test]
fn zones_are_given_up_and_faults_strike() {
    let world = World::new(Config::default());
    let machine = machine(&world);
    let disk = machine.disk(DISK).expect("it is there");
    world.run(&machine, |rt| async move {
        let file = open(&rt);
        disk.set_zone(1, ZoneState::Offline);
        assert!(write(&file, ZONE, 4096, true).await.is_err());
        assert!(file.reset_zone(ZONE, ZONE).await.is_err());
        disk.fail(Access::Zone, 0..ZONE, libc::EIO, Some(1));
        assert!(file.reset_zone(0, ZONE).await.is_err());
        file.reset_zone(0, ZONE)
            .await
            .expect("the fault struck once");
    });
}

#[test]
fn a_regular_file_has_no_zones() {
    let scratch = Scratch::new("zones");
    let name = scratch.join("f");
    let run = uring::run(uring::Config::default(), |rt| async move {
        let options = OpenOptions {
            write: true,
            create: true,
            ..OpenOptions::default()
        };
        let file = rt.open(&name, options).expect("it can be made");
        assert_eq!(file.zoned().expect("it answers"), None);
        // From the thread that makes such calls, and it wakes the core.
        for _ in 0..3 {
            assert!(file.report_zones(0, 1).await.is_err());
            assert!(file.reset_zone(0, 4096).await.is_err());
        }
    });
    assert!(run.is_ok(), "{run:?}");
}
