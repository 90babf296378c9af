//! Devices on real files, and on a loop device where the machine allows one.

use std::path::Path;
use std::rc::Rc;

use flashyard_block::{
    Device, DeviceExt, FileDevice, FileOptions, IoError, MAX_BYTES, OpenError, SharedDevice, Tag,
};
use flashyard_runtime::{Data, Rt};
use flashyard_testbed::{
    Loop, Scratch, behaves_as_an_array, filled, flush, read, refuses_what_is_not_there, run, write,
    yields,
};
use flashyard_time::Duration;

const MIB: u64 = 1 << 20;

fn options(block_size: u32, size: u64) -> FileOptions {
    FileOptions {
        block_size,
        size: Some(size),
        read_only: false,
    }
}

async fn open(rt: &Rt, path: &Path, options: FileOptions) -> Result<FileDevice, String> {
    FileDevice::open(rt, path, options).await.map_err(|error| {
        let text = error.to_string();
        assert!(!text.contains('\n'), "one line: {text}");
        text
    })
}

#[test]
fn a_file_keeps_what_is_written_and_is_sparse() {
    run(async |rt: Rt| {
        let directory = Scratch::new("keeps");
        for block_size in [512, 4096] {
            let path = directory.join(block_size.to_string());
            let device = open(&rt, &path, options(block_size, 1 << 40))
                .await
                .unwrap();
            assert_eq!(device.info().blocks, (1 << 40) / u64::from(block_size));
            behaves_as_an_array(&device, u64::from(block_size), 300).await;
            refuses_what_is_not_there(&device).await;
            write(
                &device,
                device.info().blocks - 8,
                8 * block_size as usize,
                0x5a,
            )
            .await
            .unwrap();
            flush(&device).await.unwrap();
            let all = device.info().blocks;
            drop(device);
            let again = open(
                &rt,
                &path,
                FileOptions {
                    size: None,
                    ..options(block_size, 0)
                },
            )
            .await
            .unwrap();
            assert_eq!(again.info().blocks, all);
            let end = read(&again, all - 8, 8 * block_size as usize)
                .await
                .unwrap();
            assert_eq!(end, vec![0x5a; 8 * block_size as usize]);
        }
    });
}

#[test]
fn a_file_system_without_direct_transfers_is_as_good() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        println!("skipped: no file system in memory here");
        return;
    }
    run(async move |rt: Rt| {
        let directory = Scratch::within(memory, "cached");
        let path = directory.join("f");
        let device = open(&rt, &path, options(512, 2 * MIB)).await.unwrap();
        assert!(!device.is_direct());
        behaves_as_an_array(&device, 3, 500).await;
        refuses_what_is_not_there(&device).await;
    });
}

#[test]
fn deallocated_space_goes_back_to_the_file_system() {
    use std::os::unix::fs::MetadataExt;
    run(async |rt: Rt| {
        let directory = Scratch::new("punch");
        let path = directory.join("f");
        let device = open(&rt, &path, options(4096, 16 * MIB)).await.unwrap();
        for mib in 0..4 {
            write(&device, mib * 256, MIB as usize, 1).await.unwrap();
        }
        flush(&device).await.unwrap();
        let held = || std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(held() >= 4 * MIB);
        device.deallocate(Tag::default(), 0, 4 * 256).await.unwrap();
        flush(&device).await.unwrap();
        if device.info().deallocate {
            assert!(held() < MIB);
        }
    });
}

#[test]
fn a_file_grows_and_never_shrinks() {
    run(async |rt: Rt| {
        let directory = Scratch::new("grow");
        let path = directory.join("f");
        let device = open(&rt, &path, options(512, MIB)).await.unwrap();
        write(&device, 2047, 512, 9).await.unwrap();
        device.grow(2 * MIB).await.unwrap();
        assert_eq!(device.info().blocks, 4096);
        assert_eq!(
            read(&device, 2047, 1024).await.unwrap()[..],
            [[9; 512], [0; 512]].concat()[..]
        );
        assert!(matches!(device.grow(MIB).await, Err(OpenError::Config(_))));
        drop(device);
        let smaller = open(&rt, &path, options(512, MIB)).await.err().unwrap();
        assert!(smaller.contains("give its size"), "{smaller}");
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            2 * MIB,
            "a refused open changes nothing"
        );
    });
}

