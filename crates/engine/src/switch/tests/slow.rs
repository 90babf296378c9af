//! Slow I/Os and slow devices, in virtual time, on a device that injects latency.

use flashyard_block::fault::{FaultDevice, FaultKind, FaultRule};

use super::*;
use crate::ledger::{SlowAfter, SlowIo, Slowness};

const READER: TenantId = TenantId(3);
const OTHER: TenantId = TenantId(4);

fn latency(fixed: Duration) -> Vec<FaultRule> {
    let spread = Duration::ZERO;
    vec![FaultRule::new(FaultKind::Latency { fixed, spread }).always()]
}

/// A port to a device that takes 100 us for a read.
fn on_faulty<F: Future<Output = ()> + 'static>(
    main: impl FnOnce(Rt, Rc<Port>, Rc<FaultDevice>) -> F,
) {
    let world = World::new(Config::default());
    let machine = world.machine(1);
    let device = Rc::new(NullDevice::new(4096, 1 << 20).expect("a good size"));
    world.run(&machine, |rt| {
        let window = Window {
            ios: 64,
            bytes: 1 << 20,
        };
        let switch = Switch::new(rt.clone(), Box::new(Fifo::new(window)));
        let faulty = FaultDevice::new(&rt, device, 1, latency(Duration::from_us(100)));
        let faulty = Rc::new(faulty);
        let port = Port::new(&switch, faulty.clone());
        main(rt, port, faulty)
    });
}

async fn read(port: &Rc<Port>, tenant: TenantId) {
    let ask = Ask { tenant, ..ask(0) };
    let permit = port.admit(ask, false).await;
    let into = Buf::take(4096).expect("memory");
    let done = permit.submit(Io::Read { lba: 0, into }).await;
    if let Some(sample) = permit.complete(done.is_ok()) {
        port.record(&sample);
    }
}

/// Reads for so many seconds, a read each 20 ms; says in which of them the device was slow.
async fn seconds(rt: &Rt, port: &Rc<Port>, count: u64) -> Vec<Option<Slowness>> {
    let mut all = Vec::new();
    for _ in 0..count {
        let end = rt.now() + Duration::from_secs(1);
        while rt.now() < end {
            read(port, READER).await;
            rt.sleep(Duration::from_ms(20)).await;
        }
        all.push(port.switch.slowness());
    }
    all
}

#[test]
fn a_device_that_takes_a_multiple_of_its_usual_time_is_slow_until_it_does_not() {
    on_faulty(|rt, port, device| async move {
        let usual = seconds(&rt, &port, 60).await;
        assert!(usual.iter().all(Option::is_none), "{usual:?}");
        device.set(latency(Duration::from_ms(20)));
        let slow = seconds(&rt, &port, 60).await;
        let first = slow.iter().position(Option::is_some).expect("it is slow");
        // Three spans of ten seconds, and what is left of the one before them.
        assert!((29..=42).contains(&first), "{first}");
        assert!(slow[first..].iter().all(Option::is_some));
        let Some(Slowness::Latency { usual, now }) = slow[59] else {
            panic!("{:?}", slow[59]);
        };
        assert!((100..115).contains(&usual.as_us()), "{usual:?}");
        assert!((19_000..21_000).contains(&now.as_us()), "{now:?}");
        device.set(latency(Duration::from_us(100)));
        let after = seconds(&rt, &port, 30).await;
        assert!(after[21..].iter().all(Option::is_none), "{after:?}");
    });
}

#[test]
fn a_device_that_ends_nothing_is_reported_each_time() {
    on_faulty(|rt, port, device| async move {
        device.set(vec![FaultRule::new(FaultKind::Hang).always()]);
        let hangs = {
            let port = port.clone();
            rt.spawn(async move { read(&port, READER).await })
        };
        let mut found = Vec::new();
        for _ in 0..8 {
            rt.sleep(Duration::from_secs(5)).await;
            found.push(port.switch.slowness());
        }
        assert!(found[..6].iter().all(Option::is_none), "{found:?}");
        let lasting = Slowness::Nothing(Duration::from_secs(35));
        assert_eq!(found[7], Some(lasting), "{found:?}");
        device.set(Vec::new());
        hangs.await;
        assert_eq!(port.switch.slowness(), None);
    });
}

#[test]
fn the_slowest_io_of_who_is_watched_is_reported_once_with_its_stages() {
    on_faulty(|rt, port, device| async move {
        let (switch, after) = (&port.switch, Duration::from_ms(5));
        let watched = SlowAfter {
            latency_sensitive: Duration::from_secs(1),
            other: after,
        };
        switch.watch_slow(READER, Some(watched));
        read(&port, READER).await;
        assert_eq!(switch.take_slow(), []);
        for ms in [10, 40, 20] {
            device.set(latency(Duration::from_ms(ms)));
            read(&port, READER).await;
            read(&port, OTHER).await;
            rt.sleep(Duration::from_ms(2)).await;
        }
        let found = switch.take_slow();
        let [
            SlowIo {
                io,
                stages,
                after: reported,
                ios,
            },
        ] = found[..]
        else {
            panic!("{found:?}");
        };
        assert_eq!((io.tenant, io.op, io.bytes), (READER, Op::Read, 4096));
        assert_eq!((reported, ios), (after, 3));
        assert!((40_000_000..41_000_000).contains(&stages.device));
        assert_eq!(stages.turn, 0);
        assert_eq!(switch.take_slow(), [], "it was reported");
        switch.watch_slow(READER, None);
        read(&port, READER).await;
        assert_eq!(switch.take_slow(), [], "no tenant is watched");
    });
}
