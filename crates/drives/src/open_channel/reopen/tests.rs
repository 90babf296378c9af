//! Files of both versions, opened again.

use std::path::Path;

use flashyard_block::FileOptions;
use flashyard_flash::Profile;
use flashyard_flash::channel::Options;
use flashyard_runtime::sim::{Config, World};

use super::*;

fn factory() -> Device {
    let mut profile = Profile::named("cnex").expect("it ships");
    profile.channels = 2;
    profile.dies_per_channel = 1;
    Device::new(&profile, 32 << 20, 1, Options::default()).expect("the capacity fits")
}

async fn file(rt: &Rt, image: &Image) -> FileDevice {
    let options = FileOptions {
        block_size: PIECE as u32,
        size: Some(image.pieces() * PIECE as u64),
        read_only: false,
    };
    let opened = FileDevice::open(rt, Path::new("/flash"), options).await;
    opened.expect("it is free")
}

/// Writes the first units of a chunk.
async fn program(store: &FileStore, chunk: u32, units: u32) {
    let image = store.image();
    let size = image.geometry().ws_min;
    for unit in 0..units {
        let first = address_of(image, chunk) + u64::from(unit * size);
        let metadata = vec![[u64::from(unit), 6]; size as usize];
        let sealed = store.seal(store.stage(first, &metadata), size as usize);
        let sealed = sealed.expect("it has a unit");
        store.write(&sealed).await.unwrap();
        store.flush().await.unwrap();
        store.flushed(&sealed);
        store.settle_full(&sealed).await.unwrap();
    }
}

#[test]
fn files_of_both_versions_are_opened_and_stay_what_they_are() {
    for version in [1, 2] {
        let world = World::new(Config::calm(1));
        let machine = world.machine(1);
        world.run(&machine, |rt| async move {
            let mut device = factory();
            let image = Image::of_version([7; 16], device.geometry().clone(), version);
            let units = image.units();
            let store = FileStore::new(&rt, file(&rt, &image).await, image.clone()).unwrap();
            make(&store, &device).await.unwrap();
            program(&store, 3, 2).await;
            program(&store, 4, units).await;
            let full = store.kept(4).head.fate;
            assert_eq!(matches!(full, Fate::Settled(_)), version > 1, "{full:?}");
            drop(store);

            for life in 0..2 {
                let file = file(&rt, &image).await;
                let store = open(&rt, file, &mut device, None).await.unwrap();
                for (chunk, units) in [(3, 2), (4, units), (5, 0)] {
                    let info = device.chunk(address_of(&image, chunk));
                    let found = info.expect("it is there").write_pointer;
                    assert_eq!(found, units * image.geometry().ws_min, "life {life}");
                    assert_eq!(store.kept(chunk).durable, units);
                }
                assert!(store.unsettled().is_empty());
                let header = read_header(&store.file).await.unwrap();
                assert_eq!(header.expect("it was made").version, version);
                device = factory();
            }
        });
    }
}

/// What a torn write left of a head tells which units there are; their records are where they
/// always were.
#[test]
fn a_head_without_its_records_is_no_loss() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        let mut device = factory();
        let image = Image::new([7; 16], device.geometry().clone());
        let store = FileStore::new(&rt, file(&rt, &image).await, image.clone()).unwrap();
        make(&store, &device).await.unwrap();
        program(&store, 4, image.units()).await;
        drop(store);
        let disk = at.disk("/flash").expect("it was made");
        let place = image.head(4) * PIECE as u64;
        disk.write(place + 512, &[0; PIECE - 512]);

        let file = file(&rt, &image).await;
        let store = Rc::new(FileStore::new(&rt, file, image.clone()).unwrap());
        for care in [Care::Usual, Care::All] {
            let found = look_at_all(&rt, &store, care).await.unwrap().remove(4);
            assert_eq!(found.damage, None);
            assert_eq!(found.metadata.len(), image.geometry().clba as usize);
        }
        // Nothing that is settled is taken for torn off.
        disk.flip(image.sector(4, 20) * PIECE as u64, 1);
        disk.flip(image.record(4, 6) * PIECE as u64, 1);
        let found = look_at_all(&rt, &store, Care::All).await.unwrap().remove(4);
        assert!(found.damage.is_some());
        let found = look_at_all(&rt, &store, Care::Usual).await.unwrap();
        let found = &found[4];
        assert_eq!(found.damage.as_deref(), Some("96 sectors are left of 128"));
        restore(&store, &mut device, found.clone()).unwrap();
    });
}
