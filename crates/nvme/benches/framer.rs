//! What the framing of a connection costs: nanoseconds per PDU, and instructions when run under
//! callgrind with `--toggle-collect='*measured*'`.
//!
//! `cargo bench -p flashyard-nvme -- [PDUs] [name]`

use std::hint::black_box;
use std::time::Instant;

use flashyard_nvme::tcp::{
    CapsuleCmd, CapsuleResp, Crc32c, Digests, Event, Framer, Header, ICReq, Limits, MAX_HEADER,
    Negotiated, Outgoing, Role,
};
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};

/// PDUs in one buffer, as a receive call may return them.
const BATCH: usize = 64;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let wanted: usize = args
        .first()
        .and_then(|arg| arg.parse().ok())
        .unwrap_or(4_000_000);
    let only = args.get(1).map_or("", String::as_str);
    let both = Digests {
        header: true,
        data: true,
    };
    for (name, data_len, digests) in [
        ("read command", 0, Digests::default()),
        (
            "write command, 4 KiB in the capsule",
            4096,
            Digests::default(),
        ),
        ("read command, digests", 0, both),
        ("write command, 4 KiB in the capsule, digests", 4096, both),
    ] {
        if !only.is_empty() && name != only {
            continue;
        }
        let stream = stream(data_len, digests);
        let mut framer = open(digests);
        let start = Instant::now();
        let mut pdus = 0;
        while pdus < wanted {
            pdus += measured_batch(&mut framer, &stream);
        }
        report(name, start, pdus);
    }
    if only.is_empty() || only == "response" {
        let mut out = [0; MAX_HEADER];
        let start = Instant::now();
        (0..wanted).for_each(|cid| measured_response(cid as u16, &mut out));
        report("response", start, wanted);
    }
}

fn report(name: &str, start: Instant, pdus: usize) {
    println!(
        "{:8.1} ns  {name}",
        start.elapsed().as_nanos() as f64 / pdus as f64
    );
}

fn stream(data_len: u32, digests: Digests) -> Vec<u8> {
    let entry = SubmissionQueueEntry::flush(1).with_sgl(Sgl::InCapsule {
        offset: 0,
        length: data_len,
    });
    let (how, data) = (Outgoing { digests, pda: 0 }, vec![7; data_len as usize]);
    let mut bytes = Vec::new();
    for _ in 0..BATCH {
        let mut out = [0; MAX_HEADER];
        let length = CapsuleCmd { entry, data_len }.encode(how, &mut out);
        bytes.extend_from_slice(&out[..length]);
        bytes.extend_from_slice(&data);
        if digests.data && data_len > 0 {
            bytes.extend_from_slice(&Crc32c::of(&data));
        }
    }
    bytes
}

fn open(digests: Digests) -> Framer {
    let mut framer = Framer::new(
        Role::Controller,
        Limits {
            in_capsule: 8192,
            c2h_data: 0,
        },
    );
    framer
        .next(
            &mut &ICReq {
                digests,
                ..ICReq::default()
            }
            .encode()[..],
        )
        .expect("in order");
    framer.negotiated(&Negotiated {
        digests,
        maxh2cdata: 131_072,
        ..Negotiated::default()
    });
    framer
}

#[inline(never)]
fn measured_batch(framer: &mut Framer, mut input: &[u8]) -> usize {
    let mut pdus = 0;
    while let Some(event) = framer.next(&mut input).expect("in order") {
        match event {
            Event::Pdu(Header::CapsuleCmd(command)) => {
                black_box(command.entry.cid());
                pdus += 1;
            }
            other => {
                black_box(&other);
            }
        }
    }
    pdus
}

#[inline(never)]
fn measured_response(cid: u16, out: &mut [u8]) {
    let entry = CompletionQueueEntry::new(cid, Status::SUCCESS).with_queue(3, 0);
    black_box(CapsuleResp { entry }.encode(Outgoing::default(), out));
    black_box(out);
}