#[test]
fn what_cannot_be_opened_is_refused_with_advice() {
    run(async |rt: Rt| {
        let directory = Scratch::new("refuse");
        let missing = FileOptions {
            size: None,
            ..options(512, 0)
        };
        let cases = [
            (directory.join("missing"), missing, "give a size"),
            (
                directory.join("no/such/directory"),
                options(512, MIB),
                "check the path",
            ),
            (
                directory.to_path_buf(),
                options(512, MIB),
                "neither a regular file",
            ),
            (directory.join("f"), options(1024, MIB), "512 or 4096"),
            (
                directory.join("f"),
                options(4096, 512),
                "at least one block",
            ),
            (directory.join("f"), options(4096, MAX_BYTES + 1), "at most"),
            (
                "/dev/null".into(),
                options(512, MIB),
                "neither a regular file nor a block device",
            ),
        ];
        for (path, options, advice) in cases {
            let error = open(&rt, &path, options)
                .await
                .err()
                .expect("it must be refused");
            assert!(error.to_lowercase().contains(advice), "{error}");
        }
        assert!(
            !directory.join("f").exists(),
            "nothing is made of a bad configuration"
        );
        let path = directory.join("twice");
        let _first = open(&rt, &path, options(512, MIB)).await.unwrap();
        let second = open(&rt, &path, options(512, MIB))
            .await
            .err()
            .expect("locked");
        assert!(second.contains("another pro"), "{second}");
        assert!(FileDevice::open_block(&rt, &directory.join("twice"), 512, true).is_err());
    });
}

#[test]
fn a_read_only_file_is_not_written() {
    run(async |rt: Rt| {
        let directory = Scratch::new("read-only");
        let path = directory.join("f");
        std::fs::write(&path, vec![3; MIB as usize]).unwrap();
        let device = open(
            &rt,
            &path,
            FileOptions {
                size: None,
                read_only: true,
                ..options(512, 0)
            },
        )
        .await
        .unwrap();
        let tag = Tag::default();
        assert_eq!(read(&device, 1, 512).await.unwrap(), [3; 512]);
        assert_eq!(
            write(&device, 1, 512, 1).await,
            Err(IoError::WriteProtected)
        );
        assert_eq!(
            device.deallocate(tag, 1, 1).await,
            Err(IoError::WriteProtected)
        );
        assert_eq!(
            device.write_zeroes(tag, 1, 1, true).await,
            Err(IoError::WriteProtected)
        );
        let both = device
            .compare_and_write(tag, 1, filled(512, 3), filled(512, 4), false)
            .await;
        assert_eq!(both, Err(IoError::WriteProtected));
        assert_eq!(flush(&device).await, Ok(()));
        let grown = open(
            &rt,
            &path,
            FileOptions {
                read_only: true,
                ..options(512, 2 * MIB)
            },
        )
        .await
        .err();
        assert!(grown.is_some());
    });
}

#[test]
fn a_file_truncated_by_another_program_is_a_read_error() {
    run(async |rt: Rt| {
        let directory = Scratch::new("cut");
        let path = directory.join("f");
        let device = open(&rt, &path, options(4096, MIB)).await.unwrap();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(4096)
            .unwrap();
        assert!(matches!(
            device.read(Tag::default(), 0, filled(4096, 1)).await,
            Ok(Data::Buf(_))
        ));
        assert_eq!(read(&device, 0, 8192).await, Err(IoError::Read));
        assert_eq!(read(&device, 9, 4096).await, Err(IoError::Read));
        // No write gives the file its length back, with zeroes for what was lost.
        assert_eq!(write(&device, 255, 4096, 1).await, Err(IoError::Write));
        assert_eq!(read(&device, 9, 4096).await, Err(IoError::Read));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
    });
}

#[test]
fn a_program_may_end_with_io_in_flight() {
    let directory = Scratch::new("end");
    let path = directory.join("f");
    for round in 0..3 {
        let path = path.clone();
        run(async move |rt: Rt| {
            let device: SharedDevice = Rc::new(
                open(&rt, &path, options(4096, MIB))
                    .await
                    .expect("not locked any more"),
            );
            for lba in 0..50 {
                let device = device.clone();
                let both = async move {
                    write(&*device, lba, 4096, round).await?;
                    device
                        .compare_and_write(
                            Tag::default(),
                            lba,
                            filled(4096, 0),
                            filled(4096, 1),
                            true,
                        )
                        .await
                };
                rt.spawn(both).detach();
            }
            yields(round.into()).await;
        });
    }
}

