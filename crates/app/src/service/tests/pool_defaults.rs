//! What a pool has for its volumes, by file, by hand and both: what is true of it and of volumes
//! that are made then, before and after a restart.

use super::changes::{Apply, Do, Refused, Restart, hand, row, run};
use super::*;
use crate::control::PoolChange;
use crate::spec::CompressionName;

/// A mapped pool more, and a volume in it.
const MAPPED: (&str, &str) = (
    "#more",
    "[[device]]\nname = \"disk2\"\nkind = \"file\"\npath = \"LIVE/disk2\"\nsize = \"64MiB\"\n\
     [[pool]]\nname = \"m\"\ndevices = [\"disk2\"]\nkind = \"mapped\"\n#pool\n\
     [[volume]]\nname = \"x\"\npool = \"m\"\nsize = \"8MiB\"\ntenant = \"b\"\n#x\n#volumes",
);
const LZ4: (&str, &str) = ("#pool", "compression = \"lz4\"");
const ZSTD: (&str, &str) = ("#pool", "compression = \"zstd\"");
const CHUNK: (&str, &str) = ("#pool", "chunk = \"16KiB\"");
/// A volume that says nothing of its form.
const Y: (&str, &str) = (
    "#volumes",
    "[[volume]]\nname = \"y\"\npool = \"m\"\nsize = \"8MiB\"\ntenant = \"b\"\n#volumes",
);
/// One that says all of it.
const PLAIN: (&str, &str) = (
    "#volumes",
    "[[volume]]\nname = \"plain\"\npool = \"m\"\nsize = \"8MiB\"\ntenant = \"b\"\n\
     compression = \"none\"\nchunk = \"4KiB\"",
);

fn pool(compression: Option<CompressionName>, chunk: Option<u64>) -> Do {
    hand(Request::SetPool {
        name: "m".into(),
        change: PoolChange {
            compression,
            chunk: chunk.map(Size),
        },
    })
}

#[test]
fn volumes_have_what_their_pool_says_and_they_do_not() {
    let zstd = Some(CompressionName::Zstd);
    run(
        "pool-volumes",
        &[
            row(
                "the file",
                vec![Apply(&[MAPPED, LZ4])],
                &[
                    ("pool m", "compression", "lz4"),
                    ("pool m", "chunk_bytes", "null"),
                    ("volume x", "compression", "lz4"),
                    ("volume x", "chunk_bytes", "16384"),
                ],
            ),
            row(
                "a volume that says it",
                vec![Apply(&[MAPPED, LZ4, PLAIN])],
                &[
                    ("volume x", "compression", "lz4"),
                    ("volume plain", "compression", "null"),
                    ("volume plain", "chunk_bytes", "4096"),
                ],
            ),
            row(
                "chunks",
                vec![Apply(&[MAPPED, CHUNK, PLAIN])],
                &[
                    ("pool m", "chunk_bytes", "16384"),
                    ("volume x", "compression", "null"),
                    ("volume x", "chunk_bytes", "16384"),
                    ("volume plain", "chunk_bytes", "4096"),
                ],
            ),
            row(
                "a compressed volume and the chunks of the pool",
                vec![Apply(&[
                    MAPPED,
                    ("#pool", "chunk = \"4KiB\""),
                    ("#x", "compression = \"lz4\""),
                ])],
                &[("volume x", "chunk_bytes", "4096")],
            ),
            row(
                "what is there stays as it is",
                vec![
                    Apply(&[MAPPED, LZ4]),
                    Apply(&[MAPPED, ZSTD, Y]),
                    Apply(&[MAPPED, ZSTD, Y, PLAIN]),
                ],
                &[
                    ("volume x", "compression", "lz4"),
                    ("volume y", "compression", "zstd"),
                    ("volume plain", "compression", "null"),
                ],
            ),
            row(
                "by hand",
                vec![Apply(&[MAPPED]), pool(zstd, None), Apply(&[MAPPED, Y])],
                &[
                    ("volume x", "compression", "null"),
                    ("volume y", "compression", "zstd"),
                ],
            ),
        ],
    );
}

