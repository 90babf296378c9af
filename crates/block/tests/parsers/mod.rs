//! Any bytes as the metadata of a pool or a member of an array, or as the header of an encrypted
//! device or pool. Used by the tests here and by the fuzz targets.

use std::collections::BTreeMap;

use flashyard_block::array::{self, Array, ArrayError, NewMember, Options};
use flashyard_block::crypt;
use flashyard_block::pool::{KeyHeader, Pool, check};
use flashyard_block::superblock::seal;
use flashyard_block::{Device, DeviceExt, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_corpus::Image;
use flashyard_keys::{Secret, SecretKind};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use std::rc::Rc;

const MIB: u64 = 1 << 20;
/// Bytes of a frame.
const FRAME: usize = 20;
/// Blocks with the two copies of the header of an encrypted pool; keys of volumes are behind them.
const HEADERS: [u64; 2] = [20, 276];

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

/// Looks at and opens members of an array that have these bytes, and these bytes with the right
/// length and checksum: one alone, and with another one of the members that are listed. What is
/// opened can be worked on.
#[allow(dead_code, reason = "fuzz targets take one of these functions each")]
pub(crate) fn array(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(64 << 10)];
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let (raw, other) = (bytes.to_vec(), sealed(&of_second_member(bytes)));
    let sealed = sealed(bytes);
    world.run(&machine, |rt| async move {
        for copies in [[&raw, &sealed], [&sealed, &sealed]] {
            let devices: [SharedDevice; 2] = [Rc::new(memory()), Rc::new(memory())];
            for (place, copy) in (0..).zip(copies) {
                write(&*devices[0], place * MIB, copy).await;
                write(&*devices[1], place * MIB, &other).await;
            }
            let report = array::check(&*devices[0]).await;
            let report = report.expect("memory does not fail");
            for count in [1, 2] {
                if let Ok(array) = open_members(&rt, &devices[..count]).await {
                    assert!(report.is_some(), "a check sees nothing");
                    let array = Rc::new(array);
                    use_array(&array).await;
                    array.close().await;
                }
            }
        }
    });
}

async fn open_members(rt: &Rt, devices: &[SharedDevice]) -> Result<Array, ArrayError> {
    let members = devices.iter().zip(["m0", "m1"]);
    let members = members.map(|(device, name)| NewMember {
        name: name.into(),
        device: device.clone(),
    });
    Array::open(rt, members.collect(), None, Options::default(), true).await
}

/// The record as the second member that it lists has it, if it lists one.
fn of_second_member(bytes: &[u8]) -> Vec<u8> {
    let number = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word) as usize)
    };
    let id = || {
        let members = 84 + number(72)?.checked_mul(20)?;
        let second = members
            .checked_add(36)?
            .checked_add(number(members + 32)?)?;
        bytes.get(second..second.checked_add(16)?)
    };
    let mut other = bytes.to_vec();
    if let Some(id) = id() {
        other[48..64].copy_from_slice(id);
    }
    other
}

async fn use_array(array: &Rc<Array>) {
    let blocks = array.info().blocks;
    let status = array.status();
    assert!(status.bytes > 0 && !status.members.is_empty(), "{status:?}");
    if array.rows().is_some() || blocks == 0 {
        return;
    }
    for lba in [0, blocks - 1] {
        let buf = Buf::take_zeroed(4096).expect("tests need few buffers");
        // Too few members may be left, or a place not be there.
        let _written = array.write(Tag::default(), lba, buf, true).await;
        let buf = Buf::take(4096).expect("tests need few buffers");
        let _read = array.read(Tag::default(), lba, buf).await;
    }
}

/// Opens an encrypted pool with these bytes as one copy of its header, with the right length and
/// checksum as the other, and as the keys of its volumes.
#[allow(dead_code, reason = "fuzz targets take one of these functions each")]
pub(crate) fn pool_keys(bytes: &[u8]) {
    let header = &bytes[..bytes.len().min(4096)];
    let keys = bytes[..bytes.len().min(60 * 4096)].to_vec();
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let (raw, sealed) = (header.to_vec(), sealed(header));
    world.run(&machine, |rt| async move {
        let device = encrypted_pool().await;
        let good = KeyHeader::find(&*device).await.expect("memory works");
        let secret = Secret::new(SecretKind::Key, vec![b'a'; 32]);
        let (key, _) = good
            .expect("it is encrypted")
            .open(&secret)
            .expect("its secret");
        for place in HEADERS {
            write(&*device, (place + 1) * 4096, &keys).await;
        }
        let report = check(&rt, device.clone()).await;
        drop(report.expect("memory does not fail"));
        if let Ok(pool) = Pool::unlock(&rt, device.clone(), key).await {
            for info in pool.list() {
                let volume = pool.volume(&info.name).expect("it is listed");
                let buf = Buf::take(4096).expect("tests need few buffers");
                let _read = volume.read(Tag::default(), 0, buf).await;
            }
            pool.close().await;
        }
        for (place, copy) in HEADERS.into_iter().zip([&raw, &sealed]) {
            write(&*device, place * 4096, copy).await;
        }
        if let Ok(Some(header)) = KeyHeader::find(&*device).await {
            let (secrets, uuid) = (header.secrets(), header.uuid());
            let stored = header.store(&*device).await.expect("memory does not fail");
            assert_eq!((stored.secrets(), stored.uuid()), (secrets, uuid));
        }
    });
}

/// What the image of an encrypted pool holds.
async fn encrypted_pool() -> SharedDevice {
    thread_local! {
        static IMAGE: Image = Image::named("mapped-encrypted");
    }
    let image = IMAGE.with(Image::clone);
    let device = MemoryDevice::new(4096, image.size).expect("the size is possible");
    let mut blocks = BTreeMap::new();
    for (offset, part) in &image.parts {
        for (at, byte) in (*offset..).zip(part) {
            let block = blocks.entry(at / 4096).or_insert_with(|| vec![0; 4096]);
            block[(at % 4096) as usize] = *byte;
        }
    }
    for (block, bytes) in blocks {
        write(&device, block * 4096, &bytes).await;
    }
    Rc::new(device)
}
