//! How fast bytes are compressed, encrypted and given parity, beside a copy of memory.
//! `cargo bench -p flashyard-codec` prints the tables of docs/performance.md. All variants of a
//! table are measured in turns, and of each the best pass counts: the machine is shared.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use flashyard_codec::cipher::{Cipher, KEY_BYTES, Key, Unit};
use flashyard_codec::compress::{Codec, Compressor, Decompressor, is_zero};
use flashyard_codec::parity::{Column, Parity};
use flashyard_time::Rng;

/// Bytes of each kind of content.
const CONTENT: usize = 6 << 20;
const PASSES: usize = 15;
/// A pass that is shorter is repeated, so that the clock is exact enough.
const LEAST_PASS: Duration = Duration::from_millis(2);
const KIB: usize = 1 << 10;

fn main() {
    // Names of tables may be given; cargo adds flags of its own.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|it| !it.starts_with("--"))
        .collect();
    let tables: [(&str, fn()); 3] = [
        ("compression", compression),
        ("xts", xts),
        ("parity", parity),
    ];
    for (name, table) in tables {
        if wanted.is_empty() || wanted.iter().any(|it| it == name) {
            table();
        }
    }
}

/// Something to be measured: it goes over this many bytes.
struct Variant<'a> {
    bytes: usize,
    run: Box<dyn FnMut() + 'a>,
}

fn variant<'a>(bytes: usize, run: impl FnMut() + 'a) -> Variant<'a> {
    let run = Box::new(run);
    Variant { bytes, run }
}

/// Megabytes a second of each, in turns.
fn measure(mut variants: Vec<Variant>) -> Vec<f64> {
    let mut best = vec![0_f64; variants.len()];
    for _ in 0..PASSES {
        for (best, variant) in best.iter_mut().zip(&mut variants) {
            let (began, mut bytes) = (Instant::now(), 0);
            while began.elapsed() < LEAST_PASS {
                (variant.run)();
                bytes += variant.bytes;
            }
            *best = best.max(bytes as f64 / began.elapsed().as_secs_f64() / 1e6);
        }
    }
    best
}

fn random(len: usize) -> Vec<u8> {
    let mut rng = Rng::new(1);
    let words = (0..len / 8).flat_map(|_| rng.next_u64().to_le_bytes());
    words.collect()
}

/// The sources of this workspace, and what is executed here.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    let mut sources = Vec::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
        &mut sources,
    );
    sources.truncate(CONTENT);
    let mut code = fs::read("/proc/self/exe").unwrap_or_default();
    code.truncate(CONTENT);
    vec![
        ("sources", sources),
        ("machine code", code),
        ("chance", random(CONTENT)),
        ("zeroes", vec![0; CONTENT]),
    ]
}

fn collect(folder: &Path, sources: &mut Vec<u8>) {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|it| it.path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|it| it == "rs") {
            sources.extend(fs::read(path).unwrap_or_default());
        }
    }
}

fn compression() {
    println!(
        "| content | chunk | codec | ratio | in, MB/s | out, MB/s |\n| --- | --- | --- | --- | --- | --- |"
    );
    for (name, content) in contents() {
        for chunk in [4 * KIB, 16 * KIB, 128 * KIB] {
            for codec in Codec::ALL {
                let (ratio, speeds) = compress(codec, &content, chunk);
                let [into, out] = speeds;
                println!(
                    "| {name} | {} KiB | {codec} | {ratio:.2} | {into:.0} | {out:.0} |",
                    chunk / KIB
                );
            }
        }
    }
}

/// Zeroes are looked for first, as callers do, and chunks that are not compressed are copied.
fn compress(codec: Codec, content: &[u8], chunk: usize) -> (f64, [f64; 2]) {
    let mut compressor = Compressor::new();
    let whole = content.len() / chunk * chunk;
    let chunks = content.chunks_exact(chunk);
    let mut store = |plain: &[u8]| -> Option<Vec<u8>> {
        if is_zero(plain) {
            return None;
        }
        let stored = compressor.compress(codec, plain);
        Some(stored.map_or_else(|| plain.to_vec(), <[u8]>::to_vec))
    };
    let stored: Vec<_> = chunks.clone().map(&mut store).collect();
    let bytes: usize = stored.iter().flatten().map(Vec::len).sum();
    let mut compressor = Compressor::new();
    let mut decompressor = Decompressor::new();
    let mut out = vec![0; chunk];
    let speeds = measure(vec![
        variant(whole, || {
            for plain in chunks.clone() {
                black_box(is_zero(plain) || compressor.compress(codec, plain).is_some());
            }
        }),
        variant(whole, || {
            for stored in &stored {
                match stored {
                    None => out.fill(0),
                    Some(stored) if stored.len() == chunk => out.copy_from_slice(stored),
                    Some(stored) => {
                        let done = decompressor.decompress(codec, stored, &mut out);
                        done.expect("it was compressed here");
                    }
                }
                black_box(&out);
            }
        }),
    ]);
    let ratio = whole as f64 / bytes.max(1) as f64;
    (ratio, [speeds[0], speeds[1]])
}