#[test]
fn a_change_by_hand_or_file_follows_the_rule_of_keys() {
    let zstd = Some(CompressionName::Zstd);
    run(
        "pool-defaults",
        &[
            row(
                "said, then not",
                vec![Apply(&[MAPPED, LZ4]), Apply(&[MAPPED])],
                &[
                    ("pool m", "compression", "null"),
                    ("volume x", "compression", "lz4"),
                ],
            ),
            row(
                "said, then otherwise",
                vec![Apply(&[MAPPED, LZ4]), Apply(&[MAPPED, ZSTD])],
                &[("pool m", "compression", "zstd")],
            ),
            row(
                "by hand, no file ever said it",
                vec![Apply(&[MAPPED]), pool(zstd, Some(4096)), Apply(&[MAPPED])],
                &[
                    ("pool m", "compression", "zstd"),
                    ("pool m", "chunk_bytes", "4096"),
                ],
            ),
            row(
                "by hand, the file says it",
                vec![
                    Apply(&[MAPPED, LZ4]),
                    pool(zstd, None),
                    Restart,
                    Apply(&[MAPPED, LZ4]),
                ],
                &[("pool m", "compression", "lz4")],
            ),
            row(
                "given up by hand",
                vec![
                    Apply(&[MAPPED]),
                    pool(zstd, Some(16384)),
                    pool(Some(CompressionName::None), Some(0)),
                ],
                &[
                    ("pool m", "compression", "null"),
                    ("pool m", "chunk_bytes", "null"),
                ],
            ),
            row(
                "a file that fails later is taken back",
                vec![
                    Apply(&[MAPPED, LZ4]),
                    Refused(
                        &[
                            MAPPED,
                            ZSTD,
                            Y,
                            (
                                "#volumes",
                                "[[volume]]\nname = \"large\"\npool = \"p\"\nsize = \"400MiB\"\ntenant = \"b\"",
                            ),
                        ],
                        "nothing was changed",
                    ),
                ],
                &[("pool m", "compression", "lz4"), ("volume y", "", "-")],
            ),
        ],
    );
}

/// Who asks for a volume that may be there gets it only if it is what the pool would make of it.
#[test]
fn a_volume_that_is_there_is_held_against_what_its_pool_says() {
    let scene = Scene::new("pool-same");
    let service = scene.start();
    let device = format!(
        "name = \"d\"\nkind = \"file\"\npath = \"{}\"\nsize = \"64MiB\"",
        scene.live().join("disk").display()
    );
    let spec = toml::from_str(&device).expect("a device");
    let done = |request: Request| service.handle(request);
    done(Request::CreateDevice(spec)).expect("it is new");
    let pool = "name = \"m\"\ndevices = [\"d\"]\nkind = \"mapped\"\ncompression = \"lz4\"";
    let spec = toml::from_str(pool).expect("a pool");
    let made = Request::CreatePool { spec, force: false };
    done(made).expect("it is new");
    let spec = toml::from_str("name = \"a\"").expect("a tenant");
    done(Request::CreateTenant { spec, force: false }).expect("it is new");
    let volume = |more: &str| {
        let text = format!("name = \"v\"\npool = \"m\"\nsize = \"8MiB\"\ntenant = \"a\"\n{more}");
        let spec = toml::from_str(&text).expect("a volume");
        let create = Request::CreateVolume { spec, force: false };
        done(Request::CreateIfMissing(Box::new(create)))
    };
    let refused = |more: &str| {
        let why = volume(more).expect_err("it is another one").to_string();
        assert!(why.contains("compression"), "{why}");
    };
    volume("").expect("it is new");
    volume("").expect("it is the same");
    volume("compression = \"lz4\"").expect("it says the same");
    refused("compression = \"none\"");
    let none = Some(CompressionName::None);
    let change = PoolChange {
        compression: none,
        chunk: None,
    };
    let name = "m".to_owned();
    done(Request::SetPool { name, change }).expect("it is there");
    refused("");
    volume("compression = \"lz4\"").expect("it says the same");
    service.end();
}
