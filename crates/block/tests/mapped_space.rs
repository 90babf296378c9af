//! Space that is kept for mapped volumes, and quotas of tenants.

use std::rc::Rc;

use flashyard_block::pool::{Kind, NewVolume, Owner, Pool, PoolError, TenantSpace, check};
use flashyard_block::{DeviceExt, IoError, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_runtime::Rt;
use flashyard_testbed::{read, run, write};

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = *b"the pool's uuid!";

fn memory(bytes: u64) -> SharedDevice {
    Rc::new(MemoryDevice::new(4096, bytes).expect("a good size"))
}

async fn new_pool(rt: &Rt, device: &SharedDevice) -> Pool {
    let made = Pool::create_kind(rt, device.clone(), UUID, Kind::Mapped, false).await;
    made.expect("the device holds nothing known")
}

fn of(tenant: &str, number: u8) -> NewVolume {
    let owner = Owner {
        tenant: tenant.into(),
        nguid: [number; 16],
        eui64: None,
        nsid: number.into(),
    };
    NewVolume {
        owner: Some(owner),
        ..NewVolume::new(format!("v{number}"), [number; 16], 1 << 30)
    }
}

fn space_of(pool: &Pool, tenant: &str) -> TenantSpace {
    let all = pool.tenants();
    let found = all.into_iter().find(|one| one.tenant == tenant);
    found.expect("it has a volume")
}

/// Writes MiB by MiB from one on; how many there was space for.
async fn fill(volume: &SharedDevice, from: u64) -> u64 {
    for mib in from.. {
        for part in 0..8 {
            let lba = mib * 256 + part * 32;
            match write(&**volume, lba, 128 << 10, mib as u8 + 1).await {
                Ok(()) => {}
                Err(IoError::NoSpace) => return mib - from,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    unreachable!("a pool becomes full")
}

#[test]
fn a_quota_stops_its_tenant_only_and_what_is_reserved_is_there_after_all() {
    run(async |rt: Rt| {
        let device = memory(96 * MIB);
        let pool = new_pool(&rt, &device).await;
        let made = pool.create_volumes(vec![of("a", 1), of("a", 2), of("b", 3)]);
        let made = made.await.expect("they fit");
        pool.set_quota("a", Some(10 * MIB));
        let all = pool.info().free;
        let needed = all / MIB * MIB + MIB;
        let refused = pool.reserve(vec![("v3".into(), needed)]).await;
        let Err(PoolError::Reserved { free, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(free < needed && free + MIB > all - MIB, "{free} of {all}");
        let over = pool.reserve(vec![("v1".into(), 11 * MIB)]).await;
        let over = over.expect_err("its tenant has a quota");
        let expected = PoolError::Reserved {
            volume: "v1".into(),
            needed: 11 * MIB,
            free: 10 * MIB,
        };
        assert_eq!(over, expected);
        pool.reserve(vec![("v1".into(), 4 * MIB)])
            .await
            .expect("it fits");
        assert_eq!(pool.info().reserved, 4 * MIB);
        // The other volume of the tenant gets what is left of its quota.
        let written = fill(&made[1], 0).await;
        assert_eq!(written, 5, "6 MiB with their map");
        let owned = space_of(&pool, "a");
        assert!(owned.used + owned.reserved <= 10 * MIB && owned.quota == Some(10 * MIB));
        assert_eq!(read(&*made[1], 5, 4096).await, Ok(vec![1; 4096]));
        write(&*made[1], 5, 4096, 9)
            .await
            .expect("it is there already");
        let others = fill(&made[2], 0).await;
        assert!(others > 20, "{others}");
        let kept = fill(&made[0], 0).await;
        assert!((3..=4).contains(&kept), "{kept} of 4 MiB with their map");
        // Deallocating makes room, for the tenant and for the pool.
        made[1]
            .deallocate(Tag::default(), 0, 512)
            .await
            .expect("it can be");
        let again = fill(&made[1], 10).await;
        assert!(
            (1..=2).contains(&again),
            "{again} of 2 MiB, with new leaves"
        );
        pool.set_quota("a", None);
        made[2]
            .deallocate(Tag::default(), 0, 2048)
            .await
            .expect("it can be");
        assert!(fill(&made[1], 20).await > 5);
        pool.close().await;
        drop(pool);
        let report = check(&rt, device).await.expect("it can be read");
        assert_eq!(report.verdict(), Verdict::Sound, "{report}");
    });
}

#[test]
fn what_is_reserved_stays_when_the_pool_is_opened_again_and_when_volumes_change_hands() {
    run(async |rt: Rt| {
        let device = memory(64 * MIB);
        let pool = new_pool(&rt, &device).await;
        let made = pool.create_volumes(vec![of("a", 1), of("b", 2)]);
        drop(made.await.expect("they fit"));
        let wanted = vec![("v1".into(), 3 * MIB + 1), ("v2".into(), 2 * MIB)];
        pool.reserve(wanted).await.expect("they fit");
        pool.close().await;
        drop(pool);
        let pool = Pool::open(&rt, device.clone()).await.expect("it is whole");
        let reserved: Vec<u64> = pool.list().iter().map(|one| one.reserved).collect();
        assert_eq!(reserved, [4 * MIB, 2 * MIB]);
        assert_eq!(space_of(&pool, "a").reserved, 4 * MIB);
        let owner = of("c", 1).owner.expect("it has one");
        pool.set_owner("v1", owner).await.expect("it can be");
        assert_eq!(space_of(&pool, "a").reserved, 0);
        assert_eq!(space_of(&pool, "c").reserved, 4 * MIB);
        pool.delete("v2").await.expect("it can be");
        assert_eq!(pool.info().reserved, 4 * MIB);
        pool.close().await;
    });
}

#[test]
fn a_raw_pool_has_no_reservations() {
    run(async |rt: Rt| {
        let device = memory(64 * MIB);
        let pool = Pool::create(&rt, device, UUID, false)
            .await
            .expect("it fits");
        pool.create_volume("v", [1; 16], MIB)
            .await
            .expect("it fits");
        let refused = pool.reserve(vec![("v".into(), MIB)]).await;
        assert_eq!(refused, Err(PoolError::AllReserved("reservations")));
        assert_eq!(pool.reserve(vec![("v".into(), 0)]).await, Ok(()));
    });
}
