//! Files on the real driver, with and without `O_DIRECT`.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use flashyard_runtime::shared_memory::{Mapping, memory_file};
use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, File, FileKind, Loans, OpenOptions, Rt};
use flashyard_testbed::{Loop, Scratch};
use flashyard_time::Rng;

fn run<F: Future + 'static>(main: impl FnOnce(Rt) -> F) -> F::Output {
    uring::run(Config::default(), main).expect("this machine has io_uring")
}

/// A folder in the target directory, which is on a disk.
fn scratch(label: &str) -> Scratch {
    Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")), label)
}

/// Bytes that the disk has for a file.
fn allocated(path: &Path) -> u64 {
    path.metadata().expect("the file is there").blocks() * 512
}

fn create(direct: bool) -> OpenOptions {
    OpenOptions {
        write: true,
        create: true,
        direct,
        exclusive: false,
    }
}

async fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let (result, buf) = file
        .read_at(Buf::take(len).expect("there is room"), offset)
        .await;
    buf[..result.expect("the file can be read")].to_vec()
}

async fn write(file: &File, offset: u64, bytes: &[u8], durable: bool) {
    let mut buf = Buf::take(bytes.len()).expect("there is room");
    buf.copy_from_slice(bytes);
    let (result, _) = file.write_at(buf, offset, durable).await;
    assert_eq!(result.expect("the file can be written"), bytes.len());
}

/// Two mappings by turns, so that the kernel gets a list of pieces; and the end of the file within
/// one.
fn moves_data_to_and_from_lent_memory(direct: bool) {
    let scratch = scratch(if direct { "lent" } else { "lent-cached" });
    let path = scratch.join("f");
    run(move |rt| async move {
        let file = rt.open(&path, create(direct)).expect("it can be made");
        let unit = u64::from(file.takes_lent().expect("a real machine"));
        let mapping = || {
            let memory = memory_file(1 << 20).expect("a memfd");
            Rc::new(Mapping::new(memory.as_fd(), 0, 1 << 20, true).expect("mapped"))
        };
        let (mappings, loans) = ([mapping(), mapping()], Rc::new(Loans::default()));
        let pieces = |from: usize, count: usize| {
            let mut lent = loans.lend(&mappings[0], from, 4096).expect("there");
            for piece in 1..count {
                assert!(lent.push(&mappings[piece % 2], from + piece * 4096, 4096));
            }
            lent
        };
        let bytes: Vec<u8> = (0..64 * 4096).map(|at| (at / 512 + at) as u8).collect();
        assert!(pieces(0, 64).write(0, &bytes));
        let (written, all) = file.lend_write(pieces(0, 64), unit, true).await;
        assert_eq!((written.expect("room"), all), (bytes.len(), bytes.len()));
        assert_eq!(read(&file, unit, bytes.len()).await, bytes);
        let (moved, all) = file.lend_read(pieces(1 << 19, 65), unit).await;
        assert_eq!((moved.expect("read"), all), (bytes.len(), 65 * 4096));
        let mut seen = vec![0; bytes.len()];
        assert!(pieces(1 << 19, 64).read(0, &mut seen) && seen == bytes);
        assert!(!loans.are_out());
    });
}

#[test]
fn lent_memory_needs_no_copy() {
    moves_data_to_and_from_lent_memory(true);
    moves_data_to_and_from_lent_memory(false);
}

/// Random operations against a plain vector.
fn agrees_with_a_vector(direct: bool) {
    const SIZE: usize = 4 << 20;
    let scratch = scratch(if direct { "direct" } else { "cached" });
    let path = scratch.join("f");
    run(move |rt| async move {
        let file = rt
            .open(&path, create(direct))
            .expect("the file can be made");
        file.set_size(SIZE as u64).expect("the disk has room");
        assert_eq!(
            (file.info().size, file.info().kind),
            (SIZE as u64, FileKind::File)
        );
        let mut model = vec![0_u8; SIZE];
        let mut rng = Rng::new(u64::from(direct));
        for _ in 0..150 {
            let len = (1 + rng.below(50) as usize) * 4096;
            let offset = rng.below(((SIZE - len) / 4096) as u64) as usize * 4096;
            let range = offset..offset + len;
            match rng.below(10) {
                0..4 => {
                    rng.fill_bytes(&mut model[range.clone()]);
                    write(&file, offset as u64, &model[range], rng.chance(1, 8)).await;
                }
                4..8 => assert!(read(&file, offset as u64, len).await == model[range]),
                8 => {
                    file.punch(offset as u64, len as u64)
                        .await
                        .expect("holes can be punched");
                    model[range].fill(0);
                }
                _ => {
                    file.zero(offset as u64, len as u64)
                        .await
                        .expect("ranges can be zeroed");
                    model[range].fill(0);
                }
            }
        }
        file.sync().await.expect("the file can be synced");
        drop(file);
        let file = rt
            .open(&path, OpenOptions::default())
            .expect("the file is there");
        for at in (0..SIZE).step_by(1 << 20) {
            assert!(read(&file, at as u64, 1 << 20).await == model[at..at + (1 << 20)]);
        }
    });
    assert_eq!(Buf::balance(), 0);
}

#[test]
fn cached_files_agree_with_a_vector() {
    agrees_with_a_vector(false);
}

#[test]
fn direct_files_agree_with_a_vector() {
    agrees_with_a_vector(true);
}

