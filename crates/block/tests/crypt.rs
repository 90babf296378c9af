//! The layer that encrypts: what hosts see, what is on the device below, and its header when keys
//! are wrong, are changed and are forgotten, with the power cut at every write.

use std::rc::Rc;

use flashyard_block::crypt::{self, CryptDevice, CryptError, DATA_START, Header};
use flashyard_block::{Device, DeviceExt, IoError, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_codec::cipher::{Cipher, Key, Unit};
use flashyard_keys::{KeyError, Secret, SecretKind};
use flashyard_runtime::{Data, Rt, Shared};
use flashyard_testbed::cut::after_cut;
use flashyard_testbed::{
    Disk, behaves_as_an_array, filled, flush, read, refuses_what_is_not_there, run, write,
};

const MIB: u64 = 1 << 20;
const BYTES: usize = 4 << 20;
const UUID: [u8; 16] = [3; 16];

fn secret(letter: u8) -> Secret {
    Secret::new(SecretKind::Key, vec![letter; 32])
}

/// A disk of zeroes with a header that the first secret opens.
async fn formatted(block_size: u32) -> (Disk, Header, Key) {
    let disk = Disk::new(block_size, vec![0; BYTES], 1);
    let (header, key) = Header::make(&disk.info(), UUID, &secret(b'a')).expect("it has room");
    let header = crypt::store(&disk, header).await.expect("the disk works");
    (disk, header, key)
}

async fn encrypted(rt: &Rt, block_size: u32) -> (Disk, CryptDevice, Key) {
    let (disk, _, key) = formatted(block_size).await;
    let device = CryptDevice::new(rt, disk.shared(), &key).expect("it has room");
    (disk, device, key)
}

#[test]
fn it_is_an_array_of_blocks() {
    run(async |rt: Rt| {
        for block_size in [512, 4096] {
            let (_, device, key) = encrypted(&rt, block_size).await;
            let blocks = (BYTES as u64 - DATA_START) / u64::from(block_size);
            assert_eq!(device.info().blocks, blocks);
            behaves_as_an_array(&device, 2, 1500).await;
            refuses_what_is_not_there(&device).await;
            let memory: SharedDevice = Rc::new(MemoryDevice::new(block_size, 1 << 40).unwrap());
            let device = CryptDevice::new(&rt, memory, &key).expect("it has room");
            behaves_as_an_array(&device, 3, 1500).await;
            refuses_what_is_not_there(&device).await;
        }
    });
}

#[test]
fn what_is_stored_is_aes_xts_of_each_block_by_its_number() {
    run(async |rt: Rt| {
        for (block_size, unit) in [(512, Unit::Sector), (4096, Unit::Page)] {
            let (disk, device, key) = encrypted(&rt, block_size).await;
            let mut expected = vec![0; 64 << 10];
            let shared = Shared::from(filled(64 << 10, 0x5c));
            // Somebody else holds the data: they stay as they are.
            let kept = shared.clone();
            device
                .write(Tag::default(), 5, shared, true)
                .await
                .expect("the disk works");
            assert!(kept.iter().all(|byte| *byte == 0x5c));
            let mut cipher = Cipher::new(&key, unit).expect("the library has XTS");
            let encrypted = cipher.encrypt_into(5, &kept, &mut expected);
            encrypted.expect("whole blocks");
            let start = DATA_START as usize + 5 * block_size as usize;
            assert!(disk.bytes()[start..][..expected.len()] == expected[..]);
            // Where no one else holds them the same is stored.
            write(&device, 5, 64 << 10, 0x5c).await.expect("it works");
            assert!(disk.bytes()[start..][..expected.len()] == expected[..]);
            let content = disk.bytes();
            assert!(!content.windows(16).any(|bytes| bytes == [0x5c; 16]));
        }
    });
}

#[test]
fn blocks_that_nobody_wrote_or_that_were_freed_read_as_zeroes() {
    run(async |rt: Rt| {
        let (disk, device, key) = encrypted(&rt, 4096).await;
        assert_eq!(read(&device, 0, 8192).await.unwrap(), [0; 8192]);
        write(&device, 0, 8192, 0).await.unwrap();
        // Zeroes that a host writes are encrypted like anything else.
        assert!(
            disk.bytes()[DATA_START as usize..][..8192]
                .iter()
                .any(|byte| *byte != 0)
        );
        assert_eq!(read(&device, 0, 8192).await.unwrap(), [0; 8192]);
        write(&device, 0, 8192, 9).await.unwrap();
        device.deallocate(Tag::default(), 0, 1).await.unwrap();
        let mixed = read(&device, 0, 8192).await.unwrap();
        assert!(mixed[..4096] == [0; 4096] && mixed[4096..] == [9; 4096]);
        // In memory nothing is copied for blocks that were never written.
        let memory: SharedDevice = Rc::new(MemoryDevice::new(4096, 8 * MIB).unwrap());
        let device = CryptDevice::new(&rt, memory, &key).expect("it has room");
        let zeroes = device.read(Tag::default(), 0, filled(8192, 1)).await;
        assert!(matches!(zeroes, Ok(Data::Zeroes(8192))));
    });
}

#[test]
fn a_closed_layer_takes_nothing_and_a_failing_disk_is_reported() {
    run(async |rt: Rt| {
        let (disk, device, _) = encrypted(&rt, 4096).await;
        disk.fail_after(0);
        assert_eq!(write(&device, 0, 4096, 1).await, Err(IoError::Write));
        device.close().await;
        assert_eq!(write(&device, 0, 4096, 1).await, Err(IoError::NotReady));
        assert_eq!(read(&device, 0, 4096).await, Err(IoError::NotReady));
    });
}

#[test]
fn only_the_right_secret_opens_the_header() {
    run(async |_: Rt| {
        let (disk, header, key) = formatted(4096).await;
        let found = crypt::find(&disk).await.expect("it was written");
        assert_eq!(
            (found.uuid(), found.bytes()),
            (UUID, BYTES as u64 - DATA_START)
        );
        assert_eq!(found, header);
        let (opened, place) = found.open(&secret(b'a')).expect("it is the right one");
        assert_eq!((opened.bytes(), place), (key.bytes(), 0));
        assert_eq!(found.open(&secret(b'b')).err(), Some(KeyError::WrongSecret));
        // The first mebibyte of another device: its key is not this one's.
        let (other, _, _) = formatted(4096).await;
        let found = crypt::find(&other).await.expect("it was written");
        let (opened, _) = found.open(&secret(b'a')).expect("it is the right one");
        assert_ne!(opened.bytes(), key.bytes());
    });
}

#[test]
fn what_is_no_encrypted_device_is_refused() {
    run(async |_: Rt| {
        let empty = Disk::new(4096, vec![0; BYTES], 1);
        assert_eq!(crypt::find(&empty).await.err(), Some(CryptError::Absent));
        assert_eq!(crypt::look_for_room(&empty).await, Ok(()));
        let (disk, _, _) = formatted(4096).await;
        let occupied = crypt::look_for_room(&disk).await;
        assert_eq!(
            occupied,
            Err(CryptError::Occupied("the header of an encrypted device"))
        );
        // Only the second copy is left.
        disk.bytes()[..4096].fill(0);
        assert!(crypt::look_for_room(&disk).await.is_err());
        let (disk, _, _) = formatted(4096).await;
        let content = disk.content().bytes();
        let refusal = async |content: Vec<u8>, block_size| {
            let disk = Disk::new(block_size, content, 1);
            crypt::find(&disk)
                .await
                .expect_err("it does not fit")
                .to_string()
        };
        let short = refusal(content[..2 << 20].to_vec(), 4096).await;
        assert!(
            short.contains("had 768 blocks") && short.contains("room for 256"),
            "{short}"
        );
        let blocks = refusal(content.clone(), 512).await;
        assert!(blocks.contains("blocks of 4096 bytes"), "{blocks}");
        let mut damaged = content;
        damaged[100] ^= 1;
        damaged[(512 << 10) + 100] ^= 1;
        let damaged = refusal(damaged, 4096).await;
        assert!(damaged.contains("both copies of the header"), "{damaged}");
        let small = Disk::new(4096, vec![0; MIB as usize], 1);
        let made = Header::make(&small.info(), UUID, &secret(b'a'));
        assert_eq!(made.err(), Some(CryptError::TooSmall(MIB)));
    });
}

#[test]
fn a_copy_that_is_lost_is_put_right() {
    run(async |_: Rt| {
        for place in [0, 512 << 10] {
            let (disk, header, _) = formatted(4096).await;
            disk.bytes()[place + 70] ^= 4;
            let report = crypt::check(&disk).await.expect("the disk works");
            assert_eq!(report.verdict(), Verdict::Repairable, "{report}");
            assert_eq!(crypt::find(&disk).await.as_ref(), Ok(&header));
            let report = crypt::check(&disk).await.expect("the disk works");
            assert_eq!(report.verdict(), Verdict::Sound, "{report}");
        }
    });
}

/// The power is cut at every write while a secret is changed, and of what was not flushed any part
/// survives: one of the two opens the header, and before the end of the first step the old one.
#[test]
fn a_cut_while_the_secret_changes_leaves_one_that_opens() {
    run(async |_: Rt| {
        let (disk, header, key) = formatted(4096).await;
        let start = disk.content();
        let before = disk.happened();
        let both = header
            .with_secret(&key, 0, &secret(b'b'))
            .expect("it has a place");
        let both = crypt::store(&disk, both).await.expect("the disk works");
        assert_eq!(both.secrets(), 2);
        let middle = disk.happened();
        let last = crypt::store(&disk, both.only(1))
            .await
            .expect("the disk works");
        let events = disk.events();
        let (mut old, mut new) = (0, 0);
        for happened in before..=events.len() {
            for seed in 0..6 {
                let content = after_cut(&start, &events[before..happened], seed);
                let left = Disk::new(4096, content, 1);
                let found = crypt::find(&left).await.expect("one copy is whole");
                let opens = |letter| {
                    let opened = found.open(&secret(letter)).map(|(key, _)| *key.bytes());
                    opened == Ok(*key.bytes())
                };
                let (by_old, by_new) = (opens(b'a'), opens(b'b'));
                assert!(happened > middle || by_old, "cut after {happened}");
                assert!(happened < middle || by_new, "cut after {happened}");
                (old, new) = (old + u32::from(by_old), new + u32::from(by_new));
                let report = crypt::check(&left).await.expect("the disk works");
                assert_ne!(report.verdict(), Verdict::Lost, "{report}");
            }
        }
        assert!(old > 0 && new > 0);
        assert_eq!(last.open(&secret(b'a')).err(), Some(KeyError::WrongSecret));
        // Nothing of the old envelope is left on the disk.
        assert_eq!(crypt::find(&disk).await, Ok(last));
    });
}

#[test]
fn what_is_erased_is_gone_at_both_places() {
    run(async |_: Rt| {
        let (disk, _, _) = formatted(4096).await;
        let start = disk.content();
        let before = disk.happened();
        crypt::erase(&disk).await.expect("the disk works");
        assert!(disk.content().is_blank());
        assert_eq!(crypt::find(&disk).await.err(), Some(CryptError::Absent));
        // A cut leaves the device as it was, or erased.
        let events = disk.events();
        for happened in before..=events.len() {
            let content = after_cut(&start, &events[before..happened], 1);
            let left = Disk::new(4096, content, 1);
            match crypt::find(&left).await {
                Ok(header) => assert!(header.open(&secret(b'a')).is_ok()),
                Err(error) => assert_eq!(error, CryptError::Absent),
            }
        }
        flush(&disk).await.expect("the disk works");
    });
}
