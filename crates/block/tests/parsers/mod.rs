//! Any bytes as the metadata of a pool, or the header of an encrypted device. Used by the tests
//! here and by the fuzz targets.

use flashyard_block::crypt;
use flashyard_block::pool::{Pool, check};
use flashyard_block::superblock::seal;
use flashyard_block::{Device, DeviceExt, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use std::rc::Rc;

const MIB: u64 = 1 << 20;
/// Bytes of a frame.
const FRAME: usize = 20;

/// Looks at and opens devices whose first copy has these bytes, and whose second copy has them with
/// the right length and checksum. What is opened can be worked on.
#[allow(dead_code, reason = "fuzz targets take one of these functions each")]
pub(crate) fn pool(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(MIB as usize)];
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let (raw, sealed) = (bytes.to_vec(), sealed(bytes));
    world.run(&machine, |rt| async move {
        for copies in [[&raw, &sealed], [&sealed, &sealed]] {
            let device: SharedDevice = Rc::new(memory());
            for (place, copy) in (0..).zip(copies) {
                write(&*device, place * MIB, copy).await;
            }
            let report = check(&rt, device.clone())
                .await
                .expect("memory does not fail");
            let opened = Pool::open(&rt, device.clone()).await;
            match opened {
                Ok(pool) => {
                    assert_eq!(report.volumes, pool.list(), "{report}");
                    assert_ne!(report.verdict(), Verdict::Lost, "{report}");
                    use_it(&rt, &device, &pool).await;
                }
                Err(error) => assert_eq!(report.verdict(), Verdict::Lost, "{report} {error}"),
            }
        }
    });
}

/// Looks at and finds headers of encrypted devices that have these bytes, and these bytes with the
/// right length and checksum. What is found can be written again.
#[allow(dead_code, reason = "fuzz targets take one of these functions each")]
pub(crate) fn crypt(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(4096)];
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let (raw, sealed) = (bytes.to_vec(), sealed(bytes));
    world.run(&machine, |_: Rt| async move {
        for copies in [[&raw, &sealed], [&sealed, &sealed]] {
            let device = memory();
            for (place, copy) in (0..).zip(copies) {
                write(&device, place * MIB / 2, copy).await;
            }
            let report = crypt::check(&device).await.expect("memory does not fail");
            match crypt::find(&device).await {
                Ok(header) => {
                    assert_ne!(report.verdict(), Verdict::Lost, "{report}");
                    let stored = crypt::store(&device, header.clone()).await;
                    let stored = stored.expect("memory does not fail");
                    assert_eq!(stored.secrets(), header.secrets());
                    if header.generation() < u64::MAX {
                        assert_eq!(crypt::find(&device).await, Ok(stored));
                    }
                }
                Err(error) => assert_eq!(report.verdict(), Verdict::Lost, "{report} {error}"),
            }
        }
    });
}

/// With a length that is as they are, and a checksum that is right for them.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= FRAME {
        let length = bytes.len() as u32;
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        seal(&mut bytes);
    }
    bytes
}

async fn write(device: &dyn Device, offset: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let buf = Buf::take_zeroed(bytes.len().next_multiple_of(4096));
    let mut buf = buf.expect("tests need few buffers");
    buf[..bytes.len()].copy_from_slice(bytes);
    let written = device.write(Tag::default(), offset / 4096, buf, false);
    written.await.expect("memory does not fail");
}

async fn read(device: &dyn Device, lba: u64) {
    let buf = Buf::take(4096).expect("tests need few buffers");
    let read = device.read(Tag::default(), lba, buf).await;
    drop(read.expect("it is within the device"));
}

async fn use_it(rt: &Rt, device: &SharedDevice, pool: &Pool) {
    for info in pool.list() {
        let volume = pool.volume(&info.name).expect("it is listed");
        read(&*volume, 0).await;
        read(&*volume, volume.info().blocks - 1).await;
    }
    // The pool may be full, or its generation at its end.
    let created = pool.create_volume("of-the-fuzzer", [0xf5; 16], MIB).await;
    for info in pool.list() {
        let _grown = pool.grow(&info.name, info.bytes + MIB).await;
    }
    if let Some(info) = pool.list().first() {
        let _deleted = pool.delete(&info.name).await;
    }
    if created.is_ok() {
        let again = Pool::open(rt, device.clone())
            .await
            .expect("it was written");
        assert_eq!(again.list(), pool.list());
        let report = check(rt, device.clone())
            .await
            .expect("memory does not fail");
        assert_eq!(report.verdict(), Verdict::Sound, "{report}");
    }
}

fn memory() -> MemoryDevice {
    MemoryDevice::new(4096, 8 * MIB).expect("the size is possible")
}