fn xts() {
    println!(
        "\n| data unit | bytes | encrypted in place | into another buffer | decrypted | copied, GB/s |\n| --- | --- | --- | --- | --- | --- |"
    );
    for (unit, len) in [
        (Unit::Sector, 4 * KIB),
        (Unit::Page, 4 * KIB),
        (Unit::Page, 128 * KIB),
    ] {
        let mut secret: [u8; KEY_BYTES] = std::array::from_fn(|at| at as u8);
        let key = Key::take(&mut secret).expect("its halves differ");
        let cipher = || Cipher::new(&key, unit).expect("the library has XTS");
        let (mut one, mut two, mut three) = (cipher(), cipher(), cipher());
        let plain = random(len);
        let (mut here, mut there, mut back, mut copy) =
            (plain.clone(), plain.clone(), plain.clone(), plain.clone());
        let speeds = measure(vec![
            variant(len, || {
                one.encrypt(7, black_box(&mut here)).expect("whole units")
            }),
            variant(len, || {
                two.encrypt_into(7, &plain, black_box(&mut there))
                    .expect("whole units")
            }),
            variant(len, || {
                three.decrypt(7, black_box(&mut back)).expect("whole units")
            }),
            variant(len, || {
                black_box(&mut copy).copy_from_slice(black_box(&plain))
            }),
        ]);
        let speeds: Vec<String> = speeds.iter().map(|it| format!("{:.2}", it / 1e3)).collect();
        println!(
            "| {} | {} KiB | {} |",
            unit.bytes(),
            len / KIB,
            speeds.join(" | ")
        );
    }
}

fn parity() {
    println!(
        "\n| columns | each | way | P | P and Q | one rebuilt | two rebuilt | copied, GB/s |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for (columns, len) in [
        (4, 4 * KIB),
        (4, 16 * KIB),
        (4, 128 * KIB),
        (8, 16 * KIB),
        (4, 16 << 20),
    ] {
        for way in Parity::every_way() {
            let speeds: Vec<String> = row(way, columns, len)
                .iter()
                .map(|it| format!("{:.1}", it / 1e3))
                .collect();
            println!(
                "| {columns} | {} KiB | {} | {} |",
                len / KIB,
                way.name(),
                speeds.join(" | ")
            );
        }
    }
}

/// Bytes of data columns per time; copied are as many bytes, from column to column.
fn row(way: Parity, columns: usize, len: usize) -> Vec<f64> {
    let content = random(columns * len);
    let data: Vec<&[u8]> = content.chunks_exact(len).collect();
    let all = columns * len;
    let (mut p, mut p2, mut q) = (vec![0; len], vec![0; len], vec![0; len]);
    let fits = "the lengths are alike";
    way.generate(&data, &mut p, Some(&mut q)).expect(fits);
    let (known_p, known_q) = (p.clone(), q.clone());
    let (mut x, mut x2, mut y2, mut copy) =
        (vec![0; len], vec![0; len], vec![0; len], vec![0; all]);
    measure(vec![
        variant(all, || {
            way.generate(&data, black_box(&mut p2), None).expect(fits)
        }),
        variant(all, || {
            way.generate(&data, black_box(&mut p), Some(&mut q))
                .expect(fits)
        }),
        variant(all, || {
            let mut row: Vec<Column> = data.iter().map(|it| Column::Known(it)).collect();
            row[1] = Column::Lost(black_box(&mut x));
            way.reconstruct(&mut row, Some(Column::Known(&known_p)), None)
                .expect(fits);
        }),
        variant(all, || {
            let mut row: Vec<Column> = data.iter().map(|it| Column::Known(it)).collect();
            row[1] = Column::Lost(black_box(&mut x2));
            row[2] = Column::Lost(&mut y2);
            let parity = [&known_p, &known_q].map(|it| Some(Column::Known(it)));
            let [p, q] = parity;
            way.reconstruct(&mut row, p, q).expect(fits);
        }),
        variant(all, || {
            black_box(&mut copy).copy_from_slice(black_box(&content))
        }),
    ])
}