/// Opens a block device as soon as nothing has it. A device that was closed is free a moment later:
/// the kernel's worker of a flush, or of zeroes, holds it until after the completion.
async fn open_once_free(rt: &Rt, path: &Path, block_size: u32) -> Result<FileDevice, OpenError> {
    for _ in 0..3000 {
        match FileDevice::open_block(rt, path, block_size, false) {
            Err(error) if error.is_in_use() => rt.sleep(Duration::from_ms(1)).await,
            outcome => return outcome,
        }
    }
    panic!("{} is not let go", path.display());
}

#[test]
fn a_block_device_respects_its_sectors() {
    let directory = Scratch::new("loop");
    let file = directory.join("backing");
    std::fs::File::create(&file)
        .unwrap()
        .set_len(8 * MIB)
        .unwrap();
    let Some(small) = Loop::new(&file, 512) else {
        println!("skipped: no loop device can be made here (root and losetup are needed)");
        return;
    };
    let path = small.to_path_buf();
    run(async move |rt: Rt| {
        for block_size in [512, 4096] {
            let device = open_once_free(&rt, &path, block_size).await.unwrap();
            assert_eq!(device.info().blocks, 8 * MIB / u64::from(block_size));
            device
                .write_zeroes(Tag::default(), 0, device.info().blocks, true)
                .await
                .unwrap();
            behaves_as_an_array(&device, 5, 200).await;
            refuses_what_is_not_there(&device).await;
            assert!(
                FileDevice::open_block(&rt, &path, block_size, false)
                    .is_err_and(|error| error.is_in_use()),
                "exclusive"
            );
        }
        drop(open_once_free(&rt, &path, 512).await.unwrap());
        let as_file = open(&rt, &path, options(512, MIB)).await.err().unwrap();
        assert!(as_file.contains("kind = \"block\""), "{as_file}");
    });
    drop(small);
    let Some(large) = Loop::new(&file, 4096) else {
        println!("skipped: no loop device with sectors of 4096 bytes");
        return;
    };
    let path = large.to_path_buf();
    run(async move |rt: Rt| {
        let refused = open_once_free(&rt, &path, 512)
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(refused.contains("set block_size = 4096"), "{refused}");
        let device = open_once_free(&rt, &path, 4096).await.unwrap();
        device
            .deallocate(Tag::default(), 0, device.info().blocks)
            .await
            .unwrap();
        behaves_as_an_array(&device, 6, 200).await;
    });
}

/// What a file or disk has grown by is there when somebody asks for it, and not before; what a file
/// has lost is not taken up.
#[test]
fn what_was_made_longer_is_taken_up_when_it_is_asked_for() {
    let directory = Scratch::new("longer");
    let path = directory.join("file");
    let resize = |path: &Path, bytes: u64| {
        let file = std::fs::File::options().write(true).open(path);
        file.unwrap().set_len(bytes).unwrap();
    };
    run({
        let path = path.clone();
        async move |rt: Rt| {
            let device = open(&rt, &path, options(4096, 8 * MIB)).await.unwrap();
            let blocks = || device.info().blocks * 4096;
            assert!(device.is_blank());
            device.take_growth().unwrap();
            assert_eq!((blocks(), device.is_blank()), (8 * MIB, true));
            // Half a block is none.
            resize(&path, 12 * MIB + 100);
            assert_eq!(blocks(), 8 * MIB);
            device.take_growth().unwrap();
            assert_eq!((blocks(), device.is_blank()), (12 * MIB, false));
            write(&device, 12 * MIB / 4096 - 1, 4096, 7).await.unwrap();
            resize(&path, 8 * MIB);
            device.take_growth().unwrap();
            assert_eq!(blocks(), 12 * MIB);
            assert_eq!(flush(&device).await, Err(IoError::Write), "it was cut");
        }
    });
    resize(&path, 8 * MIB);
    let Some(disk) = Loop::new(&path, 4096) else {
        println!("skipped: no loop device can be made here (root and losetup are needed)");
        return;
    };
    let device = disk.to_path_buf();
    run(async move |rt: Rt| {
        let opened = FileDevice::open_block(&rt, &device, 4096, false).unwrap();
        resize(&path, 16 * MIB);
        let grown = std::process::Command::new("losetup")
            .arg("--set-capacity")
            .arg(&device)
            .status();
        assert!(grown.unwrap().success());
        assert_eq!(opened.info().blocks, 8 * MIB / 4096);
        opened.take_growth().unwrap();
        assert_eq!(opened.info().blocks, 16 * MIB / 4096);
    });
}