#[test]
fn punched_space_is_given_back() {
    let scratch = scratch("punch");
    let path = scratch.join("f");
    run(move |rt| async move {
        let file = rt.open(&path, create(false)).expect("the file can be made");
        write(&file, 0, &vec![7; 1 << 20], true).await;
        let before = allocated(&path);
        file.punch(0, 1 << 19).await.expect("holes can be punched");
        file.sync().await.expect("the file can be synced");
        assert!(
            allocated(&path) <= before - (1 << 19),
            "half of it is free again"
        );
        assert_eq!(file.info().size, 0, "the size is that of the opening");
        assert!(file.punch(0, 0).await.is_err());
    });
}

#[test]
fn reads_stop_at_the_end_of_the_file() {
    let scratch = scratch("end");
    let path = scratch.join("f");
    std::fs::write(&path, [5; 10_000]).expect("the disk has room");
    run(move |rt| async move {
        for direct in [false, true] {
            let options = OpenOptions {
                direct,
                ..OpenOptions::default()
            };
            let file = rt.open(&path, options).expect("the file is there");
            assert_eq!(read(&file, 0, 65_536).await, [5; 10_000]);
            assert_eq!(read(&file, 8192, 4096).await, [5; 10_000 - 8192]);
            assert!(read(&file, 65_536, 4096).await.is_empty());
        }
    });
}

#[test]
fn unaligned_direct_transfers_are_refused() {
    let scratch = scratch("unaligned");
    let path = scratch.join("f");
    run(move |rt| async move {
        let file = rt.open(&path, create(true)).expect("the file can be made");
        if !file.info().direct {
            return;
        }
        assert!(file.info().alignment >= 512);
        let buf = Buf::take(4096).expect("there is room");
        let (result, buf) = file.write_at(buf, 1, false).await;
        assert_eq!(
            result.expect_err("the offset is odd").kind(),
            ErrorKind::InvalidInput
        );
        let (result, _) = file
            .read_at(
                buf.try_into_buf().expect("it has no other holder"),
                u64::MAX - 4095,
            )
            .await;
        assert!(result.is_err(), "no file is so long");
    });
}

#[test]
fn dropped_transfers_keep_their_buffers_until_they_end() {
    let scratch = scratch("dropped");
    let path = scratch.join("f");
    run(move |rt| async move {
        let file = rt.open(&path, create(true)).expect("the file can be made");
        for _ in 0..50 {
            let buf = Buf::take_zeroed(1 << 20).expect("what earlier rounds took comes back");
            drop(file.write_at(buf, 0, true));
            let buf = Buf::take(1 << 20).expect("what earlier rounds took comes back");
            drop(file.read_at(buf, 0));
            if Buf::balance() > 64 << 20 {
                rt.sleep(flashyard_time::Duration::from_ms(20)).await;
            }
        }
    });
    assert_eq!(
        Buf::balance(),
        0,
        "the end of the run waited for the kernel"
    );
}

#[test]
fn opening_fails_with_a_reason() {
    let scratch = scratch("locked");
    let path = scratch.join("f");
    run(move |rt| async move {
        let missing = rt.open(Path::new("/nonexistent/file"), OpenOptions::default());
        assert_eq!(
            missing.expect_err("it is not there").kind(),
            ErrorKind::NotFound
        );
        let device = rt.open(Path::new("/dev/null"), OpenOptions::default());
        let text = device.expect_err("it is no disk").to_string();
        assert!(
            text.contains("neither a regular file nor a block device"),
            "{text}"
        );

        let exclusive = OpenOptions {
            exclusive: true,
            ..create(false)
        };
        let file = rt.open(&path, exclusive).expect("it is free");
        let text = rt
            .open(&path, exclusive)
            .expect_err("it is taken")
            .to_string();
        assert!(text.contains("in use"), "{text}");
        drop(file);
        rt.open(&path, exclusive).expect("it is free again");
    });
}

/// The kernel's worker of a flush still refers to the file when its completion is seen.
#[test]
fn a_closed_file_can_be_opened_at_once() {
    let scratch = scratch("reopen");
    let path = scratch.join("f");
    let exclusive = OpenOptions {
        exclusive: true,
        ..create(true)
    };
    run(move |rt| async move {
        for round in 0..500 {
            let file = rt
                .open(&path, exclusive)
                .unwrap_or_else(|error| panic!("round {round}: {error}"));
            write(&file, 0, &[1; 4096], false).await;
            file.sync().await.expect("the file can be flushed");
        }
    });
}

#[test]
fn block_devices_are_read_written_and_punched() {
    let scratch = scratch("loop");
    let path = scratch.join("f");
    std::fs::File::create(&path)
        .and_then(|file| file.set_len(8 << 20))
        .expect("there is room");
    let Some(device) = Loop::new(&path, 4096) else {
        eprintln!("skipped: no loop device can be made here");
        return;
    };
    let path = device.to_path_buf();
    run(move |rt| async move {
        let options = OpenOptions {
            write: true,
            create: false,
            direct: true,
            exclusive: true,
        };
        let file = rt.open(&path, options).expect("the device is there");
        let info = file.info();
        assert_eq!(
            (info.kind, info.size, info.alignment),
            (FileKind::Block, 8 << 20, 4096)
        );
        assert!(info.direct);
        rt.open(&path, options).expect_err("it is in use");
        write(&file, 4096, &[3; 16 << 10], true).await;
        file.punch(8192, 4096).await.expect("loop devices discard");
        file.zero(12_288, 4096)
            .await
            .expect("loop devices write zeroes");
        file.sync().await.expect("the device can flush");
        let read = read(&file, 0, 24 << 10).await;
        let expected = [0, 3, 0, 0, 3, 0];
        assert!(
            read.chunks(4096)
                .zip(expected)
                .all(|(block, byte)| block.iter().all(|&b| b == byte))
        );
        assert!(file.set_size(1 << 20).is_err(), "devices keep their size");
    });
}
