//! What compression and encryption of mapped volumes cost, on one core and a device in memory:
//! reads and writes of 128 KiB one after the other, against a plain volume and against the codec or
//! cipher by itself, in turns.
//!
//! `cargo bench -p flashyard-block --bench forms`

use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use flashyard_block::pool::{KeyHeader, Kind, NewVolume, Pool, VolumeForm};
use flashyard_block::{Io, MemoryDevice, SharedDevice, Tag};
use flashyard_codec::cipher::{Cipher, Unit};
use flashyard_codec::compress::{Codec, Compressor, Decompressor, is_zero};
use flashyard_keys::{Secret, SecretKind, draw};
use flashyard_runtime::{Buf, Rt, Shared, uring};
use flashyard_time::Rng;

/// Bytes of an I/O.
const LONG: usize = 128 << 10;
/// I/Os of the volume: 64 MiB.
const IOS: u64 = 512;
/// Different I/Os.
const DIFFERENT: usize = 24;
const DEPTH: u64 = 4;
const PASSES: usize = 9;

/// All source files below a folder, one after another.
fn sources(folder: &Path, into: &mut Vec<u8>) {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("it is there")
        .map(|entry| entry.expect("it is listed").path())
        .collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => sources(&path, into),
            false => into.extend(std::fs::read(&path).expect("it is there")),
        }
    }
}

fn cut(bytes: &[u8]) -> Vec<Shared> {
    let whole = |part: &[u8]| {
        let mut buf = Buf::take(LONG).expect("memory");
        buf.copy_from_slice(part);
        Shared::from(buf)
    };
    bytes
        .chunks_exact(LONG)
        .take(DIFFERENT)
        .map(whole)
        .collect()
}

/// A volume, what is written to it, and what it does by itself to that.
struct Subject {
    name: &'static str,
    volume: SharedDevice,
    content: Vec<Shared>,
    chunk: usize,
}

async fn pool(rt: &Rt, encrypted: bool) -> Pool {
    let device = Rc::new(MemoryDevice::new(4096, 1 << 30).expect("a good size"));
    let made = match encrypted {
        false => Pool::create_kind(rt, device, [1; 16], Kind::Mapped, false).await,
        true => {
            let secret = Secret::new(SecretKind::Key, vec![1; 32]);
            let with = KeyHeader::make([1; 16], &secret).expect("there is chance");
            Pool::create_encrypted(rt, device, with, false).await
        }
    };
    made.expect("it is empty")
}

async fn volume(pool: &Pool, uuid: u8, compression: Option<Codec>, chunk: u32) -> SharedDevice {
    let wanted = NewVolume {
        form: VolumeForm { chunk, compression },
        ..NewVolume::new(format!("v{uuid}"), [uuid; 16], IOS * LONG as u64)
    };
    let made = pool.create_volumes(vec![wanted]).await;
    made.expect("there is room").remove(0)
}

async fn worker(volume: SharedDevice, content: Vec<Shared>, first: u64, writes: bool) {
    for io in (first..IOS).step_by(DEPTH as usize) {
        let lba = io * (LONG / 4096) as u64;
        let io = match writes {
            true => Io::Write {
                lba,
                data: content[io as usize % content.len()].clone(),
                fua: false,
            },
            false => Io::Read {
                lba,
                into: Buf::take(LONG).expect("memory"),
            },
        };
        drop(volume.submit(Tag::default(), io).await.expect("it works"));
    }
}

/// GB/s of all I/Os of a volume.
async fn rate(rt: &Rt, subject: &Subject, writes: bool) -> f64 {
    let begun = Instant::now();
    let work = |first| {
        worker(
            subject.volume.clone(),
            subject.content.clone(),
            first,
            writes,
        )
    };
    let tasks: Vec<_> = (0..DEPTH).map(|first| rt.spawn(work(first))).collect();
    for task in tasks {
        task.await;
    }
    gigabytes(begun)
}

fn gigabytes(begun: Instant) -> f64 {
    (IOS as usize * LONG) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

/// What compresses and encrypts, by itself.
struct Bare {
    cipher: Cipher,
    compressor: Compressor,
    decompressor: Decompressor,
    out: Vec<u8>,
}

impl Bare {
    /// The cipher: into another buffer as a write does, and where it is as a read does.
    fn xts(&mut self, content: &[Shared], writes: bool) -> f64 {
        let begun = Instant::now();
        for io in 0..IOS as usize {
            let plain = &content[io % content.len()];
            let number = io as u128 * 32;
            match writes {
                true => self.cipher.encrypt_into(number, plain, &mut self.out),
                false => self.cipher.decrypt(number, &mut self.out),
            }
            .expect("whole sectors");
            black_box(&mut self.out);
        }
        gigabytes(begun)
    }

    /// LZ4 of each chunk.
    fn lz4(&mut self, content: &[Shared], chunk: usize, writes: bool) -> f64 {
        let stored: Vec<Option<Vec<u8>>> = content
            .iter()
            .flat_map(|io| io.chunks_exact(chunk))
            .map(|plain| {
                let packed = self.compressor.compress(Codec::Lz4, plain);
                packed.map(<[u8]>::to_vec)
            })
            .collect();
        let begun = Instant::now();
        for io in 0..IOS as usize {
            let number = io % content.len();
            let chunks = content[number].chunks_exact(chunk);
            let first = number * (LONG / chunk);
            for (plain, stored) in chunks.zip(&stored[first..]) {
                if writes {
                    black_box(
                        is_zero(plain) || self.compressor.compress(Codec::Lz4, plain).is_some(),
                    );
                    continue;
                }
                let out = &mut self.out[..chunk];
                match stored {
                    Some(stored) => {
                        let done = self.decompressor.decompress(Codec::Lz4, stored, out);
                        done.expect("it was compressed here");
                    }
                    None => out.copy_from_slice(plain),
                }
                black_box(out);
            }
        }
        gigabytes(begun)
    }
}

async fn compare(rt: Rt) {
    let mut text = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../block/src"),
        &mut text,
    );
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../logstore/src"),
        &mut text,
    );
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../app/src"),
        &mut text,
    );
    let mut noise = vec![0; DIFFERENT * LONG];
    Rng::new(1).fill_bytes(&mut noise);
    let [text, noise, zeroes] = [cut(&text), cut(&noise), cut(&vec![0; LONG])];
    let (plain, secret) = (pool(&rt, false).await, pool(&rt, true).await);
    let (four, long) = (4 << 10, 16 << 10);
    let subject = |name, volume, content: &Vec<Shared>, chunk: u32| Subject {
        name,
        volume,
        content: content.clone(),
        chunk: chunk as usize,
    };
    let lz4 = Some(Codec::Lz4);
    let subjects = [
        subject(
            "plain, chance",
            volume(&plain, 1, None, four).await,
            &noise,
            four,
        ),
        subject(
            "plain, zeroes",
            volume(&plain, 2, None, four).await,
            &zeroes,
            four,
        ),
        subject(
            "plain, 16 KiB, chance",
            volume(&plain, 3, None, long).await,
            &noise,
            long,
        ),
        subject(
            "lz4, sources",
            volume(&plain, 4, lz4, long).await,
            &text,
            long,
        ),
        subject(
            "lz4, chance",
            volume(&plain, 5, lz4, long).await,
            &noise,
            long,
        ),
        subject(
            "lz4, zeroes",
            volume(&plain, 6, lz4, long).await,
            &zeroes,
            long,
        ),
        subject(
            "encrypted, chance",
            volume(&secret, 1, None, four).await,
            &noise,
            four,
        ),
        subject(
            "encrypted lz4, sources",
            volume(&secret, 2, lz4, long).await,
            &text,
            long,
        ),
    ];
    let mut bare = Bare {
        cipher: Cipher::new(&draw().expect("there is chance"), Unit::Page).expect("OpenSSL has it"),
        compressor: Compressor::default(),
        decompressor: Decompressor::default(),
        out: vec![0; LONG],
    };
    let mut best = vec![[[0.0_f64; 2]; 2]; subjects.len()];
    for pass in 0..PASSES {
        for (subject, best) in subjects.iter().zip(&mut best) {
            for writes in [true, false] {
                let here = rate(&rt, subject, writes).await;
                let alone = match subject.name.contains("lz4") {
                    true => bare.lz4(&subject.content, subject.chunk, writes),
                    false => bare.xts(&subject.content, writes),
                };
                let best = &mut best[usize::from(!writes)];
                // The first pass fills what was empty.
                if pass > 0 {
                    *best = [best[0].max(here), best[1].max(alone)];
                }
            }
        }
    }
    println!(
        "| volume, content | write, GB/s | codec or cipher alone | ratio | read, GB/s | alone | ratio |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (subject, [write, read]) in subjects.iter().zip(&best) {
        let row =
            |[here, alone]: &[f64; 2]| format!("{here:.2} | {alone:.2} | {:.2}", here / alone);
        println!("| {} | {} | {} |", subject.name, row(write), row(read));
    }
    let base = best[0];
    for (subject, of) in subjects.iter().zip(&best).skip(1) {
        println!(
            "{}: {:.2} of plain written, {:.2} read",
            subject.name,
            of[0][0] / base[0][0],
            of[1][0] / base[1][0]
        );
    }
    for pool in [plain, secret] {
        pool.close().await;
    }
}

fn main() {
    uring::run(uring::Config::default(), compare).expect("io_uring is allowed here");
}
